"""A template in a ConfigMap goes bad while the preset kube2lb serves beside it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.expect import all_is_well, complaints
from tests.world import nginx
from tests.world.appliance import Appliance
from tests.world.clients import Crowd, ask
from tests.world.haproxy import free_port
from tests.world.objects import EndpointSpec, PortSpec
from tests.world.ports import service_port

TEMPLATE = """\
frontend lb
    mode http
    bind 127.0.0.1:@PORT@
    timeout client 10s
    default_backend web
backend web
    mode http
    timeout connect 5s
    timeout server 10s
{% for service in services %}
{% for pod in service.pods.itervalues() %}
    server {{ pod.metadata.name }} {{ pod.status.podIP }}:{{ service.ports[0] }}
{% endfor %}
{% endfor %}
"""
BAD = {
    "limit": ("backend web", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "1 s"),
    "check": ("timeout connect 5s", "timeout connect soon", "unexpected character 's' in 'timeout connect'"),
}
"""What else may be wrong: tests/sandbox, tests/daemon/test_rejected_templates.py and the demo of the preset."""


class World:
    """``shop`` is a NodePort service for kube2lb; the pods ``app-N`` are behind the template in the ConfigMap."""

    def __init__(self, appliance: Appliance) -> None:
        self.appliance = appliance
        self.cluster = appliance.cluster
        self.shop, self.app = service_port("127.0.0.1"), free_port()
        self.template = TEMPLATE.replace("@PORT@", str(self.app))
        self._endpoints: list[EndpointSpec] = []
        appliance.values["presets"] = {"use": ["kube2lb", "configmap"]}
        appliance.values["kube2lb"] = {"domain": "cluster.local", "default_lb_ip": "127.0.0.1"}
        appliance.values["templates"]["dir"] = str(nginx.TEMPLATES / "haproxy")
        appliance.values["cluster_templates"] = {"allow_configuration_from_cluster": True, "timeout_s": 1.0}
        self.cluster.add_node("node-1", "192.0.2.1")
        ports = [PortSpec("web", self.shop, appliance.pods.port, node_port=30030)]
        names = {"kube2lb/external-domains": "shop.example.com"}
        self.cluster.add_service("demo", "shop", ports=ports, annotations=names, type="NodePort")
        self.cluster.add_namespace("lb")
        service = {"namespace": "demo", "selector": {"app": "app"}, "ports": [appliance.pods.port]}
        self.set_data("services", {"app": json.dumps(service)})
        self.set_template(self.template)
        self.run_shop("shop-1")
        self.run_app("app-1")

    def set_data(self, name: str, data: dict[str, str]) -> None:
        self.cluster.put("configmaps", {"metadata": {"name": name, "namespace": "lb"}, "data": data})

    def set_template(self, text: str) -> None:
        self.set_data("config", {"template": text})

    def break_template(self, how: str) -> str:
        """Make it bad; give what is told."""
        old, new, told = BAD[how]
        self.set_template(self.template.replace(old, new))
        return told

    def run_shop(self, name: str) -> None:
        address = f"127.18.40.{len(self._endpoints) + 1}"
        self.appliance.pods.add(name, address)
        self._endpoints.append(EndpointSpec(address, pod=name, node="node-1"))
        self.cluster.set_endpoints("demo", "shop", self._endpoints)

    def run_app(self, name: str) -> None:
        address = f"127.18.41.{name.rpartition('-')[2]}"
        self.appliance.pods.add(name, address)
        status: dict[str, Any] = {"phase": "Running", "podIP": address}
        status["containerStatuses"] = [{"name": "main", "ready": True}]
        metadata = {"name": name, "namespace": "demo", "labels": {"app": "app"}}
        self.cluster.put("pods", {"metadata": metadata, "spec": {}, "status": status})

    def problems(self) -> str:
        return "\n".join(self.appliance.status().get("problems", ()))

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Have clients ask both all the time; no request may fail."""
        crowds = [Crowd(self.app, "x", clients=1, pause_s=0.02), Crowd(self.shop, "shop.example.com", clients=1)]
        try:
            yield
        finally:
            answers = [crowd.stop() for crowd in crowds]
        assert {name.partition("-")[0] for name in answers[0]} == {"app"}, answers
        assert {name.partition("-")[0] for name in answers[1]} == {"shop"}, answers


@pytest.fixture
def world(appliance: Appliance) -> World:
    """Give a world in which both are served."""
    made = World(appliance)
    appliance.start()
    appliance.until(appliance.settled, "the first configuration is applied and verified")
    appliance.until(lambda: ask(made.shop, "shop.example.com") == "shop-1", "kube2lb serves")
    appliance.until(lambda: ask(made.app, "x") == "app-1", "the template of the cluster serves")
    return made


@pytest.mark.parametrize("how", BAD)
def test_a_bad_template_stops_nobody_and_its_last_good_text_stays(world: World, how: str) -> None:
    appliance = world.appliance
    with world.undisturbed():
        told = world.break_template(how)
        appliance.until(lambda: told in world.problems(), "the status says what is wrong")
        assert "its last good text stays as it was" in world.problems()
        appliance.until(lambda: appliance.phase == "rejected", "so does its phase")
        (refused,) = [each for each in appliance.status()["refused"] if each["reason"] == "bad_template"]
        assert (refused["ref"]["kind"], refused["ref"]["name"], refused["field"]) == ("ConfigMap", "config", "template")
        world.run_shop("shop-2")
        appliance.until(lambda: ask(world.shop, "shop.example.com") == "shop-2", "kube2lb's endpoints follow")

        appliance.kill()  # the last good text is that of the last generation
        appliance.spawn()
        appliance.until(lambda: told in world.problems(), "the status says it again")
        assert ask(world.app, "x") == "app-1"
        assert "soon" not in appliance.haproxy.conf.read_text()

        world.set_template(world.template.replace("timeout server 10s", "timeout server 11s"))
        appliance.until(lambda: "timeout server 11s" in appliance.haproxy.conf.read_text(), "what was mended serves")
    all_is_well(appliance)
    lines = [line for line in complaints(appliance, "BAD_TEMPLATE".lower()) if line["event"] == "object.refused"]
    # The mended one may have to wait until the name of an endless one may render again; that is said as well.
    lines = [line for line in lines if "is not rendered yet" not in line["detail"]]
    assert len(lines) == 2, ("once for each process", [line["detail"] for line in lines])


def test_a_template_that_never_was_good_is_left_out(appliance: Appliance) -> None:
    world = World(appliance)
    told = world.break_template("check")
    appliance.start()
    appliance.until(lambda: ask(world.shop, "shop.example.com") == "shop-1", "kube2lb serves")
    appliance.until(lambda: told in world.problems(), "the status says what is wrong")
    assert "nothing is served from it" in world.problems()
    assert ask(world.app, "x").startswith("failed")
    world.set_template(world.template)
    appliance.until(lambda: ask(world.app, "x") == "app-1", "the template of the cluster serves")
    all_is_well(appliance)
