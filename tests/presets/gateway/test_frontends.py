"""What follows from the listeners of a port."""

import pytest

from pyconfd.presets.gateway.frontends import EndingListener, FrontendKind, GatewayFrontend, NameRoute

ANY = NameRoute("", listener="any")
OTHER = NameRoute("other.example.com", listener="other")


def frontend(kind: FrontendKind, names: tuple[NameRoute, ...], **ending: bool) -> GatewayFrontend:
    """Return a port where the listeners ``ending`` end TLS, True for requests."""
    listeners = tuple(EndingListener(name, ("/a.pem",), http) for name, http in ending.items())
    return GatewayFrontend("gw_demo_web_443", "", kind, ("192.0.2.1",), 443, listeners=listeners, names=names)


@pytest.mark.parametrize(
    ("names", "ending", "reads"),
    [
        ((ANY,), {"any": True}, False),
        ((NameRoute("shop.example.com", listener="any"),), {"any": True}, True),
        ((ANY, OTHER), {"any": True, "other": True}, True),
        # The other one has no certificate, or goes through: its names do not belong to the first.
        ((ANY, NameRoute("other.example.com")), {"any": True}, True),
        ((ANY, NameRoute("other.example.com", backend="pods")), {"any": True}, True),
        ((NameRoute("", backend="pods"),), {}, True),
        ((NameRoute(""),), {}, True),
        # Connections that are no requests go on by their name.
        ((ANY,), {"any": False}, True),
    ],
)
def test_the_name_is_read_unless_one_listener_ends_tls_of_requests_for_any_host(
    names: tuple[NameRoute, ...], ending: dict[str, bool], reads: bool
) -> None:
    front = frontend(FrontendKind.TLS, names, **ending)
    assert front.reads_hello is reads
    assert front.section == ("gw_demo_web_443" if reads else "gw_demo_web_443.https")


@pytest.mark.parametrize("kind", [FrontendKind.HTTP, FrontendKind.TCP])
def test_no_name_is_read_without_tls(kind: FrontendKind) -> None:
    assert not frontend(kind, ()).reads_hello
    assert frontend(kind, ()).section == "gw_demo_web_443"


def test_lists_of_certificates_have_names_that_a_file_can_have() -> None:
    front = frontend(FrontendKind.TLS, (ANY,), any=True)
    assert front.list_of("any") == "certificates-gw_demo_web_443.any"
    assert front.list_of("a" * 253) == f"certificates-gw_demo_web_443.{front.socket_of('a' * 253)}"
    assert front.socket_of("any") != front.socket_of("other")
