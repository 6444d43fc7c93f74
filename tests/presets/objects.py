"""Short ways to write the Kubernetes records that preset tests read."""

from collections.abc import Mapping, Sequence

from pyconfd.model.context import Context, Refusal
from pyconfd.model.kubernetes import (
    SERVICE_NAME_LABEL,
    Endpoint,
    EndpointAddress,
    EndpointConditions,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    EndpointSubset,
    Node,
    NodeAddress,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    Service,
    ServicePort,
    ServiceSpec,
    TargetRef,
)
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions

Named = Service | EndpointSlice | Endpoints | Node


def endpoint(
    address: str,
    *,
    pod: str = "",
    node: str | None = None,
    zone: str | None = None,
    ready: bool | None = True,
    serving: bool | None = None,
    terminating: bool | None = None,
) -> Endpoint:
    ref = TargetRef("Pod", pod) if pod else None
    return Endpoint((address,), EndpointConditions(ready, serving, terminating), node, ref, zone)


def service(
    name: str,
    annotations: Mapping[str, str] | None = None,
    *,
    namespace: str = "demo",
    ports: Sequence[ServicePort] = (ServicePort("web", 80, "web"),),
    created: str | None = "2026-01-01T00:00:00Z",
    type_: str = "ClusterIP",
    policy: str | None = None,
    families: tuple[str, ...] | None = None,
) -> Service:
    meta = ObjectMeta(name, namespace, creation_timestamp=created, annotations=dict(annotations or {}))
    return Service(meta, ServiceSpec(tuple(ports), type_, policy, families))


def slice_(
    name: str,
    *endpoints: Endpoint,
    namespace: str = "demo",
    suffix: str = "a",
    ports: Sequence[EndpointPort] = (EndpointPort("web", 8080, "TCP"),),
    family: str = "IPv4",
) -> EndpointSlice:
    meta = ObjectMeta(f"{name}-{suffix}", namespace, labels={SERVICE_NAME_LABEL: name})
    return EndpointSlice(meta, family, endpoints, tuple(ports))


def endpoints(
    name: str,
    annotations: Mapping[str, str] | None,
    *subsets: EndpointSubset,
    namespace: str = "demo",
    created: str = "2026-01-01T00:00:00Z",
) -> Endpoints:
    meta = ObjectMeta(
        name, namespace, creation_timestamp=created, annotations=None if annotations is None else dict(annotations)
    )
    return Endpoints(meta, subsets)


def subset(*ready: str, not_ready: Sequence[str] = (), port: int = 8080, name: str | None = None) -> EndpointSubset:
    return EndpointSubset(
        tuple(EndpointAddress(ip) for ip in ready) or None,
        tuple(EndpointAddress(ip) for ip in not_ready) or None,
        (EndpointPort(name, port, "TCP"),),
    )


def node(
    name: str, address: str, *, ready: bool = True, cordoned: bool = False, labels: Mapping[str, str] | None = None
) -> Node:
    return Node(
        ObjectMeta(name, labels=dict(labels or {})),
        NodeSpec(unschedulable=cordoned or None),
        NodeStatus((NodeAddress("InternalIP", address),), (NodeCondition("Ready", "True" if ready else "False"),)),
    )


def snapshot(*objects: Named) -> Snapshot:
    def of(kind: type) -> dict[Key, Named]:
        return {Key(o.metadata.namespace, o.metadata.name): o for o in objects if isinstance(o, kind)}

    return Snapshot(
        services=of(Service),  # type: ignore[arg-type]
        endpointslices=of(EndpointSlice),  # type: ignore[arg-type]
        endpoints=of(Endpoints),  # type: ignore[arg-type]
        nodes=of(Node),  # type: ignore[arg-type]
    )


def read(*objects: Named, options: PresetOptions | None = None) -> Context:
    return registry.translate(snapshot(*objects), ("domains",), options or PresetOptions())


def domains(*objects: Named, options: PresetOptions | None = None) -> Mapping[str, dict[str, object]]:
    result = read(*objects, options=options).names["domains"]
    assert isinstance(result, Mapping)
    return result


def refused(*objects: Named, options: PresetOptions | None = None) -> tuple[Refusal, ...]:
    return read(*objects, options=options).refused
