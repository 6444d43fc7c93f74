"""The sources of the presets' collections: the objects of the cluster, what was read of them, and the settings."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeVar

from pyconfd.derived import Graph, Read, Source, Value
from pyconfd.model.ingress import Ingress, IngressClass
from pyconfd.model.kubernetes import Service
from pyconfd.model.snapshot import Key, Named, denies_secrets
from pyconfd.model.versioned import differing
from pyconfd.presets.certificates import ReadSecret, TlsOptions
from pyconfd.presets.cluster import Cluster, nothing_read
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.views import NodeView, ServiceView

_V = TypeVar("_V")
_NONE: Mapping[Key, Ingress] = {}


class SeenService(NamedTuple):
    """A Service and the view of it; there are views without a Service object too, of Endpoints."""

    object: Service | None
    view: ServiceView | None


NO_SERVICE = SeenService(None, None)


class Objects:
    """The sources. ``domain_hosts`` are the hosts that Services and Endpoints ask for by annotations."""

    def __init__(self, cluster: str) -> None:
        self.cluster, self.graph = cluster, Graph()
        graph = self.graph
        self.policy = Value[ClaimOptions](graph, "claims")
        self.ignored_annotations = Value[tuple[str, ...]](graph, "ingress.ignored_annotations")
        self.tls = Value[TlsOptions](graph, "tls")
        self.targets = Value[PresetOptions](graph, "presets.backend_target")
        self.shared_addresses = Value[tuple[str, ...]](graph, "addresses.shared")
        self.denied = Value[tuple[Named, ...]](graph, "what may not be read")
        self.ingress_classes = Value[Mapping[Key, IngressClass]](graph, "IngressClasses")
        self.nodes = Value[tuple[NodeView, ...]](graph, "Nodes")
        self.ingresses = Source[Key, Ingress](graph, "Ingresses")
        self.services = Source[Key, SeenService](graph, "Services")
        self.secrets = Source[Key, ReadSecret](graph, "Secrets")
        self._seen = nothing_read(cluster)
        self._ingresses = _NONE

    def see(self, cluster: Cluster, options: PresetOptions, *, ingresses: bool) -> None:
        """Give the sources what differs from the last time; ``ingresses``: a preset reads them."""
        former, snapshot = self._seen, cluster.snapshot
        self.policy.set(options.claims)
        self.ignored_annotations.set(options.ignored_annotations)
        self.tls.set(options.tls)
        self.targets.set(PresetOptions(node_ports=options.node_ports, node_address_types=options.node_address_types))
        self.shared_addresses.set(options.addresses.shared)
        self.denied.set(snapshot.denied)
        self.ingress_classes.set(snapshot.ingressclasses)
        self.nodes.set(cluster.view.nodes)
        wanted = snapshot.ingresses if ingresses else _NONE
        self.ingresses.replace(_changes(wanted, differing(self._ingresses, wanted)))
        self.secrets.replace(_changes(cluster.secrets, differing(former.secrets, cluster.secrets)))
        self.services.replace({key: _seen(key, cluster) for key in cluster.changed_since(former)})
        self._seen, self._ingresses = cluster, wanted

    def secrets_for(self, read: Read) -> "Secrets":
        """Return the Secrets, for a function of a collection."""
        return Secrets(read, self)


def _changes(now: Mapping[Key, _V], keys: Collection[Key]) -> dict[Key, _V | None]:
    return {key: now.get(key) for key in keys}


def _seen(key: Key, cluster: Cluster) -> SeenService | None:
    found = SeenService(cluster.snapshot.services.get(key), cluster.service(key))
    return found if found != NO_SERVICE else None


class Secrets:
    """What was read of TLS Secrets, as a function of a collection reads it."""

    def __init__(self, read: Read, objects: Objects) -> None:
        self._read, self._objects = read, objects

    def secret(self, key: Key) -> ReadSecret | None:
        """Return what was read of a TLS Secret, None where there is none."""
        return self._read(self._objects.secrets, key)

    def denies_secrets_of(self, namespace: str) -> bool:
        """Return whether the Secrets of a namespace may not be read."""
        return denies_secrets(self._read.value(self._objects.denied), namespace)
