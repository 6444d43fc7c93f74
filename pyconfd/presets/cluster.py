"""The rich view that every preset gives beside its own names: ``cluster``."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from pyconfd.model.certificate import expiry_of
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import EndpointSlice, Node, ObjectRef, Service
from pyconfd.model.reservation import NO_OWNERS, Owners
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.model.versioned import VersionedDict, differing, with_values
from pyconfd.presets import values
from pyconfd.presets.certificates import TLS, ReadSecret, read_secret
from pyconfd.presets.conflicts import reuse_if_same, updated
from pyconfd.presets.endpoints import join, owner_of, slices_of_endpoints
from pyconfd.presets.policy import ANYTHING, API_SERVICE, AllowedAddresses, ClaimOptions
from pyconfd.presets.views import ClusterView, NodeView, PortView, ServiceView

if TYPE_CHECKING:
    from pyconfd.presets.graph import PresetGraph

EXCLUDE_NODE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
"""Source: Kubernetes' list of well-known labels."""

ZONE_LABEL = "topology.kubernetes.io/zone"
"""Source: the same list."""


_Slices = tuple[tuple[Key, EndpointSlice], ...]
"""The slices of one service with their keys, in order of these."""


class ReadService(msgspec.Struct, frozen=True, gc=False):
    """What was read of one service: no view where its name is none, what was refused, the number of ready endpoints.

    There are services without a Service object too: of Endpoints.
    """

    view: ServiceView | None
    refused: tuple[Refusal, ...]
    ready: int


_NOTHING = ReadService(None, (), 0)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What was read of a Snapshot: the view for templates, the services by key, and what was refused.

    ``ready`` counts the endpoints that traffic may be sent to, one for each port. ``places`` says where endpoints may
    be. ``slices``, ``nodes`` and ``secrets`` are what the next reading builds on. ``hosts`` says whose each host
    of the shared frontends is. ``graph`` has the collections of presets, where presets in use read them.
    """

    snapshot: Snapshot
    view: ClusterView
    services: Mapping[Key, ReadService]
    refused: tuple[Refusal, ...]
    ready: int
    places: AllowedAddresses
    slices: Mapping[Key, _Slices] = field(repr=False, compare=False)
    nodes: Mapping[Key, "_NodePart"] = field(repr=False, compare=False)
    secrets: Mapping[Key, ReadSecret] = field(repr=False, compare=False)
    hosts: Owners = field(default_factory=lambda: NO_OWNERS, repr=False, compare=False)
    graph: "PresetGraph | None" = field(default=None, repr=False, compare=False)

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

    def changed_since(self, former: "Cluster") -> Collection[Key]:
        """Return the keys of services of which an object, or what was read of it, is another one than in ``former``."""
        old, new = former.snapshot, self.snapshot
        return {
            *differing(former.services, self.services),
            *differing(old.services, new.services),
            *differing(old.endpoints, new.endpoints),
        }


def nothing_read(cluster: str) -> Cluster:
    """Return what is read of an empty cluster."""
    return Cluster(Snapshot(cluster), ClusterView(cluster, {}, (), ()), {}, (), 0, AllowedAddresses(), {}, {}, {})


def read(
    snapshot: Snapshot,
    former: Cluster | None = None,
    claims: ClaimOptions = ANYTHING,
) -> Cluster:
    """Read a whole Snapshot. It never raises: what cannot be used is refused by name.

    With ``former`` only what changed is read; the result is the same as without, and its unchanged views are the very
    objects of ``former``.
    """
    if former is None or former.snapshot.cluster != snapshot.cluster:
        former = nothing_read(snapshot.cluster)
    seen, places = former.snapshot, claims.places(snapshot)
    if seen is snapshot and places == former.places:
        return former
    slices, touched = _regrouped(former.slices, seen.endpointslices, snapshot.endpointslices)
    changed = {*differing(seen.services, snapshot.services), *differing(seen.endpoints, snapshot.endpoints), *touched}
    changed_nodes = differing(seen.nodes, snapshot.nodes)
    if places != former.places:  # an address came to this host or left it, or the settings are others
        changed |= snapshot.services.keys() | snapshot.endpoints.keys()
        changed_nodes = {*changed_nodes, *snapshot.nodes}
    services = updated(
        former.services, changed, lambda key: _service(snapshot, key, slices.get(key, ()), places, former)
    )
    nodes = updated(former.nodes, changed_nodes, lambda key: _node_part(key, snapshot, places.of_nodes))
    secrets = updated(former.secrets, _changed_secrets(seen, snapshot), lambda key: _secret(key, snapshot))
    ready, refused, same_refused = former.ready, former.refused, nodes is former.nodes
    for key in changed:
        now, before = services.get(key, _NOTHING), former.services.get(key, _NOTHING)
        ready += now.ready - before.ready
        same_refused = same_refused and now.refused == before.refused
    if not same_refused:
        of_nodes = (each for part in nodes.values() for each in part.refused)
        refused = (*(each for part in services.values() for each in part.refused), *of_nodes)
    views, certificates = former.view.nodes, former.view.certificates
    if nodes is not former.nodes:
        views = reuse_if_same(views, tuple(part.view for part in nodes.values() if part.view))
    if secrets is not former.secrets:
        found = tuple(each.view for each in secrets.values() if each.view is not None)
        certificates = reuse_if_same(certificates, found)
    view = ClusterView(snapshot.cluster, services, views, certificates)
    return Cluster(snapshot, view, services, refused, ready, places, slices, nodes, secrets)


def ready_addresses(service: ReadService) -> Iterable[str]:
    """Return the addresses of the ready endpoints of a service, one for each port."""
    ports = service.view.ports if service.view is not None else ()
    return [endpoint.address for port in ports for endpoint in port.endpoints if endpoint.state == "ready"]


def _regrouped(
    former: Mapping[Key, _Slices], old: Mapping[Key, EndpointSlice], new: Mapping[Key, EndpointSlice]
) -> tuple[Mapping[Key, _Slices], Collection[Key]]:
    """Return the slices of each service, and the services whose slices changed."""
    touched: dict[Key, dict[Key, EndpointSlice]] = {}
    for key in differing(old, new):
        before, after = old.get(key), new.get(key)
        owner = owner_of(key, before) if before is not None else None
        if owner is not None:
            touched.setdefault(owner, dict(former.get(owner, ()))).pop(key, None)
        owner = owner_of(key, after) if after is not None else None
        if owner is not None and after is not None:
            touched.setdefault(owner, dict(former.get(owner, ())))[key] = after
    if not touched:
        return former, ()
    regrouped = {owner: tuple(sorted(members.items(), key=_key_of_item)) for owner, members in touched.items()}
    if all(members and owner in former for owner, members in regrouped.items()):
        return with_values(former, regrouped), touched
    groups = {**former, **regrouped}
    return VersionedDict({owner: members for owner, members in groups.items() if members}), touched


def _key_of_item(item: tuple[Key, EndpointSlice]) -> Key:
    return item[0]


def _service(
    snapshot: Snapshot, key: Key, of_service: _Slices, places: AllowedAddresses, former: Cluster
) -> ReadService | None:
    """Read one service; None where there is no such object."""
    service, endpoints = snapshot.services.get(key), snapshot.endpoints.get(key)
    if service is None and endpoints is None:
        return None
    if not values.is_object_name(key.name) or not values.is_object_name(key.namespace):
        ref = ObjectRef("Service" if service else "Endpoints", values.shown(key.namespace), values.shown(key.name))
        detail = (
            "not a name that Kubernetes would accept, or a word that means something else in a condition of HAProxy"
        )
        refusal = Refusal(ref, "metadata.name", values.shown(key.name), RefusalReason.INVALID_VALUE, detail)
        return ReadService(None, (refusal,), 0)
    slices, kind = [item for _, item in of_service], "EndpointSlice"
    if not slices and endpoints is not None:
        slices, kind = slices_of_endpoints(endpoints), "Endpoints"
    joined = join(service, slices, cluster=snapshot.cluster, places=places, kind=kind)
    ready = sum(endpoint.state == "ready" for port in joined.ports for endpoint in port.endpoints)
    known = former.service(key) if former.snapshot.services.get(key) is service else None
    if known is not None:
        view = ServiceView(
            snapshot.cluster, key.namespace, key.name, known.type, joined.ports, known.labels, known.annotations
        )
    else:
        view = _service_view(snapshot.cluster, key, service, joined.ports)
    # Nobody asks for traffic to API servers by their own Service: that it is not possible is no fault of an object.
    refused = joined.refused if key != API_SERVICE else ()
    return ReadService(view, refused, ready)


def _service_view(cluster: str, key: Key, service: Service | None, ports: tuple[PortView, ...]) -> ServiceView:
    labels = values.plain_words(service.metadata.labels if service else None)
    annotations = values.plain_words(service.metadata.annotations if service else None)
    kind = service.spec.type if service and service.spec.type.isascii() and service.spec.type.isalpha() else "ClusterIP"
    return ServiceView(cluster, key.namespace, key.name, kind, ports, labels, annotations)


class _NodePart(msgspec.Struct, frozen=True, gc=False):
    """What one node gave, and which of its addresses were refused."""

    view: NodeView | None
    refused: tuple[Refusal, ...]


def _node_part(key: Key, snapshot: Snapshot, places: AllowedAddresses) -> _NodePart | None:
    node = snapshot.nodes.get(key)
    if node is None:
        return None
    if not values.is_object_name(key.name):
        ref = ObjectRef("Node", "", values.shown(key.name), snapshot.cluster)
        detail = "not a name that can stand in a configuration"
        refusal = Refusal(ref, "metadata.name", values.shown(key.name), RefusalReason.INVALID_VALUE, detail)
        return _NodePart(None, (refusal,))
    view = _node_view(node)
    ref = ObjectRef("Node", "", key.name, snapshot.cluster)
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


def _changed_secrets(seen: Snapshot, snapshot: Snapshot) -> Collection[Key]:
    changed = {*differing(seen.secrets, snapshot.secrets), *differing(seen.former_secrets, snapshot.former_secrets)}
    return changed if seen.host.hour == snapshot.host.hour else {*changed, *snapshot.secrets, *snapshot.former_secrets}


def _secret(key: Key, snapshot: Snapshot) -> ReadSecret | None:
    read = _read_secret(key, snapshot)
    if read is None or read.view is None:
        return read
    return msgspec.structs.replace(read, expiry=expiry_of(read.view.not_after, snapshot.host.hour))


def _read_secret(key: Key, snapshot: Snapshot) -> ReadSecret | None:
    secret, former = snapshot.secrets.get(key), snapshot.former_secrets.get(key)
    if secret is not None and secret.type != TLS:
        return None
    if not values.is_object_name(key.name) or not values.is_object_name(key.namespace):
        return ReadSecret(None, "not a name that can stand in a configuration")
    # An earlier certificate is used even when it has expired: it is what clients were given all along.
    before = read_secret(former, 0) if former is not None else None
    if secret is None and before is not None and not snapshot.denies_secrets_of(key.namespace):
        return ReadSecret(before.view, "it vanished at once with most Secrets", before.issuer)
    if secret is None:
        return before
    read = read_secret(secret, snapshot.host.hour)
    return ReadSecret(before.view, read.fault, before.issuer) if read.fault and before is not None else read
