"""A Gateway whose pool address is not on this machine, with a real haproxy: nobody else notices, a reboot neither."""

from pathlib import Path

import pytest
import yaml

from pyconfd.fragments import __file__ as fragments
from tests.e2e.expect import serving, undisturbed
from tests.e2e.test_gateway_api_comes_and_goes import OBJECTS
from tests.e2e.test_least_rights import INGRESS
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask
from tests.world.ports import service_port

pytestmark = pytest.mark.haproxy

HERE, AWAY = "127.0.0.72", "198.51.100.72"


class Stage:
    """An appliance with an Ingress, and a Gateway for each of two addresses of which this machine has one."""

    def __init__(self, appliance: Appliance) -> None:
        self.appliance, self.port = appliance, service_port(HERE)
        appliance.values["addresses"] = {"pool": [AWAY, HERE]}
        appliance.serve("routed", {})
        for document in yaml.safe_load_all(INGRESS.format(namespace=NAMESPACE)):
            appliance.cluster.load_object(document)
        self.add_gateway("web", HERE)

    def add_gateway(self, name: str, address: str) -> None:
        for document in yaml.safe_load_all(OBJECTS.format(namespace=NAMESPACE, port=self.port)):
            if document["kind"] == "Gateway":
                document["metadata"]["name"] = name
                document["spec"]["addresses"] = [{"type": "IPAddress", "value": address}]
            if name == "web" or document["kind"] == "Gateway":
                self.appliance.cluster.load_object(document)

    def programmed(self, name: str) -> tuple[str, list[str]]:
        """Return the reason of the condition Programmed, and the addresses in the status."""
        status = self.appliance.cluster.get("gateways", NAMESPACE, name).get("status", {})
        reasons = {each["type"]: each["reason"] for each in status.get("conditions", ())}
        return reasons.get("Programmed", ""), [each["value"] for each in status.get("addresses", ())]

    def serves(self) -> bool:
        routed = ask(self.port, "routed.example.com", address=HERE)
        return (routed, ask(self.appliance.http, "ingress.example.com")) == ("routed-1", "routed-1")

    def add_host(self, name: str) -> str:
        """Create an Ingress; return its host."""
        (document,) = (each for each in yaml.safe_load_all(INGRESS.format(namespace=NAMESPACE)) if "rules" in str(each))
        host = document["spec"]["rules"][0]["host"] = f"{name}.example.com"
        document["metadata"]["name"] = name
        self.appliance.cluster.load_object(document)
        return host


def test_others_are_served_and_haproxy_comes_up_again(appliance: Appliance) -> None:
    stage = Stage(appliance)
    serving(appliance)
    appliance.until(stage.serves, "the Ingress and the route are served")
    with undisturbed(appliance):
        stage.add_gateway("lost", AWAY)
        appliance.until(lambda: stage.programmed("lost") == ("AddressNotUsable", []), "the Gateway says why")
        host = stage.add_host("newer")
        appliance.until(lambda: ask(appliance.http, host) == "routed-1", "a new Ingress is served")
    assert stage.programmed("web") == ("Programmed", [HERE])
    explained = appliance.command("explain", f"gateway {NAMESPACE}/lost").stdout
    assert f"ip address add {AWAY}" in explained
    looked = appliance.command("preflight")
    assert looked.returncode == 1
    assert f"addresses.pool: 1 of 2 addresses of the pool are not on this host: {AWAY}" in looked.stdout

    appliance.haproxy.stop()
    appliance.haproxy.start()
    appliance.until(stage.serves, "all is served again after a reboot")


def test_a_fragment_that_cannot_bind_it_costs_that_gateway_alone(appliance: Appliance) -> None:
    """The operator's own copy lacks ``transparent``."""
    stage = Stage(appliance)
    stage.add_gateway("lost", AWAY)
    own = appliance.own_fragments() / "08-gateway.tmpl"
    own.write_text((Path(fragments).parent / own.name).read_text().replace(" transparent\n", "\n"))
    serving(appliance)
    appliance.until(stage.serves, "the Ingress and the route are served")
    appliance.until(lambda: stage.programmed("lost")[0] not in ("", "Programmed"), "the Gateway says that it is not")
    host = stage.add_host("newer")
    appliance.until(lambda: ask(appliance.http, host) == "routed-1", "a new Ingress is served")
