"""Services of Gateways at a fake API server: made, kept as they shall be, and never taken from anybody."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pyconfd.model.context import Context
from pyconfd.model.gateway_service import GATEWAY_NAME, GATEWAY_UID, GatewayService
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.settings import ClusterStatusSettings, KubernetesSettings
from pyconfd.sources.kubernetes.decode import decode_object
from pyconfd.sources.kubernetes.object_status import Scope
from pyconfd.sources.kubernetes.resources import Rights, manifest
from pyconfd.sources.kubernetes.status_writer import StatusWriter
from tests.sources.kubernetes.clocks import StandingClock
from tests.world.apiserver import ApiServer
from tests.world.rbac import Rules

AT = Key("shop", "web-pyconfd")
WEB = GatewayService(
    "web", "uid-1", (("a", "b"), (GATEWAY_NAME, "web")), (("c", "d"), (GATEWAY_UID, "uid-1")), (80, 443)
)
RIGHTS = Rights(lease=("pyconfd", "pyconfd"), services=True)


class Place:
    """One balancer that writes, and an API server that allows what pyconfd rbac prints."""

    def __init__(self, server: ApiServer) -> None:
        self.server, self.cluster, self.clock = server, server.cluster, StandingClock()
        self.cluster.add_namespace("pyconfd")
        self.cluster.add_namespace("shop")
        server.rules = Rules(manifest(RIGHTS))
        self.lags = False
        self._seen: dict[Key, Any] = {}
        self.start()

    def start(self) -> None:
        settings, scope = KubernetesSettings(api_servers=(self.server.url,)), Scope(frozenset())
        self.writer = StatusWriter(
            settings, ClusterStatusSettings(), self.newest, scope, identity="lb1", clock=self.clock
        )

    def newest(self) -> Snapshot:
        if not self.lags:
            found = {}
            for obj in self.cluster.objects("services"):
                key = Key(obj["metadata"]["namespace"], obj["metadata"]["name"])
                found[key] = decode_object(Resource.SERVICES, msgspec.json.encode(obj))
            self._seen = found
        return Snapshot(services=self._seen)

    def run(self, for_s: float, service: GatewayService | None = None) -> None:
        self.writer.offer(Context({}, services={AT: service} if service is not None else {}))
        until = self.clock.now_s + for_s
        while self.clock.now_s < until:
            self.writer.election.run_round()
            self.writer.step()
            self.clock.now_s += 0.5

    @property
    def service(self) -> dict[str, Any]:
        return self.cluster.get("services", *AT)

    @property
    def writes(self) -> int:
        return len(self.server.seen("services", "patch"))


@pytest.fixture
def here() -> Iterator[Place]:
    with ApiServer() as server:
        yield Place(server)


def test_a_service_is_made_once(here: Place) -> None:
    here.run(60, WEB)
    made = here.service
    assert made["metadata"]["labels"] == {"a": "b", GATEWAY_NAME: "web"}
    assert made["metadata"]["annotations"] == {"c": "d", GATEWAY_UID: "uid-1"}
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": "web", "uid": "uid-1"}
    spec = made["spec"]
    assert (spec["type"], spec["loadBalancerClass"]) == ("LoadBalancer", "pyconfd.io/gateway")
    assert spec["allocateLoadBalancerNodePorts"] is False
    assert "selector" not in spec
    assert [each["port"] for each in spec["ports"]] == [80, 443]
    writes = here.writes
    here.run(600, WEB)
    assert here.writes == writes
    assert here.writer.problems() == ()


def test_what_the_gateway_does_not_say_any_more_goes(here: Place) -> None:
    here.run(60, WEB)
    here.cluster.patch("services", *AT, {"metadata": {"labels": {"theirs": "x"}}}, manager="other")
    here.run(60, WEB._replace(labels=((GATEWAY_NAME, "web"),), ports=(80,)))
    assert here.service["metadata"]["labels"] == {GATEWAY_NAME: "web", "theirs": "x"}
    assert [each["port"] for each in here.service["spec"]["ports"]] == [80]


def test_it_goes_too_after_a_restart(here: Place) -> None:
    here.run(60, WEB)
    here.writer.stop()
    here.start()
    here.run(60, WEB._replace(annotations=((GATEWAY_UID, "uid-1"),)))
    assert here.service["metadata"]["annotations"] == {GATEWAY_UID: "uid-1"}


def test_who_changes_it_again_and_again_is_no_loop(here: Place) -> None:
    here.run(60, WEB)
    before = here.writes
    for _ in range(200):
        here.cluster.patch("services", *AT, {"metadata": {"labels": {"a": "other"}}}, manager="other")
        here.run(1, WEB)
    assert 1 < here.writes - before < 10


@pytest.mark.parametrize(
    "theirs",
    [
        {"metadata": {}, "spec": {"ports": [{"port": 80}]}},
        # The Gateway of that name was deleted and made again: Kubernetes deletes its Service.
        {
            "metadata": {"annotations": {GATEWAY_UID: "uid-0"}},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": "pyconfd.io/gateway", "ports": [{"port": 80}]},
        },
    ],
    ids=["a tenant's", "a former one"],
)
def test_a_service_of_somebody_else_is_left_alone(here: Place, theirs: dict[str, Any]) -> None:
    named = {"metadata": {"namespace": AT.namespace, "name": AT.name, **theirs["metadata"]}, "spec": theirs["spec"]}
    here.cluster.create("services", named)
    before = here.service
    here.run(120, WEB)
    assert here.service == before
    assert here.writes == 0
    (problem,) = here.writer.problems()
    assert "shop/web-pyconfd" in problem.message
    here.cluster.delete("services", *AT)
    here.run(60, WEB)
    assert here.service["metadata"]["labels"]["a"] == "b"
    assert here.writer.problems() == ()


def test_nothing_is_written_without_the_right(here: Place) -> None:
    here.server.rules = Rules(manifest(replace(RIGHTS, services=False, events=True)))
    here.run(200, WEB)
    assert not here.cluster.exists("services", *AT)
    assert here.writes < 8
    (problem,) = here.writer.problems()
    assert "pyconfd rbac" in problem.remedy
    here.server.rules = Rules(manifest(RIGHTS))
    here.run(120, WEB)
    assert here.cluster.exists("services", *AT)
    assert here.writer.problems() == ()


def test_a_service_stays_where_nothing_asks_for_it(here: Place) -> None:
    here.run(60, WEB)
    here.run(60)
    assert here.cluster.exists("services", *AT)
    assert {each.verb for each in here.server.requests if each.resource == "services"} == {"patch"}


def test_a_watch_that_lags_costs_few_writes(here: Place) -> None:
    here.lags = True
    here.run(60, WEB)
    assert 1 <= here.writes < 8
    here.lags = False
    here.run(60, WEB)
    assert here.service["metadata"]["labels"]["a"] == "b"
