"""The parts of the API that no transcript shows: selectors, writes, several servers, the process."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.exchange import connect, fetch
from tests.world.objects import EndpointSpec, PortSpec, SlicePort
from tests.world.store import Obj

MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def server(cluster: Cluster) -> Iterator[ApiServer]:
    with ApiServer(cluster) as api:
        yield api


def _names(body: Any) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("tier=web", ["a", "b"]),
        ("tier==web,stage=live", ["a"]),
        ("tier!=web", ["c", "d"]),
    ],
)
def test_label_selectors(cluster: Cluster, server: ApiServer, selector: str, names: list[str]) -> None:
    labels = {"a": ("web", "live"), "b": ("web", "test"), "c": ("db", "live")}
    for name, (tier, stage) in labels.items():
        cluster.add_service("demo", name, labels={"tier": tier, "stage": stage})
    cluster.add_service("demo", "d")
    assert _names(fetch(server.url, f"GET /api/v1/services?labelSelector={quote(selector)}").body) == names


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/api/v1/services?fieldSelector=metadata.name%3Da", ["a"]),
        ("/api/v1/services?fieldSelector=metadata.namespace!%3Ddemo", ["b"]),
        ("/api/v1/namespaces/other/services", ["b"]),
        ("/api/v1/secrets?fieldSelector=type%3Dkubernetes.io%2Ftls", ["s1"]),
        ("/api/v1/services?fieldSelector=spec.type%3DNodePort", ["b"]),
    ],
)
def test_field_selectors_and_namespaces(cluster: Cluster, server: ApiServer, path: str, names: list[str]) -> None:
    cluster.add_service("demo", "a")
    cluster.add_service("other", "b", type="NodePort")
    cluster.create("secrets", {"metadata": {"name": "s1", "namespace": "demo"}, "type": "kubernetes.io/tls"})
    cluster.create("secrets", {"metadata": {"name": "s2", "namespace": "demo"}, "type": "Opaque"})
    assert _names(fetch(server.url, f"GET {path}").body) == names


def test_a_list_at_an_exact_or_a_future_version(cluster: Cluster, server: ApiServer) -> None:
    cluster.add_service("demo", "a")
    then = cluster.rv
    cluster.add_service("demo", "b")
    exact = fetch(server.url, f"GET /api/v1/services?resourceVersion={then}&resourceVersionMatch=Exact").body
    assert (_names(exact), exact["metadata"]["resourceVersion"]) == (["a"], str(then))
    assert _names(fetch(server.url, "GET /api/v1/services?resourceVersion=0").body) == ["a", "b"]
    future = fetch(server.url, "GET /api/v1/services?resourceVersion=999999")
    assert (future.status, future.body["reason"]) == (504, "Timeout")


def test_a_watch_without_a_version_begins_with_what_is_there(cluster: Cluster, server: ApiServer) -> None:
    cluster.add_service("demo", "a")
    cluster.add_service("other", "b")
    stream = fetch(server.url, "GET /api/v1/namespaces/demo/services?watch=1&timeoutSeconds=1").stream
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in stream] == [("ADDED", "a")]


def test_a_selecting_watch_sees_comings_and_goings(cluster: Cluster, server: ApiServer) -> None:
    cluster.add_service("demo", "a")
    then = cluster.rv
    for labels in ({"x": "1"}, {"x": "1", "y": "1"}, {"x": None}, {"z": "1"}):
        cluster.patch("services", "demo", "a", {"metadata": {"labels": labels}})
    request = f"GET /api/v1/services?watch=1&resourceVersion={then}&labelSelector=x%3D1&timeoutSeconds=1"
    assert [event["type"] for event in fetch(server.url, request).stream] == ["ADDED", "MODIFIED", "DELETED"]


# Writes over HTTP


def test_create_get_update_delete(cluster: Cluster, server: ApiServer) -> None:
    cluster.add_namespace("demo")
    path = "/api/v1/namespaces/demo/configmaps"
    made = fetch(server.url, f"POST {path}", body={"metadata": {"name": "c"}, "data": {"a": "1"}})
    assert (made.status, made.body["kind"], made.body["apiVersion"]) == (201, "ConfigMap", "v1")
    again = fetch(server.url, f"POST {path}", body={"metadata": {"name": "c"}})
    assert (again.status, again.body["reason"]) == (409, "AlreadyExists")
    changed = fetch(server.url, f"PUT {path}/c", body=made.body | {"data": {"a": "2"}})
    assert (changed.status, changed.body["data"]) == (200, {"a": "2"})
    conflict = fetch(server.url, f"PUT {path}/c", body=made.body)
    assert (conflict.status, conflict.body["reason"]) == (409, "Conflict")
    assert fetch(server.url, f"DELETE {path}/c").body["status"] == "Success"
    assert fetch(server.url, f"GET {path}/c").status == 404


@pytest.mark.parametrize("headers", [MERGE, STRATEGIC])
def test_patching_annotations(cluster: Cluster, server: ApiServer, headers: dict[str, str]) -> None:
    cluster.add_service("demo", "a", annotations={"keep": "1", "drop": "1"})
    before = cluster.get("services", "demo", "a")
    patch = {"metadata": {"annotations": {"drop": None, "new": "1"}}}
    answer = fetch(server.url, "PATCH /api/v1/namespaces/demo/services/a", body=patch, headers=headers)
    assert answer.body["metadata"]["annotations"] == {"keep": "1", "new": "1"}
    assert answer.body["spec"] == before["spec"]
    assert int(answer.body["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])


def test_a_strategic_patch_merges_ports_by_number(cluster: Cluster, server: ApiServer) -> None:
    cluster.add_service("demo", "a", ports=[PortSpec("web", 80), PortSpec("admin", 81)])
    patch = {"spec": {"ports": [{"port": 80, "name": "http"}, {"port": 81, "$patch": "delete"}]}}
    answer = fetch(server.url, "PATCH /api/v1/namespaces/demo/services/a", body=patch, headers=STRATEGIC)
    assert [(port["name"], port["port"]) for port in answer.body["spec"]["ports"]] == [("http", 80)]


def test_a_write_that_changes_nothing_is_no_event(cluster: Cluster) -> None:
    cluster.add_service("demo", "a", annotations={"x": "1"})
    before = cluster.rv
    cluster.annotate("services", "demo", "a", {"x": "1"})
    assert cluster.rv == before


# What the controllers would write


def _slices(cluster: Cluster) -> list[Obj]:
    return cluster.objects("endpointslices")


def test_more_than_a_hundred_endpoints_need_another_slice(cluster: Cluster) -> None:
    cluster.add_service("demo", "a")
    specs = [EndpointSpec(f"10.1.{number // 250}.{number % 250}") for number in range(250)]
    cluster.set_endpoints("demo", "a", specs)
    assert [len(each["endpoints"]) for each in _slices(cluster)].count(100) == 2
    assert sum(len(each["endpoints"]) for each in _slices(cluster)) == 250
    before = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in _slices(cluster)}
    cluster.set_endpoints("demo", "a", [*specs[:-1], EndpointSpec(specs[-1].address, ready=False)])
    changed = [
        each for each in _slices(cluster) if each["metadata"]["resourceVersion"] != before[each["metadata"]["name"]]
    ]
    assert len(changed) == 1
    cluster.set_endpoints("demo", "a", specs[:50])
    assert [len(each["endpoints"]) for each in _slices(cluster)] == [50]


def test_dual_stack_has_slices_of_each_family(cluster: Cluster) -> None:
    cluster.add_service("demo", "a", families=("IPv4", "IPv6"))
    cluster.set_endpoints("demo", "a", [EndpointSpec("10.1.0.1"), EndpointSpec("2001:db8::1")])
    cluster.set_endpoints("demo", "a", [EndpointSpec("2001:db8::2")], family="IPv6")
    found = {each["addressType"]: each["endpoints"][0]["addresses"] for each in _slices(cluster)}
    assert found == {"IPv4": ["10.1.0.1"], "IPv6": ["2001:db8::2"]}
    (subset,) = cluster.get("endpoints", "demo", "a")["subsets"]
    assert [address["ip"] for address in subset["addresses"]] == ["10.1.0.1"]


def test_a_named_target_port_may_differ_between_pods(cluster: Cluster) -> None:
    cluster.add_service("demo", "a", ports=[PortSpec("web", 80, "http")])
    old, new = EndpointSpec("10.1.0.1"), EndpointSpec("10.1.0.2", ports=(SlicePort("web", 9090),))
    cluster.set_endpoints("demo", "a", [old, new], ports=[SlicePort("web", 8080)])
    assert sorted(each["ports"][0]["port"] for each in _slices(cluster)) == [8080, 9090]
    assert len(cluster.get("endpoints", "demo", "a")["subsets"]) == 2


def test_without_endpoints_an_empty_slice_stays(cluster: Cluster) -> None:
    cluster.add_service("demo", "a")
    cluster.set_endpoints("demo", "a", [EndpointSpec("10.1.0.1")])
    cluster.annotate("endpoints", "demo", "a", {"domain": "a.example.test"})
    cluster.set_endpoints("demo", "a", [])
    (empty,) = _slices(cluster)
    assert (empty["endpoints"], empty["ports"]) == (None, None)
    endpoints = cluster.get("endpoints", "demo", "a")
    assert "subsets" not in endpoints
    assert endpoints["metadata"]["annotations"] == {"domain": "a.example.test"}


def test_with_a_service_go_its_endpoints(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.add_service("demo", name)
        cluster.set_endpoints("demo", name, [EndpointSpec("10.1.0.1")])
    cluster.delete_service("demo", "a")
    for resource in ("services", "endpoints"):
        assert [each["metadata"]["name"] for each in cluster.objects(resource)] == ["b"]
    assert [each["metadata"]["labels"]["kubernetes.io/service-name"] for each in _slices(cluster)] == ["b"]


# Servers


def test_two_servers_of_one_cluster(cluster: Cluster, server: ApiServer) -> None:
    cluster.add_namespace("demo")
    with ApiServer(cluster) as second:
        fetch(second.url, "POST /api/v1/namespaces/demo/configmaps", body={"metadata": {"name": "c"}})
        assert _names(fetch(server.url, "GET /api/v1/configmaps").body) == ["c"]
        assert not server.seen("configmaps", "create")
        assert len(second.seen("configmaps", "create")) == 1
    with pytest.raises(ConnectionRefusedError):
        fetch(second.url, "GET /api/v1/configmaps")
    assert fetch(server.url, "GET /api/v1/configmaps").status == 200


def test_a_client_that_leaves_ends_its_watch(server: ApiServer) -> None:
    client = connect(server.url)
    client.request("GET", "/api/v1/services?watch=1&resourceVersion=100")
    response = client.getresponse()
    server.wait_for_watches("services")
    response.close()
    client.close()
    assert server.wait_until(lambda: server.watches() == 0, 30)


def test_a_dumped_cluster_can_be_served_by_a_process(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_service("demo", "a")
    cluster.set_endpoints("demo", "a", [EndpointSpec("10.1.0.1")])
    cluster.dump(tmp_path / "cluster.json")
    argv = [sys.executable, "-m", "tests.world.apiserver", "--load", str(tmp_path / "cluster.json")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            url = process.stdout.readline().strip()
            (served,) = fetch(url, "GET /apis/discovery.k8s.io/v1/endpointslices").body["items"]
        finally:
            process.kill()
    (ours,) = _slices(cluster)
    del ours["metadata"]["resourceVersion"], served["metadata"]["resourceVersion"]
    assert served == ours
