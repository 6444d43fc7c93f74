"""The status of objects in the cluster, written by whole daemons: real HAProxys and a fake API server."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.expect import serving, undisturbed
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask
from tests.world.rbac import Rules

pytestmark = pytest.mark.haproxy

ADDRESS = "192.0.2.10"
CONTROLLER = "pyconfd.io/ingress"
PUBLISHED = [{"ip": ADDRESS}]


class Stage:
    """Balancers that serve Ingresses of one cluster."""

    def __init__(self, *balancers: Appliance) -> None:
        self.balancers = balancers
        self.cluster = balancers[0].cluster
        self.cluster.create("ingressclasses", {"metadata": {"name": "pyconfd"}, "spec": {"controller": CONTROLLER}})
        for each in balancers:
            each.values["addresses"] = {"shared": [ADDRESS]}

    def ingress(self, name: str, *, host: str = "", class_: str = "pyconfd") -> None:
        """Create an Ingress for ``<host or name>.example.com``."""
        backend = {"service": {"name": "shop", "port": {"name": "web"}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        rule = {"host": f"{host or name}.example.com", "http": {"paths": paths}}
        metadata = {"namespace": NAMESPACE, "name": name}
        self.cluster.create("ingresses", {"metadata": metadata, "spec": {"ingressClassName": class_, "rules": [rule]}})

    def published(self, name: str) -> Any:
        status = self.cluster.get("ingresses", NAMESPACE, name).get("status") or {}
        return (status.get("loadBalancer") or {}).get("ingress") or None

    def writes(self) -> int:
        return sum(len(server.seen("ingresses/status", "patch")) for server in self.balancers[0].servers)

    def holder(self) -> str:
        """Return who holds the Lease."""
        return str(self.cluster.get("leases", "pyconfd", "pyconfd")["spec"].get("holderIdentity") or "")

    def role(self, balancer: Appliance) -> str:
        return str(balancer.status().get("status_writer", {}).get("role", ""))

    def until(self, condition: Callable[[], object], what: str) -> float:
        return self.balancers[0].until(condition, what)


def test_an_address_is_published_and_withdrawn_with_what_is_served(appliance: Appliance) -> None:
    stage = Stage(appliance)
    appliance.values["cluster_status"] = {"grace_s": 0.5}
    serving(appliance)
    stage.ingress("web")
    stage.until(lambda: stage.published("web") == PUBLISHED, "the address is published")
    assert ask(appliance.http, "web.example.com").startswith("shop-")  # not before it is served
    assert "written by this balancer: 1" in appliance.command("status").stdout
    assert "pyconfd_status_writer 1.0" in appliance.get("/metrics")[1]

    stage.ingress("foreign", class_="other")
    stage.cluster.patch("ingresses", NAMESPACE, "web", {"spec": {"ingressClassName": "other"}})
    stage.until(lambda: stage.published("web") is None, "the address is withdrawn")
    assert stage.published("foreign") is None
    written = stage.writes()
    appliance.scale_up("shop")
    appliance.until(appliance.settled, "a change of a pod is applied")
    assert stage.writes() == written


def test_a_rejected_object_never_has_an_address(appliance: Appliance) -> None:
    stage = Stage(appliance)
    serving(appliance)
    stage.ingress("web")
    stage.until(lambda: stage.published("web") == PUBLISHED, "it is published")
    # Not the older one; behind it by name where both are of one second.
    stage.ingress("web-thief", host="web")
    appliance.until(lambda: appliance.status()["refused"], "it is refused")
    appliance.until(appliance.settled, "all is applied")
    assert stage.published("web-thief") is None
    former = {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}}  # of another controller
    stage.cluster.patch("ingresses", NAMESPACE, "web-thief", {"status": former})
    stage.until(lambda: stage.published("web-thief") is None, "what stood there is removed")
    assert stage.published("web") == PUBLISHED


@pytest.mark.timeout(300)
def test_a_killed_writer_is_replaced_and_nothing_flaps(appliance: Appliance, second: Appliance) -> None:
    stage = Stage(appliance, second)
    serving(appliance)
    stage.ingress("web")
    stage.until(lambda: stage.published("web") == PUBLISHED, "the first balancer writes")
    second.start()
    second.until(lambda: stage.role(second) == "standby", "the second one stands by")
    assert stage.role(appliance) == "writer"
    first = stage.holder()
    second.until(lambda: f"written by {first}" in second.command("status").stdout, "it names the writer")

    with undisturbed(appliance):  # HAProxy goes on without pyconfd
        appliance.kill()
        stage.ingress("api")
        second.until(lambda: stage.published("api") == PUBLISHED, "the second one writes what came meanwhile")
    assert stage.holder() != first
    assert stage.writes() == 2

    appliance.spawn()
    appliance.until(lambda: stage.role(appliance) == "standby", "the first one stands by when it is back")
    second.stop()
    appliance.until(lambda: stage.role(appliance) == "writer", "a clean stop hands over")
    assert stage.holder() == first
    assert stage.writes() == 2


def test_without_the_right_traffic_is_served_and_the_remedy_is_named(appliance: Appliance) -> None:
    stage = Stage(appliance)
    for server in appliance.servers:
        server.faults.deny("leases")
    serving(appliance)
    stage.ingress("web")
    appliance.until(lambda: ask(appliance.http, "web.example.com").startswith("shop-"), "it is served")
    appliance.until(lambda: appliance.status()["problems"], "the missing right is a problem")
    shown = appliance.command("status").stdout
    assert "status of objects: cannot be written" in shown
    assert "pyconfd rbac" in shown
    assert len(appliance.events("lease.failed")) == 1
    for server in appliance.servers:
        server.faults.clear()
    stage.until(lambda: stage.published("web") == PUBLISHED, "it is published once that is allowed")
    appliance.until(lambda: not appliance.status()["problems"], "nothing is wrong any more")


def test_the_rights_that_rbac_prints_are_enough(appliance: Appliance) -> None:
    stage = Stage(appliance)
    appliance.write_settings()
    manifest = appliance.command("rbac").stdout
    for server in appliance.servers:
        server.rules = Rules(manifest)
    serving(appliance)
    stage.ingress("web")
    stage.until(lambda: stage.published("web") == PUBLISHED, "the address is published")
    assert appliance.status()["problems"] == []


@pytest.mark.timeout(120)
def test_one_of_two_balancers_writes_the_events_without_any_setting(appliance: Appliance, second: Appliance) -> None:
    stage = Stage(appliance, second)
    stage.cluster.add_namespace(NAMESPACE)
    serving(appliance)
    second.start()
    stage.ingress("web")
    stage.ingress("younger", host="web")

    def written() -> list[str]:
        return [f"{each['involvedObject']['name']} {each['reason']}" for each in stage.cluster.objects("events")]

    stage.until(written, "the refusal is said")
    appliance.until(appliance.settled, "all is applied")
    assert written() == ["younger NameTaken"]

    def counts() -> list[int]:
        return sorted(balancer.status()["object_events"]["written_total"] for balancer in stage.balancers)

    stage.until(lambda: counts() == [0, 1], "one of them wrote it")
