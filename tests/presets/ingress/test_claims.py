"""Which Ingresses are ours, what they are given, and what is refused of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pyconfd.daemon.translation import FormerNames, Translator
from pyconfd.model.context import PresetName
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.reservation import HostClaim, Owner
from pyconfd.model.snapshot import Resource
from pyconfd.presets import registry, values
from pyconfd.presets.ingress.claims import IngressClaim, TlsHosts, read_ingress
from pyconfd.presets.policy import ANYTHING, ClaimOptions, Rule
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from pyconfd.presets.routing.references import ServiceReference
from pyconfd.presets.routing.types import PathKind, RouteMatch, RouteRule
from tests.presets.asking import claims, counted
from tests.presets.ingress.objects import (
    ADDRESSES,
    Obj,
    ingress,
    ingress_class,
    path,
    paths_of,
    read,
    refusals,
    service,
    snapshot,
)

HOST = "shop.example.com"
WEB = service("web", "10.0.0.1", "10.0.0.2")
CLASS = ingress_class()


def served(*objects: Obj, **more: Any) -> dict[str, str]:
    return paths_of(read(CLASS, *WEB, *objects, **more))


def rule(*paths: Obj, host: str = HOST) -> Mapping[str, Sequence[Obj]]:
    return {host: paths}


@pytest.mark.parametrize(
    ("classes", "class_name", "annotation", "ours"),
    [
        ([ingress_class()], "pyconfd", "", True),
        ([ingress_class("other", "example.com/other")], "other", "", False),
        ([ingress_class()], "other", "", False),
        ([], "pyconfd", "", False),
        ([ingress_class()], None, "", False),
        ([ingress_class(default=True)], None, "", True),
        ([ingress_class("other", "example.com/other", default=True), ingress_class()], None, "", False),
        ([ingress_class()], None, "pyconfd", True),
        ([ingress_class(default=True)], None, "nginx", False),
        ([ingress_class("external")], "external", "", True),
        ([ingress_class()], "other", "pyconfd", False),
    ],
)
def test_the_class_decides_whose_an_ingress_is(
    classes: Sequence[Obj], class_name: str | None, annotation: str, *, ours: bool
) -> None:
    annotations = {"kubernetes.io/ingress.class": annotation} if annotation else {}
    made = ingress(rules=rule(path("/")), class_name=class_name, annotations=annotations)
    context = read(*classes, *WEB, made)
    assert bool(paths_of(context)) is ours
    assert any(context.statuses) is ours


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (ingress(rules=rule(path("/"))), {f"{HOST}/": "ing_demo_web_80"}),
        (ingress(rules=rule(path("/foo/"))), {f"{HOST}/foo/": "ing_demo_web_80"}),
        (ingress(rules=rule(path("/foo/", kind="Exact"))), {f"={HOST}/foo/": "ing_demo_web_80"}),
        (ingress(rules=rule(path("", kind="ImplementationSpecific"))), {f"{HOST}/": "ing_demo_web_80"}),
        (ingress(rules=rule(path("/x", "web:http"))), {f"{HOST}/x/": "ing_demo_web_http"}),
        (ingress(rules=rule(path("/"), host="*.example.com")), {"*.example.com/": "ing_demo_web_80"}),
        (ingress(rules=rule(path("/"), host="")), {"*/": "ing_demo_web_80"}),
        (ingress(rules=rule(path("/"), host="SHOP.Example.com")), {f"{HOST}/": "ing_demo_web_80"}),
        (ingress(default="web:81"), {"*/": "ing_demo_web_81"}),
        (
            ingress(rules=rule(path("/foo")), default="web:81"),
            {f"{HOST}/foo/": "ing_demo_web_80", f"{HOST}/": "ing_demo_web_81"},
        ),
        (ingress(rules=rule(path("/")), default="web:81"), {f"{HOST}/": "ing_demo_web_80"}),
        (ingress(rules=rule(), default="web:81"), {f"{HOST}/": "ing_demo_web_81"}),
        (ingress(rules=rule(path("/a", "web:80"), path("/a", "web:81"))), {f"{HOST}/a/": "ing_demo_web_80"}),
    ],
)
def test_paths_lead_to_ports_of_services(made: Obj, expected: dict[str, str]) -> None:
    context = read(CLASS, *WEB, made)
    assert paths_of(context) == expected
    assert context.refused == ()


def test_hosts_lead_to_virtual_hosts_by_their_kind() -> None:
    hosts = ("shop.example.com", "*.example.com", "")
    virtual_hosts = read(CLASS, *WEB, ingress(rules={host: [path("/")] for host in hosts})).names["ingress"][
        "virtual_hosts"
    ]
    assert {id_: (virtual_host.map, virtual_host.map_key) for id_, virtual_host in virtual_hosts.items()} == {
        "*": ("hosts-http", "*"),
        "*.example.com": ("one-label-http", "example.com"),
        "shop.example.com": ("hosts-http", "shop.example.com"),
    }


def test_servers_are_the_ready_endpoints_of_the_port() -> None:
    context = read(CLASS, *WEB, ingress(rules=rule(path("/"), path("/admin", "web:admin"))))
    backends = context.names["ingress"]["backends"]
    assert {name: [(s.address, s.port) for s in made.servers] for name, made in backends.items()} == {
        "ing_demo_web_80": [("10.0.0.1", 8080), ("10.0.0.2", 8080)],
        "ing_demo_web_admin": [("10.0.0.1", 8081), ("10.0.0.2", 8081)],
    }
    assert context.totals.claimed == 4


@pytest.mark.parametrize(
    ("protocol", "options"),
    [("kubernetes.io/h2c", "proto h2"), ("https", "ssl verify none"), ("kubernetes.io/ws", ""), ("http", "")],
)
def test_the_protocol_of_the_port_decides_how_servers_are_spoken_with(protocol: str, options: str) -> None:
    ports = [{"name": "http", "port": 80, "targetPort": 8080, "appProtocol": protocol}]
    context = read(CLASS, *service("web", "10.0.0.1", ports=ports), ingress(rules=rule(path("/"))))
    assert context.names["ingress"]["backends"]["ing_demo_web_80"].options == options


PATH = "spec.rules.http.paths.path"
BACKEND = "spec.rules.http.paths.backend"


@pytest.mark.parametrize(
    ("made", "field", "reason"),
    [
        (ingress(rules=rule(path("/"), host="no_host!")), "spec.rules.host", "invalid_value"),
        (ingress(rules=rule(path("/"), host="10.0.0.1")), "spec.rules.host", "invalid_value"),
        (ingress(rules=rule(path("/"), host="a.*.example.com")), "spec.rules.host", "invalid_value"),
        (ingress(rules=rule(path("foo"))), PATH, "invalid_value"),
        (ingress(rules=rule(path("/a b"))), PATH, "invalid_value"),
        (ingress(rules=rule(path("/a\nb c"))), PATH, "invalid_value"),
        (ingress(rules=rule(path("/a//b"))), PATH, "invalid_value"),
        (ingress(rules=rule(path("/a/../b"))), PATH, "invalid_value"),
        (ingress(rules=rule(path("/" + "a" * 1024))), PATH, "invalid_value"),
        (ingress(rules=rule(path("/é"))), PATH, "invalid_value"),
        (ingress(rules=rule(path("/a(/|$)(.*)", kind="ImplementationSpecific"))), PATH, "invalid_value"),
        (ingress(rules=rule(path("/", kind="Regex"))), "spec.rules.http.paths.pathType", "invalid_value"),
        (ingress(rules=rule(path("/", "we b:80"))), f"{BACKEND}.service.name", "invalid_value"),
        (ingress(rules=rule(path("/", "web:0"))), f"{BACKEND}.service.port", "invalid_value"),
        (ingress(rules=rule(path("/", "none:80"))), BACKEND, "no_such_service"),
        (ingress(rules=rule(path("/", "web:82"))), BACKEND, "no_such_port"),
        (ingress(rules=rule(path("/", "alias:80"))), BACKEND, "invalid_value"),
        (
            ingress(rules=rule({"path": "/", "pathType": "Exact", "backend": {"resource": {"kind": "Bucket"}}})),
            f"{BACKEND}.resource",
            "invalid_value",
        ),
        (
            ingress(annotations={"pyconfd.io/ssl-redirect": "maybe"}),
            "annotation pyconfd.io/ssl-redirect",
            "invalid_value",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_touches_nobody_else(made: Obj, field: str, reason: str) -> None:
    alias = service("alias", type="ExternalName", externalName="example.org")
    other = ingress("other", {"other.example.com": [path("/")]}, day=9)
    context = read(CLASS, *WEB, *alias, made, other)
    assert refusals(context) == [("demo/web", field, reason)]
    assert paths_of(context)["other.example.com/"] == "ing_demo_web_80"


def claim_of(made: Obj, policy: ClaimOptions = ANYTHING, *accepted: str) -> IngressClaim:
    (record,) = snapshot(made).ingresses.values()
    return read_ingress(record, "east", policy, accepted)


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        (ingress(rules=rule(path("/"), host="10.0.0.1")), [("spec.rules.host", "10.0.0.1", "invalid_value")]),
        (ingress(rules=rule(path("/"), host="no_host!")), [("spec.rules.host", "no_host!", "invalid_value")]),
        (ingress(rules=rule(path("foo"))), [(PATH, "foo", "invalid_value")]),
        (ingress(rules=rule(path("/a//b"))), [(PATH, "/a//b", "invalid_value")]),
        (ingress(rules=rule(path("/a$", kind="ImplementationSpecific"))), [(PATH, "/a$", "invalid_value")]),
        (ingress(rules=rule(path("/", kind="Regex"))), [("spec.rules.http.paths.pathType", "Regex", "invalid_value")]),
        (ingress(rules=rule(path("/", "we b:80"))), [(f"{BACKEND}.service.name", "we b", "invalid_value")]),
        (ingress(rules=rule(path("/", "web:0"))), [(f"{BACKEND}.service.port", "0", "invalid_value")]),
        (ingress(rules=rule(path("/", "web:65536"))), [(f"{BACKEND}.service.port", "65536", "invalid_value")]),
        (ingress(rules=rule(path("/", "web:a b"))), [(f"{BACKEND}.service.port", "a b", "invalid_value")]),
        (ingress(rules=rule(path("/", "web:65535"))), []),
        (ingress(default="we b:80"), [("spec.defaultBackend.service.name", "we b", "invalid_value")]),
        (ingress(default="web:0"), [("spec.defaultBackend.service.port", "0", "invalid_value")]),
        (
            ingress(rules=rule({"path": "/", "pathType": "Exact", "backend": {}})),
            [(f"{BACKEND}.service.name", "", "invalid_value")],
        ),
        (
            ingress(
                rules=rule({"path": "/", "pathType": "Exact", "backend": {"resource": {"kind": "Bucket", "name": "b"}}})
            ),
            [(f"{BACKEND}.resource", "Bucket b", "invalid_value")],
        ),
        (
            ingress(rules=rule(path("/")), tls=[{"secretName": "a b", "hosts": [HOST]}]),
            [("spec.tls.secretName", "a b", "invalid_value")],
        ),
        (
            ingress(rules=rule(path("/")), tls=[{"secretName": "own", "hosts": ["Other.example.com", HOST]}]),
            [("spec.tls.hosts", "Other.example.com", "incomplete")],
        ),
        (
            ingress(rules=rule(path("/"), host=""), tls=[{"secretName": "own"}]),
            [("spec.tls.secretName", "own", "incomplete")],
        ),
        (ingress(rules=rule(path("/")), tls=[{"hosts": ["other.example.com"]}]), []),
        (
            ingress(rules=rule(path("/")), annotations={"pyconfd.io/ssl-redirect": "maybe"}),
            [("annotation pyconfd.io/ssl-redirect", "maybe", "invalid_value")],
        ),
        (
            ingress(rules=rule(path("/")), annotations={"pyconfd.io/hsts": "1y"}),
            [("annotation pyconfd.io/hsts", "1y", "invalid_value")],
        ),
        (
            ingress(rules=rule(path("/")), annotations={"pyconfd.io/shared-with": "a b"}),
            [("annotation pyconfd.io/shared-with", "a b", "invalid_value")],
        ),
    ],
)
def test_a_refusal_names_the_object_the_field_and_the_value(made: Obj, refused: list[tuple[str, str, str]]) -> None:
    found = claim_of(made).refused
    assert [(each.field, each.value, each.reason.value) for each in found] == refused
    assert {each.ref for each in found} == ({ObjectRef("Ingress", "demo", "web", "east")} if refused else set())
    assert all(each.detail for each in found)


@pytest.mark.parametrize(("namespace", "name"), [("demo", "a b"), ("a b", "web")])
def test_an_ingress_whose_name_is_none_asks_for_nothing(namespace: str, name: str) -> None:
    made = ingress(name, rule(path("/")), namespace=namespace)
    found = claim_of(made)
    assert found.ref == ObjectRef("Ingress", namespace, name, "east")
    assert (found.rules, found.references, found.hosts) == ((), {}, ())
    assert [(each.ref, each.field, each.value, each.reason.value) for each in found.refused] == [
        (found.ref, "metadata.name", f"{namespace}/{name}", "invalid_value")
    ]


def test_a_long_name_is_shortened_where_it_is_refused() -> None:
    found = claim_of(ingress("a\n" + "b" * 300, rule(path("/")), namespace="c\n" + "d" * 300))
    assert found.ref == ObjectRef(
        "Ingress", values.shortened("c\n" + "d" * 300), values.shortened("a\n" + "b" * 300), "east"
    )
    assert {each.ref for each in found.refused} == {found.ref}


def test_what_an_ingress_asks_for_as_a_whole() -> None:
    paths = path("/a/"), path("/b", "api:http", kind="Exact"), path("/a", "api:http")
    made = ingress(
        rules={"Shop.example.com": paths, "*.example.com": [path("/")]},
        default="other:1",
        tls=[{"secretName": "own", "hosts": ["SHOP.example.com", HOST]}, {"secretName": "all"}],
        annotations={"pyconfd.io/hsts": "300", "pyconfd.io/ssl-redirect": "false", "pyconfd.io/shared-with": "x, y"},
        day=3,
    )
    owner, shared = Owner("Ingress", "demo", "web", "2026-01-03T00:00:00Z"), frozenset({"x", "y"})
    wild, prefix = "*.example.com", PathKind.PREFIX
    matches = [
        (HOST, RouteMatch(prefix, "/a"), "ing_demo_web_80"),
        (HOST, RouteMatch(PathKind.EXACT, "/b"), "ing_demo_api_http"),
        (wild, RouteMatch(prefix, "/"), "ing_demo_web_80"),
        (HOST, RouteMatch(), "ing_demo_other_1"),
    ]
    assert claim_of(made) == IngressClaim(
        ref=ObjectRef("Ingress", "demo", "web", "east"),
        owner=owner,
        uid="demo/web",
        generation=7,
        rules=tuple(RouteRule(host, match, name, owner, place) for place, (host, match, name) in enumerate(matches)),
        references={
            "ing_demo_web_80": ServiceReference("demo", "web", 80),
            "ing_demo_api_http": ServiceReference("demo", "api", "http"),
            "ing_demo_other_1": ServiceReference("demo", "other", 1),
        },
        tls=(TlsHosts("own", (HOST,)), TlsHosts("all", (wild, HOST))),
        redirect=False,
        hsts=300,
        refused=(),
        https_only=False,
        hosts=(HostClaim(HOST, owner, shared), HostClaim(wild, owner, shared)),
        class_name="pyconfd",
    )
    least = claim_of(ingress(class_name=None))
    owner = Owner("Ingress", "demo", "web", "2026-01-01T00:00:00Z")
    assert least == IngressClaim(
        ObjectRef("Ingress", "demo", "web", "east"), owner, "demo/web", 7, (), {}, (), True, None, ()
    )  # fmt: skip


def test_a_path_whose_service_is_missing_stays_its_own_without_servers() -> None:
    made = ingress(rules=rule(path("/"), path("/cart", "none:80")))
    context = read(CLASS, *WEB, made)
    assert paths_of(context)[f"{HOST}/cart/"] == "ing_demo_none_80"
    assert context.names["ingress"]["backends"]["ing_demo_none_80"].servers == ()


def test_the_older_object_has_a_host_and_path_and_the_younger_the_rest_of_its_own() -> None:
    old = ingress("old", rule(path("/"), path("/a", kind="Exact")), day=1)
    young = ingress("young", rule(path("/", "web:81"), path("/a", "web:81")), day=2)
    context = read(CLASS, *WEB, young, old)
    assert paths_of(context) == {
        f"{HOST}/": "ing_demo_web_80",
        f"={HOST}/a": "ing_demo_web_80",
        f"{HOST}/a/": "ing_demo_web_81",
    }
    assert refusals(context) == [("demo/young", PATH, "name_taken")]
    assert "Ingress demo/old" in context.refused[0].detail


@pytest.mark.parametrize(("presets", "has"), [(("domains", "ingress"), "domain"), (("ingress", "domains"), "ingress")])
def test_of_twins_that_ask_for_all_of_a_host_the_preset_that_is_listed_first_has_it(
    presets: tuple[str, ...], has: str
) -> None:
    twins = (
        service("web", "10.0.0.7", annotations={"domain": HOST, "proto": "http"}),
        [ingress("web", {HOST: [path("/")]})],
    )
    options = PresetOptions(addresses=ADDRESSES)
    context = registry.translate(snapshot(CLASS, *(each for some in twins for each in some)), presets, options)
    assert (HOST in context.names["domains"], HOST in context.names["ingress"]["virtual_hosts"]) == (
        has == "domain",
        has == "ingress",
    )
    [refusal] = context.refused
    whose = "Service demo/web of preset domains" if has == "domain" else "Ingress demo/web of preset ingress"
    assert refusal.detail == f"{whose} has this name already (the older object keeps it)"


def test_each_path_that_a_domain_takes_says_why_its_own_namespace_or_the_host_is_in_the_way() -> None:
    """Who comes second to an Ingress that loses the host loses it to the domain, or has no right to it anyway."""
    objects = [
        *service("site", "10.0.0.7", annotations={"domain": HOST, "proto": "http"}),
        *(
            ingress(name, {HOST: [path("/"), path("/x", kind="Exact")]}, namespace=namespace, day=day)
            for name, namespace, day in (("first", "demo", 2), ("second", "demo", 3), ("other", "team", 4))
        ),
    ]
    context = read(CLASS, *WEB, *objects)
    assert list(context.names["domains"]) == [HOST]
    assert paths_of(context) == {f"={HOST}/x": "ing_demo_web_80"}
    whys = {each.ref.name: each.detail.partition(" has this ")[0] for each in context.refused if each.value == HOST}
    assert whys == {
        "first": "Service demo/site of preset domains",
        "second": "Service demo/site of preset domains",
        "other": "Service demo/site",
    }


@pytest.mark.parametrize("older", ["domain", "ingress"])
def test_a_domain_and_an_ingress_for_all_of_a_host_are_in_conflict(older: str) -> None:
    days = (1, 2) if older == "domain" else (2, 1)
    domain = service("site", "10.0.0.7", annotations={"domain": HOST, "proto": "http"}, day=days[0])
    made = ingress(rules=rule(path("/"), path("/cart")), day=days[1])
    context = read(CLASS, *WEB, *domain, made)
    assert (HOST in context.names["domains"]) is (older == "domain")
    assert (f"{HOST}/" in paths_of(context)) is (older == "ingress")
    assert f"{HOST}/cart/" in paths_of(context)
    [(who, _, reason)] = refusals(context)
    assert (who, reason) == ("demo/web" if older == "domain" else "demo/site", "name_taken")


@pytest.mark.parametrize(
    ("namespace", "host", "allowed"),
    [
        ("demo", "a.example.com", True),
        ("demo", "*.example.com", True),
        ("demo", "example.org", False),
        ("demo", "", False),
        ("other", "a.example.com", False),
        ("ops", "", True),
    ],
)
def test_rules_say_which_hosts_a_namespace_may_claim(namespace: str, host: str, *, allowed: bool) -> None:
    rules = ClaimOptions((Rule(("demo",), domains=("example.com",)), Rule(("ops",))))
    made = ingress(rules=rule(path("/"), host=host), namespace=namespace)
    context = read(CLASS, *service(namespace=namespace), made, options=PresetOptions(claims=rules))
    assert bool(paths_of(context)) is allowed
    assert [reason for _, _, reason in refusals(context)] == ([] if allowed else ["not_allowed"])


def test_the_status_has_the_shared_addresses_once_something_is_served() -> None:
    lost = ingress("lost", rule(path("/")), day=2)
    context = read(CLASS, *WEB, ingress(rules=rule(path("/"))), lost, ingress("foreign", class_name="other"))
    statuses = {of.key.name: status for statuses in context.statuses for of, status in statuses.items()}
    assert statuses.keys() == {"web", "lost"}
    assert statuses["web"].body == {"loadBalancer": {"ingress": [{"ip": "192.0.2.10"}, {"ip": "2001:db8::10"}]}}
    assert (statuses["web"].uid, statuses["web"].generation) == ("demo/web", 7)
    assert statuses["lost"].body == {"loadBalancer": {}}
    assert all(of.resource is Resource.INGRESSES for statuses in context.statuses for of in statuses)


def test_node_ports_are_used_and_missed() -> None:
    options = PresetOptions(node_ports=True, addresses=ADDRESSES)
    context = read(CLASS, *WEB, ingress(rules=rule(path("/"))), options=options)
    assert refusals(context) == [("demo/web", BACKEND, "no_such_port")]


@pytest.mark.parametrize(
    ("class_name", "said"), [("pyconf", True), ("Pyconfd", True), ("pyconfd-", True), ("nginx", False), (None, False)]
)
def test_a_class_that_is_not_there_and_resembles_ours_is_said(class_name: str | None, said: bool) -> None:
    made, memo = ingress(rules=rule(path("/")), class_name=class_name), Memo()
    expected = [("demo/web", "spec.ingressClassName", "unknown_class")] if said else []
    for context in (read(CLASS, *WEB, made, memo=memo), read(CLASS, *WEB, made, memo=memo)):
        assert refusals(context) == expected
        assert not said or "did you mean ingressClassName: pyconfd?" in context.refused[0].detail
    # Somebody else's class of that name comes, and goes; then it is corrected.
    other = ingress_class(class_name or "other", "example.com/controller")
    assert refusals(read(CLASS, other, *WEB, made, memo=memo)) == []
    assert refusals(read(CLASS, *WEB, made, memo=memo)) == expected
    assert refusals(read(CLASS, *WEB, ingress(rules=rule(path("/"))), memo=memo)) == []


def test_an_address_stands_in_the_status_while_at_least_one_path_can_answer() -> None:
    memo, made = Memo(), ingress(rules=rule(path("/"), path("/cart", "cart:80")))
    web, cart = service("web", "10.0.0.1"), service("cart", "10.0.0.2")
    empty = service("web"), service("cart")

    def wanted(*parts: list[Obj]) -> tuple[bool, bool]:
        objects = [CLASS, made, *(each for part in parts for each in part)]
        for context in (read(*objects, memo=memo), read(*objects)):
            [[status]] = [list(statuses.values()) for statuses in context.statuses if statuses]
        return bool(status.body["loadBalancer"]), status.may_wait

    assert wanted(web, cart) == (True, False)
    assert wanted(empty[0], cart) == (True, False)
    assert wanted(*empty) == (False, True)
    assert wanted(empty[0]) == (False, True)
    assert wanted(web, empty[1]) == (True, False)


def test_pods_that_end_keep_the_address_until_others_are_there() -> None:
    objects = service("web", "10.0.0.1")
    objects[1]["endpoints"][0]["conditions"] = {"ready": False, "serving": True, "terminating": True}
    context = read(CLASS, *objects, ingress(rules=rule(path("/"))))
    [[status]] = [list(statuses.values()) for statuses in context.statuses if statuses]
    assert status.body["loadBalancer"]


def test_explanations_name_paths_backends_and_what_was_refused() -> None:
    objects = snapshot(CLASS, *WEB, ingress(rules=rule(path("/a"), path("/b", "none:80"))))
    options = PresetOptions(addresses=ADDRESSES)
    context = registry.translate(objects, ("domains", "ingress"), options)
    [claim] = registry.claims_of(context)
    assert (claim.ref.kind, claim.names) == ("Ingress", (f"{HOST}/a", f"{HOST}/b"))
    assert [(each.name, each.section, *each.hosts) for each in claim.backends] == [
        ("web:80", "ing_demo_web_80", HOST),
        ("none:80", "ing_demo_none_80", HOST),
    ]
    assert claim.backends[0].is_at("10.0.0.1", 8080)
    assert claim.has_ready
    assert [each.reason.value for each in claim.refused] == ["no_such_service"]


def test_ten_thousand_paths_of_one_object_are_cut() -> None:
    many = [path(f"/{number}") for number in range(1_001)]
    context = read(CLASS, *WEB, ingress(rules=rule(*many)), ingress("small", {"b.example.com": [path("/")]}, day=2))
    assert len(paths_of(context)) == 1_001
    assert refusals(context) == [("demo/web", "spec.rules", "invalid_value")]


@pytest.mark.parametrize("preset", ["domains", "ingress"])
def test_a_name_is_kept_for_the_namespace_whose_object_has_just_gone(preset: str) -> None:
    owner = (
        ingress("old", rule(path("/")))
        if preset == "ingress"
        else service("old", "10.0.0.7", annotations={"domain": HOST, "proto": "http"})[0]
    )
    thief = ingress("thief", rule(path("/"), path("/own")), namespace="team", day=2)
    there = snapshot(CLASS, *WEB, owner, thief)
    gone = snapshot(CLASS, *WEB, thief)
    translator = Translator(("domains", "ingress"), names=FormerNames(now=100.0, keep_s=60.0))
    register = translator.translate(there).register
    for now, given in ((101.0, False), (200.0, True)):
        context = replace(translator, names=FormerNames(register, now, 60.0)).translate(gone)
        register = context.register
        assert (f"{HOST}/" in paths_of(context)) is given
        assert (f"{HOST}/own/" in paths_of(context)) is given
        assert (("team/thief", PATH, "name_reserved") in refusals(context)) is not given


def test_what_is_claimed_and_served() -> None:
    seen = snapshot(
        CLASS,
        *WEB,
        ingress(rules=rule(path("/a"), path("/b", "none:80"))),
        ingress("late", {HOST: [path("/a")], "b.example.com": [path("/")]}, day=9),
    )
    assert claims(seen, "ingress", PresetOptions(addresses=ADDRESSES)) == {
        "Ingress demo/late": (
            "ingressClassName pyconfd",
            ("shop.example.com/a", "b.example.com"),
            {"ing_demo_web_80": ("web:80", "ing_demo_web_80", ["10.0.0.1", "10.0.0.2"], ["b.example.com"], False)},
            ["10.0.0.1:8080 ready", "10.0.0.2:8080 ready", "10.0.0.1:8081 ready", "10.0.0.2:8081 ready"],
        ),
        "Ingress demo/web": (
            "ingressClassName pyconfd",
            ("shop.example.com/a", "shop.example.com/b"),
            {
                "ing_demo_web_80": ("web:80", "ing_demo_web_80", ["10.0.0.1", "10.0.0.2"], ["shop.example.com"], False),
                "ing_demo_none_80": ("none:80", "ing_demo_none_80", [], ["shop.example.com"], False),
            },
            ["10.0.0.1:8080 ready", "10.0.0.2:8080 ready", "10.0.0.1:8081 ready", "10.0.0.2:8081 ready"],
        ),
    }
    assert counted(seen, "ingress", PresetOptions(addresses=ADDRESSES)) == {
        "ing_demo_none_80": [],
        "ing_demo_web_80": ["10.0.0.1", "10.0.0.2"],
    }


@pytest.mark.parametrize(
    ("names", "logged"),
    [
        (["one"], "Ingress/demo/one"),
        (["two", "one"], "Ingress/demo/one,two"),
        (["d", "c", "b", "a"], "Ingress/demo/a,b,c,d"),
        (["e", "d", "c", "b", "a"], "Ingress/demo/a,b,c,d,..."),
    ],
)
def test_the_log_names_the_ingresses_that_lead_a_host_to_a_backend(names: Sequence[str], logged: str) -> None:
    made = [ingress(name, rules=rule(path(f"/{name}"))) for name in names]
    other = ingress("other", rules=rule(path("/"), host="other.example.com"))
    ((name, found),) = read(CLASS, *WEB, *made, other).names["ingress"]["backends"].items()
    assert dict(found.deciders) == {f"{HOST}|{name}": logged, f"other.example.com|{name}": "Ingress/demo/other"}


OFF, ON = {"pyconfd.io/access-log": "off"}, {"pyconfd.io/access-log": "on"}


@pytest.mark.parametrize(
    ("annotations", "quiet"),
    [
        ([OFF], [f"{HOST}|ing_demo_web_80"]),
        ([ON], []),
        ([{}], []),
        ([OFF, OFF], [f"{HOST}|ing_demo_web_80"]),
        ([OFF, {}], []),
        ([{"pyconfd.io/access-log": "no"}], []),
    ],
)
def test_a_host_is_left_out_of_the_log_where_all_who_lead_it_to_a_port_say_so(
    annotations: Sequence[Mapping[str, str]], quiet: Sequence[str]
) -> None:
    made = [
        ingress(f"n{number}", rules=rule(path(f"/{number}")), annotations=each)
        for number, each in enumerate(annotations)
    ]
    other = ingress("other", rules=rule(path("/"), host="other.example.com"))
    context = read(CLASS, *WEB, *made, other)
    ((_, found),) = context.names["ingress"]["backends"].items()
    assert list(found.unlogged) == quiet
    said = [each for each in context.refused if each.field == "annotation pyconfd.io/access-log"]
    without_effect = [each for each in annotations if each not in (ON, {})] if not quiet else []
    assert len(said) == len(without_effect)
    if annotations == [OFF, {}]:
        assert (said[0].ref.name, said[0].reason.is_note, said[0].value) == ("n0", True, HOST)
        assert "Ingress/demo/n0,n1" in said[0].detail


def test_paths_of_another_ingress_at_the_host_are_logged() -> None:
    quiet = ingress("quiet", rules=rule(path("/a", "web:81")), annotations=OFF)
    context = read(CLASS, *WEB, quiet, ingress("loud", rules=rule(path("/"))))
    found = {name: each.unlogged for name, each in context.names["ingress"]["backends"].items()}
    assert found == {"ing_demo_web_80": (), "ing_demo_web_81": (f"{HOST}|ing_demo_web_81",)}
    assert context.refused == ()


@pytest.mark.parametrize(
    ("class_name", "hint"), [("pyconfd", ""), ("pyconf", "pyconfd"), (None, "pyconfd"), ("other", "pyconfd")]
)
def test_mistakes(class_name: str | None, hint: str) -> None:
    made = snapshot(CLASS, ingress("web", rule(path("/", "web:80")), class_name=class_name))
    (record,) = made.ingresses.values()
    found = list(registry.PRESETS[PresetName.INGRESS].mistakes(record, made, PresetOptions()))
    assert len(found) == bool(hint)
    assert all(hint in each for each in found)


def test_a_misspelled_class_of_ingress_nginx_is_named() -> None:
    made = snapshot(*WEB, ingress("web", rule(path("/", "web:80")), class_name="ngnix"))
    options = PresetOptions(nginx_classes=("nginx",))
    (refusal,) = registry.translate(made, (PresetName.INGRESS,), options, registry.Memo()).refused
    (record,) = made.ingresses.values()
    (hint,) = registry.PRESETS[PresetName.INGRESS].mistakes(record, made, options)
    assert refusal.detail == hint
    assert "did you mean ingressClassName: nginx?" in hint
