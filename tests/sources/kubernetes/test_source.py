"""The source against fake API servers: real sockets, time that runs fifty times as fast."""

from typing import Any

import pytest

from pyconfd.model.snapshot import Key, Named, Resource
from pyconfd.settings import KubernetesSettings, ReadMode
from pyconfd.sources.kubernetes.source import KubernetesSource
from tests.sources.kubernetes.clocks import ScaledClock
from tests.sources.kubernetes.conftest import ALL, Start, addresses, ended, eventually, problem_of, shop, synced
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.faults import Fault, FaultKind

SHOP = Key("demo", "shop")


def test_the_whole_cluster_is_seen_and_followed(cluster: Cluster, server: ApiServer, start: Start) -> None:
    source = start(server.url)
    synced(source)
    snapshot = source.snapshot()
    assert snapshot is not None
    assert list(snapshot.services) == [SHOP]
    assert list(snapshot.nodes) == [Key("", "node-1")]
    assert list(snapshot.endpoints) == [SHOP]
    assert addresses(snapshot) == {"10.0.0.1", "10.0.0.2"}
    shop(cluster, 2, 3)
    cluster.add_service("demo", "new")
    eventually(lambda: addresses(source.snapshot()) == {"10.0.0.2", "10.0.0.3"})
    eventually(lambda: len(source.snapshot().services) == 2)  # type: ignore[union-attr]
    cluster.delete_service("demo", "new")
    eventually(lambda: list(source.snapshot().services) == [SHOP])  # type: ignore[union-attr]
    assert source.events_total >= 3
    assert addresses(snapshot) == {"10.0.0.1", "10.0.0.2"}, "a snapshot never changes"


def test_requests_are_the_documented_ones(server: ApiServer, start: Start) -> None:
    synced(start(server.url))
    server.wait_for_watches("services", "endpointslices", "endpoints", "nodes")
    assert {request.path for request in server.requests} == {
        "/api/v1/services",
        "/api/v1/endpoints",
        "/api/v1/nodes",
        "/apis/discovery.k8s.io/v1/endpointslices",
    }
    assert all(request.query["limit"] == "500" for request in server.seen("", "list"))
    for watch in server.seen("", "watch"):
        assert watch.query["allowWatchBookmarks"] == "true"
        assert 240 <= int(watch.query["timeoutSeconds"]) <= 480
        assert "sendInitialEvents" not in watch.query


def test_several_pages_are_one_list(cluster: Cluster, server: ApiServer, start: Start) -> None:
    for number in range(7):
        cluster.add_service("demo", f"service-{number}")
    source = start(server.url, page_size=3, resources=[Resource.SERVICES])
    synced(source)
    assert len(source.snapshot().services) == 8  # type: ignore[union-attr]
    assert len(server.seen("services", "list")) == 3


@pytest.mark.parametrize("resource", ALL)
def test_no_snapshot_before_every_resource_is_listed(
    resource: Resource, cluster: Cluster, server: ApiServer, start: Start
) -> None:
    fault = server.faults.answer(500, resource.value, "list")
    source = start(server.url)
    others = {each for each in ALL if each is not resource}
    eventually(lambda: {state.resource for state in source.health().resources if state.synced} == others)
    server.wait_for_request(resource.value, "list", count=4)
    assert source.snapshot() is None
    assert (source.health().synced, source.health().last_sync_at) == (False, 0)
    assert "HTTP 500" in problem_of(source, resource)
    server.faults.remove(fault)
    synced(source)
    assert source.health().synced
    assert problem_of(source, resource) == ""


def test_events_without_news_do_not_wake_anybody(cluster: Cluster, server: ApiServer) -> None:
    calls: list[object] = []
    source = KubernetesSource(KubernetesSettings(api_servers=(server.url,)), [Resource.NODES], clock=ScaledClock())
    source.start(lambda: calls.append(None))
    try:
        synced(source)
        server.wait_for_watches("nodes")
        before, snapshot = len(calls), source.snapshot()
        cluster.patch("nodes", "", "node-1", {"status": {"nodeInfo": {"bootID": "6f1c"}}})
        cluster.annotate("nodes", "", "node-1", {"kubectl.kubernetes.io/last-applied-configuration": "{}"})
        eventually(lambda: source.events_total == 2)
        assert len(calls) == before
        assert source.snapshot() is snapshot
        cluster.add_node("node-1", "192.0.2.99")
        # Who waits is told a moment after the snapshot has changed, and of this event alone.
        eventually(lambda: len(calls) > before)
        assert source.snapshot() is not snapshot
        assert len(calls) == before + 1
    finally:
        ended(source)


def test_one_unreadable_object_stops_no_other(cluster: Cluster, server: ApiServer, start: Start) -> None:
    resource = "endpointslices"
    cluster.put(resource, {"metadata": {"name": "bad", "namespace": "demo"}, "endpoints": "all of them"})
    source = start(server.url)
    synced(source)
    assert addresses(source.snapshot()) == {"10.0.0.1", "10.0.0.2"}
    assert [str(refusal.ref) for refusal in source.refusals()] == ["EndpointSlice demo/bad"]
    server.wait_for_watches(resource)
    cluster.put(resource, {"metadata": {"name": "worse", "namespace": "demo"}, "endpoints": [7]})
    shop(cluster, 3)
    eventually(lambda: addresses(source.snapshot()) == {"10.0.0.3"})
    assert [str(refusal.ref) for refusal in source.refusals()] == ["EndpointSlice demo/bad", "EndpointSlice demo/worse"]
    cluster.delete(resource, "demo", "worse")
    cluster.delete(resource, "demo", "bad")
    eventually(lambda: source.refusals() == ())


def test_410_while_watching_lists_again_and_deletes(cluster: Cluster, server: ApiServer, start: Start) -> None:
    source = start(server.url, resources=[Resource.SERVICES])
    synced(source)
    server.wait_for_watches("services")
    silence = server.faults.silence("services")
    cluster.delete_service("demo", "shop")
    cluster.add_service("demo", "new")
    server.faults.watch_error(410, "services")
    server.faults.remove(silence)
    eventually(lambda: list(source.snapshot().services) == [Key("demo", "new")])  # type: ignore[union-attr]
    assert len(server.seen("services", "list")) == 2
    assert problem_of(source, Resource.SERVICES) == ""


def test_410_while_paging_lists_without_a_limit(cluster: Cluster, server: ApiServer, start: Start) -> None:
    for number in range(5):
        cluster.add_service("demo", f"service-{number}")
    server.faults.add(Fault(FaultKind.STATUS, "services", "list", times=1, code=410))
    source = start(server.url, page_size=3, resources=[Resource.SERVICES])
    synced(source)
    assert "limit" in server.seen("services", "list")[0].query
    assert "limit" not in server.seen("services", "list")[1].query
    assert len(source.snapshot().services) == 6  # type: ignore[union-attr]


def test_half_a_line_is_dropped_and_the_watch_continues(cluster: Cluster, server: ApiServer, start: Start) -> None:
    source = start(server.url, resources=[Resource.SERVICES])
    synced(source)
    server.wait_for_watches("services")
    server.faults.half_line("services", times=1)
    cluster.add_service("demo", "new")
    eventually(lambda: len(source.snapshot().services) == 2)  # type: ignore[union-attr]
    assert len(server.seen("services", "list")) == 1
    assert source.refusals() == ()


def test_silence_means_reconnect_without_a_list(cluster: Cluster, server: ApiServer, start: Start) -> None:
    server.faults.silence("services")
    source = start(server.url, resources=[Resource.SERVICES], read_timeout_s=1.5)
    synced(source)
    first = server.wait_for_request("services", "watch", count=1)
    second = server.wait_for_request("services", "watch", count=2)
    assert second.query["resourceVersion"] == first.query["resourceVersion"]
    # On a busy machine a list may take too long and come twice, but before the first watch.
    verbs = [request.verb for request in server.seen("services")]
    assert verbs[verbs.index("watch") :][:2] == ["watch", "watch"]
    server.faults.clear()
    cluster.add_service("demo", "new")
    eventually(lambda: len(source.snapshot().services) == 2)  # type: ignore[union-attr]


def test_a_bookmark_confirms_the_cache_and_moves_the_watch_on(
    cluster: Cluster, server: ApiServer, start: Start
) -> None:
    source = start(server.url, resources=[Resource.SERVICES])
    synced(source)
    server.wait_for_watches("services")
    before = source.health().last_sync_at
    cluster.add_node("node-9", "192.0.2.9")
    server.send_bookmarks()
    eventually(lambda: source.health().last_sync_at > before)
    server.cut_connections()
    watch = server.wait_for_request("services", "watch", count=2)
    assert int(watch.query["resourceVersion"]) > int(server.seen("services", "watch")[0].query["resourceVersion"])


@pytest.mark.parametrize("body", ["html", "half_body"])
def test_answers_that_are_no_list_are_no_empty_list(body: str, server: ApiServer, start: Start) -> None:
    source = start(server.url, resources=[Resource.SERVICES])
    synced(source)
    getattr(server.faults, body)("services", "list")
    source.relist()
    server.wait_for_request("services", "list", count=3)
    eventually(lambda: problem_of(source, Resource.SERVICES))
    assert list(source.snapshot().services) == [SHOP]  # type: ignore[union-attr]
    server.faults.clear()
    eventually(lambda: problem_of(source, Resource.SERVICES) == "")


@pytest.mark.parametrize("code", [401, 403])
def test_denied_is_shown_at_once_and_does_not_change_the_server(
    code: int, servers: list[ApiServer], start: Start
) -> None:
    for server in servers:
        server.faults.deny("services", code=code)
    source = start(*(server.url for server in servers))
    eventually(lambda: f"HTTP {code}" in problem_of(source, Resource.SERVICES))
    servers[0].wait_for_request("services", "list", count=4)
    assert source.snapshot() is None
    assert servers[1].seen("services") == []
    servers[0].faults.clear()
    synced(source)


def test_watch_denied_is_shown_and_the_resource_polled(cluster: Cluster, server: ApiServer, start: Start) -> None:
    server.faults.deny("services", "watch")
    source = start(server.url, interval_s=10)
    synced(source)
    eventually(lambda: "watching is denied" in problem_of(source, Resource.SERVICES))
    cluster.add_service("demo", "new")
    eventually(lambda: len(source.snapshot().services) == 2)  # type: ignore[union-attr]
    assert "watching is denied" in problem_of(source, Resource.SERVICES)
    server.faults.clear()
    eventually(lambda: problem_of(source, Resource.SERVICES) == "")


def test_polling_gives_the_same_result(cluster: Cluster, server: ApiServer, start: Start) -> None:
    source = start(server.url, mode=ReadMode.POLL, interval_s=5, resources=[Resource.ENDPOINTSLICES])
    synced(source)
    shop(cluster, 7)
    eventually(lambda: addresses(source.snapshot()) == {"10.0.0.7"})
    assert server.seen("", "watch") == []
    snapshot = source.snapshot()
    count = len(server.seen("endpointslices", "list"))
    server.wait_for_request("endpointslices", "list", count=count + 2)
    assert source.snapshot() is snapshot, "a list without news changes nothing"


def test_relist_brings_what_the_watch_has_not(cluster: Cluster, server: ApiServer, start: Start) -> None:
    source = start(server.url)
    synced(source)
    server.wait_for_watches("services", "endpointslices", "endpoints", "nodes")
    server.faults.silence()
    shop(cluster, 9)
    source.relist()
    eventually(lambda: addresses(source.snapshot()) == {"10.0.0.9"})


def test_relisted_waits_for_every_list(server: ApiServer, start: Start) -> None:
    source = start(server.url)
    synced(source)
    assert source.relisted()
    refused = server.faults.deny("endpointslices", "list")
    source.relist()
    eventually(lambda: problem_of(source, Resource.ENDPOINTSLICES))
    server.wait_for_request("services", "list", count=2)
    assert not source.relisted(), "one of them was refused"
    server.faults.remove(refused)
    eventually(source.relisted)


def test_stop_ends_every_thread_whatever_it_waits_for(servers: list[ApiServer]) -> None:
    servers[0].faults.hang("services", "list")
    servers[0].faults.silence("nodes")
    servers[0].faults.deny("endpoints", "list")
    source = KubernetesSource(KubernetesSettings(api_servers=(servers[0].url,), read_timeout_s=1.0), ALL)
    source.start(lambda: None)
    servers[0].wait_for_request("services", "list")
    servers[0].wait_for_watches("nodes", "endpointslices")
    assert len(source._threads) == 5
    ended(source)


CONFIG = Named(Resource.CONFIGMAPS, "lb", "config")
KEYS = Named(Resource.SECRETS, "lb", "keys")
BALANCER = Named(Resource.DEPLOYMENTS, "default", "haproxy")


def put(cluster: Cluster, resource: str, namespace: str, name: str, **fields: Any) -> None:
    cluster.put(resource, {"metadata": {"name": name, "namespace": namespace}, **fields})


def test_named_objects_alone_are_read_and_followed(cluster: Cluster, server: ApiServer) -> None:
    put(cluster, "configmaps", "lb", "config", data={"a": "1"})
    put(cluster, "configmaps", "lb", "other", data={"a": "secret"})
    put(cluster, "secrets", "lb", "keys", type="Opaque", data={"shop": "eA=="})
    put(cluster, "secrets", "lb", "tls", type="kubernetes.io/tls", data={"tls.key": "eA=="})
    put(cluster, "deployments", "default", "haproxy", spec={"template": {"metadata": {"labels": {"app": "x"}}}})
    settings = KubernetesSettings(api_servers=(server.url,))
    source = KubernetesSource(settings, [], named=[CONFIG, KEYS, BALANCER], clock=ScaledClock())
    source.start(lambda: None)
    try:
        synced(source)
        seen = source.snapshot()
        assert seen is not None
        assert list(seen.config_maps) == [Key("lb", "config")]
        assert list(seen.secrets) == [Key("lb", "keys")]
        assert seen.deployments[Key("default", "haproxy")].spec.template.metadata.labels == {"app": "x"}
        assert {(r.path, r.query["fieldSelector"]) for r in server.requests} == {
            ("/api/v1/namespaces/lb/configmaps", "metadata.name=config"),
            ("/api/v1/namespaces/lb/secrets", "metadata.name=keys"),
            ("/apis/apps/v1/namespaces/default/deployments", "metadata.name=haproxy"),
        }
        cluster.delete("configmaps", "lb", "config")
        eventually(lambda: not source.snapshot().config_maps)  # type: ignore[union-attr]
    finally:
        ended(source)
