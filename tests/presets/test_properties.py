"""Translation never raises, and lets no stranger's value add a word to what templates print."""

import re
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.context import Context
from pyconfd.model.kubernetes import SERVICE_NAME_LABEL, ObjectMeta, Service, ServicePort, ServiceSpec
from pyconfd.model.preset import PresetName
from pyconfd.model.snapshot import RECORD_OF, Key, Resource, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.kubefigurator_claims import OPTIONS
from pyconfd.presets.reading import KubefiguratorOptions, PresetOptions

NASTY = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["web", "demo", "a.example.com", "http", "redis", "10.0.0.1", "a\nb", "a b", "${X}", "'", "} || {", ""]
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
WORD = re.compile(r"[A-Za-z0-9_./:@%+=,*\[\]-]*")
BALANCE = re.compile(r"[a-z-]+[a-z0-9 ()_-]*", re.IGNORECASE)
"""May be several words; each is one of HAProxy's."""


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

    options = PresetOptions(node_ports=node_ports, kubefigurator=KubefiguratorOptions(node_ports=not node_ports))
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
    served = [route.backend for each in listeners for route in each.routes]
    served += [each.default_backend for each in listeners if each.mode == "tcp"]
    assert sorted(served) == [backend.name for backend in context.names["backends"]]
    for each in listeners:
        assert len({(route.hostname, route.wildcard) for route in each.routes}) == len(each.routes)
        assert bool(each.routes) is (each.mode == "http")
    turned_away = {refusal.ref.name for refusal in context.refused}
    assert len(served) + len(turned_away) == len(services)


def test_every_preset_has_a_name_and_a_reading() -> None:
    assert set(registry.PRESETS) == set(PresetName)
