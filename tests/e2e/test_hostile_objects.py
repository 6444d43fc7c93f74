"""Objects of a tenant who means no good: they are left out, and stop nobody else."""

import socket

import pytest

from tests.e2e.expect import new_pod_answers, serving, undisturbed
from tests.world.appliance import Appliance
from tests.world.clients import ask
from tests.world.haproxy import free_port

pytestmark = pytest.mark.haproxy


def test_a_service_that_asks_for_a_taken_port_stops_nobody_else_and_gets_it_when_it_is_free(
    appliance: Appliance,
) -> None:
    serving(appliance)
    port = free_port()
    with socket.create_server(("127.0.0.1", port)), undisturbed(appliance):
        appliance.serve("greedy", {"domain": "greedy", "proto": "tcp", "pyconfd.io/listen-port": str(port)})
        appliance.until(lambda: appliance.status()["refused"], "the port is refused")
        new_pod_answers(appliance)
        assert appliance.phase == "serving"
        (refused,) = appliance.status()["refused"]
        assert (refused["ref"]["name"], refused["value"], refused["reason"]) == ("greedy", str(port), "port_taken")
    appliance.until(lambda: ask(port, "greedy.example.com") == "greedy-1", "the port is served as soon as it is free")
    appliance.until(lambda: not appliance.status()["refused"], "nothing is refused any more")


def test_a_service_that_asks_for_the_port_of_the_status_page_is_refused(appliance: Appliance) -> None:
    serving(appliance)
    appliance.serve("greedy", {"domain": "g", "proto": "tcp", "pyconfd.io/listen-port": str(appliance.page)})
    appliance.until(lambda: appliance.status()["refused"], "the port is refused")
    new_pod_answers(appliance)


def test_a_domain_with_an_ipv6_zone_adds_no_line(appliance: Appliance) -> None:
    serving(appliance)
    evil = f"fe80::1%x\nfrontend evil\n    bind 127.0.0.1:{free_port()}\n#"
    appliance.serve("evil", {"domain": evil, "proto": "tcp", "pyconfd.io/listen-port": str(free_port())})
    appliance.until(lambda: appliance.status()["refused"], "the domain is refused")
    new_pod_answers(appliance)
    assert "evil" not in appliance.haproxy.conf.read_text(encoding="utf-8")
