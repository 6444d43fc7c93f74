"""What templates see of the cluster: services, ports, endpoints and nodes as attributes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import msgspec

from pyconfd.model.snapshot import Key


class EndpointView(msgspec.Struct, frozen=True, gc=False):
    """One address that can answer for one port.

    ``state`` is "ready" (send traffic), "draining" (terminating but serving: keep its sessions, send no new ones) or
    "down". ``family`` is "ipv4" or "ipv6". ``pod``, ``node`` and ``zone`` are "" where unknown.
    """

    address: str
    port: int
    state: str
    family: str
    pod: str = ""
    node: str = ""
    zone: str = ""
    ready: bool = True
    serving: bool = True
    terminating: bool = False


class PortView(msgspec.Struct, frozen=True, gc=False):
    """One port of a service. ``name`` is "" for an unnamed port; ``node_port`` is 0 where there is none.

    ``endpoints`` are sorted by family and address and hold every state.
    """

    name: str
    port: int
    protocol: str
    node_port: int
    target_port: int
    endpoints: tuple[EndpointView, ...]

    @property
    def ready(self) -> tuple[EndpointView, ...]:
        """The endpoints to send traffic to."""
        return tuple(endpoint for endpoint in self.endpoints if endpoint.state == "ready")


class ServiceView(msgspec.Struct, frozen=True, gc=False):
    """One service. ``labels`` and ``annotations`` hold only values that are plain words."""

    cluster: str
    namespace: str
    name: str
    type: str
    ports: tuple[PortView, ...]
    labels: dict[str, str]
    annotations: dict[str, str]

    def port(self, wanted: str | int) -> PortView | None:
        """Return the port with this name or number, or None."""
        return next((port for port in self.ports if wanted in {port.name, port.port}), None)


class PortAt(NamedTuple):
    """A port of a Service, by its place among all of its ports."""

    service: Key
    place: int


class NodeText(str):
    """The name of a node, where a preset gives templates that in place of its view."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name alone."""
        return str(self)


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """One node. ``addresses`` are (type, address) pairs; ``eligible`` if node port traffic may be sent to it."""

    name: str
    zone: str
    addresses: tuple[tuple[str, str], ...]
    ready: bool
    schedulable: bool
    eligible: bool

    def address(self, kind: str) -> str | None:
        """Return the first address of this type (``InternalIP``, ``ExternalIP`` ...), or None."""
        return next((address for type_, address in self.addresses if type_ == kind), None)


class CertificateView(msgspec.Struct, frozen=True, gc=False):
    """A TLS Secret: ``pem`` is the key and the chain in the form HAProxy loads; give it to ``certificate_file``.

    ``names`` are the host names that it is for, wildcards included; ``not_after`` is when it expires, in seconds since
    the epoch.
    """

    namespace: str
    name: str
    pem: str
    names: tuple[str, ...] = ()
    not_after: int = 0

    def __repr__(self) -> str:
        """Leave out the key."""
        return f"CertificateView({self.namespace}/{self.name})"


class _Read(Protocol):
    @property
    def view(self) -> ServiceView | None: ...


@dataclass(frozen=True)
class ClusterView:
    """Everything in order of namespace and name."""

    name: str
    _services: Mapping[Key, _Read] = field(repr=False)
    nodes: tuple[NodeView, ...]
    certificates: tuple[CertificateView, ...]

    @cached_property
    def services(self) -> tuple[ServiceView, ...]:
        """All services. Made when asked for: most fragments go by claims, and there may be thousands."""
        return tuple(each.view for each in self._services.values() if each.view is not None)

    def service(self, namespace: str, name: str) -> ServiceView | None:
        """Return the service of this name, or None."""
        found = self._services.get(Key(namespace, name))
        return found.view if found is not None else None

    def in_namespace(self, namespace: str) -> Iterator[ServiceView]:
        """Return the services of one namespace."""
        return (service for service in self.services if service.namespace == namespace)
