"""The Services behind Ingresses: one backend for each port that is named, however many paths lead to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyconfd.model.kubernetes import Service
from pyconfd.model.snapshot import Key
from pyconfd.model.versioned import VersionedDict, differing, replaced
from pyconfd.presets.annotations import read_foreign
from pyconfd.presets.cluster import Cluster
from pyconfd.presets.endpoints import targets_of_port
from pyconfd.presets.ingress.changes import NOBODY, ChangedClaims
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.routing.references import H2C, Missing, ServiceReference, Unresolved, app_protocol, resolve
from pyconfd.presets.routing.types import PathEntry, RouteBackend
from pyconfd.presets.views import PortView

_SERVER_OPTIONS = {H2C: "proto h2", "https": "ssl verify none", "HTTPS": "ssl verify none"}
"""More words for servers by ``appProtocol``; TLS to pods is not verified, since nothing names a CA."""

Entries = Mapping[str, tuple[PathEntry, ...]]


class Use(NamedTuple):
    """The Service that a backend is made of, and the Ingresses that name it."""

    reference: ServiceReference
    users: frozenset[Key]


@dataclass(frozen=True, slots=True)
class Backends:
    """``served`` are the backends that paths lead to, by name; ``faults`` says which references lead nowhere.

    Such a reference keeps its paths, and has a backend without servers: requests get 503 until the Service is there.
    ``ready`` counts the endpoints that traffic may be sent to. ``uses`` has all that claims name, ``of_service`` the
    names of backends by Service.
    """

    cluster: Cluster
    options: PresetOptions
    uses: Mapping[str, Use] = field(default_factory=lambda: VersionedDict({}))
    of_service: Mapping[Key, frozenset[str]] = field(default_factory=lambda: VersionedDict({}))
    entries: Entries = field(default_factory=dict)
    served: Mapping[str, RouteBackend] = field(default_factory=lambda: VersionedDict({}))
    faults: Mapping[str, Missing] = field(default_factory=lambda: VersionedDict({}))
    ready: int = 0

    def updated(self, changed: ChangedClaims, entries: Entries, cluster: Cluster, options: PresetOptions) -> "Backends":
        """Return the backends after claims, the entries that lead to them, or the cluster changed."""
        uses, of_service = self._uses(changed)
        stale = set(differing(self.entries, entries)) | differing_names(self.uses, uses)
        targets = options.node_ports, options.node_address_types
        nodes_count = options.node_ports and cluster.view.nodes is not self.cluster.view.nodes
        if nodes_count or targets != (self.options.node_ports, self.options.node_address_types):
            stale |= uses.keys()
        else:
            for key in cluster.changed_since(self.cluster):
                stale |= of_service.get(key, frozenset())
        served: dict[str, RouteBackend | None] = {}
        faults: dict[str, Missing | None] = {}
        for name in stale:
            served[name], faults[name] = _backend(name, uses.get(name), entries.get(name, ()), cluster, options)
        ready = self.ready
        for name, backend in served.items():
            ready += _ready(backend) - _ready(self.served.get(name))
        return Backends(
            cluster, options, uses, of_service, entries,
            replaced(self.served, served, rank=str), replaced(self.faults, faults), ready,
        )  # fmt: skip

    def _uses(self, changed: ChangedClaims) -> tuple[Mapping[str, Use], Mapping[Key, frozenset[str]]]:
        uses: dict[str, Use | None] = {}
        of_service: dict[Key, frozenset[str]] = {}
        for key in changed.keys:
            before, after = (claims[key].references if key in claims else {} for claims in changed[:2])
            for name in before.keys() ^ after.keys():
                reference = after.get(name) or before[name]
                use = uses.get(name, self.uses.get(name))
                users = use.users if use is not None else NOBODY
                users = users | {key} if name in after else users - {key}
                uses[name] = Use(reference, users) if users else None
                service = Key(reference.namespace, reference.name)
                names = of_service.get(service, self.of_service.get(service, frozenset()))
                of_service[service] = names | {name} if users else names - {name}
        found = {service: names or None for service, names in of_service.items()}
        return replaced(self.uses, uses), replaced(self.of_service, found)


def differing_names(before: Mapping[str, Use], after: Mapping[str, Use]) -> set[str]:
    """Return the names that came or went; another user is no change of the Service."""
    return {name for name in differing(before, after) if (name in before) != (name in after)}


def _ready(backend: RouteBackend | None) -> int:
    return sum(server.state == "ready" for server in backend.servers) if backend is not None else 0


def _backend(
    name: str, use: Use | None, entries: tuple[PathEntry, ...], cluster: Cluster, options: PresetOptions
) -> tuple[RouteBackend | None, Missing | None]:
    """Return the backend, None where no path leads to it; and why the reference leads nowhere, None where it does."""
    if use is None:
        return None, None
    namespace, service_name, wanted, *_ = use.reference
    owner = f"Service {namespace}/{service_name}, port {wanted}, of Ingresses"
    port = resolve(use.reference, cluster)
    if isinstance(port, PortView):
        port = _unrestricted(port, cluster.snapshot.services[Key(namespace, service_name)], options)
    if isinstance(port, Missing):
        return (RouteBackend(name, owner, namespace, service_name, entries, ()) if entries else None), port
    fault = None
    if options.node_ports and not port.node_port:
        detail = "traffic goes to node ports (presets.backend_target) but this port has none: use type NodePort"
        fault = Missing(Unresolved.NOT_FOUND, detail, port=True)
    if not entries:
        return None, fault
    service = cluster.snapshot.services[Key(namespace, service_name)]
    servers = targets_of_port(port, service, cluster.view.nodes, options)
    words = _SERVER_OPTIONS.get(app_protocol(service, port), "")
    return RouteBackend(name, owner, namespace, service_name, entries, servers, options=words), fault


def _unrestricted(port: PortView, service: Service, options: PresetOptions) -> PortView | Missing:
    """Return the port, unless annotations of its Service restrict access in a way that is not implemented."""
    foreign = read_foreign(service.metadata.annotations, "Service", options.ignored_annotations)
    if not foreign.restricting:
        return port
    detail = f"annotation {foreign.restricting[0]} of the Service: {foreign.why_restricted('it')}"
    return Missing(Unresolved.RESTRICTED, detail)
