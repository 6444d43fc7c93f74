"""Who may claim what, with a real haproxy: names that stay, rules by namespace, endpoints where no pod can be."""

import json
import socket

import pytest

from tests.e2e.expect import new_pod_answers, serving, undisturbed
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask
from tests.world.haproxy import free_port
from tests.world.objects import EndpointSpec, PortSpec

pytestmark = pytest.mark.haproxy

STRANGER = "stranger"


def put_up(appliance: Appliance, name: str, domain: str, *addresses: str, namespace: str = STRANGER) -> None:
    """Create a Service of another namespace, with pods that answer with its name."""
    port = PortSpec(name="web", port=80, target=appliance.pods.port)
    appliance.cluster.add_namespace(namespace)
    annotations = {"domain": domain, "proto": "http"}
    appliance.cluster.add_service(namespace, name, ports=[port], annotations=annotations)
    members = [EndpointSpec(address, pod=f"{name}-{number}") for number, address in enumerate(addresses, 1)]
    appliance.cluster.set_endpoints(namespace, name, members)


def refusals(appliance: Appliance) -> dict[str, str]:
    return {each["ref"]["name"]: each["reason"] for each in appliance.status().get("refused", ())}


def test_a_deleted_name_stays_with_its_namespace_across_a_kill_and_then_goes_to_who_waits_without_an_event(
    appliance: Appliance,
) -> None:
    appliance.values["claims"]["reserve_s"] = 3600
    serving(appliance)
    appliance.serve("other")  # or to delete the only one would be a total loss
    appliance.pods.add("thief-1", "127.18.99.1")
    put_up(appliance, "thief", "shop.example.com", "127.18.99.1")
    appliance.until(lambda: refusals(appliance).get("thief") == "name_taken", "the younger one waits")

    appliance.cluster.delete_service(NAMESPACE, "shop")
    appliance.until(lambda: refusals(appliance).get("thief") == "name_reserved", "the name is kept")
    appliance.until(lambda: appliance.ask("shop") == "404", "nobody serves it")
    appliance.kill()
    appliance.spawn()
    appliance.until(lambda: appliance.settled() and refusals(appliance).get("thief") == "name_reserved", "still")

    appliance.serve("shop")
    appliance.until(lambda: appliance.ask("shop").startswith("shop-"), "made again it has its name back")
    appliance.until(lambda: refusals(appliance).get("thief") == "name_taken", "the younger one waits again")

    appliance.stop()
    appliance.values["claims"]["reserve_s"] = 4
    appliance.spawn()
    appliance.until(appliance.settled, "it serves with a shorter time")
    appliance.cluster.delete_service(NAMESPACE, "shop")
    appliance.until(lambda: appliance.ask("shop") == "thief-1", "whoever waits gets it when the time is over")
    appliance.until(lambda: "thief" not in refusals(appliance), "and is refused no more")


def test_rules_say_which_namespace_may_have_which_names(appliance: Appliance) -> None:
    rules = [
        {"namespaces": ["demo"], "domains": ["example.com"], "protocols": ["http"]},
        {"namespaces": ["str*"], "domains": ["stranger.example.org"]},
    ]
    appliance.pods.add("api-1", "127.18.99.2")
    put_up(appliance, "api", "api.example.com", "127.18.99.2")
    put_up(appliance, "own", "own.stranger.example.org", "127.18.99.2")
    put_up(appliance, "free", "free.example.net", "127.18.99.2", namespace="nobody")
    appliance.serve("shop")
    appliance.serve("cache", {"domain": "cache.example.com", "proto": "tcp", "pyconfd.io/listen-port": "7777"})
    appliance.start(PYCONFD_CLAIMS_RULES=json.dumps(rules))
    wanted = {"api": "not_allowed", "free": "not_allowed", "cache": "not_allowed"}
    appliance.until(lambda: refusals(appliance) == wanted, "what may not be claimed is refused")
    appliance.until(lambda: appliance.ask("shop").startswith("shop-"), "what may be claimed is served")
    conf = appliance.haproxy.conf.read_text(encoding="utf-8")
    assert "be-own.stranger.example.org" in conf
    for name in ("api.example.com", "free.example.net", "7777"):
        assert name not in conf
    told = {each["ref"]["name"]: each["detail"] for each in appliance.status()["refused"]}
    assert "may not claim this name" in told["api"]
    assert "stranger.example.org" in told["api"], "it says what it may claim"


def test_endpoints_where_no_pod_can_be_get_no_traffic(appliance: Appliance) -> None:
    appliance.values["claims"] = {"allow_endpoints": ["127.18.0.0/16"], "own_addresses": ["198.51.100.7"]}
    serving(appliance)
    bad = {
        "loopback": "127.0.0.1",
        "mapped": "::ffff:127.0.0.1",
        "metadata": "169.254.169.254",
        "ec2": "fd00:ec2::254",
        "link": "fe80::1",
        "multicast": "224.0.0.1",
        "any": "0.0.0.0",
        "floating": "198.51.100.7",
        "nat64": "64:ff9b::a9fe:a9fe",
    }
    with undisturbed(appliance):
        for name, address in bad.items():
            put_up(appliance, name, f"{name}.example.com", address)
        appliance.until(lambda: len(refusals(appliance)) == len(bad), "each is refused")
        new_pod_answers(appliance)
    assert set(refusals(appliance).values()) == {"forbidden_address"}
    appliance.until(lambda: appliance.haproxy.conf.read_text().count("\nbackend be-") == len(bad) + 1, "all is applied")
    lines = appliance.haproxy.conf.read_text(encoding="utf-8").splitlines()
    servers = [line.split()[2] for line in lines if line.strip().startswith("server ")]
    assert servers
    assert all(server.startswith("127.18.") for server in servers)


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
