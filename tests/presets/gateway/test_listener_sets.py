"""ListenerSets at a Gateway: which listeners are accepted, who has what several ask for, and what the statuses say."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from pyconfd.model.context import Context, PresetName
from pyconfd.model.listener import Listener
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.snapshot import Key, Resource
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.gateway import listeners
from pyconfd.presets.policy import ClaimOptions, Rule
from pyconfd.presets.preset import PresetOptions
from tests.presets.gateway.objects import CLASS, snapshot
from tests.presets.ingress.objects import secret
from tests.world.pki import CertificateAuthority

OLD, YOUNG = "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"
OPTIONS = PresetOptions(addresses=AddressOptions(("192.0.2.1", "192.0.2.2")), tls=TlsOptions("/tls", ("*",)))
HTTP = "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"


def a_gateway(listener: str = HTTP, sets: str = "{from: All}", more: str = "") -> str:
    return f"""
kind: Gateway
metadata: {{name: web, namespace: infra, generation: 2, creationTimestamp: '{OLD}'}}
spec: {{gatewayClassName: pyconfd, listeners: [{listener}], allowedListeners: {{namespaces: {sets}}}{more}}}
"""


def a_set(namespace: str, *found: str, name: str = "more", created: str = OLD, parent: str = "") -> str:
    parent = parent or "{name: web, namespace: infra}"
    return f"""
kind: ListenerSet
metadata: {{name: {name}, namespace: {namespace}, generation: 4, creationTimestamp: '{created}'}}
spec: {{parentRef: {parent}, listeners: [{", ".join(found)}]}}
"""


AT_GATEWAY = "{name: web, namespace: infra}"
AT_SET = "{kind: ListenerSet, name: more}"


def a_route(namespace: str, host: str = "", parent: str = AT_GATEWAY, created: str = OLD) -> str:
    hosts = f"hostnames: ['{host}'], " if host else ""
    return f"""
kind: HTTPRoute
metadata: {{name: route, namespace: {namespace}, generation: 1, creationTimestamp: '{created}'}}
spec: {{parentRefs: [{parent}], {hosts}rules: [{{backendRefs: [{{name: web, port: 80}}]}}]}}
"""


def at(host: str, *, name: str = "l", port: int = 80, protocol: str = "HTTP", more: str = "") -> str:
    hostname = f", hostname: '{host}'" if host else ""
    return f"{{name: {name}, port: {port}, protocol: {protocol}{hostname}{more}}}"


def read(*texts: str, options: PresetOptions = OPTIONS) -> Context:
    return registry.translate(snapshot(CLASS, *texts), (PresetName.GATEWAY,), options, None)


def status(context: Context, resource: Resource, namespace: str, name: str) -> Mapping[str, Any]:
    (statuses,) = context.statuses
    return statuses[ObjectKey(resource, Key(namespace, name))].body


def reasons(body: Mapping[str, Any]) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in body["conditions"]}


def of_set(context: Context, namespace: str, name: str = "more") -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the reasons of the conditions of a ListenerSet, and of each of its listeners."""
    body = status(context, Resource.LISTENERSETS, namespace, name)
    return reasons(body), {each["name"]: reasons(each) for each in body["listeners"]}


def attached(context: Context) -> int:
    found: int = status(context, Resource.GATEWAYS, "infra", "web")["attachedListenerSets"]
    return found


SERVED = {"Accepted": "Accepted", "Programmed": "Programmed"}
PARTLY = {"Accepted": "ListenersNotValid", "Programmed": "Programmed"}
NOT_VALID = {"Accepted": "ListenersNotValid", "Programmed": "ListenersNotValid"}
FREE = {**SERVED, "ResolvedRefs": "ResolvedRefs", "Conflicted": "NoConflicts"}
HOST_CONFLICT = FREE | dict.fromkeys(("Accepted", "Programmed", "Conflicted"), "HostnameConflict")
PROTOCOL_CONFLICT = FREE | dict.fromkeys(("Accepted", "Programmed", "Conflicted"), "ProtocolConflict")


@pytest.mark.parametrize(
    ("sets", "namespace", "is_allowed"),
    [
        ("{from: All}", "shop", True),
        ("{from: Same}", "shop", False),
        ("{from: Same}", "infra", True),
        ("{from: None}", "infra", False),
        ("{}", "infra", False),
        ("{from: Selector, selector: {matchLabels: {team: a}}}", "shop", True),
        ("{from: Selector, selector: {matchLabels: {team: b}}}", "shop", False),
        ("{from: Selector}", "shop", False),
    ],
)
def test_a_gateway_says_which_namespaces_add_listeners(sets: str, namespace: str, is_allowed: bool) -> None:
    labels = "kind: Namespace\nmetadata: {name: shop, labels: {team: a}}"
    context = read(a_gateway(sets=sets), labels, a_set(namespace, at("a.test", port=81)))

    front = "gw_infra_web_81"
    if is_allowed:
        assert of_set(context, namespace) == (SERVED, {"l": FREE})
    else:
        assert of_set(context, namespace) == (dict.fromkeys(SERVED, "NotAllowed"), {})
        assert [(each.ref.kind, each.field) for each in context.refused] == [("ListenerSet", "spec.parentRef")]
    assert (front in context.names["gateway"]["frontends"], attached(context)) == (is_allowed, int(is_allowed))


def test_a_set_without_a_gateway_of_ours_is_left_alone() -> None:
    other = a_set("shop", at("a.test"), parent="{name: web, namespace: infra, kind: Service, group: ''}")
    for given in (other, a_set("shop", at("a.test"), parent="{name: none}")):
        context = read(a_gateway(), given)
        (statuses,) = context.statuses
        assert {each.resource for each in statuses} == {Resource.GATEWAYCLASSES, Resource.GATEWAYS}
        assert [each.ref.kind for each in registry.claims_of(context)] == ["Gateway"]


@pytest.mark.parametrize(
    ("mine", "theirs", "expected", "first"),
    [
        # the Gateway first, whatever the age
        (at("a.test"), at(""), (NOT_VALID, HOST_CONFLICT), "Gateway infra/web"),
        (at("a.test"), at("", protocol="TCP"), (NOT_VALID, PROTOCOL_CONFLICT), "Gateway infra/web"),
        # then the older set
        (at("a.test"), at("a.test"), (NOT_VALID, HOST_CONFLICT), "ListenerSet a/more"),
        (at("a.test", port=81), at("", port=81, protocol="TCP"), (NOT_VALID, PROTOCOL_CONFLICT), "ListenerSet a/more"),
        (at("", port=81, protocol="TCP"), at("", port=81, protocol="TCP"), (NOT_VALID, PROTOCOL_CONFLICT), "a/more"),
        # what can be told apart is served beside it
        (at("a.test"), at("b.test"), (SERVED, FREE), ""),
        (at("a.test"), at("a.test", port=81), (SERVED, FREE), ""),
    ],
)
@pytest.mark.parametrize("created", [OLD, YOUNG])
def test_the_first_one_has_what_several_ask_for(
    mine: str, theirs: str, expected: tuple[dict[str, str], dict[str, str]], first: str, created: str
) -> None:
    context = read(a_gateway(), a_set("a", mine), a_set("b", theirs, created=created))

    conditions, listener = expected
    assert of_set(context, "a") == (SERVED, {"l": FREE})
    assert of_set(context, "b") == (conditions, {"l": listener})
    assert attached(context) == 2 - (conditions is NOT_VALID)
    assert all(first in each.detail for each in context.refused)
    assert bool(context.refused) == bool(first)


def test_listeners_of_one_set_that_cannot_be_told_apart_are_all_refused() -> None:
    found = (at("a.test", name="x"), at("a.test", name="y"), at("b.test", name="z"))
    context = read(a_gateway(), a_set("a", *found), a_set("b", at("a.test"), created=YOUNG))

    assert of_set(context, "a") == (PARTLY, {"x": HOST_CONFLICT, "y": HOST_CONFLICT, "z": FREE})
    assert of_set(context, "b") == (SERVED, {"l": FREE})


def test_nobody_gets_what_a_gateway_is_denied_for_its_own_faults() -> None:
    twice = f"{HTTP}, {{name: again, port: 80, protocol: TCP}}, {{name: other, port: 81, protocol: HTTP}}"
    context = read(a_gateway(twice), a_set("a", at("", protocol="TCP")))

    assert of_set(context, "a") == (NOT_VALID, {"l": PROTOCOL_CONFLICT})


@pytest.mark.parametrize(
    ("host", "route", "is_free"),
    [
        ("a.test", a_route("shop", "a.test"), False),
        ("a.test", a_route("shop", "b.test"), True),
        ("*.a.test", a_route("shop", "x.a.test"), False),
        ("*.test", a_route("shop", "x.a.test"), False),
        ("x.a.test", a_route("shop", "*.a.test"), True),
        ("a.test", a_route("shop", "a.test", created="2026-01-04T00:00:00Z"), True),
        ("a.test", a_route("evil", "a.test"), True),
        ("a.test", a_route("shop", "a.test", f"{AT_GATEWAY[:-1]}, port: 81}}"), True),
        ("a.test", a_route("shop", "a.test", "{name: more, namespace: evil, kind: ListenerSet}"), True),
    ],
)
def test_a_set_takes_no_host_from_an_older_route_of_another_namespace(host: str, route: str, is_free: bool) -> None:
    context = read(a_gateway(), route, a_set("evil", at(host), created=YOUNG))

    assert of_set(context, "evil")[1] == {"l": FREE if is_free else HOST_CONFLICT}
    hosts = {each.host: each.listener for each in context.names["gateway"]["virtual_hosts"].values()}
    assert (host in hosts) == (is_free or host in route)


def test_a_route_that_no_listener_lets_in_keeps_no_host() -> None:
    context = read(a_gateway(at("", name="http")), a_route("shop", "a.test"), a_set("b", at("a.test"), created=YOUNG))

    assert of_set(context, "b") == (SERVED, {"l": FREE})


def test_the_namespace_of_a_gateway_may_have_the_hosts_of_its_routes() -> None:
    context = read(a_gateway(), a_route("shop", "a.test"), a_set("infra", at("a.test"), created=YOUNG))

    assert of_set(context, "infra") == (SERVED, {"l": FREE})


@pytest.mark.parametrize(
    ("listener", "reason"),
    [
        (at("a.shop.test"), "Accepted"),
        (at("a.other.test"), "NotAllowed"),
        (at("", port=81), "NotAllowed"),
        (at("a.shop.test", port=82), "PortUnavailable"),
        (at("", port=81, protocol="TCP"), "Accepted"),
    ],
)
def test_rules_of_claims_hold_for_the_namespace_of_a_set(listener: str, reason: str) -> None:
    rules = (Rule(("shop",), domains=("shop.test",), ports=((80, 81),)), Rule(("infra",)))
    options = PresetOptions(addresses=OPTIONS.addresses, claims=ClaimOptions(rules))
    context = read(a_gateway(), a_set("shop", listener), options=options)

    assert of_set(context, "shop")[1]["l"]["Accepted"] == reason
    assert (Listener.at("192.0.2.1", 82) in context.listeners, attached(context)) == (False, int(reason == "Accepted"))


def test_certificates_are_those_of_the_sets_own_namespace(tmp_path_factory: pytest.TempPathFactory) -> None:
    pair = CertificateAuthority(tmp_path_factory.mktemp("ca")).server("s", ["a.test"])
    secrets = [yaml.safe_dump(secret("cert", pair, namespace=each)) for each in ("shop", "infra", "other")]
    tls = ", tls: {{certificateRefs: [{{name: cert{0}}}]}}"
    own, of_gateway, of_other = (tls.format(each) for each in ("", ", namespace: infra", ", namespace: other"))
    grant = """
kind: ReferenceGrant
metadata: {{name: {0}, namespace: {0}}}
spec: {{from: [{{group: gateway.networking.k8s.io, kind: {1}, namespace: {2}}}], to: [{{group: '', kind: Secret}}]}}
"""
    listener = [
        at(f"{name}.test", name=name, port=443, protocol="HTTPS", more=more)
        for name, more in (("own", own), ("gateway", of_gateway), ("other", of_other))
    ]
    # What is granted to the Gateway, or to Gateways of the set's namespace, is not granted to the set.
    grants = [grant.format("other", "ListenerSet", "shop"), grant.format("infra", "Gateway", "shop")]
    context = read(a_gateway(), *secrets, *grants, a_set("shop", *listener))

    conditions, found = of_set(context, "shop")
    refused = {**FREE, "ResolvedRefs": "RefNotPermitted", "Programmed": "Invalid"}
    assert (conditions, found) == (PARTLY, {"own": FREE, "gateway": refused, "other": FREE})
    front = context.names["gateway"]["frontends"]["gw_infra_web_443"]
    assert [each.name for each in front.listeners] == ["set_shop_more_own", "set_shop_more_other"]
    assert sorted(each.path for each in context.files) == ["/tls/other.cert.pem", "/tls/shop.cert.pem"]


def test_routes_attach_to_the_set_that_they_name() -> None:
    every = ", allowedRoutes: {namespaces: {from: All}}"
    context = read(
        a_gateway(),
        a_set("shop", at("a.test"), at("b.test", name="open", more=every)),
        a_route("shop", parent=AT_SET),
        a_route("blog", parent="{kind: ListenerSet, name: more, namespace: shop, sectionName: open}"),
        a_route("infra", parent=AT_GATEWAY),
        a_route("none", parent="{kind: ListenerSet, name: more, namespace: shop, sectionName: l}"),
    )

    counts = [
        [each["attachedRoutes"] for each in status(context, resource, *at)["listeners"]]
        for resource, *at in ((Resource.GATEWAYS, "infra", "web"), (Resource.LISTENERSETS, "shop", "more"))
    ]
    assert counts == [[1], [1, 2]]
    (refused,) = status(context, Resource.HTTPROUTES, "none", "route")["parents"]
    assert (reasons(refused)["Accepted"], refused["parentRef"]["kind"]) == ("NotAllowedByListeners", "ListenerSet")
    virtual_hosts = context.names["gateway"]["virtual_hosts"]
    assert set(virtual_hosts) == {f"gw_infra_web_80|{host}" for host in ("*", "a.test", "b.test")}
    (entry, *_) = context.names["rules"]["backends"]["gw_http_blog_route_0"].entries
    assert entry.key == "gw_infra_web_80|b.test/"


def test_each_namespace_has_a_bound_and_none_uses_up_that_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "MOST_LISTENERS", 2)
    monkeypatch.setattr(listeners, "MOST_ADDED", 3)
    many = [at(f"h{number}.test", name=f"l{number}") for number in range(3)]
    context = read(
        a_gateway(),
        a_set("a", *many, name="first"),
        a_set("a", *many, name="second"),
        a_set("b", many[0], created=YOUNG),
        a_set("c", at("c.test"), created="2026-01-04T00:00:00Z"),
    )

    assert {name: each["Accepted"] for name, each in of_set(context, "a", "first")[1].items()} == {
        "l0": "Accepted", "l1": "Accepted", "l2": "TooManyListeners",
    }  # fmt: skip
    assert of_set(context, "a", "second") == (NOT_VALID, {})
    assert of_set(context, "b") == (NOT_VALID, {"l0": HOST_CONFLICT})
    assert of_set(context, "c") == (NOT_VALID, {})


def test_a_port_that_only_a_set_asks_for_is_its_namespaces() -> None:
    context = read(a_gateway(), a_set("shop", at("a.test", port=81)), a_set("blog", at("b.test", port=81)))

    owners = {name.place: owner[:3] for name, owner in context.owners["gateway"].items()}
    assert owners["gw_infra_web_80"] == ("Gateway", "infra", "web")
    assert owners["gw_infra_web_81"] == ("ListenerSet", "blog", "more")
    found = {str(each.ref): (each.because, each.frontends) for each in registry.claims_of(context)}
    assert found["ListenerSet shop/more"] == ("Gateway infra/web", ("gw_infra_web_81",))
    assert set(found["Gateway infra/web"][1]) == {"gw_infra_web_80", "gw_infra_web_81"}


@pytest.mark.parametrize(
    ("gateway", "addresses", "reason"),
    [
        (a_gateway(at("", protocol="UDP")), ("192.0.2.1",), ("ParentNotAccepted", "ParentNotAccepted")),
        (a_gateway(), (), ("Accepted", "ParentNotProgrammed")),
    ],
)
def test_a_set_depends_on_its_gateway(gateway: str, addresses: tuple[str, ...], reason: tuple[str, str]) -> None:
    context = read(gateway, a_set("shop", at("a.test")), options=PresetOptions(addresses=AddressOptions(addresses)))

    assert tuple(of_set(context, "shop")[0].values()) == reason
    assert context.names["gateway"]["frontends"] == {}


def test_what_a_gateway_refers_to_is_not_told_to_its_sets() -> None:
    tls = ", tls: {frontend: {default: {validation: {caCertificateRefs: [{kind: ConfigMap, name: inner}]}}}}"
    certificate = ", tls: {certificateRefs: [{name: cert}]}"
    context = read(a_gateway(more=tls), a_set("shop", at("a.test", port=443, protocol="HTTPS", more=certificate)))

    assert of_set(context, "shop")[1]["l"]["Accepted"] == "NoValidCACertificate"
    assert "inner" not in str(status(context, Resource.LISTENERSETS, "shop", "more"))
