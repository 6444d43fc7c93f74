"""The rich view that every preset gives beside its own names: ``cluster``."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import Node, ObjectRef, Secret, Service
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import values
from pyconfd.presets.certificates import from_base64, pair
from pyconfd.presets.endpoints import join, slices_by_service, slices_of_endpoints
from pyconfd.presets.views import CertificateView, ClusterView, NodeView, PortView, ServiceView

EXCLUDE_NODE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
"""Source: Kubernetes' list of well-known labels."""

ZONE_LABEL = "topology.kubernetes.io/zone"
"""Source: the same list."""


@dataclass(frozen=True, slots=True)
class Translated:
    """The cluster view, its services by key (those without a Service object too), and what was refused."""

    view: ClusterView
    by_key: Mapping[Key, ServiceView]
    refused: tuple[Refusal, ...]


def translate(snapshot: Snapshot) -> Translated:
    """Read a whole Snapshot. It never raises: what cannot be used is refused by name."""
    refused: list[Refusal] = []
    slices = slices_by_service(snapshot.endpointslices)
    by_key: dict[Key, ServiceView] = {}
    for key in sorted(snapshot.services.keys() | snapshot.endpoints.keys()):
        service = snapshot.services.get(key)
        if not values.is_object_name(key.name) or not values.is_object_name(key.namespace):
            ref = ObjectRef("Service" if service else "Endpoints", values.shown(key.namespace), values.shown(key.name))
            detail = "not a name that Kubernetes would accept"
            refused.append(Refusal(ref, "metadata.name", values.shown(key.name), RefusalReason.INVALID_VALUE, detail))
            continue
        endpoints = snapshot.endpoints.get(key)
        of_service = slices.get(key) or (slices_of_endpoints(endpoints) if endpoints else [])
        joined = join(service, of_service, cluster=snapshot.cluster)
        refused.extend(joined.refused)
        by_key[key] = _service_view(snapshot.cluster, key, service, joined.ports)
    view = ClusterView(
        name=snapshot.cluster,
        services=tuple(by_key.values()),
        nodes=tuple(
            _node_view(snapshot.nodes[key]) for key in sorted(snapshot.nodes) if values.is_object_name(key.name)
        ),
        certificates=_certificates(snapshot, refused),
    )
    return Translated(view, by_key, tuple(refused))


def _service_view(cluster: str, key: Key, service: Service | None, ports: tuple[PortView, ...]) -> ServiceView:
    labels = values.plain_words(service.metadata.labels if service else None)
    annotations = values.plain_words(service.metadata.annotations if service else None)
    kind = service.spec.type if service and service.spec.type.isascii() and service.spec.type.isalpha() else "ClusterIP"
    return ServiceView(cluster, key.namespace, key.name, kind, ports, labels, annotations)


def _node_view(node: Node) -> NodeView:
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


def _certificates(snapshot: Snapshot, refused: list[Refusal]) -> tuple[CertificateView, ...]:
    views = []
    for key in sorted(snapshot.secrets):
        secret = snapshot.secrets[key]
        if secret.type != "kubernetes.io/tls" or not values.is_object_name(key.name):
            continue
        try:
            views.append(CertificateView(key.namespace, key.name, _pem(secret)))
        except ValueError as error:
            ref = ObjectRef("Secret", key.namespace, key.name, snapshot.cluster)
            refused.append(Refusal(ref, "data", "", RefusalReason.INVALID_VALUE, str(error)))
    return tuple(views)


def _pem(secret: Secret) -> str:
    """Give the key, then the chain; raises ValueError, whose message holds no secret."""
    key, chain = (from_base64((secret.data or {}).get(name, ""), name) for name in ("tls.key", "tls.crt"))
    return pair(key, chain, key_name="tls.key", chain_name="tls.crt")
