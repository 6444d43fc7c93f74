"""Who is behind an address of a Snapshot: pods, nodes, and the Services that they serve. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pyconfd.model.snapshot import Key, Snapshot

_SERVICE_LABEL = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class Owner:
    """``name`` is ``namespace/pod``, or what else is known; ``services`` are ``namespace/name``, sorted."""

    name: str
    services: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Owners:
    """``names`` and ``services`` by address; ``by_node_port`` gives the Service of a node port."""

    names: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, frozenset[str]] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    by_node_port: Mapping[int, str] = field(default_factory=dict)

    def at(self, host: str, port: int) -> Owner:
        """Return who answers at an address."""
        if host in self.nodes:
            service = self.by_node_port.get(port, "")
            name = f"{service} through {self.nodes[host]}" if service else f"{self.nodes[host]} port {port}"
            return Owner(name, (service,) if service else ())
        unknown = f"{host}:{port}" if port else host
        return Owner(self.names.get(host, unknown), tuple(sorted(self.services.get(host, ()))))


def owners_of(snapshot: Snapshot) -> Owners:
    """Return them for all addresses of a Snapshot."""
    names: dict[str, str] = {}
    services: dict[str, set[str]] = defaultdict(set)
    for address, service, pod in _behind_services(snapshot):
        services[address].add(service)
        if pod:
            names[address] = pod
        else:
            names.setdefault(address, f"{service} at {address}")
    for key, record in snapshot.pods.items():
        if record.status.pod_ip:
            names[record.status.pod_ip] = _text(key)
    return Owners(
        names,
        {address: frozenset(found) for address, found in services.items()},
        {
            address.address: node.metadata.name
            for node in snapshot.nodes.values()
            for address in node.status.addresses or ()
        },
        {
            port.node_port: _text(key)
            for key, service_record in snapshot.services.items()
            for port in service_record.spec.ports or ()
            if port.node_port
        },
    )


def _behind_services(snapshot: Snapshot) -> Iterator[tuple[str, str, str]]:
    """Return address, Service and pod ("" for none) of each endpoint."""
    for key, piece in snapshot.endpointslices.items():
        service = _text(Key(key.namespace, (piece.metadata.labels or {}).get(_SERVICE_LABEL, key.name)))
        for endpoint in piece.endpoints or ():
            pod = endpoint.target_ref.name if endpoint.target_ref else ""
            for address in endpoint.addresses:
                yield address, service, _text(Key(key.namespace, pod)) if pod else ""
    for key, record in snapshot.endpoints.items():
        for subset in record.subsets or ():
            for item in (*(subset.addresses or ()), *(subset.not_ready_addresses or ())):
                pod = item.target_ref.name if item.target_ref else ""
                yield item.ip, _text(key), _text(Key(key.namespace, pod)) if pod else ""


def _text(key: Key) -> str:
    return f"{key.namespace}/{key.name}"
