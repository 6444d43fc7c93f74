"""Objects of the Gateway API in; frontends, backends, refusals and statuses out."""

import base64
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyconfd.model.context import Context, PresetName, Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.reservation import namespaces_of_changes
from pyconfd.model.snapshot import HostFacts, Key, Resource, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.origins import Filter, ObjectOrigin, ObjectOrigins
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from tests.presets.asking import claims, counted
from tests.presets.gateway.objects import CLASS, snapshot
from tests.world.pki import CertificateAuthority

OPTIONS = PresetOptions(addresses=AddressOptions(("192.0.2.1", "192.0.2.2")))

GATEWAY = """
kind: Gateway
metadata: {name: web, generation: 2}
spec:
  gatewayClassName: pyconfd
  listeners: [{name: http, port: 80, protocol: HTTP}]
"""
SERVICE = """
kind: Service
metadata: {{name: {name}}}
spec: {{ports: [{{name: web, port: 80, targetPort: 8080}}]}}
---
kind: EndpointSlice
metadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: web, port: 8080, protocol: TCP}}]
endpoints: [{{addresses: ["{address}"], targetRef: {{kind: Pod, name: {name}-pod}}}}]
"""
APP = SERVICE.format(name="app", address="10.0.0.1")


def route(name: str, rules: str, more: str = "", kind: str = "HTTPRoute") -> str:
    return f"""
kind: {kind}
metadata: {{name: {name}, generation: 4}}
spec:
  parentRefs: [{{name: web}}]
  {more}
  rules: {rules}
"""


def read(snapshot: Snapshot, memo: Memo | None = None, options: PresetOptions = OPTIONS) -> Context:
    return registry.translate(snapshot, (PresetName.GATEWAY,), options, memo)


def status(context: Context, resource: Resource, name: str, namespace: str = "shop") -> Mapping[str, Any]:
    (statuses,) = context.statuses
    return statuses[ObjectKey(resource, Key(namespace, name))].body


def reasons(body: Mapping[str, Any]) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in body["conditions"]}


def route_reasons(context: Context, name: str, resource: Resource = Resource.HTTPROUTES) -> dict[str, str]:
    (parent,) = status(context, resource, name)["parents"]
    return reasons(parent)


def given(context: Context) -> Mapping[str, Any]:
    """Return what fragments are given of the Gateway API, and of the rules of all presets."""
    return {**context.names["gateway"], **context.names["rules"]}


def test_one_route_is_served_and_says_so() -> None:
    context = read(snapshot(CLASS, GATEWAY, APP, route("app", "[{backendRefs: [{name: app, port: 80}]}]")))

    front, backend = given(context)["frontends"]["gw_shop_web_80"], given(context)["backends"]["gw_http_shop_app_0"]
    assert (front.addresses, list(given(context)["virtual_hosts"])) == (("192.0.2.1",), ["gw_shop_web_80|*"])
    assert [entry.key for entry in backend.entries] == ["gw_shop_web_80|*/"]
    assert [server.address for server in backend.servers] == ["10.0.0.1"]
    body = status(context, Resource.GATEWAYS, "web")
    assert body["addresses"] == [{"type": "IPAddress", "value": "192.0.2.1"}]
    assert [each["attachedRoutes"] for each in body["listeners"]] == [1]
    assert route_reasons(context, "app") == {"Accepted": "Accepted", "ResolvedRefs": "ResolvedRefs"}
    assert {each["observedGeneration"] for each in body["conditions"]} == {2}
    assert context.refused == ()


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("[{backendRefs: [{name: missing, port: 80}]}]", {"Accepted": "Accepted", "ResolvedRefs": "BackendNotFound"}),
        ("[{backendRefs: [{name: app, port: 81}]}]", {"Accepted": "Accepted", "ResolvedRefs": "BackendNotFound"}),
        ("[{backendRefs: [{name: app}]}]", {"Accepted": "Accepted", "ResolvedRefs": "BackendNotFound"}),
        (
            "[{backendRefs: [{name: app, port: 80, kind: Bucket, group: a.io}]}]",
            {"Accepted": "Accepted", "ResolvedRefs": "InvalidKind"},
        ),
        (
            "[{backendRefs: [{name: app, namespace: other, port: 80}]}]",
            {"Accepted": "Accepted", "ResolvedRefs": "RefNotPermitted"},
        ),
        ("[{}]", {"Accepted": "Accepted", "ResolvedRefs": "ResolvedRefs"}),
        (
            "[{matches: [{path: {type: RegularExpression, value: '(('}}]}]",
            {"Accepted": "UnsupportedValue", "ResolvedRefs": "ResolvedRefs"},
        ),
        (
            "[{backendRefs: [{name: app, port: 80}]}, {retry: {backoff: 1s}, backendRefs: [{name: app, port: 80}]}]",
            {"Accepted": "UnsupportedValue", "ResolvedRefs": "ResolvedRefs"},
        ),
        (
            '[{backendRefs: [{name: app, port: 80}]}, {matches: [{headers: [{name: "a\\nb", value: x}]}]}]',
            {"Accepted": "Accepted", "ResolvedRefs": "ResolvedRefs", "PartiallyInvalid": "UnsupportedValue"},
        ),
    ],
)
def test_conditions_of_routes(rules: str, expected: dict[str, str]) -> None:
    context = read(snapshot(CLASS, GATEWAY, APP, route("app", rules)))

    assert route_reasons(context, "app") == expected
    assert bool(context.refused) is (set(expected.values()) != {"Accepted", "ResolvedRefs"})


@pytest.mark.parametrize(
    ("spec", "expected", "address"),
    [
        ("", ("Accepted", "Programmed"), ["192.0.2.1"]),
        ("addresses: [{value: 192.0.2.2}]", ("Accepted", "Programmed"), ["192.0.2.2"]),
        ("addresses: [{type: IPAddress}]", ("Accepted", "Programmed"), ["192.0.2.1"]),
        ("addresses: [{value: 198.51.100.1}]", ("Accepted", "AddressNotUsable"), None),
        ("addresses: [{type: a.io/other, value: x}]", ("UnsupportedAddress", "Invalid"), None),
        (
            "infrastructure: {parametersRef: {group: a.io, kind: Parameters, name: x}}",
            ("InvalidParameters", "Invalid"),
            None,
        ),
    ],
)
def test_conditions_of_gateways(spec: str, expected: tuple[str, str], address: list[str] | None) -> None:
    context = read(snapshot(CLASS, f"{GATEWAY}\n  {spec}"))

    body = status(context, Resource.GATEWAYS, "web")
    assert (reasons(body)["Accepted"], reasons(body)["Programmed"]) == expected
    assert [each["value"] for each in body.get("addresses", ())] == (address or [])
    assert bool(given(context)["frontends"]) is (address is not None)


def test_an_address_that_is_not_here_concerns_one_gateway() -> None:
    there = snapshot(CLASS, GATEWAY, GATEWAY.replace("name: web", "name: zoo"))
    memo = Memo()

    def seen(*addresses: str) -> dict[str, tuple[str, list[str]]]:
        context = read(replace(there, host=HostFacts(frozenset({"127.0.0.1", *addresses}))), memo)
        found = {name: status(context, Resource.GATEWAYS, name) for name in ("web", "zoo")}
        # Each is bound all the same: the address may come without a reload.
        assert {each.addresses for each in given(context)["frontends"].values()} == {("192.0.2.1",), ("192.0.2.2",)}
        (listener,) = found["web"]["listeners"]
        assert (reasons(listener)["Programmed"] == "Programmed") is ("192.0.2.1" in addresses)
        assert {each.reason for each in context.refused} <= {RefusalReason.NO_SUCH_ADDRESS}
        return {
            name: (reasons(body)["Programmed"], [each["value"] for each in body.get("addresses", ())])
            for name, body in found.items()
        }

    zoo = ("Programmed", ["192.0.2.2"])
    assert seen("192.0.2.2") == {"web": ("AddressNotUsable", []), "zoo": zoo}
    assert seen("192.0.2.2", "192.0.2.1") == {"web": ("Programmed", ["192.0.2.1"]), "zoo": zoo}
    assert seen("192.0.2.2") == {"web": ("AddressNotUsable", []), "zoo": zoo}


def test_without_a_pool_a_gateway_says_what_to_set() -> None:
    context = read(snapshot(CLASS, GATEWAY), options=PresetOptions())

    body = status(context, Resource.GATEWAYS, "web")
    assert reasons(body)["Programmed"] == "AddressNotAssigned"
    assert "addresses" not in body
    (refusal,) = context.refused
    assert "addresses.pool" in refusal.detail


def test_classes_of_others_are_left_alone() -> None:
    context = read(snapshot(CLASS.replace("pyconfd.io/gateway", "example.com/other"), GATEWAY, route("app", "[{}]")))

    assert context.statuses == ({},)


def test_each_gateway_has_an_address_of_its_own() -> None:
    context = read(snapshot(CLASS, GATEWAY, GATEWAY.replace("name: web", "name: other")))

    assert {each.addresses for each in given(context)["frontends"].values()} == {("192.0.2.1",), ("192.0.2.2",)}


STREAMS = """
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: pyconfd
  listeners:
  - {name: tls, port: 443, protocol: TLS, hostname: "*.example.com", tls: {mode: Passthrough}}
  - {name: tcp, port: 5432, protocol: TCP}
"""


def test_connections_go_by_name_or_all_to_the_oldest_route() -> None:
    rules = "[{backendRefs: [{name: app, port: 80}]}]"
    wildcard = route("wild", rules, "hostnames: ['*.example.com']", "TLSRoute")
    exact = route("exact", rules, "hostnames: [a.example.com]", "TLSRoute").replace(
        "generation: 4", "generation: 4, creationTimestamp: '2027-01-01T00:00:00Z'"
    )
    context = read(
        snapshot(
            CLASS, STREAMS, APP, wildcard, exact, route("b", rules, "", "TCPRoute"), route("a", rules, "", "TCPRoute")
        )
    )

    fronts = given(context)["frontends"]
    assert [(each.host, each.backend) for each in fronts["gw_shop_web_443"].names] == [
        ("*.example.com", "gw_tls_shop_wild_0"),
        ("a.example.com", "gw_tls_shop_exact_0"),
    ]
    assert fronts["gw_shop_web_5432"].backend == "gw_tcp_shop_a_0"
    body = status(context, Resource.GATEWAYS, "web")
    assert [each["attachedRoutes"] for each in body["listeners"]] == [2, 2]


def test_a_route_that_names_more_of_the_host_comes_first() -> None:
    rules = "[{backendRefs: [{name: app, port: 80}]}]"
    older = route("older", rules, "hostnames: ['*.example.com']")
    newer = route("newer", rules, "hostnames: [a.example.com]").replace(
        "generation: 4", "generation: 4, creationTimestamp: '2027-01-01T00:00:00Z'"
    )
    gateway = GATEWAY.replace("port: 80,", "port: 80, hostname: a.example.com,")
    backends = given(read(snapshot(CLASS, gateway, APP, older, newer)))["backends"]

    assert [name for name, each in backends.items() if each.entries] == ["gw_http_shop_newer_0"]


def test_a_host_belongs_to_the_most_specific_listener() -> None:
    gateway = GATEWAY.replace(
        "[{name: http, port: 80, protocol: HTTP}]",
        "[{name: any, port: 80, protocol: HTTP}, {name: wild, port: 80, protocol: HTTP, hostname: '*.example.com'}]",
    )
    rules = "[{backendRefs: [{name: app, port: 80}]}]"
    text = route("app", rules, "hostnames: [a.example.com, b.org]").replace(
        "{name: web}", "{name: web, sectionName: any}"
    )
    context = read(snapshot(CLASS, gateway, APP, text))

    (backend,) = given(context)["backends"].values()
    assert [each.key for each in backend.entries] == ["gw_shop_web_80|b.org/"]
    virtual_hosts = given(context)["virtual_hosts"].values()
    assert [virtual_host.host for virtual_host in virtual_hosts] == ["", "*.example.com", "b.org"]


STEPS = [
    snapshot(CLASS, GATEWAY, APP, route("app", "[{backendRefs: [{name: app, port: 80}]}]")),
    snapshot(CLASS, GATEWAY, route("app", "[{backendRefs: [{name: app, port: 80}]}]")),
    snapshot(
        CLASS, GATEWAY, APP, route("app", "[{matches: [{path: {value: /x}}], backendRefs: [{name: app, port: 80}]}]")
    ),
    snapshot(
        CLASS,
        GATEWAY,
        APP.replace("10.0.0.1", "10.0.0.9"),
        route("app", "[{matches: [{path: {value: /x}}, {method: GET}], backendRefs: [{name: app, port: 80}]}]"),
        route("b", "[{backendRefs: [{name: app, port: 80}, {name: missing, port: 80}]}]", "hostnames: [b.com]"),
    ),
    snapshot(
        CLASS, GATEWAY.replace("port: 80", "port: 8080"), APP, route("b", "[{backendRefs: [{name: app, port: 80}]}]")
    ),
    snapshot(GATEWAY, APP, route("b", "[{backendRefs: [{name: app, port: 80}]}]")),
    snapshot(CLASS, STREAMS, APP, route("b", "[{backendRefs: [{name: app, port: 80}]}]", "", "TCPRoute")),
]


@pytest.mark.parametrize("order", [range(7), range(6, -1, -1), [0, 3, 0, 4, 1, 5, 2, 6, 3]])
def test_changes_give_what_a_fresh_translation_gives(order: Any) -> None:
    memo = Memo()
    for step in order:
        assert read(STEPS[step], memo) == read(STEPS[step])


def test_one_more_host_leaves_the_frontend_as_it_was() -> None:
    """A port with thousands of hosts is not made and written again for each of them."""
    memo = Memo()
    rules = "[{backendRefs: [{name: app, port: 80}]}]"
    routes = [route(name, rules, f"hostnames: [{name}.example.com]") for name in ("one", "two")]
    before = given(read(snapshot(CLASS, GATEWAY, APP, routes[0]), memo))
    after = given(read(snapshot(CLASS, GATEWAY, APP, *routes), memo))
    assert after["frontends"]["gw_shop_web_80"] is before["frontends"]["gw_shop_web_80"]
    assert set(after["virtual_hosts"]) - set(before["virtual_hosts"]) == {"gw_shop_web_80|two.example.com"}
    assert all(virtual_host is after["virtual_hosts"][name] for name, virtual_host in before["virtual_hosts"].items())


def test_virtual_hosts_are_those_of_ports_that_route_requests() -> None:
    through = "{name: through, port: 443, protocol: TLS, hostname: a.example.com, tls: {mode: Passthrough}}"
    ended = "{name: ended, port: 443, protocol: HTTPS, hostname: b.example.com, tls: {certificateRefs: [{name: none}]}}"
    gateway = GATEWAY.replace("{name: http, port: 80, protocol: HTTP}", f"{through}, {ended}")
    found = given(read(snapshot(CLASS, gateway, APP)))
    assert list(found["frontends"]) == ["gw_shop_web_443"]
    assert found["virtual_hosts"] == {}, "the listener for requests has no certificate"


def test_another_endpoint_changes_one_backend_only() -> None:
    memo = Memo()
    rules = (
        "[{backendRefs: [{name: app, port: 80}]}, {matches: [{path: {value: /x}}], backendRefs: [{name: b, port: 80}]}]"
    )
    other = SERVICE.format(name="b", address="10.0.0.2")
    first = snapshot(CLASS, GATEWAY, APP, other, route("app", rules))
    before = read(first, memo)
    slices = {**first.endpointslices, **snapshot(APP.replace("10.0.0.1", "10.0.0.7")).endpointslices}
    fields = {name: getattr(first, name) for name in ("services", "gatewayclasses", "gateways", "httproutes")}
    after = read(Snapshot(endpointslices=slices, **fields), memo)

    assert given(after)["frontends"] is given(before)["frontends"]
    assert after.statuses[0] is before.statuses[0]
    kept = [name for name, each in given(after)["backends"].items() if each is given(before)["backends"][name]]
    assert kept == ["gw_http_shop_app_1"]


LONGER = "[{matches: [{path: {value: /path/prefix}}], backendRefs: [{name: app, port: 80}]}]"
SHORTER = "[{matches: [{path: {value: /path}}], backendRefs: [{name: app, port: 80}]}]"
WITH_HEADER = (
    "[{matches: [{path: {value: /path}, headers: [{name: a, value: b}]}], backendRefs: [{name: app, port: 80}]}]"
)


@pytest.mark.parametrize(
    ("exact", "entries", "tried"),
    [
        (SHORTER, {"exact": ["/path/", "/path/prefix/"]}, []),
        (WITH_HEADER, {}, [["exact"], ["exact", "wild"]]),
        (LONGER.replace("/prefix", "/prefix/more"), {"exact": ["/path/prefix/more/"], "wild": ["/path/prefix/"]}, []),
    ],
)
def test_a_longer_path_is_no_match_for_a_closer_host(
    exact: str, entries: dict[str, list[str]], tried: list[list[str]]
) -> None:
    gateway = GATEWAY.replace("port: 80,", "port: 80, hostname: a.example.com,")
    routes = [
        route("wild", LONGER, "hostnames: ['*.example.com']"),
        route("exact", exact, "hostnames: [a.example.com]"),
    ]
    for order in (routes, routes[::-1]):
        memo = Memo()
        read(snapshot(CLASS, gateway, APP, order[0]), memo)
        context = read(snapshot(CLASS, gateway, APP, *order), memo)

        assert context == read(snapshot(CLASS, gateway, APP, *order))
        found = {
            name.split("_")[3]: [entry.key.partition("|a.example.com")[2] for entry in backend.entries]
            for name, backend in given(context)["backends"].items()
        }
        assert {name: keys for name, keys in found.items() if keys} == entries
        (virtual_host,) = given(context)["virtual_hosts"].values()
        assert [[rule.owner.name for rule in group.rules] for group in virtual_host.groups] == tried


SHOWN = """
kind: Gateway
metadata: {name: shown}
spec:
  gatewayClassName: pyconfd
  listeners: [{name: http, port: 80, protocol: HTTP}]
  tls: {backend: {clientCertificateRef: {name: client}}}
"""
POLICY = """
kind: BackendTLSPolicy
metadata: {name: tls, generation: 7}
spec:
  targetRefs: [{group: "", kind: Service, name: app}]
  validation: {hostname: app.example.com, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}
"""


def authorities(tmp_path: Path) -> tuple[str, str]:
    """Return a Secret with a pair, and the ConfigMap of its CA."""
    authority = CertificateAuthority(tmp_path)
    pair = authority.server("client", ["client.example.com"])
    data = {
        "tls.crt": base64.b64encode(pair.cert.read_bytes()).decode(),
        "tls.key": base64.b64encode(pair.key.read_bytes()).decode(),
    }
    secret = {"kind": "Secret", "metadata": {"name": "client"}, "type": "kubernetes.io/tls", "data": data}
    ca = {"kind": "ConfigMap", "metadata": {"name": "ca"}, "data": {"ca.crt": authority.cert.read_text()}}
    return yaml.safe_dump(secret), yaml.safe_dump(ca)


def test_servers_are_shown_the_certificate_of_the_gateway_that_was_asked(tmp_path: Path) -> None:
    text = route("app", "[{backendRefs: [{name: app, port: 80}]}]").replace("{name: web}", "{name: web}, {name: shown}")
    options = replace(OPTIONS, tls=TlsOptions("/secrets", ("*",)))
    context = read(snapshot(CLASS, GATEWAY, SHOWN, APP, POLICY, text, *authorities(tmp_path)), options=options)

    backends = given(context)["backends"].values()
    assert {
        entry.key.partition("|")[0]: "crt /secrets/shop.client.pem" in each.options
        for each in backends
        for entry in each.entries
    } == {
        "gw_shop_web_80": False,
        "gw_shop_shown_80": True,
    }
    assert {"/secrets/shop.client.pem", "/secrets/policy_of.shop.tls.pem"} <= {file.path for file in context.files}


CA_REFS = "spec.validation.caCertificateRefs"
WELL_KNOWN = "spec.validation.wellKnownCACertificates"
NO_CA = ("NoValidCACertificate", CA_REFS, "")
CA_FILE = "/f/secrets/policy_of.shop.tls.pem"


@pytest.mark.parametrize(
    ("validation", "invalid", "unresolved", "ca_file"),
    [
        ("hostname: a.com, caCertificateRefs: [{kind: ConfigMap, name: ca}]", [], [], CA_FILE),
        ("hostname: a.com, wellKnownCACertificates: System", [], [], "@system-ca"),
        ("hostname: a.com, wellKnownCACertificates: a.io/other", [("Invalid", WELL_KNOWN, "a.io/other")], [], ""),
        (
            "hostname: a.com, caCertificateRefs: [{kind: ConfigMap, name: missing}]",
            [NO_CA],
            [("InvalidCACertificateRef", CA_REFS, "missing")],
            "",
        ),
        (
            "hostname: a.com, caCertificateRefs: [{kind: ConfigMap, name: missing}, {kind: ConfigMap, name: ca}]",
            [],
            [("InvalidCACertificateRef", CA_REFS, "missing")],
            CA_FILE,
        ),
        (
            "hostname: a.com, caCertificateRefs: [{kind: Service, name: ca}]",
            [NO_CA],
            [("InvalidKind", CA_REFS, "Service")],
            "",
        ),
        (
            "hostname: a.com, caCertificateRefs: [{kind: ConfigMap, group: a.io, name: ca}]",
            [NO_CA],
            [("InvalidKind", CA_REFS, "ConfigMap.a.io")],
            "",
        ),
        (
            "hostname: a.com, caCertificateRefs: [{kind: ConfigMap, name: ca}], wellKnownCACertificates: System",
            [("Invalid", WELL_KNOWN, "System")],
            [],
            "",
        ),
        ("hostname: a.com", [NO_CA], [], ""),
        ("hostname: 'a b', wellKnownCACertificates: System", [("Invalid", "spec.validation", "")], [], ""),
    ],
)
def test_conditions_of_policies(
    validation: str,
    invalid: list[tuple[str, str, str]],
    unresolved: list[tuple[str, str, str]],
    ca_file: str,
    tmp_path: Path,
) -> None:
    policy = POLICY.partition("  validation")[0] + f"  validation: {{{validation}}}"
    text = route("app", "[{backendRefs: [{name: app, port: 80}]}]")
    (secret, authority), options = authorities(tmp_path), replace(OPTIONS, tls=TlsOptions("/f/secrets", ("*",)))
    objects = snapshot(CLASS, GATEWAY, APP, policy, text, secret, authority)
    context = read(objects, options=options)

    (ancestor,) = status(context, Resource.BACKENDTLSPOLICIES, "tls")["ancestors"]
    assert ancestor["controllerName"] == "pyconfd.io/gateway"
    assert ancestor["ancestorRef"] == {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "namespace": "shop",
        "name": "web",
    }
    assert reasons(ancestor) == {
        "Accepted": invalid[0][0] if invalid else "Accepted",
        "ResolvedRefs": unresolved[0][0] if unresolved else "ResolvedRefs",
    }
    assert {each["observedGeneration"] for each in ancestor["conditions"]} == {7}
    ref = ObjectRef("BackendTLSPolicy", "shop", "tls", "")
    assert {(each.ref, each.field, each.value) for each in context.refused} == {
        (ref, field, value) for _, field, value in (*invalid, *unresolved)
    }
    backend = given(context)["backends"]["gw_http_shop_app_0"]
    assert (backend.failing > 0, "ssl verify required" in backend.options) == (bool(invalid), not invalid)
    assert (f"ca-file {ca_file} " in f"{backend.options} ") is bool(ca_file)
    pem = yaml.safe_load(authority)["data"]["ca.crt"]
    assert [(file.path, file.content) for file in context.files] == ([(CA_FILE, pem)] if ca_file == CA_FILE else [])


@pytest.mark.parametrize(
    ("targets", "accepted", "refused"),
    [
        ("{group: '', kind: Service, name: app}", True, []),
        ("{group: core, kind: Service, name: app}", True, []),
        ("{group: '', kind: Service, name: app, sectionName: web}", True, []),
        (
            "{group: '', kind: Service, name: app, sectionName: other}",
            False,
            [("spec.targetRefs[0]", "app", RefusalReason.NO_SUCH_SERVICE)],
        ),
        (
            "{group: '', kind: Service, name: none}",
            False,
            [("spec.targetRefs[0]", "none", RefusalReason.NO_SUCH_SERVICE)],
        ),
        (
            "{group: a.io, kind: Service, name: app}",
            False,
            [("spec.targetRefs[0]", "Service app", RefusalReason.NO_SUCH_SERVICE)],
        ),
        # One that is for something is accepted.
        (
            "{group: '', kind: Service, name: none}, {group: '', kind: Service, name: app}, {group: '', kind: Pod}",
            True,
            [
                ("spec.targetRefs[0]", "none", RefusalReason.NO_SUCH_SERVICE),
                ("spec.targetRefs[2]", "Pod ", RefusalReason.NO_SUCH_SERVICE),
            ],
        ),
    ],
)
def test_targets_of_policies(targets: str, accepted: bool, refused: list[tuple[str, str, RefusalReason]]) -> None:
    policy = POLICY.replace('{group: "", kind: Service, name: app}', targets)
    policy = policy.replace(
        'caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]', "wellKnownCACertificates: System"
    )
    objects = snapshot(CLASS, GATEWAY, APP, policy, route("app", "[{backendRefs: [{name: app, port: 80}]}]"))
    context = read(objects)
    assert [(each.field, each.value, each.reason) for each in context.refused] == refused
    assert all(each.detail for each in context.refused)
    backend = given(context)["backends"]["gw_http_shop_app_0"]
    assert ("ca-file @system-ca" in backend.options) is accepted
    assert backend.failing == 0


def test_older_policy_has_a_service_and_one_for_a_port_its_port() -> None:
    texts = [
        POLICY.replace("name: tls,", f"name: {name}, creationTimestamp: '{created}',")
        .replace("name: app}", f"name: app{more}}}")
        .replace('caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]', "wellKnownCACertificates: System")
        for name, created, more in (
            ("newer", "2026-03-01T00:00:00Z", ""),
            ("older", "2026-02-01T00:00:00Z", ""),
            ("port", "2026-04-01T00:00:00Z", ", sectionName: web"),
        )
    ]
    text = route("app", "[{backendRefs: [{name: app, port: 80}]}]")
    context = read(snapshot(CLASS, GATEWAY, APP, text, *texts))

    found = {
        name: status(context, Resource.BACKENDTLSPOLICIES, name)["ancestors"][0] for name in ("newer", "older", "port")
    }
    assert {name: reasons(each)["Accepted"] for name, each in found.items()} == {
        "newer": "Conflicted",
        "older": "Accepted",
        "port": "Accepted",
    }
    (refusal,) = context.refused
    detail = "BackendTLSPolicy shop/older has it already (the older one)"
    assert refusal == Refusal(
        ObjectRef("BackendTLSPolicy", "shop", "newer", ""),
        "spec.targetRefs[0]",
        "app",
        RefusalReason.NAME_TAKEN,
        detail,
    )


@pytest.mark.parametrize(
    ("kind", "protocol", "options"),
    [
        ("HTTPRoute", "kubernetes.io/h2c", "proto h2"),
        ("HTTPRoute", "kubernetes.io/ws", ""),
        ("GRPCRoute", "http", "proto h2"),
        ("TLSRoute", "kubernetes.io/h2c", ""),
        ("TCPRoute", "kubernetes.io/h2c", ""),
    ],
)
def test_pods_are_spoken_with_as_the_route_and_the_port_say(kind: str, protocol: str, options: str) -> None:
    app = APP.replace("targetPort: 8080}", f"targetPort: 8080, appProtocol: {protocol}}}", 1)
    hosts = "hostnames: ['a.example.com']" if kind == "TLSRoute" else ""
    text = route("app", "[{backendRefs: [{name: app, port: 80}]}]", hosts, kind)
    gateway = GATEWAY if kind in {"HTTPRoute", "GRPCRoute"} else STREAMS
    word = kind.removesuffix("Route").lower()
    assert given(read(snapshot(CLASS, gateway, app, text)))["backends"][f"gw_{word}_shop_app_0"].options == options


def test_each_refusal_and_claim_names_its_cluster() -> None:
    gateways = [
        GATEWAY,
        GATEWAY.replace("name: web", "name: zoo").replace("port: 80", "port: 0"),
        GATEWAY.replace("name: web", "name: lost").replace("Name: pyconfd", "Name: pyconf"),
    ]
    parameters = "spec: {parametersRef: {kind: x, name: y}, controllerName"
    of_class = CLASS.replace("name: pyconfd, uid: class", "name: with").replace("spec: {controllerName", parameters)
    policy = POLICY.replace("name: app}", "name: none}")
    text = route("app", "[{backendRefs: [{name: none, port: 80}]}]")
    context = read(replace(snapshot(CLASS, of_class, *gateways, policy, text), cluster="east"))
    assert {each.ref for each in context.refused} == {
        ObjectRef("GatewayClass", "", "with", "east"),
        ObjectRef("Gateway", "shop", "zoo", "east"),
        ObjectRef("Gateway", "shop", "lost", "east"),
        ObjectRef("BackendTLSPolicy", "shop", "tls", "east"),
        ObjectRef("HTTPRoute", "shop", "app", "east"),
    }
    assert {claim.ref.cluster for claim in registry.claims_of(context)} == {"east"}


def test_a_route_without_a_grant_is_not_in_the_status_of_a_policy() -> None:
    policy = POLICY.replace(
        'caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]', "wellKnownCACertificates: System"
    )
    foreign = route("app", "[{backendRefs: [{name: app, namespace: shop, port: 80}]}]").replace(
        "{name: app, generation", "{name: app, namespace: thief, generation"
    )
    opened = GATEWAY.replace("protocol: HTTP}", "protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}")
    foreign = foreign.replace("parentRefs: [{name: web}]", "parentRefs: [{name: web, namespace: shop}]")
    context = read(snapshot(CLASS, opened, APP, foreign, policy))
    (found,) = (each for each in context.refused if each.ref.kind == "HTTPRoute")
    assert found.reason is RefusalReason.FORBIDDEN
    assert status(context, Resource.BACKENDTLSPOLICIES, "tls")["ancestors"] == []


def test_a_frontend_has_the_choices_of_hosts_then_the_shares_of_routes() -> None:
    new = SERVICE.format(name="new", address="10.0.0.2")
    references = "[{name: app, port: 80}, {name: new, port: 80, filters: [{type: RequestHeaderModifier,"
    references += " requestHeaderModifier: {set: [{name: x-new, value: '1'}]}}]}]"
    shared = route("shared", f"[{{backendRefs: {references}}}]", "hostnames: [a.example.com]")
    rules = "[{matches: [{method: POST}], backendRefs: [{name: app, port: 80}]}]"
    conditional = [route(name, rules, f"hostnames: [{name}.example.com]") for name in ("c", "b")]

    front = given(read(snapshot(CLASS, GATEWAY, APP, new, shared, *conditional)))["frontends"]["gw_shop_web_80"]
    (of_hosts, *between, of_routes) = (step.choices for step in front.look_ups)
    assert not any(between)
    assert [each.to for each in of_hosts] == ["gw_http_shop_b_0", "gw_http_shop_c_0"]
    assert {each.to for each in of_routes} == {"gw_http_shop_shared_0_0", "gw_http_shop_shared_0_1"}


def test_what_no_route_of_a_host_matches_goes_to_its_wildcard() -> None:
    wild = route("wild", "[{backendRefs: [{name: app, port: 80}]}]", "hostnames: ['*.example.com']")
    rules = "[{matches: [{path: {value: /a}}], backendRefs: [{name: app, port: 80}]}]"
    exact, other = (route(name, rules, f"hostnames: [{name}.example.com]") for name in ("exact", "other"))
    memo = Memo()
    for routes in ((wild,), (wild, exact), (wild, exact, other), (wild, other), (exact, other), (exact, wild)):
        context = read(snapshot(CLASS, GATEWAY, APP, *routes), memo)
        assert context == read(snapshot(CLASS, GATEWAY, APP, *routes))

    entries = {name: [entry.key for entry in each.entries] for name, each in given(context)["backends"].items()}
    assert entries == {
        "gw_http_shop_exact_0": ["gw_shop_web_80|exact.example.com/a/"],
        "gw_http_shop_wild_0": ["gw_shop_web_80|*.example.com/"],
    }


@pytest.mark.parametrize(
    ("listeners", "above"),
    [
        (
            "[{name: http, port: 80, protocol: HTTP}]",
            {"": [], "*.c.com": [""], "*.b.c.com": ["*.c.com", ""], "*.z.a.b.c.com": ["*.b.c.com", "*.c.com", ""]},
        ),
        # What another listener has is not looked up above it.
        (
            "[{name: http, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTP, hostname: '*.b.c.com'}]",
            {"": [], "*.c.com": [""], "*.b.c.com": [], "*.z.a.b.c.com": ["*.b.c.com"]},
        ),
        (
            "[{name: b, port: 80, protocol: HTTP, hostname: '*.c.com'}]",
            {"*.c.com": [], "*.b.c.com": ["*.c.com"], "*.z.a.b.c.com": ["*.b.c.com", "*.c.com"]},
        ),
    ],
)
def test_above_a_wildcard_are_those_of_its_listener_the_next_one_first(
    listeners: str, above: dict[str, list[str]]
) -> None:
    gateway = GATEWAY.replace("[{name: http, port: 80, protocol: HTTP}]", listeners)
    text = route(
        "app",
        "[{backendRefs: [{name: app, port: 80}]}]",
        "hostnames: ['*.c.com', '*.b.c.com', '*.z.a.b.c.com', x.b.c.com]",
    )
    found = given(read(snapshot(CLASS, gateway, APP, text)))["virtual_hosts"].values()

    def id_of(host: str) -> str:
        return f"gw_shop_web_80|{host or '*'}"

    assert {each.host: each.above for each in found} == {
        **{host: tuple(map(id_of, others)) for host, others in above.items()},
        "x.b.c.com": (),
    }


def test_a_wildcard_keeps_out_of_hosts_of_another_listener() -> None:
    gateway = GATEWAY.replace(
        "[{name: http, port: 80, protocol: HTTP}]",
        "[{name: any, port: 80, protocol: HTTP}, {name: exact, port: 80, protocol: HTTP, hostname: a.example.com}]",
    )
    rules = "[{backendRefs: [{name: app, port: 80}]}]"
    wild = route("wild", rules).replace("{name: web}", "{name: web, sectionName: any}")
    exact = route("exact", rules.replace("[{b", "[{matches: [{path: {value: /a}}], b")).replace(
        "{name: web}", "{name: web, sectionName: exact}"
    )
    backends = given(read(snapshot(CLASS, gateway, APP, wild, exact)))["backends"]

    assert [entry.key for entry in backends["gw_http_shop_wild_0"].entries] == ["gw_shop_web_80|*/"]


def test_a_section_that_fails_leads_to_its_route_and_a_frontend_to_its_gateway() -> None:
    objects = snapshot(CLASS, GATEWAY, APP, route("app", "[{backendRefs: [{name: app, port: 80}]}]"))
    context = read(objects)
    claims = list(registry.claims_of(context))

    origins = ObjectOrigins(objects, claims)
    names = given(context)
    (backend,), (front,) = names["backends"].items(), names["frontends"].items()
    assert origins.of_element(backend) == {ObjectOrigin(Resource.HTTPROUTES, Key("shop", "app"))}
    assert origins.of_element(front) == {ObjectOrigin(Resource.GATEWAYS, Key("shop", "web"))}
    assert [str(claim.ref) for claim in claims] == ["Gateway shop/web", "HTTPRoute shop/app"]
    left = read(Filter().without(objects, [ObjectOrigin(Resource.HTTPROUTES, Key("shop", "app"))]))
    assert given(left)["backends"] == {}


def test_reloads_for_routes_and_ports_are_put_down_to_their_namespaces() -> None:
    rule = "backendRefs: [{name: app, port: 80}]"
    first = route("app", f"[{{{rule}}}, {{matches: [{{path: {{value: /b}}}}], {rule}}}]")
    second = route("other", f"[{{{rule}}}]")
    wider = GATEWAY.replace("protocol: HTTP}]", "protocol: HTTP}, {name: more, port: 81, protocol: HTTP}]")
    clusters = [
        (GATEWAY,),
        (GATEWAY, first),
        (GATEWAY, first, second),
        (wider, first, second),
        (wider, second),
        (GATEWAY, second),
    ]
    memo, previous, counts = Memo(), read(snapshot(CLASS, APP)), []
    for objects in clusters:
        seen = snapshot(CLASS, APP, *objects)
        context = read(seen, memo)
        assert context.owners == read(seen).owners, "what is remembered changes nothing"
        assert namespaces_of_changes(previous.owners, context.owners) == {"shop"}
        assert all(name.place and not name.name for name in context.owners["gateway"]), "they are no hosts"
        counts.append(len(context.owners["gateway"]))
        previous = context
    assert counts == [2, 5, 7, 8, 5, 4], "each Gateway and each route as it asks, too"
    assert "gateway" not in previous.reserved


_TO_APP = "backendRefs: [{name: app, port: 80}], "
_HEADER = _TO_APP + "filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: %s, value: %s}]}}]"
_EDIT = "filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [a]}}]"
_APART = "backendRefs: [{name: app, port: 80, weight: %d}, {name: other, port: 80, " + _EDIT + "}]"
_TO_BOTH = "backendRefs: [{name: app, port: 80, weight: %d}, {name: %s, port: 80, weight: 1}]"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_HEADER % ("x-a", "a"), _HEADER % ("x-b", "a")),
        (_HEADER % ("x-a", "a"), _TO_APP + "timeouts: {request: 1s}"),
        # Beyond the profiles of a namespace, and with copies of requests, values are lines too.
        (_HEADER % ("x-a", "a"), _HEADER % ("x-a", "b")),
        ("matches: [{headers: [{name: x, value: a}]}]", "matches: [{headers: [{name: x, value: b}]}]"),
        ("matches: [{method: GET}]", "matches: [{method: GET, path: {value: /a}}]"),
        (_TO_BOTH % (1, "missing"), _TO_BOTH % (2, "missing")),
        (_TO_BOTH % (1, "missing"), _TO_BOTH % (1, "other")),
        # Of references with different filters weights are lines.
        (_APART % 1, _APART % 2),
        (_TO_APP + "retry: {attempts: 1}", _TO_APP + "retry: {attempts: 2}"),
    ],
)
def test_what_a_route_asks_for_otherwise_than_before_is_on_its_namespaces_account(before: str, after: str) -> None:
    app, other = APP, SERVICE.format(name="other", address="10.0.0.2")
    was, now = (
        read(snapshot(CLASS, GATEWAY, app, other, route("app", f"[{{{each}}}]"), route("same", "[{}]")))
        for each in (before, after)
    )
    assert namespaces_of_changes(was.owners, now.owners) == {"shop"}
    changed = was.owners["gateway"].items() ^ now.owners["gateway"].items()
    assert {owner.name for _, owner in changed} == {"app"}


def test_hosts_gateways_and_sections_of_a_gateway_that_change_are_on_the_account_of_who_wrote_them() -> None:
    mine = route("app", "[{backendRefs: [{name: app, port: 80}]}]")
    wider = GATEWAY.replace("generation: 2", "generation: 3").replace("protocol: HTTP}]", "protocol: HTTP}, %s]")
    for objects, owners in [
        ((GATEWAY, mine.replace("rules:", "hostnames: [a.example.com]\n  rules:")), {"HTTPRoute"}),
        ((GATEWAY, mine.replace("{name: web}", "{name: web, sectionName: http}")), {"HTTPRoute"}),
        # A route follows where its Gateway leads it: that is not of its namespace's doing.
        ((wider % "{name: more, port: 80, hostname: a.example.com, protocol: HTTP}", mine), {"Gateway"}),
    ]:
        was, now = read(snapshot(CLASS, GATEWAY, APP, mine)), read(snapshot(CLASS, APP, *objects))
        changed = was.owners["gateway"].items() ^ now.owners["gateway"].items()
        assert {owner.kind for _, owner in changed} == owners


@pytest.mark.parametrize(
    ("kind", "annotations", "quiet", "said"),
    [
        ("HTTPRoute", "{pyconfd.io/access-log: 'off'}", True, None),
        ("GRPCRoute", "{pyconfd.io/access-log: 'off'}", True, None),
        ("HTTPRoute", "{pyconfd.io/access-log: 'on'}", False, None),
        ("HTTPRoute", "{pyconfd.io/acces-log: 'off'}", False, ("metadata.annotations", True, "pyconfd.io/access-log?")),
        ("HTTPRoute", "{pyconfd.io/access-log: 'no'}", False, ("annotation pyconfd.io/access-log", False, "no effect")),
        ("TLSRoute", "{pyconfd.io/access-log: 'off'}", False, ("metadata.annotations", True, "without effect")),
        ("HTTPRoute", "{nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0/8}", False, None),
    ],
)
def test_a_route_leaves_its_own_requests_out_of_the_log(
    kind: str,
    annotations: str,
    quiet: bool,
    said: tuple[str, bool, str] | None,
) -> None:
    other = SERVICE.format(name="other", address="10.0.0.2")
    rules = f"[{{{_APART % 1}}}]" if kind != "TLSRoute" else "[{backendRefs: [{name: app, port: 80}]}]"
    plain, loud = route("app", rules, kind=kind), route("loud", "[{backendRefs: [{name: app, port: 80}]}]")
    wider = GATEWAY.replace(
        "protocol: HTTP}]", "protocol: HTTP}, {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}}]"
    )
    was = read(snapshot(CLASS, wider, APP, other, loud, plain))
    now = read(
        snapshot(
            CLASS,
            wider,
            APP,
            other,
            loud,
            plain.replace("{name: app, g", f"{{name: app, annotations: {annotations}, g", 1),
        )
    )
    sections = {name: each.unlogged for name, each in given(now)["backends"].items() if not each.is_profile}
    assert {name: keys for name, keys in sections.items() if keys} == {
        name: (name,) for name in sections if quiet and "_app_" in name
    }
    assert now.owners == was.owners, "it takes no reload"
    assert [(each.field, each.reason.is_note) for each in now.refused] == ([said[:2]] if said else [])
    assert all(said and said[2] in each.detail for each in now.refused)
    assert now.statuses == was.statuses, "the route is served as it was"


def test_a_canary_endpoints_and_what_leads_nowhere_are_on_nobodys_account() -> None:
    other = SERVICE.format(name="other", address="10.0.0.2")
    moved = SERVICE.format(name="other", address="10.0.0.3")
    elsewhere = route("app", f"[{{{_TO_BOTH % (1, 'other')}}}]").replace("{name: web}", "{name: nobodys}")
    first = route("app", f"[{{{_TO_BOTH % (1, 'other')}}}]")
    for before, after in [
        ((other, first), (other, route("app", f"[{{{_TO_BOTH % (99, 'other')}}}]"))),
        ((other, first), (moved, first)),
        ((other, elsewhere), (other, elsewhere.replace("rules:", "hostnames: [a.example.com]\n  rules:"))),
        ((other, first), (other, first.replace("generation: 4", "generation: 5"))),
    ]:
        was, now = (read(snapshot(CLASS, GATEWAY, APP, *each)).owners for each in (before, after))
        assert namespaces_of_changes(was, now) == frozenset()


def test_certificates_of_listeners_are_known_with_host_and_end_and_a_wrong_name_is_said(tmp_path: Path) -> None:
    pair = CertificateAuthority(tmp_path).server("web", ["*.example.com"])
    data = {"tls.key": pair.key, "tls.crt": pair.cert}
    encoded = {name: base64.b64encode(path.read_bytes()).decode() for name, path in data.items()}
    tls = yaml.safe_dump({"kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "tls"}, "data": encoded})
    listener = "{{name: {0}, port: 443, protocol: HTTPS, hostname: {1}, tls: {{certificateRefs: [{{name: tls}}]}}}}"
    listeners = [listener.format("good", "a.example.com"), listener.format("bad", "a.example.org")]
    gateway = GATEWAY.replace("{name: http, port: 80, protocol: HTTP}", ", ".join(listeners))
    options = replace(OPTIONS, tls=TlsOptions("/f", ("shop",)))
    context = read(snapshot(CLASS, gateway, tls), options=options)
    found = {(each.secret, each.host) for part in context.certificates for each in part.values()}
    assert found == {("tls", "a.example.com"), ("tls", "a.example.org")}
    notes = [(each.field, each.value, each.reason.value) for each in context.refused]
    assert notes == [("listener bad hostname", "a.example.org", "certificate_mismatch")]


@pytest.mark.parametrize(
    ("reference", "value", "reason"),
    [
        ("name: app, port: 81", "app:81", "no_such_port"),
        ("name: app", "app", "no_such_port"),
        ("name: missing, port: 80", "missing", "no_such_service"),
    ],
)
def test_a_wrong_port_of_a_route_is_not_a_missing_service(reference: str, value: str, reason: str) -> None:
    context = read(snapshot(CLASS, GATEWAY, APP, route("web", f"[{{backendRefs: [{{{reference}}}]}}]")))
    [refusal] = context.refused
    assert (refusal.value, refusal.reason.value) == (value, reason)
    assert route_reasons(context, "web")["ResolvedRefs"] == "BackendNotFound"  # the specification has no other


def test_a_gateway_of_a_class_that_is_not_there_and_resembles_ours_is_said() -> None:
    memo = Memo()
    misspelled = GATEWAY.replace("gatewayClassName: pyconfd", "gatewayClassName: pyconf")
    foreign = GATEWAY.replace("gatewayClassName: pyconfd", "gatewayClassName: nginx")
    for text, expected in [
        (GATEWAY, []),
        (misspelled, ["unknown_class"]),
        (foreign, []),
        (misspelled, ["unknown_class"]),
    ]:
        for context in (read(snapshot(CLASS, text), memo), read(snapshot(CLASS, text))):
            assert [each.reason.value for each in context.refused] == expected
            assert not expected or "did you mean gatewayClassName: pyconfd?" in context.refused[0].detail
    other = CLASS.replace("name: pyconfd", "name: pyconf").replace("pyconfd.io/gateway", "example.com/other")
    assert read(snapshot(CLASS, f"---{other}", misspelled), memo).refused == ()


def test_what_is_claimed_and_served() -> None:
    seen = snapshot(
        CLASS,
        GATEWAY,
        APP,
        route("app", "[{backendRefs: [{name: app, port: 80}]}, {backendRefs: [{name: none, port: 80}]}]"),
        route("stray", "[{backendRefs: [{name: app, port: 80}]}]").replace("{name: web}", "{name: other}"),
    )
    assert claims(seen, "gateway", OPTIONS) == {
        "Gateway shop/web": ("GatewayClass pyconfd", (), {}, []),
        "HTTPRoute shop/app": (
            "parentRefs shop/web",
            (),
            {
                "gw_http_shop_app_0": ("gw_http_shop_app_0", "gw_http_shop_app_0", ["10.0.0.1"], [], False),
                "gw_http_shop_app_1": ("gw_http_shop_app_1", "gw_http_shop_app_1", [], [], False),
            },
            ["10.0.0.1:8080 ready"],
        ),
    }
    sections = {name: each for name, each in counted(seen, "gateway", OPTIONS).items() if name.startswith("gw_")}
    assert sections == {
        "gw_http_shop_app_0": ["10.0.0.1"],
        "gw_http_shop_app_1": [],
    }


def test_a_listener_without_routes_has_none_attached() -> None:
    body = status(read(snapshot(CLASS, GATEWAY)), Resource.GATEWAYS, "web")
    assert [each["attachedRoutes"] for each in body["listeners"]] == [0]


def test_what_a_parent_does_not_allow_comes_before_what_a_rule_has_wrong() -> None:
    listeners = GATEWAY.replace("protocol: HTTP", "protocol: HTTP, hostname: a.example.com")
    rules = "[{matches: [{path: {type: RegularExpression, value: '(('}}]}]"
    context = read(snapshot(CLASS, listeners, APP, route("app", rules, "hostnames: [b.example.com]")))
    assert route_reasons(context, "app")["Accepted"] == "NoMatchingListenerHostname"


@pytest.mark.parametrize(
    ("gateway_class", "parents", "hint"),
    [
        ("pyconfd", "[{name: web}]", ()),
        ("pyconf", "[{name: wep}]", ("pyconfd", "there is no Gateway shop/wep")),
    ],
)
def test_mistakes(gateway_class: str, parents: str, hint: tuple[str, ...]) -> None:
    made = snapshot(
        CLASS,
        GATEWAY.replace("gatewayClassName: pyconfd", f"gatewayClassName: {gateway_class}"),
        route("app", "[]").replace("[{name: web}]", parents),
    )
    preset = registry.PRESETS[PresetName.GATEWAY]
    found = [
        *preset.mistakes(made.gateways[Key("shop", "web")], made, PresetOptions()),
        *preset.mistakes(made.httproutes[Key("shop", "app")], made, PresetOptions()),
    ]
    assert len(found) == len(hint)
    for text, word in zip(found, hint, strict=True):
        assert word in text
