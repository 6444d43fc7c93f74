"""CustomResourceDefinitions that come and go while traffic is served, with no other rights than the printed ones."""

from typing import Any

import pytest
import yaml

from tests.e2e.expect import all_is_well, beats, complaints, serving, undisturbed
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask
from tests.world.ports import service_port
from tests.world.rbac import Rules

pytestmark = pytest.mark.haproxy

GATEWAY_API = "gateway.networking.k8s.io"
ADDRESS = "127.0.0.71"
LONG_S, SHORT_S = 3600.0, 1.0
WINDOW_S = 0.5
"""What came within the window makes up for what is lost."""

OBJECTS = """
kind: GatewayClass
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: pyconfd}}
spec: {{controllerName: pyconfd.io/gateway}}
---
kind: Gateway
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: web, namespace: {namespace}}}
spec:
  gatewayClassName: pyconfd
  listeners: [{{name: http, port: {port}, protocol: HTTP}}]
---
kind: HTTPRoute
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: web, namespace: {namespace}}}
spec:
  parentRefs: [{{name: web}}]
  hostnames: [routed.example.com]
  rules: [{{backendRefs: [{{name: routed, port: 80}}]}}]
"""


class Stage:
    """An appliance with an address for a Gateway, in a cluster that has no Gateway API yet."""

    def __init__(self, appliance: Appliance) -> None:
        self.appliance, self.cluster = appliance, appliance.cluster
        self.port = service_port(ADDRESS)
        appliance.values["addresses"] = {"pool": [ADDRESS]}
        self.cluster.uninstall(GATEWAY_API)
        appliance.write_settings()
        self.manifest = appliance.command("rbac").stdout
        for document in yaml.safe_load_all(self.manifest):
            if document["kind"] == "Namespace":
                self.cluster.add_namespace(document["metadata"]["name"])
        for server in appliance.servers:
            server.rules = Rules(self.manifest)

    def install(self) -> None:
        """Install the definitions, and create a class, a Gateway and a route."""
        self.cluster.install(GATEWAY_API)
        for document in yaml.safe_load_all(OBJECTS.format(namespace=NAMESPACE, port=self.port)):
            self.cluster.load_object(document)

    def ask(self) -> str:
        """Return the pod that answers at the Gateway."""
        return ask(self.port, "routed.example.com", address=ADDRESS)

    def conditions(self, resource: str, name: str, namespace: str = NAMESPACE) -> dict[str, str]:
        """Return the conditions of an object, of a route those of its first parent."""
        status: dict[str, Any] = self.cluster.get(resource, namespace, name).get("status", {})
        if "parents" in status:
            status = status["parents"][0] if status["parents"] else {}
        return {each["type"]: each["status"] for each in status.get("conditions", ())}

    def resources(self) -> dict[str, bool]:
        """Return which resources are served, as the status of pyconfd says."""
        return {each["resource"]: each["served"] for each in self.appliance.status()["source"]["resources"]}


@pytest.fixture
def stage(appliance: Appliance) -> Stage:
    made = Stage(appliance)
    appliance.serve("routed", {})
    return made


def routed(stage: Stage, *, persist_s: float = LONG_S) -> None:
    """Start, and install the definitions; the Gateway serves when this returns."""
    stage.appliance.values["removal_protection"] = {"persist_s": persist_s, "window_s": WINDOW_S}
    serving(stage.appliance)
    stage.install()
    stage.appliance.until(lambda: stage.ask() == "routed-1", "the Gateway serves")


def test_definitions_that_are_installed_later_are_served(stage: Stage) -> None:
    appliance = stage.appliance
    serving(appliance)
    all_is_well(appliance)
    assert stage.resources()["httproutes"] is False
    assert "not served by this cluster, and looked for: gatewayclasses, gateways" in appliance.command("status").stdout
    assert complaints(appliance) == []
    (said,) = appliance.events("resource.not_served")
    assert "httproutes" in said["resources"]

    with undisturbed(appliance):
        stage.install()
        appliance.until(lambda: stage.ask() == "routed-1", "the Gateway serves")
        appliance.until(lambda: stage.conditions("gateways", "web").get("Programmed") == "True", "it is programmed")
        appliance.until(
            lambda: stage.conditions("httproutes", "web").get("Accepted") == "True", "its route is accepted"
        )
    assert [each["value"] for each in stage.cluster.get("gateways", NAMESPACE, "web")["status"]["addresses"]] == [
        ADDRESS
    ]
    assert stage.conditions("gatewayclasses", "pyconfd", "")["Accepted"] == "True"
    all_is_well(appliance)
    assert all(stage.resources().values())


def test_with_the_definitions_go_the_gateways_under_removal_protection(stage: Stage) -> None:
    appliance = stage.appliance
    routed(stage)
    beats(appliance, 2 * WINDOW_S)
    with undisturbed(appliance):
        stage.cluster.uninstall("gatewayclasses")  # deleted first, as by `kubectl delete` of the published manifest
        appliance.until(lambda: appliance.status().get("hold_id"), "the loss of all Gateways is held")
        stage.cluster.uninstall(GATEWAY_API)
        appliance.until(lambda: stage.resources()["httproutes"] is False, "there are no routes any more")
        assert stage.ask() == "routed-1"
        hold = appliance.status()["hold_id"]
        assert appliance.command("allow", hold).returncode == 0
        appliance.until(lambda: stage.ask().startswith("failed"), "nobody listens at the Gateway's address")
    appliance.until(appliance.settled, "it serves")
    stage.install()
    appliance.until(lambda: stage.ask() == "routed-1", "the Gateway serves again")


def test_an_api_that_is_away_keeps_its_gateways(stage: Stage) -> None:
    appliance = stage.appliance
    routed(stage, persist_s=SHORT_S)
    for server in appliance.servers:
        server.faults.answer(404, "httproutes")
        server.faults.answer(404, "gateways")
        server.cut_connections()
    with undisturbed(appliance):
        appliance.until(lambda: stage.resources()["gateways"] is False, "the API is not served any more")
        new = appliance.scale_up("routed")
        appliance.until(lambda: stage.ask() == new, "pods are followed")
    assert "gateways: no longer served; 1 read before stay until a restart" in appliance.command("status").stdout
    for server in appliance.servers:
        server.faults.clear()
    appliance.until(lambda: all(stage.resources().values()), "the API is served again")
    assert stage.ask().startswith("routed-")


def test_newer_definitions_touch_no_other_object(stage: Stage) -> None:
    appliance = stage.appliance
    routed(stage)
    with undisturbed(appliance):
        stage.cluster.patch("httproutes", NAMESPACE, "web", {"spec": {"inNextYear": {"deep": [1]}}})
        other = {"parentRefs": [{"name": "web"}], "rules": [{"timeouts": ["a list, where one object was"]}]}
        stage.cluster.put("httproutes", {"metadata": {"name": "newer", "namespace": NAMESPACE}, "spec": other})
        appliance.until(lambda: appliance.status()["refused"], "the other route is refused")
        new = appliance.scale_up("routed")
        appliance.until(lambda: stage.ask() == new, "the first one is followed")
    (refused,) = appliance.status()["refused"]
    assert (refused["ref"]["kind"], refused["ref"]["name"], refused["reason"]) == ("HTTPRoute", "newer", "unreadable")
    found = appliance.command("explain", "httproute newer")
    assert "HTTPRoute demo/newer" in found.stdout
    assert "Unreadable" in found.stdout
