"""The sources of the presets' collections have the objects of the cluster: what is served begins here."""

from dataclasses import replace

import pytest

from pyconfd.derived import Derived, Source
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.presets.endpoints import TargetOptions
from pyconfd.presets.objects import ROUTES, Objects
from pyconfd.presets.policy import ClaimOptions, Rule
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.views import PortAt
from tests.presets.gateway.objects import CLASS, snapshot

OBJECTS = """
kind: Service
metadata: {name: web}
spec: {ports: [{name: http, port: 80}]}
---
kind: Ingress
metadata: {name: web}
spec: {}
---
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: pyconfd, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
kind: HTTPRoute
metadata: {name: web}
spec: {}
---
kind: ReferenceGrant
metadata: {name: web}
spec: {from: [], to: []}
---
kind: Namespace
metadata: {name: shop, labels: {team: a}}
---
kind: Namespace
metadata: {name: bare}
"""
WEB, PRESETS = Key("shop", "web"), ("ingress", "gateway")


def seen(objects: Objects, now: Snapshot, options: PresetOptions | None = None) -> None:
    objects.see(now, options or PresetOptions())
    objects.graph.settle()


def test_each_object_is_in_its_source_and_leaves_it() -> None:
    objects, now = Objects("", PRESETS), snapshot(CLASS, OBJECTS)
    seen(objects, now)
    assert objects.ingresses.items == now.ingresses
    assert objects.grants.items == now.referencegrants
    assert objects.gateways.items == {ObjectKey(Resource.GATEWAYS, WEB): now.gateways[WEB]}
    assert objects.gateway_classes.items.keys() == {ObjectKey(Resource.GATEWAYCLASSES, Key("", "pyconfd"))}
    assert objects.routes.items == {ObjectKey(Resource.HTTPROUTES, WEB): now.httproutes[WEB]}
    assert objects.labels.items == {"shop": {"team": "a"}, "bare": {}}
    found = objects.services.items[WEB]
    assert found.object is now.services[WEB]
    assert found.view is not None
    assert found.view.name == "web"

    seen(objects, replace(now, httproutes={}, services={}))
    assert objects.routes.items == {}
    assert objects.services.items == {}
    assert objects.ingresses.items == now.ingresses
    seen(objects, Snapshot())
    for source in (objects.ingresses, objects.grants, objects.gateways, objects.gateway_classes, objects.labels):
        assert source.items == {}


def test_routes_of_all_kinds_are_in_one_source() -> None:
    kinds = ("TLSRoute", "TCPRoute", "HTTPRoute", "GRPCRoute")
    objects = Objects("", PRESETS)
    now = snapshot(*(f"kind: {kind}\nmetadata: {{name: web}}\nspec: {{}}\n" for kind in kinds))
    seen(objects, now)
    assert objects.routes.items.keys() == {ObjectKey(each, WEB) for each in ROUTES}
    seen(objects, replace(now, tcproutes={}))
    assert objects.routes.items.keys() == {ObjectKey(each, WEB) for each in ROUTES if each is not Resource.TCPROUTES}


def test_objects_of_presets_that_are_not_in_use_are_not_there() -> None:
    objects, now = Objects("", ("ingress",)), snapshot(CLASS, OBJECTS)
    seen(objects, now)
    assert (objects.ingresses.items, objects.gateways.items, objects.labels.items) == (now.ingresses, {}, {})
    objects = Objects("", ("gateway",))
    seen(objects, now)
    assert (objects.ingresses.items, len(objects.gateways.items), len(objects.labels.items)) == ({}, 1, 2)


SLICE = """
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.0.0.1], nodeName: n1}, {addresses: [10.0.0.2], nodeName: n2}]
"""
NODE = """
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}], conditions: [{type: Ready, status: "True"}]}
"""


@pytest.mark.parametrize(
    ("texts", "node_port", "options", "servers"),
    [
        ((SLICE, NODE), 0, PresetOptions(), [("10.0.0.1", 8080), ("10.0.0.2", 8080)]),
        ((SLICE, NODE), 30080, PresetOptions(node_ports=True), [("192.0.2.1", 30080)]),
        ((SLICE,), 30080, PresetOptions(node_ports=True), []),
        ((NODE,), 0, PresetOptions(), []),
    ],
)
def test_servers_are_where_traffic_for_a_port_goes(
    texts: tuple[str, ...], node_port: int, options: PresetOptions, servers: list[tuple[str, int]]
) -> None:
    service = f"""
kind: Service
metadata: {{name: web}}
spec: {{type: NodePort, ports: [{{name: http, port: 80, nodePort: {node_port}}}]}}
"""
    objects = Objects("", PRESETS)
    wanted = Source[str, PortAt](objects.graph, "wanted")
    wanted.replace({"there": PortAt(WEB, 0), "gone": PortAt(Key("shop", "gone"), 0)})
    found = Derived(wanted, lambda read, _, at: objects.servers(read, at), "servers")
    seen(objects, snapshot(service, *texts), options)
    assert {name: [(each.address, each.port) for each in items] for name, items in found.items.items()} == {
        "there": servers,
        "gone": [],
    }
    seen(objects, Snapshot(), options)
    assert not any(found.items.values())


def test_settings_are_sources_too() -> None:
    objects = Objects("", PRESETS)
    claims = ClaimOptions((Rule(("shop",)),))
    seen(objects, Snapshot(), PresetOptions(claims=claims, node_ports=True, ignored_annotations=("a",)))
    assert objects.policy.items[()] == claims
    assert objects.ignored_annotations.items[()] == ("a",)
    assert objects.targets.items[()] == TargetOptions(node_ports=True)
