"""APIs that a cluster need not serve: empty without them, read as soon as they are there."""

from collections.abc import Mapping
from typing import Any

import pytest
import structlog

from pyconfd.model.snapshot import Key, Named, Resource
from pyconfd.sources.kubernetes.resources import OPTIONAL
from pyconfd.sources.kubernetes.source import KubernetesSource
from tests.sources.kubernetes.conftest import ALL, Start, addresses, eventually, problem_of, shop, synced
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster

GATEWAY_API = "gateway.networking.k8s.io"
EVERYTHING = (*ALL, *OPTIONAL)
ROUTES = (*ALL, Resource.GATEWAYS, Resource.HTTPROUTES)
WEB = Key("demo", "web")


def put_route(cluster: Cluster, name: str = "web", spec: Any = None) -> None:
    cluster.put("httproutes", {"metadata": {"namespace": "demo", "name": name}, "spec": {} if spec is None else spec})


def routes(source: KubernetesSource) -> Mapping[Key, Any]:
    snapshot = source.snapshot()
    assert snapshot is not None
    return snapshot.httproutes


def not_served(source: KubernetesSource) -> set[str]:
    return {each.resource.value for each in source.health().resources if not each.served}


def test_what_is_not_served_is_empty_and_nothing_is_wrong(cluster: Cluster, server: ApiServer, start: Start) -> None:
    cluster.uninstall(GATEWAY_API)
    cluster.uninstall("pyconfd.io")
    with structlog.testing.capture_logs() as logs:
        source = start(server.url, resources=EVERYTHING)
        synced(source)
        server.wait_for_request("httproutes", "list", count=4)
        shop(cluster, 7)
        eventually(lambda: addresses(source.snapshot()) == {"10.0.0.7"})
    assert routes(source) == {}
    assert source.snapshot().denied == ()  # type: ignore[union-attr]
    assert (source.refusals(), source.problems(), source.health().problems) == ((), (), ())
    assert source.health().synced
    assert source.health().last_sync_at > 0
    assert not_served(source) == {each.value for each in OPTIONAL if "ingress" not in each.value}
    (said,) = (entry for entry in logs if entry["event"] == "resource.not_served")
    assert (said["log_level"], set(said["resources"])) == ("info", not_served(source))
    assert not [entry for entry in logs if entry["log_level"] in {"warning", "error"}]


def test_what_is_installed_later_is_read(cluster: Cluster, server: ApiServer, start: Start) -> None:
    cluster.uninstall(GATEWAY_API)
    source = start(server.url, resources=ROUTES)
    synced(source)
    cluster.install("gateways")
    eventually(lambda: not_served(source) == {"httproutes"})
    cluster.install(GATEWAY_API)
    put_route(cluster)
    eventually(lambda: list(routes(source)) == [WEB])
    assert not_served(source) == set()
    put_route(cluster, "second")
    eventually(lambda: len(routes(source)) == 2)


def test_definitions_that_come_one_after_the_other_are_soon_found(
    cluster: Cluster, server: ApiServer, start: Start
) -> None:
    cluster.uninstall(GATEWAY_API)
    # Nearly real time: the pauses are long by now, and one that is found shortens those of the others.
    source = start(server.url, resources=ROUTES, speed=30.0)
    synced(source)
    for resource in ("gateways", "httproutes"):
        server.wait_for_request(resource, "list", count=6)
    cluster.install("gateways")
    eventually(lambda: not_served(source) == {"httproutes"})
    lists = len(server.seen("httproutes", "list"))
    server.wait_for_request("httproutes", "list", count=lists + 3)
    cluster.install(GATEWAY_API)
    put_route(cluster)
    eventually(lambda: not_served(source) == set() and list(routes(source)) == [WEB])


def test_a_definition_that_is_not_ready_yet_is_no_problem(cluster: Cluster, server: ApiServer, start: Start) -> None:
    source = start(server.url, resources=ROUTES)
    synced(source)
    server.wait_for_watches("httproutes")
    with structlog.testing.capture_logs() as logs:
        server.faults.throttle("httproutes", "storage is (re)initializing", times=2)
        server.faults.watch_error(410, "httproutes")
        eventually(lambda: len(server.seen("httproutes", "list")) >= 4)
        put_route(cluster)
        eventually(lambda: list(routes(source)) == [WEB])
    assert not [entry for entry in logs if entry["log_level"] in {"warning", "error"}]


def test_a_relist_does_not_wait_for_what_is_not_served(cluster: Cluster, server: ApiServer, start: Start) -> None:
    cluster.uninstall(GATEWAY_API)
    source = start(server.url, resources=ROUTES)
    synced(source)
    source.relist()
    eventually(source.relisted)


def test_with_a_definition_go_its_objects(cluster: Cluster, server: ApiServer, start: Start) -> None:
    put_route(cluster)
    source = start(server.url, resources=ROUTES)
    synced(source)
    server.wait_for_watches("httproutes")
    cluster.uninstall(GATEWAY_API)
    eventually(lambda: not_served(source) == {"gateways", "httproutes"})
    assert routes(source) == {}
    cluster.install(GATEWAY_API)
    put_route(cluster, "new")
    eventually(lambda: list(routes(source)) == [Key("demo", "new")])


def test_an_api_that_is_away_without_a_deletion_keeps_its_objects(
    cluster: Cluster, server: ApiServer, start: Start
) -> None:
    put_route(cluster)
    source = start(server.url, resources=ROUTES)
    synced(source)
    server.faults.answer(404, "httproutes")
    source.relist()
    eventually(lambda: not_served(source) == {"httproutes"})
    eventually(source.relisted)
    assert list(routes(source)) == [WEB]
    cluster.delete("httproutes", "demo", "web")
    assert list(routes(source)) == [WEB]
    server.faults.clear()
    eventually(lambda: routes(source) == {})


def test_a_right_that_is_missing_is_said(cluster: Cluster, server: ApiServer, start: Start) -> None:
    put_route(cluster)
    server.faults.deny("httproutes")
    source = start(server.url, resources=ROUTES)
    synced(source)
    assert source.snapshot().denied == (Named(Resource.HTTPROUTES, "", ""),)  # type: ignore[union-attr]
    (problem,) = source.health().problems
    assert "ResolvedRefs=False: forbidden" in problem.message
    assert f"apiGroups: [{GATEWAY_API}], resources: [httproutes]" in problem.remedy
    server.faults.clear()
    cluster.uninstall(GATEWAY_API)
    eventually(lambda: "httproutes" in not_served(source))
    assert (source.refusals(), source.health().problems) == ((), ())


def test_an_essential_resource_that_is_not_found_stays_a_problem(server: ApiServer, start: Start) -> None:
    server.faults.answer(404, "endpointslices")
    source = start(server.url, resources=ROUTES)
    eventually(lambda: source.health().problems)
    assert source.snapshot() is None
    assert not_served(source) == set()


@pytest.mark.parametrize(
    ("spec", "readable"),
    [
        ({"rules": [{"name": "a", "inventedIn2030": {"deep": [1, 2]}}], "alsoNew": True}, True),
        ({"rules": "all of them"}, False),
        ({"hostnames": [7]}, False),
    ],
)
def test_a_newer_definition_touches_no_other_object(
    spec: Any, readable: bool, cluster: Cluster, server: ApiServer, start: Start
) -> None:
    put_route(cluster)
    put_route(cluster, "newer", spec)
    source = start(server.url, resources=ROUTES)
    synced(source)
    assert sorted(key.name for key in routes(source)) == (["newer", "web"] if readable else ["web"])
    assert [(each.ref.kind, each.ref.name) for each in source.refusals()] == (
        [] if readable else [("HTTPRoute", "newer")]
    )
    put_route(cluster, "newer", {})
    eventually(lambda: len(routes(source)) == 2 and source.refusals() == ())


def test_a_broken_definition_moves_nothing_to_another_server(
    cluster: Cluster, servers: list[ApiServer], start: Start
) -> None:
    put_route(cluster)
    source = start(*(server.url for server in servers[:2]), resources=ROUTES)
    synced(source)
    first, second = servers[:2]
    first.wait_for_watches("services", "httproutes")
    lists = len(first.seen("services", "list"))
    for server in servers:
        server.faults.answer(500, "httproutes")
        server.faults.watch_error(500, "httproutes")
    first.wait_for_request("httproutes", "list", count=4)
    shop(cluster, 7)
    eventually(lambda: addresses(source.snapshot()) == {"10.0.0.7"})
    assert list(routes(source)) == [WEB]
    assert len(first.seen("services", "list")) == lists
    assert second.seen("httproutes") == []
    assert [state.healthy for state in source.health().api_servers][:1] == [True]
    assert problem_of(source, Resource.HTTPROUTES)
    for server in servers:
        server.faults.clear()
    eventually(lambda: not problem_of(source, Resource.HTTPROUTES))
