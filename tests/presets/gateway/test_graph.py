"""The collections of Gateways: after any changes they are those of a new graph, and nothing is made needlessly."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.model.gateway_api import GROUP
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.gateway import work
from pyconfd.presets.graph import PresetGraph
from pyconfd.presets.policy import ClaimOptions, Rule
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import PRESETS
from pyconfd.presets.routing.types import PathKind, RouteMatch
from tests.derived.checking import follow
from tests.presets.ingress.objects import Obj, secret, service, snapshot
from tests.world.pki import CertificateAuthority, KeyPair

NAMES = ("gateway",)
NAMESPACES = ("demo", "team")
HOSTS = ("", "a.example.com", "*.example.com", "b.c.example.com", "*.c.example.com")
NAMESPACE = st.sampled_from(NAMESPACES)
DAY = st.integers(1, 3)


def made(kind: str, name: str, namespace: str, day: int, spec: Obj) -> Obj:
    meta = {
        "name": name, "namespace": namespace, "uid": f"{kind}-{namespace}-{name}", "generation": 1,
        "creationTimestamp": f"2026-01-{day:02}T00:00:00Z",
    }  # fmt: skip
    return {"kind": kind, "metadata": meta, "spec": spec}


def listener(protocol: str, port: int, host: str, secret_name: str, allowed: str, mode: str) -> Obj:
    found: Obj = {
        "name": f"{protocol.lower()}-{port}-{len(host)}", "port": port, "protocol": protocol, "hostname": host,
        "allowedRoutes": {"namespaces": {"from": allowed, "selector": {"matchLabels": {"team": "a"}}}},
    }  # fmt: skip
    if protocol in {"HTTPS", "TLS"}:
        found["tls"] = {"mode": mode if protocol == "TLS" else "Terminate", "certificateRefs": [{"name": secret_name}]}
    return found


LISTENER = st.builds(
    listener,
    st.sampled_from(["HTTP", "HTTP", "HTTPS", "TLS", "TCP"]),
    st.sampled_from([80, 443]),
    st.sampled_from(HOSTS),
    st.sampled_from(["s1", "s2"]),
    st.sampled_from(["Same", "All", "All", "Selector"]),
    st.sampled_from(["Terminate", "Passthrough"]),
)
GATEWAYS = st.builds(
    lambda name, namespace, day, class_name, listeners, sets: made(
        "Gateway", name, namespace, day,
        {
            "gatewayClassName": class_name,
            "listeners": listeners,
            "allowedListeners": {"namespaces": {"from": sets, "selector": {"matchLabels": {"team": "a"}}}},
        },
    ),
    st.sampled_from(["web", "web", "api"]),
    st.just("demo"),
    DAY,
    st.sampled_from(["pyconfd", "pyconfd", "pyconfd", "pyconfdd"]),
    st.lists(LISTENER, min_size=1, max_size=3),
    st.sampled_from(["All", "All", "Same", "Selector", "None"]),
)  # fmt: skip
LISTENER_SETS = st.builds(
    lambda name, namespace, day, parent, listeners: made(
        "ListenerSet", name, namespace, day,
        {"parentRef": {"name": parent, "namespace": "demo"}, "listeners": listeners},
    ),
    st.sampled_from(["more", "most"]),
    NAMESPACE,
    DAY,
    st.sampled_from(["web", "web", "web", "api"]),
    st.lists(LISTENER, min_size=1, max_size=3),
)  # fmt: skip
MATCH = st.fixed_dictionaries(
    {
        "path": st.sampled_from(
            [
                {"type": "PathPrefix", "value": "/"},
                {"type": "PathPrefix", "value": "/x"},
                {"type": "Exact", "value": "/x"},
                {"type": "RegularExpression", "value": "/x/[a-z]+"},
            ]
        )
    },
    optional={"method": st.just("GET"), "headers": st.just([{"name": "x-a", "value": "1"}])},
)
BACKEND = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["web", "new", "none"]),
        "port": st.sampled_from([80, 81, 82]),
        "weight": st.sampled_from([1, 1, 3, 0]),
    },
    optional={"namespace": NAMESPACE},
)


EXTENSION = {"type": "ExtensionRef", "extensionRef": {"group": "pyconfd.io", "kind": "RoutePolicy", "name": "p3"}}


def rules(kind: str, found: list[tuple[list[Obj], list[Obj], Obj]]) -> list[Obj]:
    if kind == "HTTPRoute":
        return [
            {"name": f"rule-{number}", "matches": matches, "backendRefs": backends, **policy}
            for number, (matches, backends, policy) in enumerate(found)
        ]
    return [{"backendRefs": backends} for _, backends, _ in found[:1]]


ROUTES = st.builds(
    lambda kind, name, namespace, day, parents, hosts, found: made(
        kind, name, namespace, day,
        {
            "parentRefs": [
                {"name": each, "namespace": "demo"} if each in {"web", "api"} else {"name": each, "kind": "ListenerSet"}
                for each in parents
            ],
            **({"hostnames": sorted(hosts)} if hosts and kind != "TCPRoute" else {}),
            "rules": rules(kind, found),
        },
    ),
    st.sampled_from(["HTTPRoute", "HTTPRoute", "HTTPRoute", "TLSRoute", "TCPRoute"]),
    st.sampled_from(["r1", "r2", "r3"]),
    NAMESPACE,
    DAY,
    st.sampled_from([["web"], ["web"], ["api"], ["web", "api"], ["more"], ["web", "more"], ["most"]]),
    st.sets(st.sampled_from(HOSTS[1:]), max_size=2),
    st.lists(
        st.tuples(
            st.lists(MATCH, max_size=2),
            st.lists(BACKEND, max_size=2),
            st.sampled_from([{}, {}, {"filters": [EXTENSION]}]),
        ),
        min_size=1,
        max_size=2,
    ),
)  # fmt: skip
OTHERS = st.one_of(
    st.builds(
        lambda namespace, kind: made(
            "ReferenceGrant", "g", namespace, 1,
            {
                "from": [{"group": GROUP, "kind": kind, "namespace": each} for each in NAMESPACES],
                "to": [{"group": "", "kind": each} for each in ("Service", "Secret")],
            },
        ),
        NAMESPACE,
        st.sampled_from(["HTTPRoute", "TLSRoute", "ListenerSet"]),
    ),
    st.builds(
        lambda name, namespace, day, target: made(
            "BackendTLSPolicy", name, namespace, day,
            {
                "targetRefs": [{"group": "", "kind": "Service", "name": target}],
                "validation": {"hostname": "web.internal", "wellKnownCACertificates": "System"},
            },
        ),
        st.sampled_from(["p1", "p2"]),
        NAMESPACE,
        DAY,
        st.sampled_from(["web", "new"]),
    ),
    st.builds(
        lambda name, namespace, day, targets, words: made(
            "RoutePolicy", name, namespace, day,
            {
                "targetRefs": [
                    {"group": GROUP if kind != "Service" else "", "kind": kind, "name": each, **part}
                    for kind, each, part in targets
                ],
                **words,
            },
        ),
        st.sampled_from(["p1", "p2", "p3"]),
        NAMESPACE,
        DAY,
        st.lists(
            st.sampled_from(
                [
                    ("HTTPRoute", "r1", {}), ("HTTPRoute", "r2", {}), ("HTTPRoute", "r1", {"sectionName": "rule-0"}),
                    ("Gateway", "web", {}), ("Gateway", "web", {"sectionName": "http-80-0"}),
                    ("ListenerSet", "more", {}), ("Service", "web", {}), ("Secret", "s1", {}),
                ]
            ),
            max_size=2,
        ),
        st.fixed_dictionaries(
            {},
            optional={
                "maxBodySize": st.sampled_from(["1k", "2k", "x"]),
                "serverTimeout": st.sampled_from(["1s", "2s", 3]),
                "allowNetworks": st.sampled_from([["10.0.0.0/8"], ["x"]]),
            },
        ),
    ),
    st.builds(
        lambda name, team: {"kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}},
        NAMESPACE,
        st.sampled_from(["a", "b"]),
    ),
    st.builds(
        lambda controller: {
            "kind": "GatewayClass",
            "metadata": {"name": "pyconfd", "uid": "c"},
            "spec": {"controllerName": controller},
        },
        st.sampled_from(["pyconfd.io/gateway", "example.com/other"]),
    ),
)  # fmt: skip
SERVICES = st.builds(
    lambda name, pods, namespace: service(name, *[f"10.0.0.{pod}" for pod in sorted(pods)], namespace=namespace),
    st.sampled_from(["web", "new"]),
    st.sets(st.integers(1, 3), max_size=2),
    NAMESPACE,
)
OBJECTS = st.one_of(
    GATEWAYS.map(lambda each: [each]),
    LISTENER_SETS.map(lambda each: [each]),
    ROUTES.map(lambda each: [each]),
    OTHERS.map(lambda each: [each]),
    SERVICES,
)
OPTIONS = st.builds(
    PresetOptions,
    addresses=st.sampled_from([AddressOptions(("192.0.2.1", "192.0.2.2")), AddressOptions(("192.0.2.1",))]),
    claims=st.sampled_from([ClaimOptions(), ClaimOptions((Rule(("*",), domains=("example.com",)),))]),
    tls=st.just(TlsOptions("/tls", ("*",))),
)
STEPS = st.tuples(
    st.lists(st.tuples(OBJECTS, st.sampled_from([False, False, False, False, True])), max_size=3),
    st.sampled_from([None, None, None, frozenset[str](), frozenset({"s1"}), frozenset({"s1", "s2"})]),
    st.none() | st.none() | st.none() | OPTIONS,
)
"""A few objects that come, change or go; which Secrets there are; other settings."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KeyPair]:
    authority = CertificateAuthority(tmp_path_factory.mktemp("ca"))
    return {"s1": authority.server("s1", ["a.example.com"]), "s2": authority.server("s2", ["*.example.com"])}


def _at(each: Obj) -> tuple[str, str, str]:
    return each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]


class World:
    """Objects and settings that change a little with each step; it begins with a Gateway, a route and a Service."""

    def __init__(self, pairs: dict[str, KeyPair]) -> None:
        self.options = PresetOptions(
            addresses=AddressOptions(("192.0.2.1", "192.0.2.2")), tls=TlsOptions("/tls", ("*",))
        )
        self._pairs, self._secrets = pairs, frozenset[str]()
        class_ = {
            "kind": "GatewayClass",
            "metadata": {"name": "pyconfd", "uid": "c"},
            "spec": {"controllerName": "pyconfd.io/gateway"},
        }
        at_first = listener("HTTP", 80, "", "", "All", "")
        allowed = {"namespaces": {"from": "All"}}
        spec = {"gatewayClassName": "pyconfd", "listeners": [at_first], "allowedListeners": allowed}
        gateway = made("Gateway", "web", "demo", 1, spec)
        self._objects = {_at(each): each for each in (class_, gateway, *service("web", "10.0.0.1"))}

    def after(self, step: Any) -> Callable[[PresetGraph], object]:
        """Return how a graph is shown the cluster after a step."""
        for objects, is_gone in step[0]:
            for each in objects:
                self._objects.pop(_at(each), None)
                if not is_gone:
                    self._objects[_at(each)] = each
        self._secrets = self._secrets if step[1] is None else step[1]
        self.options = step[2] or self.options
        secrets = [secret(name, self._pairs[name]) for name in sorted(self._secrets)]
        seen = snapshot(*self._objects.values(), *secrets)
        return lambda graph: graph.see(seen, self.options)


def _graph() -> PresetGraph:
    return PresetGraph("", [PRESETS["gateway"]])


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, min_size=4, max_size=10))
def test_collections_are_those_of_a_new_graph_and_no_call_is_superfluous(
    pairs: dict[str, KeyPair], steps: list[Any]
) -> None:
    follow(_graph, map(World(pairs).after, steps))


def _route(name: str, host: str, matches: list[Obj]) -> Obj:
    found = [{"matches": matches, "backendRefs": [{"name": "web", "port": 80}]}]
    return made("HTTPRoute", name, "demo", 1, {"parentRefs": [{"name": "web"}], "hostnames": [host], "rules": found})


def _follow(pairs: dict[str, KeyPair], *steps: list[Obj]) -> None:
    """Compare with a new graph after each step."""
    world = World(pairs)
    follow(_graph, (world.after(([(objects, False)], None, None)) for objects in steps))


def test_hosts_below_a_wildcard_follow_its_route(pairs: dict[str, KeyPair]) -> None:
    one, two = ([{"path": {"type": "PathPrefix", "value": path}}] for path in ("/x", "/y"))
    exact, wild = _route("exact", "a.example.com", one), _route("wild", "*.example.com", one)
    _follow(pairs, [exact], [wild], [_route("wild", "*.example.com", two)], [_route("wild", "*.c.example.com", two)])


def test_rules_over_the_budget_follow_those_of_other_routes(
    pairs: dict[str, KeyPair], monkeypatch: pytest.MonkeyPatch
) -> None:
    expression = [{"path": {"type": "RegularExpression", "value": "/x/[a-z]+"}}]
    plain = [{"path": {"type": "PathPrefix", "value": "/x"}}]
    monkeypatch.setattr(work, "MOST_WORK", work.work_of([RouteMatch(PathKind.REGEX, "/x/[a-z]+")]))
    first, second = (_route(name, f"{name}.example.com", expression) for name in ("a", "b"))
    _follow(pairs, [second], [first], [_route("a", "a.example.com", plain)], [first])
