"""References of routes to Services: the port that one leads to, or why it leads nowhere."""

from enum import StrEnum
from typing import NamedTuple

from pyconfd.model.kubernetes import Service
from pyconfd.presets.endpoints import EXTERNAL_NAME
from pyconfd.presets.views import PortView, ServiceView

H2C = "kubernetes.io/h2c"
"""The ``appProtocol`` of a Service port whose servers speak HTTP/2 without TLS. Source: KEP-3726."""


class Unresolved(StrEnum):
    """Why a reference leads nowhere. Source: the Gateway API's reasons of the condition ``ResolvedRefs``."""

    NOT_FOUND = "BackendNotFound"
    NOT_PERMITTED = "RefNotPermitted"
    INVALID_KIND = "InvalidKind"
    UNSUPPORTED_PROTOCOL = "UnsupportedProtocol"
    RESTRICTED = "Restricted"
    """Not of the Gateway API: annotations of the Service restrict access in a way that is not implemented."""


class UnresolvedReference(NamedTuple):
    """A reference that leads nowhere; ``detail`` says in words why, ``port``: the Service is there, its port is not."""

    reason: Unresolved
    detail: str
    port: bool = False


class ServiceReference(NamedTuple):
    """What an object names: a port by its name or number, None where it names none."""

    namespace: str
    name: str
    port: str | int | None
    group: str = ""
    kind: str = "Service"


def resolve(
    reference: ServiceReference, service: Service | None, view: ServiceView | None, *, permitted: bool = True
) -> PortView | UnresolvedReference:
    """Return the TCP port that is meant of a Service; ``permitted``: its namespace allows the reference."""
    group, kind, namespace, name = reference.group, reference.kind, reference.namespace, reference.name
    if (group, kind) not in {("", "Service"), ("core", "Service")}:
        return UnresolvedReference(
            Unresolved.INVALID_KIND, f"{kind}{group and f'.{group}'} is no Service: name a Service"
        )
    if not permitted:
        detail = f"no ReferenceGrant of the namespace {namespace} allows it: add one there"
        return UnresolvedReference(Unresolved.NOT_PERMITTED, detail)
    if service is None or view is None:
        return UnresolvedReference(Unresolved.NOT_FOUND, f"there is no Service {namespace}/{name}")
    if service.spec.type == "ExternalName":
        return UnresolvedReference(Unresolved.UNSUPPORTED_PROTOCOL, EXTERNAL_NAME)
    return _port(view, reference.port)


def _port(view: ServiceView, wanted: str | int | None) -> PortView | UnresolvedReference:
    named = [port for port in view.ports if wanted is not None and wanted in {port.name, port.port}]
    found = next((port for port in named if port.protocol == "TCP"), None)
    if found is not None:
        return found
    if named:
        return UnresolvedReference(
            Unresolved.UNSUPPORTED_PROTOCOL, f"the port is {named[0].protocol or 'unknown'}, and not TCP"
        )
    known = ", ".join(f"{port.name or '(unnamed)'} {port.port}" for port in view.ports if port.protocol == "TCP")
    return UnresolvedReference(
        Unresolved.NOT_FOUND, f"the Service has no such TCP port; it has: {known or 'none'}", port=True
    )


def app_protocol(service: Service, port: PortView) -> str:
    """Return what the pods behind a port speak, as its ``appProtocol`` says; "" where it says nothing."""
    ports = service.spec.ports or ()
    found = next((each for each in ports if (each.name or "", each.port) == (port.name, port.port)), None)
    return (found.app_protocol or "") if found is not None else ""
