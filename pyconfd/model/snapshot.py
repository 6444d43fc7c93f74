"""What the sources saw: complete or absent, never partial."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from pyconfd.model.address import canonical
from pyconfd.model.host import HostFacts
from pyconfd.model.kubernetes import (
    AnyObject,
    ConfigMap,
    Deployment,
    Endpoints,
    EndpointSlice,
    Node,
    Pod,
    Secret,
    Service,
)


class Key(NamedTuple):
    """Namespace ("" for cluster-wide objects) and name; sorting by it is the order of everything pyconfd prints."""

    namespace: str
    name: str


class Resource(StrEnum):
    """The kinds that can be read, by their plural API name."""

    SERVICES = "services"
    ENDPOINTSLICES = "endpointslices"
    ENDPOINTS = "endpoints"
    NODES = "nodes"
    SECRETS = "secrets"
    CONFIGMAPS = "configmaps"
    PODS = "pods"
    DEPLOYMENTS = "deployments"

    @property
    def field(self) -> str:
        """The name of its mapping in a :class:`Snapshot`."""
        return "config_maps" if self is Resource.CONFIGMAPS else self.value


class Named(NamedTuple):
    """One object that is read by its name; nothing else of its kind is. "" stands for all names, or namespaces."""

    resource: Resource
    namespace: str
    name: str


KIND_OF: Mapping[Resource, str] = MappingProxyType(
    {
        Resource.SERVICES: "Service",
        Resource.ENDPOINTSLICES: "EndpointSlice",
        Resource.ENDPOINTS: "Endpoints",
        Resource.NODES: "Node",
        Resource.SECRETS: "Secret",
        Resource.CONFIGMAPS: "ConfigMap",
        Resource.PODS: "Pod",
        Resource.DEPLOYMENTS: "Deployment",
    }
)

RECORD_OF: Mapping[Resource, type[AnyObject]] = MappingProxyType(
    {
        Resource.SERVICES: Service,
        Resource.ENDPOINTSLICES: EndpointSlice,
        Resource.ENDPOINTS: Endpoints,
        Resource.NODES: Node,
        Resource.SECRETS: Secret,
        Resource.CONFIGMAPS: ConfigMap,
        Resource.PODS: Pod,
        Resource.DEPLOYMENTS: Deployment,
    }
)


class Departures:
    """The newest addresses that announced their end (a pod terminates, a node is cordoned), until they are ready again.

    They are noted by the cache: a pod can begin to terminate and be gone between two Snapshots.
    """

    MOST = 20_000

    def __init__(self) -> None:
        self._known: dict[str, None] = {}

    def __contains__(self, address: object) -> bool:
        return address in self._known

    def __bool__(self) -> bool:
        return bool(self._known)

    def leaves(self, address: str) -> None:
        """Note that an address leaves."""
        self._known[canonical(address)] = None
        if len(self._known) > self.MOST:
            del self._known[next(iter(self._known))]

    def returned(self, address: str) -> None:
        """Note that it is ready."""
        self._known.pop(canonical(address), None)


def _nothing() -> Mapping[Key, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent view of one cluster; mappings are never changed after they were put here.

    ``cluster`` is the name given in the settings ("" for the only one). The order of the mappings is an accident
    of the API: their readers sort. ``host`` are the facts of this machine that presets judge by; ``departures``
    go on while the Snapshot is looked at. Of what is ``denied`` nothing is known.
    """

    cluster: str = ""
    services: Mapping[Key, Service] = field(default_factory=_nothing)
    endpointslices: Mapping[Key, EndpointSlice] = field(default_factory=_nothing)
    endpoints: Mapping[Key, Endpoints] = field(default_factory=_nothing)
    nodes: Mapping[Key, Node] = field(default_factory=_nothing)
    secrets: Mapping[Key, Secret] = field(default_factory=_nothing)
    config_maps: Mapping[Key, ConfigMap] = field(default_factory=_nothing)
    pods: Mapping[Key, Pod] = field(default_factory=_nothing)
    deployments: Mapping[Key, Deployment] = field(default_factory=_nothing)
    host: HostFacts = field(default_factory=HostFacts)
    denied: tuple[Named, ...] = ()
    departures: tuple[Departures, ...] = field(default=(), compare=False, repr=False)
