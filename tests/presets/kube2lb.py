"""Services of kube2lb's users, and what the preset reads from them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyconfd.model.context import Context, RefusalReason
from pyconfd.model.kubernetes import EndpointPort, Service, ServicePort, ServiceSpec
from pyconfd.model.records import ObjectMeta
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.model.snapshot import HostFacts
from pyconfd.predecessors.kube2lb.claims import Kube2lbService
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from tests.presets.objects import Named, endpoint, slice_, snapshot

HTTP = ServicePort("http", 80, "web", 30080)
SLICE_HTTP = EndpointPort("http", 8080, "TCP")
HOST = HostFacts(addresses=frozenset({"127.0.0.1", "192.0.2.10"}), ephemeral_ports=(32768, 60999))


def service(
    name: str = "shop",
    annotations: Mapping[str, str] | None = None,
    *,
    ports: tuple[ServicePort, ...] = (HTTP,),
    type_: str = "NodePort",
    namespace: str = "demo",
    created: str = "2026-01-01T00:00:00Z",
    address: str | None = None,
) -> Service:
    meta = ObjectMeta(name, namespace, creation_timestamp=created, annotations=dict(annotations or {}))
    return Service(meta, ServiceSpec(ports, type_, load_balancer_ip=address))


def with_pod(name: str = "shop", address: str = "10.0.0.1", **more: Any) -> Named:
    return slice_(name, endpoint(address, pod=f"{name}-1", node="n1"), ports=more.pop("ports", (SLICE_HTTP,)), **more)


def read(*objects: Named, options: PresetOptions | None = None, host: HostFacts | None = None) -> Context:
    seen = replace(snapshot(*objects), host=host or HostFacts())
    return registry.translate(seen, ("kube2lb",), options or PresetOptions())


def services(*objects: Named, **more: Any) -> dict[str, Kube2lbService]:
    return {str(item): item for item in read(*objects, **more).names["services"]}


def refusals(*objects: Named, **more: Any) -> list[tuple[str, RefusalReason]]:
    return [(refusal.field, refusal.reason) for refusal in read(*objects, **more).refused]


def render(template: str, *objects: Named, options: PresetOptions | None = None) -> str:
    renderer = Renderer(FragmentSet((Fragment("t.tmpl", template),)), RenderOptions("/files"))
    return renderer.render(read(*objects, options=options), curdate="").rendering.text
