"""Where traffic for a port goes: to endpoints, joined from slices, or to a node port on each eligible node."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import msgspec

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import (
    SERVICE_NAME_LABEL,
    Endpoint,
    EndpointAddress,
    EndpointConditions,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    ObjectRef,
    Service,
    ServicePort,
)
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key
from pyconfd.presets import values
from pyconfd.presets.policy import AllowedAddresses
from pyconfd.presets.views import EndpointView, NodeView, PortView

EXTERNAL_NAME = "a Service of type ExternalName is an alias in DNS: it has no endpoints to send traffic to"
NO_TCP = "the Service has no TCP port, and HAProxy balances only TCP"


def unservable(service: Service) -> str:
    """Return why traffic can never be sent to a Service as it is, "" where it can."""
    if service.spec.type == "ExternalName":
        return EXTERNAL_NAME
    protocols = {port.protocol or "TCP" for port in service.spec.ports or ()}
    return NO_TCP if protocols and "TCP" not in protocols else ""


_PROTOCOLS = frozenset({"TCP", "UDP", "SCTP"})
"""Source: core/v1 ``Protocol``."""

_STATE_RANK = {"ready": 0, "draining": 1, "down": 2}


def owner_of(key: Key, item: EndpointSlice) -> Key | None:
    """Return the Service that a slice belongs to, None where it names none."""
    owner = (item.metadata.labels or {}).get(SERVICE_NAME_LABEL)
    return Key(key.namespace, owner) if owner else None


def slices_by_service(slices: Mapping[Key, EndpointSlice]) -> dict[Key, list[EndpointSlice]]:
    """Group slices by the Service they belong to, each group in order of the slices' names."""
    groups: dict[Key, list[EndpointSlice]] = {}
    for key in sorted(slices):
        owner = owner_of(key, slices[key])
        if owner is not None:
            groups.setdefault(owner, []).append(slices[key])
    return groups


def slices_of_endpoints(endpoints: Endpoints) -> list[EndpointSlice]:
    """Return an Endpoints object as the slices that would say the same, one for each subset and address family."""
    slices = []
    for subset in endpoints.subsets or ():
        for family in ("IPv4", "IPv6"):
            members = tuple(_members(subset.addresses, family=family, ready=True)) + tuple(
                _members(subset.not_ready_addresses, family=family, ready=False)
            )
            if members:
                slices.append(
                    EndpointSlice(
                        metadata=ObjectMeta(name=endpoints.metadata.name, namespace=endpoints.metadata.namespace),
                        address_type=family,
                        endpoints=members,
                        ports=subset.ports,
                    )
                )
    return slices


def _members(addresses: Iterable[EndpointAddress] | None, *, family: str, ready: bool) -> Iterator[Endpoint]:
    conditions = None if ready else EndpointConditions(ready=False)
    for item in addresses or ():
        if (":" in item.ip) == (family == "IPv6"):
            yield Endpoint((item.ip,), conditions, item.node_name, item.target_ref)


@dataclass(frozen=True, slots=True)
class Join:
    """The ports of one service with their endpoints, and what had to be left out."""

    ports: tuple[PortView, ...]
    refused: tuple[Refusal, ...]


def join(
    service: Service | None,
    slices: list[EndpointSlice],
    *,
    cluster: str,
    places: AllowedAddresses,
    kind: str = "EndpointSlice",
) -> Join:
    """Return every port of the service with its endpoints, without those at ``places`` where none may be.

    ``kind`` is that of the objects to name in refusals. Without a Service object (hand-made Endpoints) the ports are
    those of the slices. A port of the service is matched with a slice's port by name and protocol; its number may
    differ between slices where the target port is a name.
    """
    refused: list[Refusal] = []
    by_port: dict[tuple[str, str], dict[tuple[str, int], EndpointView]] = {}
    numbers: dict[tuple[str, str], int] = {}
    for item in slices:
        ref = ObjectRef(kind, item.metadata.namespace, item.metadata.name, cluster)
        views = _endpoint_views(item, ref, places, refused)
        for of_slice in item.ports or ():
            if _is_port(of_slice.port):
                key = (of_slice.name or "", of_slice.protocol or "TCP")
                numbers.setdefault(key, of_slice.port)
                _collect(by_port.setdefault(key, {}), views, of_slice.port)
    wanted = (service.spec.ports or ()) if service else tuple(_ports_of_slices(slices))
    ports = []
    named = service.metadata if service else next((item.metadata for item in slices), ObjectMeta("", ""))
    names = _Names(ObjectRef("Service" if service else kind, named.namespace, named.name, cluster), refused)
    for port in wanted:
        key = (port.name or "", port.protocol or "TCP")
        target = numbers.get(key) or (port.target_port if isinstance(port.target_port, int) else 0) or port.port
        endpoints = tuple(sorted(by_port.get(key, {}).values(), key=_endpoint_order))
        protocol = key[1] if key[1] in _PROTOCOLS else ""
        name = names.name("spec.ports.name", key[0])
        ports.append(PortView(name, port.port, protocol, port.node_port, target, _with_fallback(endpoints)))
    return Join(tuple(ports), tuple(refused))


def _collect(known: dict[tuple[str, int], EndpointView], views: Iterable[EndpointView], port: int) -> None:
    for view in views:
        entry = EndpointView(
            view.address, port, view.state, view.family, view.pod, view.node, view.zone, view.ready, view.serving,
            view.terminating,
        )  # fmt: skip
        previous = known.get((view.address, port))
        if previous is None or _STATE_RANK[entry.state] < _STATE_RANK[previous.state]:
            known[view.address, port] = entry


def _is_port(number: int | None) -> TypeGuard[int]:
    """Return whether this is a port: the API server sees to it, a file or a lying server does not."""
    return number is not None and 0 < number < 65536


def _ports_of_slices(slices: Iterable[EndpointSlice]) -> Iterator[ServicePort]:
    seen = set()
    for item in slices:
        for port in item.ports or ():
            key = (port.name or "", port.protocol or "TCP")
            if _is_port(port.port) and key not in seen:
                seen.add(key)
                yield _service_port(port)


def _service_port(port: EndpointPort) -> ServicePort:
    return ServicePort(name=port.name, port=port.port or 0, target_port=port.port, protocol=port.protocol)


def _endpoint_views(
    item: EndpointSlice, ref: ObjectRef, places: AllowedAddresses, refused: list[Refusal]
) -> list[EndpointView]:
    views = []
    for endpoint in item.endpoints or ():
        text = endpoint.addresses[0] if endpoint.addresses else ""
        found = values.canonical_address(text)
        if found is None:
            detail = "not an IP address (slices of type FQDN are not served)"
            refused.append(
                Refusal(ref, "endpoints.addresses", values.shortened(text), RefusalReason.INVALID_VALUE, detail)
            )
            continue
        if wrong := places.wrong(found[0]):
            refused.append(Refusal(ref, "endpoints.addresses", found[0], RefusalReason.FORBIDDEN_ADDRESS, wrong))
            continue
        pod = endpoint.target_ref.name if endpoint.target_ref and endpoint.target_ref.kind == "Pod" else ""
        known = _Names(ref, refused)
        ready, serving, terminating = _conditions(endpoint)
        views.append(
            EndpointView(
                address=found[0],
                port=0,
                state=_state(ready=ready, serving=serving, terminating=terminating),
                family=found[1],
                pod=known.name("endpoints.targetRef.name", pod),
                node=known.name("endpoints.nodeName", endpoint.node_name),
                zone=known.name("endpoints.zone", endpoint.zone),
                ready=ready,
                serving=serving,
                terminating=terminating,
            )
        )
    return views


class _Names(NamedTuple):
    """Reads the names in an object that only serve to recognise something: one that is none is left out."""

    ref: ObjectRef
    refused: list[Refusal]

    def name(self, field: str, value: str | None) -> str:
        """Return the name, "" where there is none."""
        if not value or values.is_object_name(value):
            return value or ""
        detail = "not a name that can stand in a configuration; it is left out"
        self.refused.append(Refusal(self.ref, field, values.shortened(value), RefusalReason.INVALID_VALUE, detail))
        return ""


def _conditions(endpoint: Endpoint) -> tuple[bool, bool, bool]:
    conditions = endpoint.conditions or EndpointConditions()
    ready = conditions.ready is not False
    serving = ready if conditions.serving is None else conditions.serving
    return ready, serving, bool(conditions.terminating)


def _state(*, ready: bool, serving: bool, terminating: bool) -> str:
    if terminating:
        return "draining" if serving or ready else "down"
    return "ready" if ready else "down"


def _with_fallback(endpoints: tuple[EndpointView, ...]) -> tuple[EndpointView, ...]:
    """Where nothing is ready, send traffic to what terminates but still serves, as kube-proxy does (KEP-1669)."""
    states = {endpoint.state for endpoint in endpoints}
    if "ready" in states or "draining" not in states:
        return endpoints
    return tuple(
        EndpointView(e.address, e.port, "ready", e.family, e.pod, e.node, e.zone, e.ready, e.serving, e.terminating)
        if e.state == "draining"
        else e
        for e in endpoints
    )


def _endpoint_order(endpoint: EndpointView) -> tuple[str, bytes, int]:
    if endpoint.family == "ipv4":
        return "ipv4", bytes(map(int, endpoint.address.split("."))), endpoint.port
    parsed = values.address(endpoint.address)
    return endpoint.family, parsed.packed if parsed else b"", endpoint.port


def in_one_family(endpoints: tuple[EndpointView, ...], families: tuple[str, ...]) -> tuple[EndpointView, ...]:
    """Return one address family, so that a dual-stack pod counts once: the first one with a ready endpoint.

    ``families`` are the Service's ``ipFamilies`` ("IPv4", "IPv6").
    """
    present = {endpoint.family for endpoint in endpoints}
    if len(present) < 2:
        return endpoints
    order = [family.lower() for family in families] or ["ipv4"]
    order += [family for family in ("ipv4", "ipv6") if family not in order]
    with_ready = {endpoint.family for endpoint in endpoints if endpoint.state == "ready"}
    chosen = next((family for family in order if family in with_ready), order[0])
    return tuple(endpoint for endpoint in endpoints if endpoint.family == chosen)


class TargetOptions(NamedTuple):
    """Where traffic goes: the settings of this name in :class:`pyconfd.presets.preset.PresetOptions`."""

    node_ports: bool = False
    node_address_types: tuple[str, ...] = ("InternalIP",)


def targets_of_port(
    port: PortView, service: Service | None, nodes: tuple[NodeView, ...], options: TargetOptions
) -> tuple[EndpointView, ...]:
    """Return the endpoints to put into the backend, without those that are down.

    With ``options.node_ports``: one for each eligible node; under ``externalTrafficPolicy: Local`` only for those that
    run an endpoint. Empty where the port has no node port.
    """
    if not options.node_ports:
        return pod_targets(port, service)
    if not 0 < port.node_port < 65536:
        return ()
    found = targets_on_nodes(port, service, node_targets(nodes, options.node_address_types, families_of(service)))
    return tuple(msgspec.structs.replace(target, port=port.node_port) for target in found)


def pod_targets(port: PortView, service: Service | None) -> tuple[EndpointView, ...]:
    """Return the pods that answer for a port, in one address family."""
    return tuple(e for e in in_one_family(port.endpoints, families_of(service)) if e.state != "down")


def families_of(service: Service | None) -> tuple[str, ...]:
    """Return the address families of a Service as it lists them, () where it does not."""
    return (service.spec.ip_families if service else None) or ()


def node_targets(
    nodes: Iterable[NodeView], kinds: tuple[str, ...], wanted: tuple[str, ...] = ()
) -> tuple[EndpointView, ...]:
    """Return each eligible node as an endpoint without a port, at its first address of the first kind that it has.

    ``wanted`` are the families of the Service ("IPv4", "IPv6"): its node port answers on these only.
    """
    allowed = {family.lower() for family in wanted} or {"ipv4", "ipv6"}
    found = []
    for node in nodes:
        target = _address(node, kinds, allowed) if node.eligible else None
        if target is not None:
            found.append(target)
    return tuple(found)


def _address(node: NodeView, kinds: tuple[str, ...], allowed: set[str]) -> EndpointView | None:
    for wanted in kinds:
        for kind, text in node.addresses:
            parsed = values.address(text) if kind == wanted else None
            if parsed is None:
                continue
            family = "ipv4" if parsed.version == 4 else "ipv6"
            if family in allowed:
                return EndpointView(str(parsed), 0, "ready", family, "", node.name, node.zone)
    return None


def targets_on_nodes(
    port: PortView, service: Service | None, nodes: tuple[EndpointView, ...]
) -> tuple[EndpointView, ...]:
    """Return those of ``nodes`` (from :func:`node_targets`) that answer on the node port of ``port``, without a port.

    Under ``externalTrafficPolicy: Local`` these are the nodes with a ready endpoint; one whose endpoints only end what
    they began is draining.
    """
    if service is None or service.spec.external_traffic_policy != "Local":
        return nodes
    ready = {endpoint.node for endpoint in port.endpoints if endpoint.state == "ready"}
    draining = {endpoint.node for endpoint in port.endpoints if endpoint.state == "draining"} - ready
    return tuple(
        node if node.node in ready else msgspec.structs.replace(node, state="draining")
        for node in nodes
        if node.node in ready or node.node in draining
    )
