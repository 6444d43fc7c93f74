"""A Gateway's listeners and a route in; what the route attaches to, or why it does not."""

from typing import NamedTuple

import msgspec
import pytest
import yaml

from pyconfd.model.gateway_api import ParentReference
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.records import LabelSelector
from pyconfd.model.snapshot import Key, Resource
from pyconfd.presets.gateway.attachment import (
    RouteHead,
    RouteParent,
    attach,
    hosts_at,
    isolated,
    selects,
    valid_hosts,
)
from pyconfd.presets.gateway.grants import Grants
from pyconfd.presets.gateway.listeners import Referents, ResolvedCertificate, decide_listeners
from tests.presets.gateway.objects import gateway

LOOKUP = Referents(lambda _: ResolvedCertificate("PEM"), lambda _: ResolvedCertificate("CA"), Grants())
GATEWAY = Key("shop", "web")
WEB = ObjectKey(Resource.GATEWAYS, GATEWAY)
LABELS = {"shop": {"team": "shop"}, "blue": {"team": "blue"}, "red": {"team": "red"}}
CERT = "tls: {certificateRefs: [{name: cert}]}"


class Row(NamedTuple):
    """``expected`` is what the first parentRef attaches to, as LISTENER HOST..., or the reason why it does not."""

    name: str
    expected: list[str] | str
    listeners: str = "[{name: http, port: 80, protocol: HTTP}]"
    parents: str = "[{name: web}]"
    kind: str = "HTTPRoute"
    namespace: str = "shop"
    hosts: tuple[str, ...] | None = ()


TWO = "[{name: a, port: 80, protocol: HTTP}, {name: b, port: 8080, protocol: HTTP}]"
FROM = "[{{name: http, port: 80, protocol: HTTP, allowedRoutes: {{namespaces: {0}}}}}]"
PASSTHROUGH = "[{name: tls, port: 443, protocol: TLS, hostname: '*.example.com', tls: {mode: Passthrough}}]"
EXACT = "[{name: http, port: 80, protocol: HTTP, hostname: a.example.com}]"
WILDCARD = "[{name: http, port: 80, protocol: HTTP, hostname: '*.example.com'}]"
BLUE_OR_RED = "{from: Selector, selector: {matchExpressions: [{key: team, operator: In, values: [blue, red]}]}}"
HTTP_ONLY = "[{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}]}}]"

ROWS = [
    Row("the only listener", ["http "]),
    Row("all listeners without a name", ["a ", "b "], TWO),
    Row("one listener by name", ["b "], TWO, "[{name: web, sectionName: b}]"),
    Row("one listener by port", ["a "], TWO, "[{name: web, port: 80}]"),
    Row("name and port have to match", "NoMatchingParent", TWO, "[{name: web, port: 80, sectionName: b}]"),
    Row("no listener of this name", "NoMatchingParent", TWO, "[{name: web, sectionName: c}]"),
    Row("no listener with this port", "NoMatchingParent", TWO, "[{name: web, port: 81}]"),
    Row(
        "own namespace by default", "NotAllowedByListeners", parents="[{name: web, namespace: shop}]", namespace="blue"
    ),
    Row("all namespaces", ["http "], FROM.format("{from: All}"), "[{name: web, namespace: shop}]", namespace="blue"),
    Row("no namespace", "NotAllowedByListeners", FROM.format("{from: None}")),
    Row(
        "a namespace with the label",
        ["http "],
        FROM.format("{from: Selector, selector: {matchLabels: {team: blue}}}"),
        "[{name: web, namespace: shop}]",
        namespace="blue",
    ),
    Row(
        "a namespace without the label",
        "NotAllowedByListeners",
        FROM.format("{from: Selector, selector: {matchLabels: {team: blue}}}"),
    ),
    Row("one of two labels", ["http "], FROM.format(BLUE_OR_RED), "[{name: web, namespace: shop}]", namespace="red"),
    Row("none of two labels", "NotAllowedByListeners", FROM.format(BLUE_OR_RED)),
    Row("a selector without a selector", "NotAllowedByListeners", FROM.format("{from: Selector}")),
    Row("a kind that the protocol does not have", "NotAllowedByListeners", kind="TLSRoute", hosts=("a.com",)),
    Row("a kind that the listener does not list", "NotAllowedByListeners", HTTP_ONLY, kind="GRPCRoute"),
    Row("TCPRoute at a listener of HTTP", "NotAllowedByListeners", kind="TCPRoute", hosts=None),
    Row(
        "TCPRoute at each listener of TCP",
        ["a", "c"],
        "[{name: a, port: 1, protocol: TCP}, {name: b, port: 80, protocol: HTTP}, {name: c, port: 2, protocol: TCP}]",
        kind="TCPRoute",
        hosts=None,
    ),
    Row("host of the route at a listener for any", ["http a.com b.com"], hosts=("a.com", "B.com")),
    Row("host of the listener for a route without", ["http a.example.com"], EXACT),
    Row("equal hosts", ["http a.example.com"], EXACT, hosts=("a.example.com", "b.example.com")),
    Row("a wildcard has the listener's host", ["http a.example.com"], EXACT, hosts=("*.example.com",)),
    Row("the listener's wildcard has the host", ["http a.b.example.com"], WILDCARD, hosts=("a.b.example.com",)),
    Row("the longer wildcard counts", ["http *.b.example.com"], WILDCARD, hosts=("*.b.example.com",)),
    Row("the listener's wildcard is the longer one", ["http *.example.com"], WILDCARD, hosts=("*.com",)),
    Row("a wildcard is not for its own domain", "NoMatchingListenerHostname", WILDCARD, hosts=("example.com",)),
    Row("no host in common", "NoMatchingListenerHostname", EXACT, hosts=("b.example.com",)),
    Row(
        "no host in common with TLS",
        "NoMatchingListenerHostname",
        PASSTHROUGH,
        "[{name: web}]",
        "TLSRoute",
        hosts=("a.org",),
    ),
    Row("a host with a line break among others", ["http a.com"], hosts=("x\ny", "a.com")),
    Row("only a host with a line break", "UnsupportedValue", hosts=("x\ny",)),
    Row("a route attaches to a listener without certificate", ["s "], "[{name: s, port: 443, protocol: HTTPS}]"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_routes_attach(row: Row) -> None:
    listeners = decide_listeners(gateway(f"listeners: {row.listeners.strip()}"), LOOKUP)
    parents = msgspec.convert(yaml.safe_load(row.parents), tuple[ParentReference, ...])
    (found,) = attach(
        RouteHead(row.kind, row.namespace, parents, valid_hosts(row.hosts) if row.hosts is not None else None),
        {WEB: RouteParent(GATEWAY, listeners)}.get,
        lambda name: LABELS.get(name, {}),
    )

    if found.fault is not None:
        assert (found.fault.reason, found.attachments) == (row.expected, ())
    else:
        assert [
            f"{each.listener} {' '.join(at.host for at in each.hosts)}" if each.hosts else each.listener
            for each in found.attachments
        ] == row.expected


@pytest.mark.parametrize(
    ("hosts", "namespace", "fault"),
    [
        (("a b",), "shop", ("UnsupportedValue", "hostnames", "a b")),
        (("b.test", "c.test"), "shop", ("NoMatchingListenerHostname", "hostnames", "b.test, c.test")),
        ((), "blue", ("NotAllowedByListeners", "parentRefs", "web")),
    ],
)  # fmt: skip
def test_a_route_that_attaches_nowhere_says_where_it_is_wrong(
    hosts: tuple[str, ...], namespace: str, fault: tuple[str, str, str]
) -> None:
    listeners = decide_listeners(gateway(f"listeners: {EXACT}"), LOOKUP)
    parents = (ParentReference(name="web", namespace="shop"),)
    [found] = attach(
        RouteHead("HTTPRoute", namespace, parents, valid_hosts(hosts)),
        {WEB: RouteParent(GATEWAY, listeners)}.get,
        lambda _: {},
    )
    assert found.fault is not None
    assert tuple(found.fault)[:3] == fault
    assert "shop/web" in found.fault.detail or fault[0] == "UnsupportedValue"


@pytest.mark.parametrize(
    "parent",
    [
        "{name: other}",
        "{name: web, namespace: other}",
        "{name: web, kind: Service, group: ''}",
        "{name: web, group: a.io}",
    ],
)
def test_parents_of_others_are_left_alone(parent: str) -> None:
    parents = (msgspec.convert(yaml.safe_load(parent), ParentReference),)

    assert (
        attach(
            RouteHead("HTTPRoute", "shop", parents, valid_hosts(())), {WEB: RouteParent(GATEWAY, ())}.get, lambda _: {}
        )
        == ()
    )


@pytest.mark.parametrize(
    ("host", "listener"),
    [
        ("a.com", "any"),
        ("a.example.com", "wildcard"),
        ("a.foo.example.com", "longer"),
        ("abc.foo.example.com", "exact"),
        ("*.foo.example.com", "longer"),
        ("*.example.com", "wildcard"),
        ("*.com", "any"),
        ("", "any"),
    ],
)
def test_most_specific_listener_has_a_host(host: str, listener: str) -> None:
    hosts = {"": "any", "*.example.com": "wildcard", "*.foo.example.com": "longer", "abc.foo.example.com": "exact"}

    assert isolated(host, hosts.get) == listener
    assert isolated("example.org", {"*.example.com": "wildcard"}.get) == ""


@pytest.mark.parametrize(
    ("hostname", "hosts", "detail"),
    [
        ("*.b.c.d.e.f.g.example.com", ("*.b.c.d.e.f.g.example.com",), ""),
        ("*.a.b.c.d.e.f.g.example.com", (), "at most 8 labels"),
        ("a.b.c.d.e.f.g.h.example.com", ("a.b.c.d.e.f.g.h.example.com",), ""),
        ("shop example", (), "not a host name"),
    ],
)
def test_hosts_of_a_route(hostname: str, hosts: tuple[str, ...], detail: str) -> None:
    found = valid_hosts([hostname])
    assert found.names == hosts
    assert [(fault.field, fault.value) for fault in found.faults] == [("hostnames", hostname)] * (not hosts)
    assert all(detail in fault.detail for fault in found.faults)


def test_a_route_keeps_the_host_that_it_asked_for() -> None:
    assert hosts_at("a.example.com", ("*.example.com", "a.example.com")) == (
        ("a.example.com", "*.example.com"),
        ("a.example.com", "a.example.com"),
    )


@pytest.mark.parametrize(
    ("operator", "expected"), [("Exists", True), ("DoesNotExist", False), ("NotIn", False), ("Unknown", False)]
)
def test_operators_of_selectors(operator: str, expected: bool) -> None:
    text = {"matchExpressions": [{"key": "team", "operator": operator, "values": ["blue"]}]}

    assert selects(msgspec.convert(text, LabelSelector), {"team": "blue"}) is expected
