"""Chooses where the traffic for one port goes: to its pods, or to a node port on each eligible node."""

from collections.abc import Iterable

import msgspec

from pyconfd.model.kubernetes import Service
from pyconfd.presets import values
from pyconfd.presets.endpoints import in_one_family
from pyconfd.presets.reading import PresetOptions
from pyconfd.presets.views import EndpointView, NodeView, PortView


def of_port(
    port: PortView, service: Service | None, nodes: tuple[NodeView, ...], options: PresetOptions
) -> tuple[EndpointView, ...]:
    """Return the endpoints to put into the backend, without those that are down.

    With ``options.node_ports``: one for each eligible node; under ``externalTrafficPolicy: Local`` only for those that
    run an endpoint. Empty where the port has no node port.
    """
    if not options.node_ports:
        return pods(port, service)
    if not 0 < port.node_port < 65536:
        return ()
    found = on_nodes(port, service, addresses(nodes, options.node_address_types, families(service)))
    return tuple(msgspec.structs.replace(target, port=port.node_port) for target in found)


def pods(port: PortView, service: Service | None) -> tuple[EndpointView, ...]:
    """Return the pods that answer for a port, in one address family."""
    return tuple(e for e in in_one_family(port.endpoints, families(service)) if e.state != "down")


def families(service: Service | None) -> tuple[str, ...]:
    """Return the address families of a Service as it lists them, () where it does not."""
    return (service.spec.ip_families if service else None) or ()


def addresses(
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


def on_nodes(port: PortView, service: Service | None, nodes: tuple[EndpointView, ...]) -> tuple[EndpointView, ...]:
    """Return those of ``nodes`` (from :func:`addresses`) that answer on the node port of ``port``, without a port.

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
