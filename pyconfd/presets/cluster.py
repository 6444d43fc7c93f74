"""The rich view that every preset gives beside its own names: ``cluster``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from pyconfd.derived import Derived, Graph, Grouped, Joined, Published, Read, SameParts, Source, Tally, Value
from pyconfd.model.certificate import expiry_of
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import Endpoints, EndpointSlice, Node, ObjectRef, Secret, Service
from pyconfd.model.snapshot import Key, Named, Snapshot, denies_secrets
from pyconfd.model.versioned import differing
from pyconfd.presets import values
from pyconfd.presets.addresses import is_of_gateway
from pyconfd.presets.certificates import TLS, ReadSecret, read_secret
from pyconfd.presets.endpoints import join, owner_of, slices_of_endpoints
from pyconfd.presets.policies.users import UserList, beyond_room, read_users
from pyconfd.presets.policy import API_SERVICE, AllowedAddresses, ClaimOptions
from pyconfd.presets.refusals import JoinedRefusals
from pyconfd.presets.views import CertificateView, ClusterView, NodeView, PortView, ServiceView

EXCLUDE_NODE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
"""Source: Kubernetes' list of well-known labels."""

ZONE_LABEL = "topology.kubernetes.io/zone"
"""Source: the same list."""


class ReadService(msgspec.Struct, frozen=True, gc=False):
    """What was read of one service: no view where its name is none, what was refused, the number of ready endpoints.

    There are services without an ``object`` too: of Endpoints.
    """

    object: Service | None = None
    view: ServiceView | None = None
    refused: tuple[Refusal, ...] = ()
    ready: int = 0


NO_SERVICE = ReadService()


@dataclass(frozen=True, slots=True)
class Cluster:
    """What was read of a Snapshot: the view for templates, the services by key, and what was refused.

    ``ready`` counts the endpoints that traffic may be sent to, one for each port. ``places`` says where endpoints may
    be. ``secrets`` are the TLS Secrets.
    """

    snapshot: Snapshot
    view: ClusterView
    services: Mapping[Key, ReadService]
    refused: tuple[Refusal, ...]
    ready: int
    places: AllowedAddresses
    secrets: Mapping[Key, ReadSecret] = field(repr=False, compare=False)

    def service(self, key: Key) -> ServiceView | None:
        """Return the view of one service, None where there is none."""
        found = self.services.get(key)
        return found.view if found is not None else None

    def secret(self, key: Key) -> ReadSecret | None:
        """Return what was read of a TLS Secret, None where there is none."""
        return self.secrets.get(key)

    def denies_secrets_of(self, namespace: str) -> bool:
        """Return whether the Secrets of a namespace may not be read."""
        return self.snapshot.denies_secrets_of(namespace)


class _SecretObjects(NamedTuple):
    """A Secret, and the one before it whose certificate is still in use."""

    now: Secret | None
    before: Secret | None


class ReadCluster:
    """Services with their endpoints, nodes and TLS Secrets, as collections. It never raises: what is wrong is refused.

    ``declared`` are the services without endpoints, for all that need not hear when a pod comes or goes.
    ``places`` says where endpoints may be. Endpoints are read where a Service has no slice.
    """

    def __init__(self, graph: Graph, cluster: str) -> None:
        self._cluster = cluster
        self.denied = Value[tuple[Named, ...]](graph, "what may not be read")
        self.places = Value[AllowedAddresses](graph, "where endpoints may be")
        self._hour = Value[int](graph, "hour")
        self._services = Source[Key, Service](graph, "Services")
        self._endpoints = Source[Key, Endpoints](graph, "Endpoints")
        self._slices = Source[Key, EndpointSlice](graph, "EndpointSlices")
        self._node_objects = Source[Key, Node](graph, "Nodes")
        self._secret_objects = Source[Key, _SecretObjects](graph, "Secrets")
        self._slices_of = Grouped(self._slices, _owners_of, "slices by Service")
        named = Joined[Key, Any](self._services, self._endpoints, name="names of services")
        self.services = Derived(named, self._service, "services")
        self.declared = Derived(self.services, _declared, "services without endpoints")
        self._ready = Tally(self.services, lambda _, each: (((), each.ready),), "ready endpoints")
        parts = Derived(self._node_objects, self._node, "nodes")
        self.nodes = Derived(self.places, lambda read, *_: _views(read.all(parts)), "views of nodes")
        self.secrets = Derived(self._secret_objects, self._secret, "certificates of Secrets")
        self.user_lists = Derived(self._secret_objects, _users, "users of Secrets")
        lists = Grouped(
            self.user_lists, lambda key, _: (key.namespace,), "users by namespace", rank=lambda _, each: each.rank
        )
        self.users_beyond_room = Derived(lists, _beyond_room, "Secrets with too many users")
        self._services_published = Published[Key, ReadService](self.services)
        self._secrets_published = Published[Key, ReadSecret](self.secrets)
        self._refused = JoinedRefusals(self.services, parts)
        self._certificates = SameParts[tuple[CertificateView, ...]]()
        self._view = SameParts[ClusterView]()
        self._seen = Snapshot(cluster)

    def see(self, snapshot: Snapshot, claims: ClaimOptions) -> None:
        """Put what differs from the last time into the sources."""
        before, self._seen = self._seen, snapshot
        self.denied.set(snapshot.denied)
        self.places.set(claims.places(snapshot))
        self._hour.set(snapshot.host.hour)
        self._services.follow(snapshot.services)
        self._endpoints.follow(snapshot.endpoints)
        self._slices.follow(snapshot.endpointslices)
        self._node_objects.follow(snapshot.nodes)
        secrets = {
            *differing(before.secrets, snapshot.secrets),
            *differing(before.former_secrets, snapshot.former_secrets),
        }
        found = {key: _SecretObjects(snapshot.secrets.get(key), snapshot.former_secrets.get(key)) for key in secrets}
        self._secret_objects.replace({key: each if any(each) else None for key, each in found.items()})

    def published_secrets(self) -> Mapping[Key, ReadSecret]:
        """Return the TLS Secrets as of the last round."""
        return self._secrets_published.mapping()

    def cluster(self) -> Cluster:
        """Return what was read as of the last round; what did not change is the same object."""
        services, secrets = self._services_published.mapping(), self.published_secrets()
        certificates = self._certificates.made(
            (secrets,), lambda: tuple(each.view for each in secrets.values() if each.view is not None)
        )
        nodes = self.nodes.items[()]
        view = self._view.made(
            (services, nodes, certificates), lambda: ClusterView(self._cluster, services, nodes, certificates)
        )
        ready, places = self._ready.items.get((), 0), self.places.items[()]
        return Cluster(self._seen, view, services, self._refused.all(), ready, places, secrets)

    def _service(self, read: Read, key: Key, item: Service | Endpoints) -> ReadService:
        service = _as_read(item) if isinstance(item, Service) else None
        if not values.is_object_name(key.name) or not values.is_object_name(key.namespace):
            ref = ObjectRef(
                "Service" if service else "Endpoints", values.shortened(key.namespace), values.shortened(key.name)
            )
            detail = (
                "not a name that Kubernetes would accept, or a word that means something else in a condition of HAProxy"
            )
            refusal = Refusal(ref, "metadata.name", values.shortened(key.name), RefusalReason.INVALID_VALUE, detail)
            return ReadService(service, None, (refusal,), 0)
        slices, kind = [each for _, each in read(self._slices_of, key) or ()], "EndpointSlice"
        if not slices and (endpoints := read(self._endpoints, key)) is not None:
            slices, kind = slices_of_endpoints(endpoints), "Endpoints"
        joined = join(service, slices, cluster=self._cluster, places=read.value(self.places), kind=kind)
        ready = sum(endpoint.state == "ready" for port in joined.ports for endpoint in port.endpoints)
        # Nobody asks for traffic to API servers by their own Service: that it is not possible is no fault of an object.
        refused = joined.refused if key != API_SERVICE else ()
        return ReadService(service, _service_view(self._cluster, key, service, joined.ports), refused, ready)

    def _node(self, read: Read, key: Key, node: Node) -> "_NodePart":
        return _node_part(key, node, self._cluster, read.value(self.places).of_nodes)

    def _secret(self, read: Read, key: Key, found: _SecretObjects) -> ReadSecret | None:
        hour, denied = read.value(self._hour), read.value(self.denied)
        read_one = _read_secret(key, found, hour, is_denied=denies_secrets(denied, key.namespace))
        if read_one is None or read_one.view is None:
            return read_one
        return msgspec.structs.replace(read_one, expiry=expiry_of(read_one.view.not_after, hour))


def ready_addresses(service: ReadService) -> Iterable[str]:
    """Return the addresses of the ready endpoints of a service, one for each port."""
    ports = service.view.ports if service.view is not None else ()
    return [endpoint.address for port in ports for endpoint in port.endpoints if endpoint.state == "ready"]


def _users(_: Read, __: Key, found: _SecretObjects) -> UserList | None:
    return read_users(found.now) if found.now is not None else None


def _beyond_room(_: Read, __: str, lists: Sequence[tuple[Key, UserList]]) -> frozenset[Key] | None:
    return beyond_room([each for _key, each in lists]) or None


def _owners_of(key: Key, item: EndpointSlice) -> tuple[Key, ...]:
    owner = owner_of(key, item)
    return (owner,) if owner is not None else ()


def _views(parts: Mapping[Key, "_NodePart"]) -> tuple[NodeView, ...]:
    return tuple(part.view for _, part in sorted(parts.items(), key=itemgetter(0)) if part.view is not None)


def _as_read(service: Service) -> Service:
    """Return a Service; that of a Gateway as one that asks for nothing: its type and its words are for other tools."""
    if not is_of_gateway(service):
        return service
    return msgspec.structs.replace(
        service,
        metadata=msgspec.structs.replace(service.metadata, labels=None, annotations=None),
        spec=msgspec.structs.replace(service.spec, type="ClusterIP"),
    )


def _declared(_: Read, __: Key, seen: ReadService) -> ReadService:
    """Return what there is of a service whatever its endpoints are."""
    view = seen.view
    if view is not None:
        ports = tuple(PortView(each.name, each.port, each.protocol, each.node_port, 0, ()) for each in view.ports)
        view = msgspec.structs.replace(view, ports=ports)
    return ReadService(seen.object, view)


def _service_view(cluster: str, key: Key, service: Service | None, ports: tuple[PortView, ...]) -> ServiceView:
    labels = values.plain_words(service.metadata.labels if service else None)
    annotations = values.plain_words(service.metadata.annotations if service else None)
    kind = service.spec.type if service and service.spec.type.isascii() and service.spec.type.isalpha() else "ClusterIP"
    return ServiceView(cluster, key.namespace, key.name, kind, ports, labels, annotations)


class _NodePart(msgspec.Struct, frozen=True, gc=False):
    """What one node gave, and which of its addresses were refused."""

    view: NodeView | None
    refused: tuple[Refusal, ...]


def _node_part(key: Key, node: Node, cluster: str, places: AllowedAddresses) -> _NodePart:
    if not values.is_object_name(key.name):
        ref = ObjectRef("Node", "", values.shortened(key.name), cluster)
        detail = "not a name that can stand in a configuration"
        refusal = Refusal(ref, "metadata.name", values.shortened(key.name), RefusalReason.INVALID_VALUE, detail)
        return _NodePart(None, (refusal,))
    view = _node_view(node)
    ref = ObjectRef("Node", "", key.name, cluster)
    wrong = {address: found for _, address in view.addresses if (found := places.wrong(address))}
    if not wrong:
        return _NodePart(view, ())
    kept = tuple((kind, address) for kind, address in view.addresses if address not in wrong)
    refused = (
        Refusal(ref, "status.addresses", address, RefusalReason.FORBIDDEN_ADDRESS, why)
        for address, why in wrong.items()
    )
    return _NodePart(msgspec.structs.replace(view, addresses=kept), tuple(refused))


def _node_view(node: Node) -> NodeView:
    labels = node.metadata.labels or {}
    ready = any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ())
    schedulable = not node.spec.unschedulable
    addresses = tuple(
        (item.type, str(parsed))
        for item in node.status.addresses or ()
        if item.type.isascii() and item.type.isalpha() and (parsed := values.address(item.address)) is not None
    )
    zone = labels.get(ZONE_LABEL, "")
    return NodeView(
        name=node.metadata.name,
        zone=zone if values.is_object_name(zone) else "",
        addresses=addresses,
        ready=ready,
        schedulable=schedulable,
        eligible=ready and schedulable and not node.metadata.deletion_timestamp and EXCLUDE_NODE_LABEL not in labels,
    )


def _read_secret(key: Key, found: _SecretObjects, hour: int, *, is_denied: bool) -> ReadSecret | None:
    secret, previous = found
    if secret is not None and secret.type != TLS:
        return None
    if not values.is_object_name(key.name) or not values.is_object_name(key.namespace):
        return ReadSecret(None, "not a name that can stand in a configuration")
    # An earlier certificate is used even when it has expired: it is what clients were given all along.
    before = read_secret(previous, 0) if previous is not None else None
    if secret is None and before is not None and not is_denied:
        return ReadSecret(before.view, "it vanished at once with most Secrets")
    if secret is None:
        return before
    read = read_secret(secret, hour)
    return ReadSecret(before.view, read.fault, read.about) if read.fault and before is not None else read
