"""Where a reference leads, and why it leads nowhere."""

import pytest

from pyconfd.model.kubernetes import ServicePort
from pyconfd.model.snapshot import Key
from pyconfd.presets.routing.references import ServiceReference, Unresolved, UnresolvedReference, app_protocol, resolve
from pyconfd.presets.views import PortView
from tests.presets import cluster
from tests.presets.objects import service, snapshot

PORTS = (ServicePort("web", 80, 8080), ServicePort("dns", 53, 53, protocol="UDP"), ServicePort("dns-tcp", 53, 53))
CLUSTER = cluster.read(snapshot(service("shop", ports=PORTS), service("alias", type_="ExternalName")))


def reference(port: str | int | None, name: str = "shop", kind: str = "Service", group: str = "") -> ServiceReference:
    return ServiceReference("demo", name, port, group, kind)


def resolved(given: ServiceReference, *, permitted: bool = True) -> PortView | UnresolvedReference:
    key = Key(given.namespace, given.name)
    return resolve(given, CLUSTER.snapshot.services.get(key), CLUSTER.service(key), permitted=permitted)


@pytest.mark.parametrize(("port", "found"), [("web", "web"), (80, "web"), (53, "dns-tcp")])
def test_ports_are_found_by_name_and_number(port: str | int, found: str) -> None:
    made = resolved(reference(port))
    assert isinstance(made, PortView)
    assert made.name == found
    assert resolved(reference(port, group="core")) == made


@pytest.mark.parametrize(
    ("given", "permitted", "reason"),
    [
        (reference(80, "none"), True, Unresolved.NOT_FOUND),
        (reference(81), True, Unresolved.NOT_FOUND),
        (reference("80"), True, Unresolved.NOT_FOUND),
        (reference(None), True, Unresolved.NOT_FOUND),
        (reference("dns"), True, Unresolved.UNSUPPORTED_PROTOCOL),
        (reference(80, "alias"), True, Unresolved.UNSUPPORTED_PROTOCOL),
        (reference(80, kind="ConfigMap"), True, Unresolved.INVALID_KIND),
        (reference(80, group="example.com"), True, Unresolved.INVALID_KIND),
        (reference(80), False, Unresolved.NOT_PERMITTED),
    ],
)
def test_a_reference_that_leads_nowhere_has_a_reason(
    given: ServiceReference, permitted: bool, reason: Unresolved
) -> None:
    made = resolved(given, permitted=permitted)
    assert isinstance(made, UnresolvedReference)
    assert made.reason is reason


def test_a_port_that_is_not_there_is_said_beside_those_that_are() -> None:
    made = resolved(reference(81))
    assert made == UnresolvedReference(
        Unresolved.NOT_FOUND, "the Service has no such TCP port; it has: web 80, dns-tcp 53", port=True
    )
    assert not getattr(resolved(reference(80, "none")), "port", None)


@pytest.mark.parametrize(
    ("port", "protocol"),
    [
        (ServicePort("web", 80, app_protocol="kubernetes.io/h2c"), "kubernetes.io/h2c"),
        (ServicePort("web", 80), ""),
        (ServicePort("web", 81, app_protocol="kubernetes.io/h2c"), ""),
        (ServicePort(None, 80, app_protocol="kubernetes.io/h2c"), ""),
    ],
)
def test_what_pods_speak_is_said_by_the_port_of_this_name_and_number(port: ServicePort, protocol: str) -> None:
    view = PortView("web", 80, "TCP", 0, 8080, ())
    assert app_protocol(service("shop", ports=(port,)), view) == protocol
