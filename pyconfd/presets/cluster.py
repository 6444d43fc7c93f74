"""The rich view that every preset gives beside its own names: ``cluster``."""

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import EndpointSlice, Node, ObjectRef, Secret, Service
from pyconfd.model.layered import Layered, flat, with_values
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import values
from pyconfd.presets.certificates import from_base64, pair
from pyconfd.presets.changes import differing, same_members, updated
from pyconfd.presets.endpoints import join, owner_of, slices_of_endpoints
from pyconfd.presets.views import CertificateView, ClusterView, NodeView, PortView, ServiceView

EXCLUDE_NODE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
"""Source: Kubernetes' list of well-known labels."""

ZONE_LABEL = "topology.kubernetes.io/zone"
"""Source: the same list."""


_Slices = tuple[tuple[Key, EndpointSlice], ...]
"""The slices of one service with their keys, in order of these."""


class _Part(msgspec.Struct, frozen=True, gc=False):
    """What one key of the cluster gave: no view where its name is none."""

    view: ServiceView | None
    refused: tuple[Refusal, ...]
    ready: int


@dataclass(frozen=True, slots=True)
class Translated:
    """The cluster view, its services by key (those without a Service object too), and what was refused.

    ``ready`` counts the endpoints that traffic may be sent to, one for each port. The rest is what the next
    translation builds on: ``seen`` is the Snapshot that this was made of.
    """

    view: ClusterView
    by_key: Mapping[Key, ServiceView]
    refused: tuple[Refusal, ...]
    ready: int
    seen: Snapshot = field(repr=False, compare=False)
    slices: Mapping[Key, _Slices] = field(repr=False, compare=False)
    parts: Mapping[Key, _Part] = field(repr=False, compare=False)
    nodes: Mapping[Key, NodeView] = field(repr=False, compare=False)
    secrets: Mapping[Key, CertificateView | Refusal] = field(repr=False, compare=False)


def _of_nothing(cluster: str) -> Translated:
    return Translated(ClusterView(cluster, (), (), ()), {}, (), 0, Snapshot(cluster), {}, {}, {}, {})


def translate(snapshot: Snapshot, former: Translated | None = None) -> Translated:
    """Read a whole Snapshot. It never raises: what cannot be used is refused by name.

    With ``former`` only what changed is read; the result is the same as without, and its unchanged views are the very
    objects of ``former``.
    """
    if former is None or former.seen.cluster != snapshot.cluster:
        former = _of_nothing(snapshot.cluster)
    seen = former.seen
    if seen is snapshot:
        return former
    slices, touched = _regrouped(former.slices, seen.endpointslices, snapshot.endpointslices)
    changed = {*differing(seen.services, snapshot.services), *differing(seen.endpoints, snapshot.endpoints), *touched}
    parts, by_key, ready = former.parts, former.by_key, former.ready
    if changed:
        parts = updated(parts, changed, lambda key: _part(snapshot, key, slices.get(key, ())))
        by_key = updated(by_key, changed, lambda key: parts[key].view if key in parts else None)
        ready += sum(_ready(parts, key) - _ready(former.parts, key) for key in changed)
    nodes = updated(
        former.nodes, differing(seen.nodes, snapshot.nodes), lambda key: _node_view(key, snapshot.nodes.get(key))
    )
    secrets = updated(
        former.secrets, differing(seen.secrets, snapshot.secrets), lambda key: _certificate(key, snapshot)
    )
    refused = former.refused
    if secrets is not former.secrets or any(_refused(parts, key) != _refused(former.parts, key) for key in changed):
        of_secrets = (each for each in secrets.values() if isinstance(each, Refusal))
        refused = (*(each for part in parts.values() for each in part.refused), *of_secrets)
    certificates = tuple(each for each in secrets.values() if isinstance(each, CertificateView))
    view = ClusterView(
        name=snapshot.cluster,
        services=_services(former, by_key),
        nodes=same_members(former.view.nodes, tuple(nodes.values())),
        certificates=same_members(former.view.certificates, certificates),
    )
    return Translated(view, by_key, refused, ready, snapshot, slices, parts, nodes, secrets)


def _services(former: Translated, by_key: Mapping[Key, ServiceView]) -> tuple[ServiceView, ...]:
    """Give the views in order of their keys; where only some were replaced, in their places."""
    if by_key is former.by_key:
        return former.view.services
    replaced = by_key.changed_since(former.by_key) if isinstance(by_key, Layered) else None
    if replaced is None:
        return same_members(former.view.services, tuple(by_key.values()))
    members = list(former.view.services)
    for key in replaced:
        members[bisect_left(members, key, key=_key_of_view)] = by_key[key]
    return tuple(members)


def _key_of_view(view: ServiceView) -> Key:
    return Key(view.namespace, view.name)


def _ready(parts: Mapping[Key, _Part], key: Key) -> int:
    return parts[key].ready if key in parts else 0


def _refused(parts: Mapping[Key, _Part], key: Key) -> tuple[Refusal, ...]:
    return parts[key].refused if key in parts else ()


def _regrouped(
    former: Mapping[Key, _Slices], old: Mapping[Key, EndpointSlice], new: Mapping[Key, EndpointSlice]
) -> tuple[Mapping[Key, _Slices], Collection[Key]]:
    """Give the slices of each service, and the services whose slices changed."""
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
    anew = {owner: tuple(sorted(members.items(), key=_key_of_item)) for owner, members in touched.items()}
    if all(members and owner in former for owner, members in anew.items()):
        return with_values(former, anew), touched
    groups = {**flat(former), **anew}
    return Layered({owner: members for owner, members in groups.items() if members}), touched


def _key_of_item(item: tuple[Key, EndpointSlice]) -> Key:
    return item[0]


def _part(snapshot: Snapshot, key: Key, of_service: _Slices) -> _Part | None:
    """Read one service; None where there is no such object."""
    service, endpoints = snapshot.services.get(key), snapshot.endpoints.get(key)
    if service is None and endpoints is None:
        return None
    if not values.is_object_name(key.name) or not values.is_object_name(key.namespace):
        ref = ObjectRef("Service" if service else "Endpoints", values.shown(key.namespace), values.shown(key.name))
        detail = "not a name that Kubernetes would accept"
        refusal = Refusal(ref, "metadata.name", values.shown(key.name), RefusalReason.INVALID_VALUE, detail)
        return _Part(None, (refusal,), 0)
    slices = [item for _, item in of_service] or (slices_of_endpoints(endpoints) if endpoints else [])
    joined = join(service, slices, cluster=snapshot.cluster)
    ready = sum(endpoint.state == "ready" for port in joined.ports for endpoint in port.endpoints)
    return _Part(_service_view(snapshot.cluster, key, service, joined.ports), joined.refused, ready)


def _service_view(cluster: str, key: Key, service: Service | None, ports: tuple[PortView, ...]) -> ServiceView:
    labels = values.plain_words(service.metadata.labels if service else None)
    annotations = values.plain_words(service.metadata.annotations if service else None)
    kind = service.spec.type if service and service.spec.type.isascii() and service.spec.type.isalpha() else "ClusterIP"
    return ServiceView(cluster, key.namespace, key.name, kind, ports, labels, annotations)


def _node_view(key: Key, node: Node | None) -> NodeView | None:
    if node is None or not values.is_object_name(key.name):
        return None
    labels = node.metadata.labels or {}
    ready = any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ())
    schedulable = not node.spec.unschedulable
    addresses = tuple(
        (item.type, item.address)
        for item in node.status.addresses or ()
        if item.type.isalpha() and values.address(item.address) is not None
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


def _certificate(key: Key, snapshot: Snapshot) -> CertificateView | Refusal | None:
    secret = snapshot.secrets.get(key)
    if secret is None or secret.type != "kubernetes.io/tls" or not values.is_object_name(key.name):
        return None
    try:
        return CertificateView(key.namespace, key.name, _pem(secret))
    except ValueError as error:
        ref = ObjectRef("Secret", key.namespace, key.name, snapshot.cluster)
        return Refusal(ref, "data", "", RefusalReason.INVALID_VALUE, str(error))


def _pem(secret: Secret) -> str:
    """Give the key, then the chain; raises ValueError, whose message holds no secret."""
    key, chain = (from_base64((secret.data or {}).get(name, ""), name) for name in ("tls.key", "tls.crt"))
    return pair(key, chain, key_name="tls.key", chain_name="tls.crt")
