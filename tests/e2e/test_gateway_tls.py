"""Certificates of a Gateway's listener, from Secrets to busy TLS clients."""

from collections import Counter
from collections.abc import Mapping

import pytest
import yaml

from tests.e2e.expect import all_is_well
from tests.e2e.test_canary import OBJECTS, write_route
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import TlsCrowd, failures, presented_to
from tests.world.issuer import Issuer
from tests.world.ports import service_port

pytestmark = pytest.mark.haproxy

ADDRESS = "127.0.0.73"
HOST = "shop.example.com"
CLIENTS = 16


def start(appliance: Appliance, port: int) -> None:
    """Start with a Gateway whose one listener ends TLS for any host, and a route."""
    appliance.values["addresses"] = {"pool": [ADDRESS]}
    for name in ("stable", "canary"):
        appliance.serve(name, {})
    for document in yaml.safe_load_all(OBJECTS.format(namespace=NAMESPACE, port=port)):
        appliance.cluster.load_object(document)
    write_listeners(appliance, port, {"any": ""})
    write_route(appliance, 0)
    appliance.start()


def write_listeners(appliance: Appliance, port: int, hosts: Mapping[str, str]) -> None:
    """Write the Gateway with a listener for each host, "" for any, and the Secret ``web`` for all."""
    gateway = next(
        each for each in yaml.safe_load_all(OBJECTS.format(namespace=NAMESPACE, port=port)) if each["kind"] == "Gateway"
    )
    gateway["spec"]["listeners"] = [
        {"name": name, "port": port, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "web"}]}}
        | ({"hostname": host} if host else {})
        for name, host in hosts.items()
    ]
    appliance.cluster.put("gateways", gateway)


def test_a_renewed_certificate_of_a_listener_fails_no_handshake(appliance: Appliance) -> None:
    port, issuer = service_port(ADDRESS), Issuer(appliance)
    number = issuer.renew("web", HOST)
    start(appliance, port)

    def presented() -> int:
        return presented_to(port, HOST, address=ADDRESS)

    appliance.until(lambda: presented() == number, "the listener has its certificate")
    appliance.until(appliance.settled, "all is applied")
    worker = appliance.haproxy.worker()
    crowd = TlsCrowd(port, HOST, issuer.ca, CLIENTS, address=ADDRESS)
    try:
        for _ in range(3):
            number = issuer.renew("web", HOST)
            appliance.until(lambda: presented() == number, "the renewed one is in use")  # noqa: B023
    finally:
        answers = crowd.stop()
    assert failures(answers) == []
    assert set(answers) == {"stable-1"}
    assert appliance.haproxy.worker() == worker, "nothing was reloaded"
    all_is_well(appliance)


def test_tls_ends_on_the_port_until_a_name_has_to_be_read_and_no_request_notices(appliance: Appliance) -> None:
    port, issuer = service_port(ADDRESS), Issuer(appliance)
    number = issuer.renew("web", HOST)
    start(appliance, port)
    appliance.until(lambda: presented_to(port, HOST, address=ADDRESS) == number, "the listener has its certificate")
    crowds = [TlsCrowd(port, HOST, issuer.ca, CLIENTS, address=ADDRESS, keep_alive=kept) for kept in (False, True)]

    def reads_hello() -> bool:
        sections = appliance.haproxy.conf.read_text().partition("frontend gw_")[2]
        return "req.ssl_hello_type" in sections

    found = [reads_hello()]
    try:
        for hosts in ({"any": "", "other": "other.example.com"}, {"any": ""}):
            before = appliance.generation
            write_listeners(appliance, port, hosts)
            appliance.until(lambda: appliance.generation > before and appliance.settled(), "it is applied")  # noqa: B023
            found.append(reads_hello())
            assert "its ports are open" in appliance.command("explain", f"{ADDRESS}:{port}").stdout
            seen = sum(crowd.seen().total() for crowd in crowds)
            appliance.until(lambda: sum(crowd.seen().total() for crowd in crowds) > seen + 50, "requests are answered")  # noqa: B023
    finally:
        answers = sum((crowd.stop() for crowd in crowds), Counter[str]())
    assert found == [False, True, False]
    assert set(answers) == {"stable-1"}
    all_is_well(appliance)
