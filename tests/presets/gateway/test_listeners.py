"""Listeners of one Gateway in, their conditions out: a row for each rule."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from pyconfd.model.gateway_api import NamespacesFrom
from pyconfd.model.reservation import NEVER, Owner
from pyconfd.model.snapshot import Key
from pyconfd.presets.gateway.grants import Grants
from pyconfd.presets.gateway.listeners import (
    ClientCa,
    ListenerDecision,
    Referents,
    ResolvedCertificate,
    TlsMode,
    covers,
    decide_listeners,
)
from pyconfd.presets.gateway.status import Fault, StatusCondition
from tests.presets.gateway.objects import gateway, snapshot

SECRETS = {Key("shop", "cert"), Key("other", "cert")}
BUNDLES = {Key("shop", "ca"), Key("other", "ca")}


def lookup(grants: Grants | None = None) -> Referents:
    return Referents(
        lambda key: (
            ResolvedCertificate("PEM", "/cert.pem")
            if key in SECRETS
            else ResolvedCertificate(fault="there is no such Secret")
        ),
        lambda key: (
            ResolvedCertificate("CA\n") if key in BUNDLES else ResolvedCertificate(fault="there is no such ConfigMap")
        ),
        grants or Grants(),
    )


def decide(spec: str, grants: Grants | None = None) -> dict[str, ListenerDecision]:
    taken = {8404: "the status page listens there"}
    found = decide_listeners(gateway(spec), lookup(grants), lambda port: taken.get(port, ""))
    return {each.name: each for each in found}


def conditions(decision: ListenerDecision) -> dict[str, str]:
    """Return the reason of each condition that is not as in a listener without fault."""
    usual = {
        "Accepted": "Accepted",
        "Programmed": "Programmed",
        "ResolvedRefs": "ResolvedRefs",
        "Conflicted": "NoConflicts",
    }
    return {each.type: each.reason for each in decision.conditions if usual.get(each.type) != each.reason}


class Row(NamedTuple):
    name: str
    listeners: str
    expected: dict[str, dict[str, str]]
    kinds: Mapping[str, tuple[str, ...]] = MappingProxyType({})


NOT_PROGRAMMED = {"Programmed": "Invalid"}
NO_CERTIFICATE = {"ResolvedRefs": "InvalidCertificateRef", **NOT_PROGRAMMED}
PROTOCOL_CONFLICT = {"Accepted": "ProtocolConflict", "Conflicted": "ProtocolConflict", **NOT_PROGRAMMED}
HOSTNAME_CONFLICT = {"Accepted": "HostnameConflict", "Conflicted": "HostnameConflict", **NOT_PROGRAMMED}
OVERLAP = {"OverlappingTLSConfig": "OverlappingHostnames"}
CERT = "tls: {certificateRefs: [{name: cert}]}"

ROWS = [
    Row(
        "kinds follow from the protocol",
        f"""
        - {{name: http, port: 80, protocol: HTTP}}
        - {{name: https, port: 443, protocol: HTTPS, {CERT}}}
        - {{name: through, port: 444, protocol: TLS, tls: {{mode: Passthrough}}}}
        - {{name: ended, port: 445, protocol: TLS, tls: {{mode: Terminate, certificateRefs: [{{name: cert}}]}}}}
        - {{name: tcp, port: 446, protocol: TCP}}
        """,
        {"http": {}, "https": {}, "through": {}, "ended": {}, "tcp": {}},
        {
            "http": ("HTTPRoute", "GRPCRoute"),
            "https": ("HTTPRoute", "GRPCRoute"),
            "through": ("TLSRoute",),
            "ended": ("TLSRoute",),
            "tcp": ("TCPRoute",),
        },
    ),
    Row(
        "an unknown protocol takes no route and leaves the other listener alone",
        "[{name: http, port: 80, protocol: HTTP}, {name: quic, port: 443, protocol: UDP}]",
        {"http": {}, "quic": {"Accepted": "UnsupportedProtocol", **NOT_PROGRAMMED}},
        {"http": ("HTTPRoute", "GRPCRoute"), "quic": ()},
    ),
    Row(
        "only unsupported kinds serve nothing",
        "[{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: Invalid}]}}]",
        {"http": {"ResolvedRefs": "InvalidRouteKinds", **NOT_PROGRAMMED}},
        {"http": ()},
    ),
    Row(
        "an unsupported kind beside a supported one",
        "[{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: Invalid}, {kind: HTTPRoute}]}}]",
        {"http": {"ResolvedRefs": "InvalidRouteKinds"}},
        {"http": ("HTTPRoute",)},
    ),
    Row(
        "a kind of another group is not supported",
        "[{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{group: a.io, kind: HTTPRoute}]}}]",
        {"http": {"ResolvedRefs": "InvalidRouteKinds", **NOT_PROGRAMMED}},
        {"http": ()},
    ),
    Row(
        "TCPRoute is for no listener of TLS",
        """
        - {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough},
           allowedRoutes: {kinds: [{kind: TCPRoute}, {kind: TLSRoute}]}}
        """,
        {"tls": {"ResolvedRefs": "InvalidRouteKinds"}},
        {"tls": ("TLSRoute",)},
    ),
    Row(
        "references to certificates that lead nowhere",
        """
        - {name: missing, port: 1, protocol: HTTPS, tls: {certificateRefs: [{name: missing}]}}
        - {name: group, port: 2, protocol: HTTPS, tls: {certificateRefs: [{group: a.io, name: cert}]}}
        - {name: kind, port: 3, protocol: HTTPS, tls: {certificateRefs: [{kind: ConfigMap, name: cert}]}}
        - {name: none, port: 4, protocol: HTTPS, tls: {}}
        - {name: notls, port: 5, protocol: HTTPS}
        """,
        dict.fromkeys(("missing", "group", "kind", "none", "notls"), NO_CERTIFICATE),
    ),
    Row(
        "one of two certificates is there",
        "[{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}, {name: missing}]}}]",
        {"https": {"ResolvedRefs": "InvalidCertificateRef"}},
    ),
    Row(
        "a certificate of another namespace needs a grant",
        "[{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert, namespace: other}]}}]",
        {"https": {"ResolvedRefs": "RefNotPermitted", **NOT_PROGRAMMED}},
    ),
    Row(
        "HTTPS cannot go through",
        "[{name: https, port: 443, protocol: HTTPS, tls: {mode: Passthrough}}]",
        {"https": {"Accepted": "UnsupportedValue", **NOT_PROGRAMMED}},
    ),
    Row(
        "an unknown mode of TLS",
        "[{name: tls, port: 443, protocol: TLS, tls: {mode: Guess}}]",
        {"tls": {"Accepted": "UnsupportedValue", **NOT_PROGRAMMED}},
    ),
    Row(
        "protocols that cannot share a port conflict, and none of them wins",
        f"""
        - {{name: http, port: 80, protocol: HTTP}}
        - {{name: https, port: 80, protocol: HTTPS, hostname: a.com, {CERT}}}
        - {{name: tcp, port: 443, protocol: TCP}}
        - {{name: tls, port: 443, protocol: TLS, tls: {{mode: Passthrough}}}}
        - {{name: free, port: 8080, protocol: HTTP}}
        """,
        {
            "http": PROTOCOL_CONFLICT,
            "https": PROTOCOL_CONFLICT,
            "tcp": PROTOCOL_CONFLICT,
            "tls": PROTOCOL_CONFLICT,
            "free": {},
        },
    ),
    Row(
        "two listeners of TCP at one port conflict",
        "[{name: a, port: 1, protocol: TCP}, {name: b, port: 1, protocol: TCP}, {name: c, port: 2, protocol: TCP}]",
        {"a": PROTOCOL_CONFLICT, "b": PROTOCOL_CONFLICT, "c": {}},
    ),
    Row(
        "equal hostnames at one port conflict",
        """
        - {name: a, port: 80, protocol: HTTP, hostname: a.com}
        - {name: b, port: 80, protocol: HTTP, hostname: A.com}
        - {name: c, port: 80, protocol: HTTP, hostname: c.com}
        - {name: d, port: 80, protocol: HTTP}
        - {name: e, port: 81, protocol: HTTP, hostname: a.com}
        """,
        {"a": HOSTNAME_CONFLICT, "b": HOSTNAME_CONFLICT, "c": {}, "d": {}, "e": {}},
    ),
    Row(
        "equal hostnames of HTTPS and TLS at one port conflict",
        f"""
        - {{name: a, port: 443, protocol: HTTPS, hostname: a.com, {CERT}}}
        - {{name: b, port: 443, protocol: TLS, hostname: a.com, tls: {{mode: Passthrough}}}}
        """,
        {"a": {**HOSTNAME_CONFLICT, **OVERLAP}, "b": {**HOSTNAME_CONFLICT, **OVERLAP}},
    ),
    Row(
        "TLS that is ended and TLS that goes through share a port",
        """
        - {name: a, port: 443, protocol: TLS, hostname: a.com, tls: {mode: Terminate, certificateRefs: [{name: cert}]}}
        - {name: b, port: 443, protocol: TLS, hostname: b.com, tls: {mode: Passthrough}}
        """,
        {"a": {}, "b": {}},
    ),
    Row(
        "hostnames of TLS that overlap are shown",
        f"""
        - {{name: a, port: 443, protocol: HTTPS, hostname: a.example.com, {CERT}}}
        - {{name: b, port: 443, protocol: HTTPS, hostname: "*.example.com", {CERT}}}
        - {{name: c, port: 443, protocol: HTTPS, hostname: a.example.org, {CERT}}}
        """,
        {"a": OVERLAP, "b": OVERLAP, "c": {}},
    ),
    Row(
        "ports that cannot be had",
        "[{name: a, port: 0, protocol: HTTP}, {name: b, port: 70000, protocol: TCP},"
        " {name: c, port: 8404, protocol: HTTP}]",
        {name: {"Accepted": "PortUnavailable", **NOT_PROGRAMMED} for name in "abc"},
    ),
    Row(
        "a hostname with a line break",
        '[{name: a, port: 80, protocol: HTTP, hostname: "a.com\\nbind :1"}, {name: b, port: 80, protocol: HTTP}]',
        {"a": {"Accepted": "UnsupportedValue", **NOT_PROGRAMMED}, "b": {}},
    ),
]


FAULTS = {
    "an unknown protocol takes no route and leaves the other listener alone": [
        ("UnsupportedProtocol", "listener quic protocol", "UDP")
    ],
    "only unsupported kinds serve nothing": [("InvalidRouteKinds", "listener http allowedRoutes.kinds", "Invalid")],
    "an unsupported kind beside a supported one": [
        ("InvalidRouteKinds", "listener http allowedRoutes.kinds", "Invalid")
    ],
    "a kind of another group is not supported": [
        ("InvalidRouteKinds", "listener http allowedRoutes.kinds", "HTTPRoute")
    ],
    "TCPRoute is for no listener of TLS": [("InvalidRouteKinds", "listener tls allowedRoutes.kinds", "TCPRoute")],
    "references to certificates that lead nowhere": [
        ("InvalidCertificateRef", f"listener {name} tls.certificateRefs", value)
        for name, value in (
            ("missing", "shop/missing"),
            ("group", "Secret.a.io"),
            ("kind", "ConfigMap"),
            ("none", ""),
            ("notls", ""),
        )
    ],
    "one of two certificates is there": [
        ("InvalidCertificateRef", "listener https tls.certificateRefs", "shop/missing")
    ],
    "a certificate of another namespace needs a grant": [
        ("RefNotPermitted", "listener https tls.certificateRefs", "other/cert")
    ],
    "HTTPS cannot go through": [("UnsupportedValue", "listener https tls.mode", "Passthrough")],
    "an unknown mode of TLS": [("UnsupportedValue", "listener tls tls.mode", "Guess")],
    "protocols that cannot share a port conflict, and none of them wins": [
        ("ProtocolConflict", f"listener {name} port", port)
        for name, port in (("http", "80"), ("https", "80"), ("tcp", "443"), ("tls", "443"))
    ],
    "two listeners of TCP at one port conflict": [("ProtocolConflict", f"listener {name} port", "1") for name in "ab"],
    "equal hostnames at one port conflict": [
        ("HostnameConflict", f"listener {name} hostname", "a.com") for name in "ab"
    ],
    "equal hostnames of HTTPS and TLS at one port conflict": [
        ("HostnameConflict", f"listener {name} hostname", "a.com") for name in "ab"
    ],
    "ports that cannot be had": [
        ("PortUnavailable", f"listener {name} port", port) for name, port in (("a", "0"), ("b", "70000"), ("c", "8404"))
    ],
    "a hostname with a line break": [("UnsupportedValue", "listener a hostname", "a.com\nbind :1")],
}
"""What is refused of the listeners of a row: the reason, where it stands, and the value."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_faults_of_listeners_name_the_field_and_the_value(row: Row) -> None:
    found = decide(f"listeners:\n{_indented(row.listeners)}").values()

    assert [fault[:3] for each in found for fault in each.faults] == FAULTS.get(row.name, [])
    for each in found:
        reasons = {condition.type: condition.reason for condition in each.conditions}
        assert each.is_accepted is (reasons["Accepted"] == "Accepted")
        assert each.is_programmed is (reasons["Programmed"] == "Programmed")
        assert each.refs_resolved is (reasons["ResolvedRefs"] == "ResolvedRefs")


def met(kind: str) -> StatusCondition:
    return StatusCondition(kind, "True", kind, "")


NO_CONFLICTS = StatusCondition("Conflicted", "False", "NoConflicts", "")


def test_a_listener_is_decided_as_a_whole() -> None:
    kinds = "{namespaces: {from: All}, kinds: [{kind: HTTPRoute}, {kind: GRPCRoute}]}"
    found = decide(f"""
listeners:
- {{name: a, port: 443, protocol: HTTPS, hostname: A.example.com, {CERT}, allowedRoutes: {kinds}}}
- {{name: b, port: 443, protocol: TLS, hostname: "*.example.com", tls: {{mode: Passthrough}}}}
- {{name: c, port: 444, protocol: TLS, tls: {{mode: Terminate, certificateRefs: [{{name: missing}}]}}}}
- {{name: d, port: 70000, protocol: TCP, hostname: a.com, allowedRoutes: {{kinds: [{{kind: HTTPRoute}}]}}}}
tls: {{frontend: {{default: {{validation: {{mode: AllowInsecureFallback, caCertificateRefs: [
  {{kind: ConfigMap, name: ca}}, {{kind: ConfigMap, name: ca, namespace: shop}}]}}}}}}}}
""")
    message = "clients may use one connection for hosts of this listener and of"
    overlap = StatusCondition("OverlappingTLSConfig", "True", "OverlappingHostnames", message)
    mine = Owner("Gateway", "shop", "web", NEVER)
    everybody, same = NamespacesFrom("All"), NamespacesFrom("Same")
    accepted, programmed, resolved = met("Accepted"), met("Programmed"), met("ResolvedRefs")
    assert found["a"] == ListenerDecision(
        "a", 443, "HTTPS", "a.example.com", TlsMode.TERMINATE, ("HTTPRoute", "GRPCRoute"), everybody,
        (ResolvedCertificate("PEM", "/cert.pem"),), ClientCa("CA\nCA\n", optional=True), (),
        (accepted, programmed, resolved, NO_CONFLICTS, overlap._replace(message=f"{message} b")),
        is_accepted=True, is_programmed=True, refs_resolved=True, owner=mine,
    )  # fmt: skip
    assert found["b"] == ListenerDecision(
        "b", 443, "TLS", "*.example.com", TlsMode.PASSTHROUGH, ("TLSRoute",), same, (), None, (),
        (accepted, programmed, resolved, NO_CONFLICTS, overlap._replace(message=f"{message} a")),
        is_accepted=True, is_programmed=True, refs_resolved=True, owner=mine,
    )  # fmt: skip
    missing = Fault(
        "InvalidCertificateRef", "listener c tls.certificateRefs", "shop/missing", "there is no such Secret"
    )
    unmet = StatusCondition("ResolvedRefs", "False", "InvalidCertificateRef", missing.message)
    assert found["c"] == ListenerDecision(
        "c", 444, "TLS", "", TlsMode.TERMINATE, ("TLSRoute",), same, (), None, (missing,),
        (accepted, unmet._replace(type="Programmed", reason="Invalid"), unmet, NO_CONFLICTS),
        is_accepted=True, is_programmed=False, refs_resolved=False, owner=mine,
    )  # fmt: skip
    port, kind = found["d"].faults
    assert (port[:3], kind[:3]) == (
        ("PortUnavailable", "listener d port", "70000"),
        ("InvalidRouteKinds", "listener d allowedRoutes.kinds", "HTTPRoute"),
    )
    assert found["d"] == ListenerDecision(
        "d", 70000, "TCP", "", TlsMode.NONE, (), same, (), None, (port, kind),
        (
            StatusCondition("Accepted", "False", "PortUnavailable", port.message),
            StatusCondition("Programmed", "False", "Invalid", port.message),
            StatusCondition("ResolvedRefs", "False", "InvalidRouteKinds", kind.message),
            NO_CONFLICTS,
        ),
        is_accepted=False, is_programmed=False, refs_resolved=False, owner=mine,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("listeners", "detail"),
    [
        (
            "[{name: a, port: 80, protocol: TCP}, {name: b, port: 80, protocol: HTTP}]",
            "several listeners have port 80 with HTTP and TCP: give each a port of its own",
        ),
        (
            "[{name: a, port: 80, protocol: TCP}, {name: b, port: 80, protocol: TCP}]",
            "several listeners have port 80 with TCP: give each a port of its own",
        ),
        (
            "[{name: a, port: 80, protocol: HTTP, hostname: a.c}, {name: b, port: 80, protocol: HTTP, hostname: a.c}]",
            "several listeners of port 80 have this hostname: give each another one",
        ),
    ],
)
def test_both_listeners_are_told_of_their_conflict(listeners: str, detail: str) -> None:
    found = decide(f"listeners: {listeners}")

    assert [[fault.detail for fault in each.faults] for each in found.values()] == [[detail], [detail]]


@pytest.mark.parametrize(("port", "is_one"), [(0, False), (1, True), (65535, True), (65536, False)])
def test_ports_end_at_65535(port: int, is_one: bool) -> None:
    assert decide(f"listeners: [{{name: a, port: {port}, protocol: TCP}}]")["a"].is_accepted is is_one


@pytest.mark.parametrize(
    ("pattern", "host", "is_covered"),
    [
        ("", "", True),
        ("", "a.com", True),
        ("a.com", "a.com", True),
        ("*.com", "*.com", True),
        ("*.com", "a.com", True),
        ("*.com", "b.a.com", True),
        ("*.com", "*.a.com", True),
        ("*.com", ".com", False),
        ("*.com", "com", False),
        ("*.a.com", "*.com", False),
        ("a.com", "", False),
        ("a.com", "b.a.com", False),
        ("*.a.com", "x.ba.com", False),
        ("x.com", "a.x.com", False),
    ],
)
def test_a_pattern_covers_each_host_of_another(pattern: str, host: str, is_covered: bool) -> None:
    assert covers(pattern, host) is is_covered


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_conditions_of_listeners(row: Row) -> None:
    found = decide(f"listeners:\n{_indented(row.listeners)}")

    assert {name: conditions(each) for name, each in found.items()} == row.expected
    assert {name: found[name].kinds for name in row.kinds} == row.kinds


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


GRANT = """
kind: ReferenceGrant
metadata: {{name: grant, namespace: other}}
spec:
  from: [{{group: gateway.networking.k8s.io, kind: {from_kind}, namespace: {namespace}}}]
  to: [{{group: "", kind: Secret{name}}}]
"""


@pytest.mark.parametrize(
    ("from_kind", "namespace", "name", "reason"),
    [
        ("Gateway", "shop", "", None),
        ("Gateway", "shop", ", name: cert", None),
        ("Gateway", "shop", ", name: another", "RefNotPermitted"),
        ("HTTPRoute", "shop", "", "RefNotPermitted"),
        ("Gateway", "another", "", "RefNotPermitted"),
    ],
)
def test_grants_for_certificates(from_kind: str, namespace: str, name: str, reason: str | None) -> None:
    grant = snapshot(GRANT.format(from_kind=from_kind, namespace=namespace, name=name)).referencegrants
    grants = {key.namespace: ((key, each),) for key, each in grant.items()}
    spec = "listeners: [{name: a, port: 1, protocol: HTTPS, tls: {certificateRefs: [{name: cert, namespace: other}]}}]"

    assert conditions(decide(spec, Grants(grants))["a"]).get("ResolvedRefs") == reason


CLIENTS = """
listeners:
- {{name: https, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{{name: cert}}]}}}}
- {{name: other, port: 8443, protocol: HTTPS, tls: {{certificateRefs: [{{name: cert}}]}}}}
- {{name: http, port: 80, protocol: HTTP}}
tls:
  frontend:
    default: {{validation: {{caCertificateRefs: [{default}]}}}}
    perPort: [{{port: 8443, tls: {{validation: {{caCertificateRefs: [{{kind: ConfigMap, name: ca}}]}}}}}}]
"""
UNVERIFIED = {"Accepted": "NoValidCACertificate", **NOT_PROGRAMMED}


@pytest.mark.parametrize(
    ("default", "expected", "value"),
    [
        ("{kind: ConfigMap, name: ca}", {}, ""),
        ("{kind: ConfigMap, name: missing}", {"ResolvedRefs": "InvalidCACertificateRef", **UNVERIFIED}, "shop/missing"),
        ("{kind: Service, name: ca}", {"ResolvedRefs": "InvalidCACertificateKind", **UNVERIFIED}, "Service"),
        (
            "{kind: ConfigMap, group: a.io, name: ca}",
            {"ResolvedRefs": "InvalidCACertificateKind", **UNVERIFIED},
            "ConfigMap.a.io",
        ),
        (
            "{kind: ConfigMap, name: ca, namespace: other}",
            {"ResolvedRefs": "RefNotPermitted", **UNVERIFIED},
            "other/ca",
        ),
        (
            "{kind: ConfigMap, name: missing}, {kind: ConfigMap, name: ca}",
            {"ResolvedRefs": "InvalidCACertificateRef"},
            "shop/missing",
        ),
    ],
)
def test_clients_are_verified_by_default_and_by_port(default: str, expected: dict[str, str], value: str) -> None:
    found = decide(CLIENTS.format(default=default))

    assert {name: conditions(each) for name, each in found.items()} == {"https": expected, "other": {}, "http": {}}
    field = "listener https tls.frontend.validation.caCertificateRefs"
    unverified = [(expected["Accepted"], field, "")] if "Accepted" in expected else []
    unresolved = [(expected["ResolvedRefs"], field, value)] if "ResolvedRefs" in expected else []
    assert [fault[:3] for fault in found["https"].faults] == [*unverified, *unresolved]
    assert found["https"].client_ca == (None if unverified else ClientCa("CA\n"))
    assert (found["other"].client_ca, found["http"].client_ca) == (ClientCa("CA\n"), None)


def test_an_unknown_mode_of_client_certificates_is_refused() -> None:
    text = CLIENTS.format(default="{kind: ConfigMap, name: ca}")
    found = decide(text.replace("default: {validation: {", "default: {validation: {mode: Guess, "))["https"]

    assert [fault[:3] for fault in found.faults] == [
        ("UnsupportedValue", "listener https tls.frontend.validation.mode", "Guess")
    ]
    assert found.client_ca == ClientCa("CA\n", optional=False)


def test_65th_listener_is_not_accepted() -> None:
    spec = "listeners:\n" + "\n".join(f"- {{name: n{n}, port: {n + 1}, protocol: HTTP}}" for n in range(65))
    found = decide(spec)

    assert [name for name, each in found.items() if not each.is_accepted] == ["n64"]
    assert [fault[:3] for fault in found["n64"].faults] == [("UnsupportedValue", "listener n64", "")]


def test_second_listener_of_a_name_disables_both() -> None:
    found = decide("listeners: [{name: a, port: 1, protocol: TCP}, {name: a, port: 2, protocol: TCP}]")

    assert conditions(found["a"]) == {"Accepted": "UnsupportedValue", **NOT_PROGRAMMED}
    assert [fault[:3] for fault in found["a"].faults] == [("UnsupportedValue", "listener a name", "a")]


def test_a_name_that_kubernetes_would_not_accept_is_refused() -> None:
    found = decide('listeners: [{name: "a b", port: 1, protocol: TCP}, {name: c, port: 2, protocol: TCP}]')

    assert [fault[:3] for fault in found["a b"].faults] == [("UnsupportedValue", "listener a b name", "a b")]
    assert found["c"].faults == ()
