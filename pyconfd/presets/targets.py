"""Chooses where the traffic for one port goes: to its pods, or to a node port on each eligible node."""

from pyconfd.model.kubernetes import Service
from pyconfd.presets import values
from pyconfd.presets.endpoints import in_one_family
from pyconfd.presets.reading import PresetOptions
from pyconfd.presets.views import EndpointView, NodeView, PortView


def of_port(
    port: PortView, service: Service | None, nodes: tuple[NodeView, ...], options: PresetOptions
) -> tuple[EndpointView, ...]:
    """Give the endpoints to put into the backend, without those that are down.

    With ``options.node_ports``: one for each eligible node; under ``externalTrafficPolicy: Local`` only for those that
    run a ready endpoint. Empty where the port has no node port.
    """
    if options.node_ports:
        return _node_ports(port, service, nodes, options)
    families = (service.spec.ip_families if service else None) or ()
    return tuple(e for e in in_one_family(port.endpoints, families) if e.state != "down")


def _node_ports(
    port: PortView, service: Service | None, nodes: tuple[NodeView, ...], options: PresetOptions
) -> tuple[EndpointView, ...]:
    if not 0 < port.node_port < 65536:
        return ()
    local = service is not None and service.spec.external_traffic_policy == "Local"
    homes = {endpoint.node for endpoint in port.endpoints if endpoint.state == "ready"}
    targets = []
    for node in nodes:
        if not node.eligible or (local and node.name not in homes):
            continue
        found = next((a for kind in options.node_address_types if (a := node.address(kind)) is not None), None)
        parsed = values.address(found) if found else None
        if parsed is not None:
            family = "ipv4" if parsed.version == 4 else "ipv6"
            targets.append(EndpointView(str(parsed), port.node_port, "ready", family, "", node.name, node.zone))
    return tuple(targets)
