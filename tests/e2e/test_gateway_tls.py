"""Certificates of a Gateway's listener, from Secrets to busy TLS clients."""

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


def test_a_renewed_certificate_of_a_listener_fails_no_handshake(appliance: Appliance) -> None:
    port, issuer = service_port(ADDRESS), Issuer(appliance)
    appliance.values["addresses"] = {"pool": [ADDRESS]}
    for name in ("stable", "canary"):
        appliance.serve(name, {})
    number = issuer.renew("web", HOST)
    for document in yaml.safe_load_all(OBJECTS.format(namespace=NAMESPACE, port=port)):
        for listener in document["spec"].get("listeners", ()):
            listener |= {"protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "web"}]}}
        appliance.cluster.load_object(document)
    write_route(appliance, 0)
    appliance.start()

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
