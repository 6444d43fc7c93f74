"""Listeners of one Gateway in, their conditions out: a row for each rule."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from pyconfd.model.snapshot import Key
from pyconfd.presets.gateway.grants import Grants
from pyconfd.presets.gateway.listeners import ListenerDecision, ResolvedCertificate, Resolver, decide_listeners
from tests.presets.gateway.objects import gateway, snapshot

SECRETS = {Key("shop", "cert"), Key("other", "cert")}
BUNDLES = {Key("shop", "ca"), Key("other", "ca")}


def lookup(grants: Grants | None = None) -> Resolver:
    return Resolver(
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
    ("default", "expected"),
    [
        ("{kind: ConfigMap, name: ca}", {}),
        ("{kind: ConfigMap, name: missing}", {"ResolvedRefs": "InvalidCACertificateRef", **UNVERIFIED}),
        ("{kind: Service, name: ca}", {"ResolvedRefs": "InvalidCACertificateKind", **UNVERIFIED}),
        ("{kind: ConfigMap, name: ca, namespace: other}", {"ResolvedRefs": "RefNotPermitted", **UNVERIFIED}),
        ("{kind: ConfigMap, name: missing}, {kind: ConfigMap, name: ca}", {"ResolvedRefs": "InvalidCACertificateRef"}),
    ],
)
def test_clients_are_verified_by_default_and_by_port(default: str, expected: dict[str, str]) -> None:
    found = decide(CLIENTS.format(default=default))

    assert {name: conditions(each) for name, each in found.items()} == {"https": expected, "other": {}, "http": {}}


def test_65th_listener_is_not_accepted() -> None:
    spec = "listeners:\n" + "\n".join(f"- {{name: n{n}, port: {n + 1}, protocol: HTTP}}" for n in range(65))
    found = decide(spec)

    assert [name for name, each in found.items() if not each.is_accepted] == ["n64"]


def test_second_listener_of_a_name_disables_both() -> None:
    found = decide("listeners: [{name: a, port: 1, protocol: TCP}, {name: a, port: 2, protocol: TCP}]")

    assert conditions(found["a"]) == {"Accepted": "UnsupportedValue", **NOT_PROGRAMMED}
