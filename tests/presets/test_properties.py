"""Translation never raises, and lets no stranger's value add a word to what templates print."""

import re
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.kubernetes import SERVICE_NAME_LABEL
from pyconfd.model.snapshot import RECORD_OF, Key, Resource, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.reading import PresetOptions

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
            st.one_of(st.sampled_from(["domain", "proto", "pyconfd.io/port"]), NASTY), NASTY
        ),
        "labels": st.dictionaries(st.one_of(st.just(SERVICE_NAME_LABEL), NASTY), NASTY),
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
    Resource.NODES: st.fixed_dictionaries({"metadata": META}),
    Resource.SECRETS: st.fixed_dictionaries(
        {
            "metadata": META,
            "type": st.just("kubernetes.io/tls"),
            "data": st.dictionaries(st.sampled_from(["tls.key", "tls.crt"]), NASTY),
        }
    ),
}
WORD = re.compile(r"[A-Za-z0-9_./:@%+=,*-]*")


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

    context = registry.translate(Snapshot(**stores), ("domains",), PresetOptions(node_ports=node_ports))

    for text in strings(context.names["domains"]) + strings(context.names["cluster"]):
        assert WORD.fullmatch(text), text
    for refusal in context.refused:
        assert "\n" not in str(refusal)
