"""All collections of presets: after any changes they are those of a new graph, and nothing is made needlessly."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.model.listener import Listener
from pyconfd.model.reservation import Name, Owner, Reservation
from pyconfd.model.snapshot import Key
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.domains import port_name
from pyconfd.presets.graph import PresetGraph
from pyconfd.presets.host_ownership import SCOPE
from pyconfd.presets.listener_ownership import SCOPE as LISTENERS
from pyconfd.presets.listener_ownership import name_of
from pyconfd.presets.policy import ClaimOptions, Rule
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import PRESETS
from tests.derived.checking import follow
from tests.presets.ingress.objects import ADDRESSES, Obj, ingress, ingress_class, path, secret, service, snapshot
from tests.world.pki import CertificateAuthority, KeyPair

NAMES = ("domains", "ingress", "gateway", "loadbalancer")
HOSTS = ("a.example.com", "*.example.com", "b.example.com", "")
NAMESPACES = ("demo", "team")
CHOSEN = st.builds(
    path,
    st.sampled_from(["/", "/x", "/x/y"]),
    st.sampled_from(["web:80", "web:admin", "new:80"]),
    st.sampled_from(["Exact", "Prefix"]),
)
INGRESS = st.builds(
    ingress,
    st.sampled_from(["i1", "i2", "i3"]),
    st.dictionaries(st.sampled_from(HOSTS), st.lists(CHOSEN, max_size=3), max_size=3),
    default=st.sampled_from(["", "", "web:81"]),
    class_name=st.sampled_from(["pyconfd", "pyconfd", None, "other", "pyconfdd"]),
    namespace=st.sampled_from(NAMESPACES),
    day=st.integers(1, 3),
    tls=st.lists(
        st.builds(
            lambda name, hosts: {"secretName": name, "hosts": sorted(hosts)},
            st.sampled_from(["s1", "s2"]),
            st.sets(st.sampled_from(HOSTS[:3]), max_size=2),
        ),
        max_size=2,
    ),
    annotations=st.sampled_from(
        [
            {},
            {},
            {"pyconfd.io/shared-with": "*"},
            {"pyconfd.io/ssl-redirect": "false"},
            {"pyconfd.io/access-log": "off"},
        ]
    ),
)
NAMED = st.sampled_from(["a.example.com", "b.example.com", "*.example.com"])
WEB = st.fixed_dictionaries(
    {"domain": NAMED, "proto": st.sampled_from(["http", "http", "https"])},
    optional={
        "pyconfd.io/port": st.sampled_from(["admin", "8080", "none"]),
        "pyconfd.io/tls-secret": st.sampled_from(["s1", "s2", "none"]),
        "pyconfd.io/shared-with": st.sampled_from(["*", "no good"]),
        "pyconfd.io/access-log": st.sampled_from(["off", "no good"]),
    },
)
BOUND = st.fixed_dictionaries(
    {"domain": NAMED, "proto": st.just("redis"), "listen-port": st.just("6379")},
    optional={"pyconfd.io/listen-port": st.sampled_from(["6379", "6379", "6379", "6380", "none"])},
)
WRONG = st.sampled_from([{"domain": "a.example.com"}, {"pyconfd.io/x": "y"}, {"domain": "-", "proto": "http"}])
ANNOTATIONS = st.one_of(st.just(dict[str, str]()), WEB, BOUND, BOUND, WRONG)
LOAD_BALANCERS = st.builds(
    lambda name, pods, namespace, day, annotations, ports: service(
        name,
        *[f"10.0.0.{pod}" for pod in sorted(pods)],
        namespace=namespace,
        day=day,
        annotations=annotations,
        type="LoadBalancer",
        loadBalancerClass="pyconfd.io/lb",
        ports=[{"name": "http", "port": port} for port in sorted(ports)],
    ),
    st.sampled_from(["web", "lb1", "lb2"]),
    st.sets(st.integers(1, 3), max_size=2),
    st.sampled_from(NAMESPACES),
    st.integers(1, 3),
    st.one_of(
        st.fixed_dictionaries(
            {},
            optional={
                "pyconfd.io/addresses": st.sampled_from(["192.0.2.1", "192.0.2.2", "192.0.2.9"]),
                "pyconfd.io/sharing-key": st.sampled_from(["k", "no good"]),
                "pyconfd.io/proxy-protocol": st.sampled_from(["v2", "v3"]),
            },
        ),
        BOUND,
    ),
    st.sets(st.sampled_from([6379, 6380, 80]), max_size=2),
)
SERVICES = st.builds(
    lambda name, pods, namespace, day, annotations, kind: service(
        name, *[f"10.0.0.{pod}" for pod in sorted(pods)], namespace=namespace, day=day, annotations=annotations,
        type=kind,
    ),
    st.sampled_from(["web", "new"]),
    st.sets(st.integers(1, 3), max_size=2),
    st.sampled_from(NAMESPACES),
    st.integers(1, 2),
    ANNOTATIONS,
    st.sampled_from(["ClusterIP", "ClusterIP", "ExternalName"]),
)  # fmt: skip


def _endpoints(name: str, namespace: str, pod: int, port: int, annotations: dict[str, str]) -> list[Obj]:
    metadata = {"name": name, "namespace": namespace, "annotations": annotations}
    metadata["creationTimestamp"] = "2026-01-02T00:00:00Z"
    subset = {"addresses": [{"ip": f"10.0.1.{pod}"}], "ports": [{"name": "http", "port": port}]}
    return [{"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": [subset]}]


ENDPOINTS = st.builds(
    _endpoints,
    st.sampled_from(["web", "new", "bare"]),
    st.sampled_from(NAMESPACES),
    st.integers(1, 2),
    st.sampled_from([8080, 9090]),
    ANNOTATIONS,
)
POOL = replace(ADDRESSES, pool=("192.0.2.1", "192.0.2.2"))
RESERVED = st.dictionaries(
    st.sampled_from([Name("", host) for host in HOSTS[:3]]),
    st.builds(lambda namespace: Reservation(Owner("Ingress", namespace, "gone", "2026-01-01T00:00:00Z"), 9.0),
              st.sampled_from([*NAMESPACES, "gone"])),
    max_size=2,
)  # fmt: skip
RESERVED_PORTS = st.dictionaries(
    st.sampled_from([port_name(6379)]),
    st.builds(lambda namespace: Reservation(Owner("Service", namespace, "gone", "2026-01-01T00:00:00Z"), 9.0),
              st.sampled_from([*NAMESPACES, "gone"])),
    max_size=2,
)  # fmt: skip
RESERVED_LISTENERS = st.dictionaries(
    st.sampled_from([name_of(Listener.at(address, 6379)) for address in ("", "*", "192.0.2.1")]),
    st.builds(lambda namespace: Reservation(Owner("Service", namespace, "gone", "2026-01-01T00:00:00Z")),
              st.sampled_from(NAMESPACES)),
    max_size=1,
)  # fmt: skip
TAKEN_LISTENERS = st.dictionaries(
    st.builds(Listener.at, st.sampled_from(["", "*"]), st.sampled_from([6379, 6380, 80])),
    st.just("an older one has it"),
    max_size=2,
)
IN_USE = st.sampled_from([NAMES, NAMES, ("loadbalancer", "ingress", "domains"), ("domains",)])
OPTIONS = st.builds(
    PresetOptions,
    node_ports=st.sampled_from([False, False, True]),
    addresses=st.sampled_from([POOL, POOL, replace(POOL, pool=POOL.pool[:1], per_namespace=1), AddressOptions()]),
    claims=st.sampled_from(
        [
            ClaimOptions(),
            ClaimOptions(shared_hosts=frozenset({"a.example.com"})),
            ClaimOptions((Rule(("demo",)), Rule(("team",), domains=("a.example.com",), ports=((6380, 6380),)))),
        ]
    ),
    tls=st.sampled_from([TlsOptions("/tls", ("*",)), TlsOptions("/tls", ("*",), Key("demo", "s2"))]),
    listen_ports=st.sampled_from([((1024, 32767),), ((1, 6379),)]),
    listen_address=st.sampled_from(["", "*"]),
)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KeyPair]:
    authority = CertificateAuthority(tmp_path_factory.mktemp("ca"))
    return {"s1": authority.server("s1", ["a.example.com"]), "s2": authority.server("s2", ["*.example.com"])}


def _at(each: Obj) -> tuple[str, str, str]:
    return each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]


OBJECTS = st.one_of(INGRESS.map(lambda made: [made]), SERVICES, ENDPOINTS, LOAD_BALANCERS)
CHANGES = st.lists(st.tuples(OBJECTS, st.sampled_from([False, False, False, True])), max_size=3)
STEPS = st.tuples(
    CHANGES,
    st.sampled_from([None, None, None, frozenset[str](), frozenset({"s1"}), frozenset({"s1", "s2"})]),
    st.sampled_from([None, None, None, True, False]),
    st.none() | st.none() | OPTIONS,
    st.none() | RESERVED,
    st.none() | st.none() | RESERVED_PORTS,
    st.none() | st.none() | st.none() | TAKEN_LISTENERS,
    st.none() | st.none() | RESERVED_LISTENERS,
)
"""A few objects that come, change or go; which Secrets there are; whether the class is the default; other settings;
hosts that are reserved; ports that are reserved; listeners that are taken, and reserved."""


class World:
    """Objects and settings that change a little with each step."""

    def __init__(self, pairs: dict[str, KeyPair]) -> None:
        self.options = PresetOptions(addresses=POOL, tls=TlsOptions("/tls", ("*",)))
        self._pairs, self._objects = pairs, dict[tuple[str, str, str], Obj]()
        self._secrets, self._default = frozenset[str](), False

    def after(self, step: Any) -> Callable[[PresetGraph], object]:
        """Return how a graph is shown the cluster after a step."""
        for objects, is_gone in step[0]:
            for each in objects:
                self._objects.pop(_at(each), None)
                if not is_gone:
                    self._objects[_at(each)] = each
        self._secrets = self._secrets if step[1] is None else step[1]
        self._default = self._default if step[2] is None else step[2]
        previous, options = self.options, step[3] or self.options
        self.options = replace(
            options,
            reservations={
                SCOPE: previous.reservations_of(SCOPE) if step[4] is None else step[4],
                "domains": previous.reservations_of("domains") if step[5] is None else step[5],
                LISTENERS: previous.reservations_of(LISTENERS) if step[7] is None else step[7],
            },
            taken_listeners=previous.taken_listeners if step[6] is None else step[6],
        )
        secrets = (
            secret(name, self._pairs[name], namespace=namespace)
            for name in sorted(self._secrets)
            for namespace in NAMESPACES
        )
        seen = snapshot(ingress_class(default=self._default), *self._objects.values(), *secrets)
        return lambda graph: graph.see(seen, self.options)


@settings(max_examples=50, deadline=None)
@given(presets=IN_USE, steps=st.lists(STEPS, min_size=4, max_size=10))
def test_collections_are_those_of_a_new_graph_and_no_call_is_superfluous(
    pairs: dict[str, KeyPair], presets: tuple[str, ...], steps: list[Any]
) -> None:
    world = World(pairs)
    follow(lambda: PresetGraph("", [PRESETS[name] for name in presets]), map(world.after, steps))
