"""The sources of the presets' collections: the objects of the cluster, what was read of them, and the settings."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from pyconfd.derived import Graph, Read, Source, Value
from pyconfd.model.context import ALL_NAMESPACES, PresetName
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
from pyconfd.model.kubernetes import ConfigMap, Namespace, Pod
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.route_policy import RoutePolicyObject
from pyconfd.model.snapshot import HostFacts, Key, Resource, Snapshot, denies_secrets
from pyconfd.model.versioned import differing
from pyconfd.presets.certificates import ReadSecret, TlsOptions, missing_secret
from pyconfd.presets.cluster import ReadCluster
from pyconfd.presets.endpoints import TargetOptions, targets_of_port
from pyconfd.presets.policies.attached import AttachedPolicies
from pyconfd.presets.policies.said import PolicySources
from pyconfd.presets.policies.types import BasicAuth, RoutePolicy
from pyconfd.presets.policies.users import BEYOND_ROOM, OPAQUE
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.views import EndpointView, PortAt

_NONE: Mapping[Key, Any] = {}

Route = HTTPRoute | GRPCRoute | TLSRoute | TCPRoute

ROUTES = (Resource.TLSROUTES, Resource.TCPROUTES, Resource.HTTPROUTES, Resource.GRPCROUTES)
"""The resources of routes."""


class Objects:
    """The sources. What is read for one preset only has items where that is among ``presets``, in order."""

    def __init__(self, cluster: str, presets: Sequence[str]) -> None:
        self.cluster, self.presets, self.graph = cluster, presets, Graph()
        graph = self.graph
        self.read = read = ReadCluster(graph, cluster)
        self.places, self.denied, self.nodes = read.places, read.denied, read.nodes
        self.services, self.declared, self.secrets = read.services, read.declared, read.secrets
        self.policy = Value[ClaimOptions](graph, "claims")
        self.nginx_classes = Value[tuple[str, ...]](graph, "ingress.nginx_classes")
        self.ignored_annotations = Value[tuple[str, ...]](graph, "ingress.ignored_annotations")
        self.gateway_services = Value[bool](graph, "cluster_status.gateway_services")
        self.tls = Value[TlsOptions](graph, "tls")
        self.targets = Value[TargetOptions](graph, "presets.backend_target")
        self.shared_addresses = Value[tuple[str, ...]](graph, "addresses.shared")
        self.host = Value[HostFacts](graph, "addresses of this machine")
        self.ingress_classes = Value[Mapping[Key, IngressClass]](graph, "IngressClasses")
        self.ingresses = Source[Key, Ingress](graph, "Ingresses")
        self.gateway_classes = Source[ObjectKey, GatewayClass](graph, "GatewayClasses")
        self.gateways = Source[ObjectKey, Gateway](graph, "Gateways")
        self.listener_sets = Source[ObjectKey, ListenerSet](graph, "ListenerSets")
        self.routes = Source[ObjectKey, Route](graph, "routes")
        self.grants = Source[Key, ReferenceGrant](graph, "ReferenceGrants")
        self.tls_policies = Source[ObjectKey, BackendTLSPolicy](graph, "BackendTLSPolicies")
        self.route_policies = Source[ObjectKey, RoutePolicyObject](graph, "sources of RoutePolicies")
        self.attached = AttachedPolicies(self.route_policies)
        self.labels = Source[str, Mapping[str, str]](graph, "labels of namespaces")
        self.config_maps = Source[Key, ConfigMap](graph, "ConfigMaps")
        self.pods = Source[Key, Pod](graph, "Pods")
        by_status: dict[Resource, Source[ObjectKey, Any]] = {
            Resource.GATEWAYCLASSES: self.gateway_classes,
            Resource.GATEWAYS: self.gateways,
            Resource.LISTENERSETS: self.listener_sets,
            Resource.BACKENDTLSPOLICIES: self.tls_policies,
            **dict.fromkeys(ROUTES, self.routes),
        }
        self.reads_grants = PresetName.GATEWAY in presets
        self._followed: list[_Followed] = []
        if PresetName.INGRESS in presets:
            self._followed.append(_Followed(Resource.INGRESSES, self.ingresses))
        if {PresetName.INGRESS, PresetName.GATEWAY} & {*presets}:
            self._followed.append(_Followed(Resource.CONFIGMAPS, self.config_maps))
            self._followed.append(
                _Followed(Resource.ROUTEPOLICIES, self.route_policies, partial(ObjectKey, Resource.ROUTEPOLICIES))
            )
        if PresetName.GATEWAY in presets:
            self._followed += (
                *(_Followed(each, source, partial(ObjectKey, each)) for each, source in by_status.items()),
                _Followed(Resource.REFERENCEGRANTS, self.grants),
                _Followed(Resource.NAMESPACES, self.labels, attrgetter("name"), _labels),
            )

    def see(self, snapshot: Snapshot, options: PresetOptions) -> None:
        """Put what differs from the last time into the sources."""
        self.read.see(snapshot, options.claims)
        self.policy.set(options.claims)
        self.nginx_classes.set(options.nginx_classes)
        self.ignored_annotations.set(options.ignored_annotations)
        self.gateway_services.set(options.gateway_services)
        self.tls.set(options.tls)
        self.targets.set(TargetOptions(options.node_ports, options.node_address_types))
        self.shared_addresses.set(options.addresses.shared)
        self.host.set(snapshot.host.addressing)
        self.ingress_classes.set(snapshot.ingressclasses)
        self.pods.follow(snapshot.pods)
        for each in self._followed:
            each.see(snapshot)

    def servers(self, read: Read, at: PortAt) -> tuple[EndpointView, ...]:
        """Return where traffic for a port of a Service goes, for a function of a collection."""
        seen, targets = read(self.services, at.service), read.value(self.targets)
        if seen is None or seen.view is None:
            return ()
        nodes = read.value(self.nodes) if targets.node_ports else ()
        return targets_of_port(seen.view.ports[at.place], seen.object, nodes, targets)

    def with_users(self, read: Read, policy: RoutePolicy) -> tuple[RoutePolicy, str, str]:
        """Return a policy with the users that it asks for, why there are none, and which ones are left out.

        Without users nobody is let in.
        """
        if policy.auth is None:
            return policy, "", ""
        key, tls = policy.auth.secret, read.value(self.tls)
        found = read(self.read.user_lists, key)
        if found is None:
            wrong = missing_secret(self.secrets_for(read), tls, key.namespace, key.name, OPAQUE)
            if not tls.passwords and {key.namespace, ALL_NAMESPACES} & {*tls.namespaces}:
                wrong = f"Secrets of type {OPAQUE} are not read: set kubernetes.password_secrets"
            return policy._replace(closed=True), wrong, ""
        beyond = read(self.read.users_beyond_room, key.namespace) or ()
        if wrong := found.fault or (BEYOND_ROOM if key in beyond else ""):
            return policy._replace(closed=True), wrong, ""
        return policy._replace(auth=BasicAuth(key, found.name, found.failed, found.new)), "", found.notes

    def policy_sources(self, read: Read) -> PolicySources:
        """Return what policies say, and what their words name, for a function of a collection."""
        attached = self.attached
        return PolicySources(
            partial(attached.is_any_in, read),
            partial(attached.at, read),
            partial(attached.named, read),
            partial(self.with_users, read),
        )

    def secrets_for(self, read: Read) -> "SecretsView":
        """Return the Secrets, for a function of a collection."""
        return SecretsView(read, self)


def class_of_gateway(gateway: Gateway) -> ObjectKey:
    """Return the key of the class that a Gateway names."""
    return ObjectKey(Resource.GATEWAYCLASSES, Key("", gateway.spec.gateway_class_name))


def _labels(namespace: Namespace | None) -> Mapping[str, str] | None:
    return namespace.metadata.labels or {} if namespace is not None else None


class _Followed:
    """The objects of one resource as items of a source."""

    def __init__(
        self,
        resource: Resource,
        source: Source[Any, Any],
        key: Callable[[Key], Any] = lambda key: key,
        value: Callable[[Any], Any] = lambda item: item,
    ) -> None:
        self._field, self._source, self._key, self._value = resource.field, source, key, value
        self._items = _NONE

    def see(self, snapshot: Snapshot) -> None:
        """Put what differs from the last time into the source."""
        items: Mapping[Key, Any] = getattr(snapshot, self._field)
        previous, self._items = self._items, items
        if items is not previous:
            changed = differing(previous, items)
            self._source.replace({self._key(key): self._value(items.get(key)) for key in changed})


class SecretsView:
    """What was read of TLS Secrets, as a function of a collection reads it."""

    def __init__(self, read: Read, objects: Objects) -> None:
        self._read, self._objects = read, objects

    def secret(self, key: Key) -> ReadSecret | None:
        """Return what was read of a TLS Secret, None where there is none."""
        return self._read(self._objects.secrets, key)

    def denies_secrets_of(self, namespace: str) -> bool:
        """Return whether the Secrets of a namespace may not be read."""
        return denies_secrets(self._read.value(self._objects.denied), namespace)
