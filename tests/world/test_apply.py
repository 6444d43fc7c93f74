"""Server-side apply, the status subresource, Leases, and definitions that come and go, as in a real cluster."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.exchange import Exchange, connect, fetch
from tests.world.rbac import Rules
from tests.world.store import Part

APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}
API = "gateway.networking.k8s.io/v1"
GATEWAYS = f"/apis/{API}/namespaces/demo/gateways"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/pyconfd/leases"
STATUS_WRITER = """
kind: ClusterRole
metadata: {name: r}
rules: [{apiGroups: [gateway.networking.k8s.io], resources: [gateways/status], verbs: [patch]}]
---
kind: ClusterRoleBinding
metadata: {name: r}
roleRef: {kind: ClusterRole, name: r}
"""
NOW = "2026-01-01T00:00:00Z"
FIRST, SECOND = ({"type": "IPAddress", "value": f"192.0.2.{number}"} for number in (1, 2))


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.add_namespace("pyconfd")
    cluster.create("gateways", {"metadata": {"name": "web", "namespace": "demo"}, "spec": {"gatewayClassName": "x"}})
    return cluster


@pytest.fixture
def server(cluster: Cluster) -> Iterator[ApiServer]:
    with ApiServer(cluster) as api:
        yield api


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": "Because", "message": "", "lastTransitionTime": NOW}


def applied(
    server: ApiServer,
    status: Mapping[str, Any],
    *,
    manager: str = "pyconfd",
    force: bool = True,
    metadata: Mapping[str, Any] | None = None,
    more: str = "",
) -> Exchange:
    body = {"apiVersion": API, "kind": "Gateway", "metadata": {"name": "web"} | dict(metadata or {}), "status": status}
    query = f"fieldManager={manager}" + ("&force=true" if force else "") + more
    return fetch(server.url, f"PATCH {GATEWAYS}/web/status?{query}", body=body, headers=APPLY)


def types(answer: Exchange) -> list[str]:
    return [each["type"] for each in answer.body["status"]["conditions"]]


def test_conditions_of_others_are_kept_and_ours_are_dropped(server: ApiServer) -> None:
    assert applied(server, {"conditions": [condition("Foreign")]}, manager="other").status == 200
    both = applied(server, {"conditions": [condition("Accepted"), condition("Programmed")]})
    assert types(both) == ["Accepted", "Programmed", "Foreign"]
    assert types(applied(server, {"conditions": [condition("Programmed")]})) == ["Programmed", "Foreign"]
    emptied = applied(server, {})
    assert types(emptied) == ["Foreign"]
    owners = {each["manager"]: each["fieldsV1"] for each in emptied.body["metadata"]["managedFields"]}
    assert owners["pyconfd"] == {"f:status": {}}
    assert owners["before-first-apply"] == {"f:spec": {"f:gatewayClassName": {}}}
    assert owners["other"]["f:status"]["f:conditions"].keys() == {'k:{"type":"Foreign"}'}


def test_a_field_of_another_is_a_conflict_without_force(server: ApiServer) -> None:
    applied(server, {"addresses": [FIRST]}, manager="other")
    same = applied(server, {"addresses": [FIRST]}, force=False)
    assert same.status == 200
    conflict = applied(server, {"addresses": [SECOND]}, force=False)
    assert (conflict.status, conflict.body["reason"]) == (409, "Conflict")
    (cause,) = conflict.body["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".status.addresses")
    assert applied(server, {"addresses": [SECOND]}).body["status"]["addresses"] == [SECOND]
    assert "addresses" in applied(server, {}, manager="other").body["status"]


def test_lists_without_keys_are_replaced_whole(cluster: Cluster, server: ApiServer) -> None:
    cluster.patch("gateways", "demo", "web", {"status": {"addresses": [FIRST, {"value": "a"}]}})
    answer = applied(server, {"addresses": [SECOND]})
    assert answer.body["status"]["addresses"] == [SECOND]


def test_listeners_are_merged_by_name(server: ApiServer) -> None:
    def listener(name: str, *kinds: str) -> dict[str, Any]:
        return {"name": name, "attachedRoutes": 0, "conditions": [condition(kind) for kind in kinds]}

    applied(server, {"listeners": [listener("a", "Foreign")]}, manager="other")
    answer = applied(server, {"listeners": [listener("b", "Accepted"), listener("a", "Accepted")]})
    found = {each["name"]: [one["type"] for one in each["conditions"]] for each in answer.body["status"]["listeners"]}
    assert found == {"a": ["Foreign", "Accepted"], "b": ["Accepted"]}
    (left,) = applied(server, {}).body["status"]["listeners"]
    assert left == listener("a", "Foreign")


def test_applying_the_same_again_writes_nothing(cluster: Cluster, server: ApiServer) -> None:
    applied(server, {"conditions": [condition("Accepted")]})
    before = cluster.rv
    applied(server, {"conditions": [condition("Accepted")]})
    assert cluster.rv == before


def test_an_older_version_or_another_uid_is_a_conflict(cluster: Cluster, server: ApiServer) -> None:
    metadata = cluster.get("gateways", "demo", "web")["metadata"]
    cluster.annotate("gateways", "demo", "web", {"x": "1"})
    for wrong in ({"resourceVersion": metadata["resourceVersion"]}, {"uid": "00000000-0000-0000-0000-000000000000"}):
        assert applied(server, {}, metadata=wrong).body["reason"] == "Conflict"
    assert applied(server, {}, metadata={"uid": metadata["uid"]}).status == 200


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"conditions": [{"type": "New", "status": "True"}]}, "conditions[2].lastTransitionTime: Required value"),
        ({"conditions": [condition("A") | {"reason": "no reason"}]}, "reason: Invalid value"),
        ({"conditions": [condition("A") | {"lastTransitionTime": "now"}]}, "must be of type date-time"),
        ({"listeners": [{"name": "a", "conditions": []}]}, "status.listeners[0].attachedRoutes: Required value"),
        ({"addresses": [{"value": str(number)} for number in range(17)]}, "at most 16 items"),
    ],
)
def test_a_status_that_the_definition_does_not_allow(server: ApiServer, status: dict[str, Any], words: str) -> None:
    answer = applied(server, status)
    assert answer.status == 422
    assert words in answer.body["message"]


@pytest.mark.parametrize(
    ("query", "body", "code"),
    [
        ("", {"apiVersion": API, "kind": "Gateway"}, 422),
        ("?fieldManager=x", {"apiVersion": API, "kind": "HTTPRoute"}, 400),
        ("?fieldManager=x", {"apiVersion": API, "kind": "Gateway", "metadata": {"name": "other"}}, 400),
        ("?fieldManager=x", {"apiVersion": API, "kind": "Gateway", "metadata": {"managedFields": []}}, 400),
    ],
)
def test_an_apply_that_is_not_accepted(server: ApiServer, query: str, body: dict[str, Any], code: int) -> None:
    assert fetch(server.url, f"PATCH {GATEWAYS}/web/status{query}", body=body, headers=APPLY).status == code


def test_only_the_status_of_an_object_that_exists_can_be_applied(server: ApiServer) -> None:
    body = {"apiVersion": API, "kind": "Gateway", "spec": {"gatewayClassName": "y"}}
    missing = fetch(server.url, f"PATCH {GATEWAYS}/new/status?fieldManager=x", body=body, headers=APPLY)
    assert missing.status == 404
    made = fetch(server.url, f"PATCH {GATEWAYS}/new?fieldManager=x", body=body, headers=APPLY)
    assert (made.status, made.body["metadata"]["generation"]) == (201, 1)
    assert made.body["metadata"]["managedFields"][0]["fieldsV1"] == {"f:spec": {"f:gatewayClassName": {}}}


def test_a_dry_run_changes_nothing(cluster: Cluster, server: ApiServer) -> None:
    before = cluster.rv
    answer = applied(server, {"conditions": [condition("New")]}, more="&dryRun=All")
    assert types(answer) == ["Accepted", "Programmed", "New"]
    assert cluster.rv == before


def test_generation_counts_changes_of_the_spec(server: ApiServer) -> None:
    def generation(path: str, change: dict[str, Any]) -> int:
        answer = fetch(server.url, f"PATCH {GATEWAYS}/web{path}", body=change, headers=MERGE)
        number: int = answer.body["metadata"]["generation"]
        return number

    assert generation("", {"metadata": {"annotations": {"x": "1"}}}) == 1
    assert generation("/status", {"status": {"addresses": []}}) == 1
    assert generation("", {"spec": {"gatewayClassName": "y"}}) == 2
    assert generation("", {"spec": {"gatewayClassName": "y"}}) == 2


def test_status_and_the_rest_are_written_apart(cluster: Cluster, server: ApiServer) -> None:
    both = {"spec": {"gatewayClassName": "y"}, "status": {"addresses": [FIRST]}}
    main = fetch(server.url, f"PATCH {GATEWAYS}/web", body=both, headers=MERGE).body
    assert ("addresses" in main["status"], main["spec"]["gatewayClassName"]) == (False, "y")
    both["spec"] = {"gatewayClassName": "z"}
    status = fetch(server.url, f"PUT {GATEWAYS}/web/status", body=cluster.get("gateways", "demo", "web") | both).body
    assert (status["status"]["addresses"], status["spec"]["gatewayClassName"]) == ([FIRST], "y")
    assert fetch(server.url, f"GET {GATEWAYS}/web/status").body == status
    assert server.seen("gateways/status")[0].verb == "update"


def test_the_status_of_a_service_keeps_its_other_conditions(cluster: Cluster) -> None:
    cluster.add_service("demo", "a", type="LoadBalancer")
    cluster.patch("services", "demo", "a", {"status": {"conditions": [condition("Foreign")]}})
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}, "conditions": [condition("Ours")]}
    config = {"metadata": {"namespace": "demo", "name": "a"}, "status": status}
    found = cluster.apply("services", config, manager="pyconfd", force=True, part=Part.STATUS)["status"]
    assert found["loadBalancer"] == {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}
    assert [each["type"] for each in found["conditions"]] == ["Foreign", "Ours"]


def test_who_changes_a_field_owns_it(cluster: Cluster, server: ApiServer) -> None:
    applied(server, {"addresses": [FIRST], "conditions": [condition("Accepted")]})
    cluster.patch("gateways", "demo", "web", {"status": {"addresses": [SECOND]}}, manager="other")
    kept = applied(server, {}).body["status"]
    assert kept["addresses"] == [SECOND]
    # Without any condition there are again those that the definition has by default.
    assert {each["reason"] for each in kept["conditions"]} == {"Pending"}


# Leases


def test_a_lease_is_taken_by_one_of_two(server: ApiServer) -> None:
    def lease(holder: str) -> dict[str, Any]:
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "pyconfd"}, "spec": spec}

    assert fetch(server.url, f"GET {LEASES}/pyconfd").status == 404
    made = fetch(server.url, f"POST {LEASES}", body=lease("lb1"))
    assert (made.status, fetch(server.url, f"POST {LEASES}", body=lease("lb2")).status) == (201, 409)
    blind = fetch(server.url, f"PUT {LEASES}/pyconfd", body=lease("lb2"))
    assert blind.status == 422
    metadata = made.body["metadata"]
    first = fetch(server.url, f"PUT {LEASES}/pyconfd", body=lease("lb2") | {"metadata": metadata})
    assert (first.status, first.body["spec"]["holderIdentity"]) == (200, "lb2")
    second = fetch(server.url, f"PUT {LEASES}/pyconfd", body=lease("lb3") | {"metadata": metadata})
    assert (second.status, second.body["reason"]) == (409, "Conflict")


@pytest.mark.parametrize(("spec", "code"), [({"renewTime": NOW}, 400), ({"leaseDurationSeconds": 0}, 422)])
def test_a_lease_that_the_real_server_would_refuse(server: ApiServer, spec: dict[str, Any], code: int) -> None:
    assert fetch(server.url, f"POST {LEASES}", body={"metadata": {"name": "x"}, "spec": spec}).status == code


# Definitions and versions


def test_a_resource_is_served_in_all_its_versions(server: ApiServer) -> None:
    old = GATEWAYS.replace("v1", "v1beta1")
    (listed, one) = (fetch(server.url, f"GET {path}").body for path in (old, f"{old}/web"))
    assert {listed["apiVersion"], one["apiVersion"]} == {"gateway.networking.k8s.io/v1beta1"}
    stream = fetch(server.url, f"GET {old}?watch=1&timeoutSeconds=1").stream
    assert stream[0]["object"]["apiVersion"] == "gateway.networking.k8s.io/v1beta1"
    assert fetch(server.url, f"GET {GATEWAYS.replace('v1', 'v2')}").status == 404
    assert fetch(server.url, "GET /apis/gateway.networking.k8s.io/v1beta1/grpcroutes").status == 404


def test_definitions_come_and_go(cluster: Cluster, server: ApiServer) -> None:
    group = "/apis/gateway.networking.k8s.io"
    then = cluster.rv
    cluster.uninstall("gateway.networking.k8s.io")
    for path in (GATEWAYS, f"{GATEWAYS}/web", group, f"{group}/v1"):
        assert fetch(server.url, f"GET {path}").status == 404
    assert group.rpartition("/")[2] not in str(fetch(server.url, "GET /apis").body)
    assert fetch(server.url, "GET /apis/networking.k8s.io/v1/ingresses").status == 200
    cluster.install("gateways")
    assert [each["name"] for each in fetch(server.url, f"GET {group}/v1").body["resources"]] == [
        *("gateways", "gateways/status"),
    ]
    assert fetch(server.url, f"GET {GATEWAYS}").body["items"] == []
    stream = fetch(server.url, f"GET {GATEWAYS}?watch=1&resourceVersion={then}&timeoutSeconds=1").stream
    assert [event["type"] for event in stream] == ["DELETED"]


def test_a_running_watch_ends_with_its_definition(cluster: Cluster, server: ApiServer) -> None:
    client = connect(server.url)
    try:
        client.request("GET", f"{GATEWAYS}?watch=1&resourceVersion={cluster.rv}")
        response = client.getresponse()
        server.wait_for_watches("gateways")
        cluster.uninstall("gateways")
        events = [json.loads(line) for line in response.read().splitlines()]
    finally:
        client.close()
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [("DELETED", "web")]
    assert fetch(server.url, f"GET {GATEWAYS}?watch=1").status == 404


def test_rights_to_a_status_are_rights_of_their_own(server: ApiServer) -> None:
    server.rules = Rules(STATUS_WRITER)
    assert applied(server, {}).status == 200
    denied = fetch(server.url, f"PATCH {GATEWAYS}/web", body={}, headers=MERGE)
    assert denied.body["message"].startswith('gateways.gateway.networking.k8s.io "web" is forbidden: User')
    server.rules = Rules(STATUS_WRITER.replace("gateways/status", "gateways"))
    assert 'cannot patch resource "gateways/status"' in applied(server, {}).body["message"]
