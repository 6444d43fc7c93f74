"""What the sources saw, complete or absent, never partial; and the facts about this machine that presets judge by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from pyconfd.model.gateway_api import (
    BackendTLSPolicy,
    Gateway,
    GatewayClass,
    GRPCRoute,
    HTTPRoute,
    ListenerSet,
    ReferenceGrant,
    TCPRoute,
    TLSRoute,
)
from pyconfd.model.ingress import Ingress, IngressClass
from pyconfd.model.kubernetes import (
    AnyObject,
    ConfigMap,
    Deployment,
    Endpoints,
    EndpointSlice,
    Namespace,
    Node,
    Pod,
    Secret,
    Service,
)
from pyconfd.model.listener import Listener, canonical
from pyconfd.model.route_policy import RoutePolicyObject


@dataclass(frozen=True, slots=True, order=True)
class ListeningSocket:
    """A TCP socket in state LISTEN.

    ``address`` is an IP address ("0.0.0.0" or "::" for any); ``owner`` is the process name and number where they may
    be seen, else "". A socket on "::" takes IPv4 as well unless it is ``v6only``.
    """

    address: str
    port: int
    owner: str = ""
    v6only: bool = False

    @property
    def listener(self) -> Listener:
        """Address and port."""
        return Listener.at(self.address, self.port, v6only=self.v6only)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What pure code may know of the host.

    ``addresses`` are those of the interfaces, without prefix length or zone; ``ephemeral_ports`` is the inclusive
    range of ``net.ipv4.ip_local_port_range``; the ``nonlocal_bind`` flags are the sysctls of that name;
    ``unprivileged_port_start`` is the first port that needs no capability. ``certificates`` has the path of each file
    below the directories of certificates that the settings name, with "" or what is wrong with it; it is None where
    that is not known (nobody asked, or it may not be read): then nothing can be said to be missing. ``hour`` is the
    time in hours since the epoch, by which certificates have expired; 0 where the time does not count. ``api_servers``
    are the addresses behind the names by which this host reaches API servers.
    """

    addresses: frozenset[str] = frozenset()
    listening: tuple[ListeningSocket, ...] = ()
    nonlocal_bind_v4: bool = False
    nonlocal_bind_v6: bool = False
    ephemeral_ports: tuple[int, int] = (32768, 60999)
    unprivileged_port_start: int = 1024
    certificates: Mapping[str, str] | None = None
    hour: int = 0
    api_servers: frozenset[str] = frozenset()

    @property
    def known(self) -> bool:
        """False for facts that nobody gathered: a host has at least its loopback address."""
        return bool(self.addresses)

    @property
    def addressing(self) -> "HostFacts":
        """Return those by which it is judged whether one can listen somewhere; the others change all the time."""
        return HostFacts(
            addresses=self.addresses,
            nonlocal_bind_v4=self.nonlocal_bind_v4,
            nonlocal_bind_v6=self.nonlocal_bind_v6,
            ephemeral_ports=self.ephemeral_ports,
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
    NAMESPACES = "namespaces"
    INGRESSCLASSES = "ingressclasses"
    INGRESSES = "ingresses"
    GATEWAYCLASSES = "gatewayclasses"
    GATEWAYS = "gateways"
    LISTENERSETS = "listenersets"
    HTTPROUTES = "httproutes"
    GRPCROUTES = "grpcroutes"
    TLSROUTES = "tlsroutes"
    TCPROUTES = "tcproutes"
    REFERENCEGRANTS = "referencegrants"
    BACKENDTLSPOLICIES = "backendtlspolicies"
    ROUTEPOLICIES = "routepolicies"

    @property
    def field(self) -> str:
        """The name of its mapping in a :class:`Snapshot`."""
        return "config_maps" if self is Resource.CONFIGMAPS else self.value


ROUTING_RESOURCES = (
    Resource.INGRESSCLASSES,
    Resource.INGRESSES,
    Resource.GATEWAYCLASSES,
    Resource.GATEWAYS,
    Resource.LISTENERSETS,
    Resource.HTTPROUTES,
    Resource.GRPCROUTES,
    Resource.TLSROUTES,
    Resource.TCPROUTES,
    Resource.REFERENCEGRANTS,
    Resource.BACKENDTLSPOLICIES,
    Resource.ROUTEPOLICIES,
)
"""The kinds of networking.k8s.io, the Gateway API and pyconfd.io: what asks for traffic, and what that depends on."""

ENDS_BY_DELETION = (
    Resource.SERVICES,
    Resource.INGRESSES,
    Resource.GATEWAYS,
    Resource.LISTENERSETS,
    Resource.HTTPROUTES,
    Resource.GRPCROUTES,
    Resource.TLSROUTES,
    Resource.TCPROUTES,
    Resource.REFERENCEGRANTS,
)
"""The kinds whose objects somebody deletes by name to end what they ask for, or allow one to ask for."""

DELETION_COUNTS = (*ENDS_BY_DELETION, Resource.SECRETS)
"""The kinds of which it matters whether an object was deleted by name, or is missing in a list."""


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
        Resource.NAMESPACES: "Namespace",
        Resource.INGRESSCLASSES: "IngressClass",
        Resource.INGRESSES: "Ingress",
        Resource.GATEWAYCLASSES: "GatewayClass",
        Resource.GATEWAYS: "Gateway",
        Resource.LISTENERSETS: "ListenerSet",
        Resource.HTTPROUTES: "HTTPRoute",
        Resource.GRPCROUTES: "GRPCRoute",
        Resource.TLSROUTES: "TLSRoute",
        Resource.TCPROUTES: "TCPRoute",
        Resource.REFERENCEGRANTS: "ReferenceGrant",
        Resource.BACKENDTLSPOLICIES: "BackendTLSPolicy",
        Resource.ROUTEPOLICIES: "RoutePolicy",
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
        Resource.NAMESPACES: Namespace,
        Resource.INGRESSCLASSES: IngressClass,
        Resource.INGRESSES: Ingress,
        Resource.GATEWAYCLASSES: GatewayClass,
        Resource.GATEWAYS: Gateway,
        Resource.LISTENERSETS: ListenerSet,
        Resource.HTTPROUTES: HTTPRoute,
        Resource.GRPCROUTES: GRPCRoute,
        Resource.TLSROUTES: TLSRoute,
        Resource.TCPROUTES: TCPRoute,
        Resource.REFERENCEGRANTS: ReferenceGrant,
        Resource.BACKENDTLSPOLICIES: BackendTLSPolicy,
        Resource.ROUTEPOLICIES: RoutePolicyObject,
    }
)


class Terminating:
    """The newest addresses that announced their end (a pod terminates, a node is cordoned), until they are ready again.

    Beside them the UIDs of objects that were deleted by name (:data:`DELETION_COUNTS`). All are noted by the cache: a
    pod can begin to terminate and be gone between two Snapshots.
    """

    MOST = 20_000

    def __init__(self) -> None:
        self._known: dict[str, None] = {}

    def __contains__(self, address: object) -> bool:
        return address in self._known

    def __bool__(self) -> bool:
        return bool(self._known)

    def leaves(self, address: str) -> None:
        """Record that an address announced its end."""
        self._known[canonical(address)] = None
        if len(self._known) > self.MOST:
            del self._known[next(iter(self._known))]

    def deleted(self, uid: str) -> None:
        """Record that the API server said of an object that it was deleted."""
        if uid:
            self.leaves(uid)

    def returned(self, address: str) -> None:
        """Record that an address is ready again."""
        self._known.pop(canonical(address), None)


def _nothing() -> Mapping[Key, Any]:
    return MappingProxyType({})


def denies_secrets(denied: tuple[Named, ...], namespace: str) -> bool:
    """Return whether the Secrets of a namespace may not be listed."""
    return any(each in denied for each in (Named(Resource.SECRETS, namespace, ""), Named(Resource.SECRETS, "", "")))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent view of one cluster; mappings are never changed after they were put here.

    ``cluster`` is the name given in the settings ("" for the only one). The order of the mappings is an accident
    of the API: their readers sort. ``host`` are the facts of this machine that presets judge by; ``terminating``
    go on while the Snapshot is looked at. Of what is ``denied`` nothing is known. ``former_secrets`` are earlier
    states of TLS Secrets that are denied, or that cannot be used as they are.
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
    namespaces: Mapping[Key, Namespace] = field(default_factory=_nothing)
    ingressclasses: Mapping[Key, IngressClass] = field(default_factory=_nothing)
    ingresses: Mapping[Key, Ingress] = field(default_factory=_nothing)
    gatewayclasses: Mapping[Key, GatewayClass] = field(default_factory=_nothing)
    gateways: Mapping[Key, Gateway] = field(default_factory=_nothing)
    listenersets: Mapping[Key, ListenerSet] = field(default_factory=_nothing)
    httproutes: Mapping[Key, HTTPRoute] = field(default_factory=_nothing)
    grpcroutes: Mapping[Key, GRPCRoute] = field(default_factory=_nothing)
    tlsroutes: Mapping[Key, TLSRoute] = field(default_factory=_nothing)
    tcproutes: Mapping[Key, TCPRoute] = field(default_factory=_nothing)
    referencegrants: Mapping[Key, ReferenceGrant] = field(default_factory=_nothing)
    backendtlspolicies: Mapping[Key, BackendTLSPolicy] = field(default_factory=_nothing)
    routepolicies: Mapping[Key, RoutePolicyObject] = field(default_factory=_nothing)
    host: HostFacts = field(default_factory=HostFacts)
    denied: tuple[Named, ...] = ()
    former_secrets: Mapping[Key, Secret] = field(default_factory=_nothing)
    terminating: tuple[Terminating, ...] = field(default=(), compare=False, repr=False)

    def denies_secrets_of(self, namespace: str) -> bool:
        """Return whether the Secrets of a namespace may not be listed."""
        return denies_secrets(self.denied, namespace)
