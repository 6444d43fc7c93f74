"""Translation never raises, and lets no stranger's value add a word to what templates print."""

import json
import re
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.context import Context, PresetName
from pyconfd.model.kubernetes import (
    SERVICE_NAME_LABEL,
    ConfigMap,
    ObjectRef,
    Pod,
    Secret,
    Service,
    ServicePort,
    ServiceSpec,
)
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import RECORD_OF, Key, Resource, Snapshot
from pyconfd.predecessors.hosts import CONFIG, MASTER, ROUTE53, HostsOptions
from pyconfd.predecessors.kubefigurator.claims import OPTIONS, KubefiguratorOptions
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.sources.kubernetes.decode import with_whole

NASTY = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            "web",
            "demo",
            "a.example.com",
            "http",
            "redis",
            "10.0.0.1",
            "a\nb",
            "a b",
            "${X}",
            "^a${X}",
            "%ci",
            "'",
            "} || {",
            "",
        ]
    ),
)
META = st.fixed_dictionaries(
    {"name": NASTY, "namespace": NASTY},
    optional={
        "annotations": st.dictionaries(
            st.one_of(
                st.sampled_from(["domain", "proto", "pyconfd.io/port"]),
                st.sampled_from([f"haproxy-kubefigurator.web.{option}" for option in OPTIONS]),
                NASTY,
            ),
            NASTY,
        ),
        "labels": st.dictionaries(st.one_of(st.just(SERVICE_NAME_LABEL), NASTY), NASTY)
        | st.just({"haproxy-kubefigurator.enabled": "yes"}),
        "creationTimestamp": st.one_of(st.none(), NASTY),
    },
)
PORTS = st.lists(
    st.fixed_dictionaries(
        {"port": st.integers(0, 70000)},
        optional={"name": NASTY, "protocol": st.sampled_from(["TCP", "UDP", "x"]), "nodePort": st.integers(0, 70000)},
    ),
    max_size=3,
)
OBJECTS: dict[Resource, st.SearchStrategy[dict[str, Any]]] = {
    Resource.SERVICES: st.fixed_dictionaries(
        {"metadata": META, "spec": st.fixed_dictionaries({"ports": PORTS, "type": NASTY})}
    ),
    Resource.ENDPOINTSLICES: st.fixed_dictionaries(
        {
            "metadata": META,
            "endpoints": st.lists(
                st.fixed_dictionaries(
                    {"addresses": st.lists(NASTY, max_size=2)},
                    optional={
                        "nodeName": NASTY,
                        "zone": NASTY,
                        "targetRef": st.fixed_dictionaries({"kind": st.just("Pod"), "name": NASTY}),
                    },
                ),
                max_size=3,
            ),
            "ports": PORTS,
        }
    ),
    Resource.NODES: st.fixed_dictionaries(
        {"metadata": META},
        optional={
            "status": st.fixed_dictionaries(
                {
                    "addresses": st.lists(st.fixed_dictionaries({"type": st.just("InternalIP"), "address": NASTY})),
                    "conditions": st.just([{"type": "Ready", "status": "True"}]),
                }
            )
        },
    ),
    Resource.SECRETS: st.fixed_dictionaries(
        {
            "metadata": META,
            "type": st.just("kubernetes.io/tls"),
            "data": st.dictionaries(st.sampled_from(["tls.key", "tls.crt"]), NASTY),
        }
    ),
}
WORD = re.compile(r"[A-Za-z0-9_./:@+=,*\[\]-]*")
BALANCE = re.compile(r"[a-z-]+[a-z0-9 ()_-]*", re.IGNORECASE)
"""May be several words; each is one of HAProxy's."""
JSONISH = st.recursive(
    st.one_of(NASTY, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NASTY, inner, max_size=3)),
    max_leaves=8,
)
LABELS = st.dictionaries(st.one_of(st.just("app"), NASTY), st.one_of(st.just("shop"), NASTY), max_size=3)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "namespace": st.one_of(st.just("demo"), JSONISH),
        "selector": st.one_of(st.just({"app": "shop"}), LABELS, JSONISH),
        "hostnames": st.one_of(st.lists(NASTY | st.from_regex(r"\^.{0,8}", fullmatch=True), max_size=3), JSONISH),
        "ports": st.one_of(st.lists(st.integers(0, 70000), max_size=2), JSONISH),
        "path": st.one_of(NASTY, JSONISH),
        "extra": JSONISH,
    },
)
PODS = st.lists(
    st.fixed_dictionaries(
        {
            "metadata": st.fixed_dictionaries(
                {"name": NASTY, "namespace": st.one_of(st.just("demo"), NASTY), "labels": LABELS},
                optional={"annotations": st.dictionaries(st.one_of(st.just(MASTER), NASTY), NASTY)},
            )
        },
        optional={
            "spec": st.dictionaries(st.sampled_from(["nodeName", "containers"]), JSONISH),
            "status": st.fixed_dictionaries(
                {"podIP": NASTY, "phase": NASTY, "containerStatuses": st.just([{"ready": True}])},
                optional={"extra": JSONISH},
            ),
        },
    ),
    max_size=4,
)
TEXTS = st.one_of(NASTY, JSONISH.map(json.dumps), ENTRY.map(json.dumps))
DATA = st.dictionaries(st.one_of(st.sampled_from(["shop", "template"]), NASTY), TEXTS, max_size=4)
# What a template may print: beyond words, the patterns of hosts and paths.
PRINTABLE = re.compile(r"[A-Za-z0-9_./:@+=,*~^$|()\[\]{}?\\&;!-]+|")
VARIABLE = re.compile(r"\$[A-Za-z_{]")
HOST_WORD = re.compile(r"[A-Za-z0-9_./:@+=,*-]*")


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in [*strings(key), *strings(item)]]
    if isinstance(value, list | tuple):
        return [text for item in value for text in strings(item)]
    return strings(msgspec.to_builtins(value)) if isinstance(value, msgspec.Struct) else []


@given(
    st.fixed_dictionaries({resource: st.lists(OBJECTS[resource], max_size=3) for resource in OBJECTS}), st.booleans()
)
def test_arbitrary_objects_give_plain_words_and_no_exception(
    objects: dict[Resource, list[dict[str, Any]]], node_ports: bool
) -> None:
    stores: dict[str, Any] = {}
    for resource, items in objects.items():
        records = [msgspec.convert(item, RECORD_OF[resource]) for item in items]
        stores[resource.value] = {Key(r.metadata.namespace, r.metadata.name): r for r in records}

    options = PresetOptions(node_ports=node_ports, own=own_options(KubefiguratorOptions(node_ports=not node_ports)))
    context = registry.translate(Snapshot(**stores), tuple(PresetName), options)

    names = dict(context.names)
    for backend in names["backends"]:
        assert BALANCE.fullmatch(backend.balance)
        assert all(endpoint.port for endpoint in backend.endpoints)
    names["backends"] = names["kubefigurator"] = [
        msgspec.structs.replace(backend, balance="") for backend in names["backends"]
    ]
    for text in strings(names):
        assert WORD.fullmatch(text), text
    for refusal in context.refused:
        assert "\n" not in str(refusal)


def labelled(name: str, annotations: dict[str, str], created: int) -> Service:
    meta = ObjectMeta(
        name,
        "demo",
        creation_timestamp=f"2026-01-0{created}T00:00:00Z",
        labels={"haproxy-kubefigurator.enabled": "yes"},
        annotations={f"haproxy-kubefigurator.web.{key}": value for key, value in annotations.items()},
    )
    return Service(meta, ServiceSpec((ServicePort("web", 80, node_port=30080),), "NodePort"))


ASKED = st.fixed_dictionaries(
    {"hostname": st.sampled_from(["a.example.com", "b.example.com", "*.example.com"])},
    optional={
        "listen-port": st.sampled_from(["443", "8443", "5432"]),
        "listen-ip": st.sampled_from(["*", "0.0.0.0", "127.0.0.1"]),
        "haproxy-mode": st.sampled_from(["http", "tcp"]),
        "use-ssl": st.sampled_from(["true", "false"]),
    },
)


@given(st.lists(st.tuples(ASKED, st.integers(1, 3)), max_size=8), st.randoms(use_true_random=False))
def test_listeners_are_shared_without_conflicts_in_whatever_order_they_are_read(
    asked: list[tuple[dict[str, str], int]], random: Any
) -> None:
    services = [labelled(f"s{at}", annotations, created) for at, (annotations, created) in enumerate(asked)]

    def read(order: list[Service]) -> Context:
        store = {Key("demo", each.metadata.name): each for each in order}
        return registry.translate(Snapshot(services=store), ("kubefigurator",), PresetOptions())

    context = read(services)
    random.shuffle(services)
    assert read(services) == context
    listeners = context.names["listeners"]
    assert len({(each.address, each.port) for each in listeners}) == len(listeners)
    # What is served on all addresses is served on each one that has a listener of its own.
    served = {route.backend for each in listeners for route in each.routes}
    served |= {each.default_backend for each in listeners if each.mode == "tcp"}
    assert sorted(served) == [backend.name for backend in context.names["backends"]]
    for each in listeners:
        assert len({(route.hostname, route.wildcard) for route in each.routes}) == len(each.routes)
        assert bool(each.routes) is (each.mode == "http")
    turned_away = {refusal.ref.name for refusal in context.refused}
    assert len(served) + len(turned_away) == len(services)


def test_every_preset_has_a_name_and_a_reading() -> None:
    assert set(registry.PRESETS) == set(PresetName)


def pods_of(items: list[dict[str, Any]]) -> dict[Key, Pod]:
    made = [with_whole(msgspec.convert(item, Pod), json.dumps(item).encode()) for item in items]
    return {Key(p.metadata.namespace, p.metadata.name): p for p in made}


@given(PODS, DATA, DATA, DATA, st.dictionaries(NASTY, NASTY, max_size=3))
def test_configmap_gives_plain_words_and_no_exception(
    pods: list[dict[str, Any]],
    services: dict[str, str],
    chains: dict[str, str],
    config: dict[str, str],
    keys: dict[str, str],
) -> None:
    maps = {"services": services, "certificates": chains, "config": config}
    snapshot = Snapshot(
        pods=pods_of(pods),
        config_maps={Key("lb", name): ConfigMap(ObjectMeta(name, "lb"), data) for name, data in maps.items()},
        secrets={Key("lb", "keys"): Secret(ObjectMeta("keys", "lb"), "Opaque", keys)},
    )

    context = registry.translate(snapshot, ("configmap",), PresetOptions())

    for text in strings(context.names["services"]) + strings(context.names["certificates"]):
        assert PRINTABLE.fullmatch(text), text
        assert text not in {"if", "unless", "or", "{", "}", "||"}
        assert not text.startswith("-")
        assert not VARIABLE.search(text)
    json.dumps(context.names["services"])
    for refusal in context.refused:
        assert "\n" not in str(refusal)


@given(PODS, st.dictionaries(st.sampled_from([CONFIG, ROUTE53]), NASTY), NASTY)
def test_hosts_gives_plain_words_and_no_exception(
    pods: list[dict[str, Any]], annotations: dict[str, str], master: str
) -> None:
    service = Service(ObjectMeta("lb", "demo", annotations=annotations))
    options = HostsOptions(master=master, selector={"app": "shop"}, config=ObjectRef("Service", "demo", "lb"))
    snapshot = Snapshot(pods=pods_of(pods), services={Key("demo", "lb"): service})

    context = registry.translate(snapshot, ("hosts",), PresetOptions(own=own_options(options)))

    for text in strings(context.names["hosts"]) + list(context.dns_names or ()):
        assert HOST_WORD.fullmatch(text), text
    for refusal in context.refused:
        assert "\n" not in str(refusal)
