"""Preset kube2lb never raises, and no stranger's value becomes a word, a condition, a variable or a directive."""

import json
import re
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.kubernetes import SERVICE_NAME_LABEL
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.model.snapshot import RECORD_OF, HostFacts, Key, Resource, Snapshot
from pyconfd.predecessors.kube2lb.names import check_expression, split_domains
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from tests.presets.test_properties import NASTY, OBJECTS

EVIL = st.sampled_from(
    ["a\n    daemon", "a b", "${X}", "'", '"', "} || {", "a;b", "{$X}", "~-f", "~a b", "~(a+)+", "`"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | NASTY,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NASTY | st.just("web"), inner, max_size=2),
    max_leaves=4,
)
ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        "kube2lb/external-domains": st.lists(NASTY | EVIL | st.text("~^ab.{}()[]\\,*+|$", max_size=12), max_size=3).map(
            ",".join
        ),
        "kube2lb/port-mode": NASTY | JSON.map(json.dumps) | st.just('{"web": "tcp"}'),
        "kube2lb/backend-timeout": NASTY | JSON.map(json.dumps) | st.just('{"web": 500}'),
    },
)
NAMES = st.sampled_from(["web", "shop"]) | NASTY
SERVICES = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({"name": NAMES, "namespace": NAMES, "annotations": ANNOTATIONS}),
        "spec": st.fixed_dictionaries(
            {
                "type": st.sampled_from(["NodePort", "LoadBalancer", "ClusterIP"]),
                "ports": st.lists(
                    st.fixed_dictionaries(
                        {"port": st.integers(0, 70000)},
                        optional={
                            "name": NAMES,
                            "protocol": st.sampled_from(["TCP", "UDP", "x"]),
                            "nodePort": st.integers(0, 70000),
                        },
                    ),
                    max_size=3,
                ),
            },
            optional={"loadBalancerIP": NASTY | st.sampled_from(["10.0.0.1", "::1", "fe80::1%a b"])},
        ),
    }
)
SLICES = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": NAMES, "namespace": NAMES, "labels": st.fixed_dictionaries({SERVICE_NAME_LABEL: NAMES})}
        ),
        "endpoints": st.just([{"addresses": ["10.0.0.1"]}]) | st.lists(st.just({"addresses": ["a b"]}), max_size=1),
        "ports": st.lists(st.fixed_dictionaries({"port": st.integers(0, 70000)}, optional={"name": NAMES}), max_size=3),
    }
)
TEMPLATE = """\
{% for port in ports %}
frontend frontend_{{ port }}
    bind {{ port.bind }} {{ port.mode }} {{ port.protocol }}
{% endfor %}
{% for service in services %}
backend backend_{{ service }}
    timeout server {{ service.timeout }} {{ service.node_port }} {{ service.name }} {{ service.namespace }}
{% for name in ServerNames(service, domain) %}
    acl {{ name.regexp }}
{% endfor %}
{% for endpoint in service.endpoints + service.draining %}
    server {{ EscapeNode(endpoint.name) }} {{ endpoint }} {{ endpoint.node }} {{ endpoint.zone }} {{ endpoint.pod }}
{% endfor %}
{% endfor %}
{% for node in nodes %}
node {{ node }} {{ node.address }}
{% endfor %}
"""
WORDS = re.compile(
    r"(?:frontend|backend|    bind|    timeout|    acl|    server|node)[A-Za-z0-9_.:/()\[\]{}|*+?^$\\, -]*"
)


@given(
    st.lists(SERVICES, max_size=3), st.lists(SLICES, max_size=3), st.lists(OBJECTS[Resource.NODES], max_size=2),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_arbitrary_objects_give_single_words_and_no_exception(
    services: list[dict[str, Any]],
    slices: list[dict[str, Any]],
    nodes: list[dict[str, Any]],
    node_ports: bool,
    known_host: bool,
) -> None:
    stores: dict[str, Any] = {}
    for resource, items in (
        (Resource.SERVICES, services),
        (Resource.ENDPOINTSLICES, slices),
        (Resource.NODES, nodes),
    ):
        records = [msgspec.convert(item, RECORD_OF[resource]) for item in items]
        stores[resource.value] = {Key(r.metadata.namespace, r.metadata.name): r for r in records}
    host = HostFacts(addresses=frozenset({"127.0.0.1"})) if known_host else HostFacts()

    context = registry.translate(Snapshot(host=host, **stores), ("kube2lb",), PresetOptions(node_ports=node_ports))
    renderer = Renderer(FragmentSet((Fragment("t.tmpl", TEMPLATE),)), RenderOptions("/files"))
    text = renderer.render(context, curdate="").rendering.text

    for line in text.splitlines():
        assert WORDS.fullmatch(line), line
        if line.startswith("    acl"):
            assert len(line.split()) == 2, line
    for refusal in context.refused:
        assert "\n" not in str(refusal)


@given(st.text("ab.^$()[]{}|*+?\\,:-~ \n0129", max_size=30))
def test_an_accepted_expression_is_one_word_that_python_can_read(text: str) -> None:
    for entry in split_domains(f"~{text}"):
        expression = entry.removeprefix("~")
        try:
            check_expression(expression)
        except ValueError:
            continue
        re.compile(expression)
        assert not re.search(r"[\s'\"#;`]|\$[A-Za-z_{]|\{[^0-9]", expression)
        assert not expression.startswith(("-", "!", "{", "}", "|", "#"))
