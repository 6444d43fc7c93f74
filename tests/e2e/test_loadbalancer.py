"""Services of type LoadBalancer on addresses of the pool, with a real haproxy."""

import socket
from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.expect import serving, undisturbed
from tests.world import objects
from tests.world.appliance import NAMESPACE, PATIENCE_S, Appliance
from tests.world.clients import Crowd, ask, failures
from tests.world.objects import EndpointSpec, PortSpec
from tests.world.ports import service_port

pytestmark = pytest.mark.haproxy

FIRST, SECOND, THIRD = POOL = ("127.0.0.61", "127.0.0.62", "127.0.0.63")
CLASS = "pyconfd.io/lb"


class Stage:
    """An appliance with a pool, whose shared frontend listens on all addresses at the port of the Services."""

    def __init__(self, appliance: Appliance, pool: tuple[str, ...] = POOL) -> None:
        self.appliance = appliance
        self.port = appliance.http = service_port("127.0.0.1", *POOL)
        appliance.values["addresses"] = {"pool": list(pool)}
        appliance.values["templates.vars"]["http_bind"] = f"*:{self.port}"

    def balance(
        self,
        name: str,
        *,
        pods: int = 1,
        created: str = "",
        annotations: Mapping[str, str] | None = None,
        ports: tuple[PortSpec, ...] = (),
        standing_in: bool = True,
        **spec: Any,
    ) -> str:
        """Create a Service on the port of the stage; return the address of its first pod."""
        ports = ports or (PortSpec("web", self.port, self.appliance.pods.port),)
        spec = {"loadBalancerClass": CLASS, "allocateLoadBalancerNodePorts": False} | spec
        made = objects.service(NAMESPACE, name, ports, type="LoadBalancer", annotations=annotations, spec=spec)
        if created:
            made["metadata"]["creationTimestamp"] = created
        cluster = self.appliance.cluster
        cluster.add_namespace(NAMESPACE)
        cluster.create("services", made)
        block = 30 + sum(name.encode()) % 200
        members = [
            EndpointSpec(f"{self.appliance.pod_network}.{block}.{number}", pod=f"{name}-{number}")
            for number in range(1, pods + 1)
        ]
        for member in members if standing_in else ():
            self.appliance.pods.add(member.pod, member.address)
        cluster.set_endpoints(NAMESPACE, name, members)
        return members[0].address

    def ask(self, address: str) -> str:
        """Return the pod that answers at an address of the pool."""
        return ask(self.port, "any.example.com", address=address)

    def ingress(self, name: str) -> list[str]:
        """Return the addresses in the status of a Service."""
        found = self.appliance.cluster.get("services", NAMESPACE, name)["status"].get("loadBalancer") or {}
        return [each["ip"] for each in found.get("ingress") or ()]

    def refused(self) -> dict[str, list[str]]:
        """Return why Services were refused, by name."""
        found: dict[str, list[str]] = {}
        for each in self.appliance.status().get("refused", ()):
            found.setdefault(each["ref"]["name"], []).append(each["reason"])
        return found


def test_a_service_and_the_shared_frontend_have_one_port_through_reloads(appliance: Appliance) -> None:
    stage = Stage(appliance)
    stage.balance("direct")
    serving(appliance)
    appliance.until(lambda: stage.ask(FIRST) == "direct-1", "the Service answers on its address")
    assert stage.ask(SECOND) == "404"  # who is on all addresses has the rest

    crowd = Crowd(stage.port, "any.example.com", address=FIRST, pause_s=0.02)
    with undisturbed(appliance):
        stage.balance("second")
        appliance.until(lambda: stage.ask(SECOND) == "second-1", "a reload adds the next")
        stage.balance("third")
        appliance.until(lambda: stage.ask(THIRD) == "third-1", "and another one")
    assert failures(crowd.stop()) == []
    assert set(crowd.answers) == {"direct-1"}


def test_nobody_else_answers_at_an_address_of_the_pool(appliance: Appliance) -> None:
    """Neither who asks for a port on all addresses, nor the shared frontend at one that somebody has."""
    stage = Stage(appliance)
    own, everywhere = service_port("127.0.0.1", *POOL), service_port("127.0.0.1", *POOL)
    appliance.values["presets"] = appliance.values.get("presets", {}) | {"listen_ports": [str(everywhere)]}
    del appliance.values["templates.vars"]["tcp_address"]
    stage.balance("direct", ports=(PortSpec("web", own, appliance.pods.port),))
    appliance.serve("greedy", {"domain": "greedy", "proto": "tcp", "pyconfd.io/listen-port": str(everywhere)})
    serving(appliance)
    appliance.until(lambda: ask(own, "any.example.com", address=FIRST) == "direct-1", "the Service has its address")
    appliance.until(lambda: ask(everywhere, "any.example.com") == "greedy-1", "the port is served at the shared ones")

    assert ask(everywhere, "any.example.com", address=FIRST).startswith("failed")
    assert ask(everywhere, "any.example.com", address=SECOND).startswith("failed")
    assert [stage.ask(address) for address in ("127.0.0.1", SECOND)] == ["404", "404"]
    assert stage.ask(FIRST).startswith("failed")


def test_addresses_stay_and_an_exhausted_pool_touches_nobody_else(appliance: Appliance) -> None:
    stage = Stage(appliance, POOL[:2])
    stage.balance("old", created="2026-03-01T00:00:00Z")
    stage.balance("foreign", loadBalancerClass="example.com/lb")
    serving(appliance)
    appliance.until(lambda: stage.ingress("old") == [FIRST], "its address is in its status")
    (served,) = appliance.cluster.get("services", NAMESPACE, "old")["status"]["loadBalancer"]["ingress"]
    assert served["ports"] == [{"port": stage.port, "protocol": "TCP"}]

    stage.balance("older", created="2026-01-01T00:00:00Z")
    appliance.until(lambda: stage.ingress("older") == [SECOND], "an older object gets what is left")
    stage.balance("oldest", created="2025-01-01T00:00:00Z")
    appliance.until(lambda: stage.refused() == {"oldest": ["no_free_address"]}, "the next one is refused")
    appliance.stop()
    appliance.spawn()
    appliance.until(appliance.settled, "pyconfd is back")

    assert [stage.ask(address) for address in POOL[:2]] == ["old-1", "older-1"]
    assert [stage.ingress(name) for name in ("old", "older", "oldest", "foreign")] == [[FIRST], [SECOND], [], []]
    assert stage.refused() == {"oldest": ["no_free_address"]}
    found = appliance.command("explain", f"{NAMESPACE}/oldest")
    assert "addresses.pool" in found.stdout, found.stdout + found.stderr

    assert f"Service {NAMESPACE}/old" in appliance.command("explain", FIRST).stdout

    appliance.cluster.delete_service(NAMESPACE, "older")
    appliance.until(lambda: stage.ingress("oldest") == [SECOND], "it gets the address that became free")
    appliance.until(lambda: stage.ask(SECOND) == "oldest-1", "and serves there")


def test_who_may_connect(appliance: Appliance) -> None:
    stage = Stage(appliance)
    stage.balance("shut", loadBalancerSourceRanges=["192.0.2.0/24"], loadBalancerIP=FIRST)
    stage.balance("open", loadBalancerSourceRanges=["192.0.2.0/24", "127.0.0.0/8"], loadBalancerIP=SECOND)
    serving(appliance)
    appliance.until(lambda: stage.ask(SECOND) == "open-1", "who is in the ranges is answered")

    assert stage.ask(FIRST).startswith("failed")


def test_a_client_keeps_its_pod(appliance: Appliance) -> None:
    stage = Stage(appliance)
    stage.balance("sticky", pods=4, sessionAffinity="ClientIP", externalTrafficPolicy="Local")
    stage.balance("spread", pods=4)
    serving(appliance)
    appliance.until(lambda: "-" in stage.ask(SECOND), "both are served")

    answered = {address: {stage.ask(address) for _ in range(12)} for address in (FIRST, SECOND)}
    assert sorted((next(iter(pods)).partition("-")[0], len(pods)) for pods in answered.values()) == [
        ("spread", 4),
        ("sticky", 1),
    ]


@pytest.mark.parametrize(("version", "begins"), [("v1", b"PROXY TCP4 127.0.0.1 "), ("v2", b"\r\n\r\n\0\r\nQUIT\n")])
def test_pods_are_told_where_a_connection_comes_from(appliance: Appliance, version: str, begins: bytes) -> None:
    stage = Stage(appliance)
    pod = stage.balance("told", annotations={"pyconfd.io/proxy-protocol": version}, standing_in=False)
    serving(appliance)
    appliance.until(lambda: bool(stage.ingress("told")), "it is served")

    with socket.create_server((pod, appliance.pods.port)) as server:
        server.settimeout(PATIENCE_S)
        with socket.create_connection((FIRST, stage.port), PATIENCE_S, ("127.0.0.1", 0)):
            accepted, _ = server.accept()
            with accepted:
                assert accepted.recv(len(begins), socket.MSG_WAITALL) == begins


def test_a_port_of_udp_is_refused_and_the_others_are_served(appliance: Appliance) -> None:
    stage = Stage(appliance)
    ports = (PortSpec("web", stage.port, appliance.pods.port), PortSpec("dns", 53, 53, protocol="UDP"))
    stage.balance("mixed", ports=ports)
    serving(appliance)
    appliance.until(lambda: stage.ask(FIRST) == "mixed-1", "TCP is served")

    assert stage.refused() == {"mixed": ["invalid_value"]}
    appliance.until(lambda: stage.ingress("mixed") == [FIRST], "its address is in its status")
    (served,) = appliance.cluster.get("services", NAMESPACE, "mixed")["status"]["loadBalancer"]["ingress"]
    assert {each["protocol"]: each.get("error") for each in served["ports"]} == {
        "TCP": None,
        "UDP": "pyconfd.io/UnsupportedProtocol",
    }
