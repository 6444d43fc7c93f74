"""What the real API server answers, the fake answers: every check here runs on both."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.exchange import Exchange, fetch, recorded
from tests.world.objects import EndpointSpec, PortSpec

Scene = Callable[[str], Exchange]
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
V6_SLICE = {
    "metadata": {"name": "v6-manual", "namespace": "demo", "labels": {"kubernetes.io/service-name": "app0"}},
    "addressType": "IPv6",
    "endpoints": [
        {"addresses": ["2001:db8::10"], "conditions": {"ready": True}},
        {"addresses": ["2001:db8::11"], "conditions": {"ready": False, "serving": True, "terminating": True}},
    ],
    "ports": [{"name": "web", "protocol": "TCP", "port": 8080}],
}


def _pod(app: int, number: int, *, ready: bool = True, terminating: bool = False) -> EndpointSpec:
    address = f"10.100.0.{3 * app + number}"
    return EndpointSpec(address, ready, terminating=terminating, node=f"node-{number}", pod=f"app{app}-{number}")


def _same_state() -> Cluster:
    cluster = Cluster()
    cluster.create("services", recorded("list-services").body["items"][0])
    for number in range(3):
        cluster.add_node(f"node-{number}", f"192.0.2.{number + 1}")
    for app in range(5):
        annotations = {"domain": f"app{app}.example.test", "proto": "http"}
        cluster.add_service("demo", f"app{app}", ports=[PortSpec("web", 80, 8080)], annotations=annotations)
        cluster.set_endpoints("demo", f"app{app}", [_pod(app, number) for number in range(3)])
    for name in ("list-pods", "list-configmaps-lb", "list-secrets-lb", "list-secret-tls"):
        cluster.load_object(recorded(name).body)
    return cluster


def _an_eventful_minute(cluster: Cluster) -> None:
    """What happened while the real server's watches were recorded."""
    zero, one, two = (_pod(1, number) for number in range(3))
    cluster.set_endpoints("demo", "app1", [_pod(1, 0, ready=False), one, two])
    cluster.set_endpoints("demo", "app1", [zero, one, two])
    cluster.set_endpoints("demo", "app1", [zero, _pod(1, 1, terminating=True), two])
    cluster.set_endpoints("demo", "app1", [zero, two])
    cluster.annotate("endpoints", "demo", "app2", {"domain": "two.example.test", "proto": "https"})
    cluster.create("endpointslices", V6_SLICE)
    cluster.delete("endpoints", "demo", "app4")


class _Fake:
    """Puts a fake server into the state of a transcript and sends it the same request."""

    def __init__(self) -> None:
        self.cluster = _same_state()
        self.server = ApiServer(self.cluster)

    def __call__(self, name: str) -> Exchange:
        request = recorded(name).request
        headers = {}
        if name == "list-endpointslices-page2":
            token = self("list-endpointslices-page1").body["metadata"]["continue"]
            request = f"GET {SLICES}?limit=2&continue={token}"
        elif name == "error-410-continue-expired":
            token = self("list-endpointslices-page1").body["metadata"]["continue"]
            self.cluster.advance()
            self.cluster.compact()
            request = f"GET {SLICES}?limit=2&continue={token}"
        elif name == "error-401-bad-token":
            self.server.token = "right"
            headers = {"Authorization": "Bearer wrong"}
        elif name == "error-403-no-rbac":
            self.server.faults.deny("endpoints", "list")
        elif name == "watch-410-too-old":
            self.cluster.compact()
        elif name in {"watch-endpoints", "watch-endpointslices"}:
            before = self.cluster.rv
            _an_eventful_minute(self.cluster)
            request = re.sub(r"resourceVersion=\d+", f"resourceVersion={before}", request)
        request = re.sub(r"timeoutSeconds=\d+", "timeoutSeconds=1", request)
        return fetch(self.server.url, request, headers=headers)


@pytest.fixture(params=["recorded", "fake"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    if request.param == "recorded":
        yield recorded
        return
    fake = _Fake()
    yield fake
    fake.server.close()


ALL_LISTS = {
    "list-services": ("v1", "ServiceList", 6),
    "list-endpoints": ("v1", "EndpointsList", 5),
    "list-endpointslices": ("discovery.k8s.io/v1", "EndpointSliceList", 5),
    "list-nodes": ("v1", "NodeList", 3),
    "list-pods": ("v1", "PodList", 3),
    "list-configmaps-lb": ("v1", "ConfigMapList", 3),
    "list-secrets-lb": ("v1", "SecretList", 1),
    "list-secret-tls": ("v1", "SecretList", 1),
}


@pytest.mark.parametrize("name", ALL_LISTS)
def test_a_list_names_its_kind_and_its_items_do_not(scene: Scene, name: str) -> None:
    answer = scene(name)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "no-cache, private"
    assert answer.headers["Transfer-Encoding"] == "chunked"
    api_version, kind, count = ALL_LISTS[name]
    assert (answer.body["apiVersion"], answer.body["kind"]) == (api_version, kind)
    assert answer.body["metadata"].keys() == {"resourceVersion"}
    items = answer.body["items"]
    assert len(items) == count
    for item in items:
        assert not item.keys() & {"kind", "apiVersion"}
        metadata = item["metadata"]
        assert {"name", "uid", "resourceVersion", "creationTimestamp"} <= metadata.keys()
        assert ("namespace" in metadata) is (kind != "NodeList")
        assert 0 < int(metadata["resourceVersion"]) <= int(answer.body["metadata"]["resourceVersion"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    paths = [f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}" for item in items]
    assert paths == sorted(paths)


def test_only_endpoints_warn_of_their_deprecation(scene: Scene) -> None:
    assert "EndpointSlice" in scene("list-endpoints").headers["Warning"]
    assert "Warning" not in scene("list-services").headers


def test_slices_are_joined_to_their_service_by_label(scene: Scene) -> None:
    services = {item["metadata"]["name"]: item["metadata"]["uid"] for item in scene("list-services").body["items"]}
    for item in scene("list-endpointslices").body["items"]:
        metadata = item["metadata"]
        owner = metadata["labels"]["kubernetes.io/service-name"]
        assert metadata["labels"]["endpointslice.kubernetes.io/managed-by"] == "endpointslice-controller.k8s.io"
        assert re.fullmatch(re.escape(owner) + "-[a-z0-9]{5}", metadata["name"])
        assert metadata["ownerReferences"][0]["uid"] == services[owner]
        assert metadata["generation"] == 1
        assert item["addressType"] == "IPv4"
        assert item["ports"] == [{"name": "web", "protocol": "TCP", "port": 8080}]
        for endpoint in item["endpoints"]:
            assert endpoint.keys() == {"addresses", "conditions", "targetRef", "nodeName"}
            assert endpoint["conditions"] == {"ready": True, "serving": True, "terminating": False}
            assert endpoint["targetRef"].keys() == {"kind", "namespace", "name", "uid"}


def test_endpoints_hold_the_same_pods(scene: Scene) -> None:
    for item in scene("list-endpoints").body["items"]:
        assert item["metadata"]["labels"] == {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
        (subset,) = item["subsets"]
        assert subset.keys() == {"addresses", "ports"}
        assert subset["ports"] == [{"name": "web", "port": 8080, "protocol": "TCP"}]
        names = [address["targetRef"]["name"] for address in subset["addresses"]]
        assert sorted(names) == [f"{item['metadata']['name']}-{number}" for number in range(3)]
        ips = [address["ip"] for address in subset["addresses"]]
        assert ips == sorted(ips)


def test_services_carry_the_fields_of_the_api_server(scene: Scene) -> None:
    service = next(item for item in scene("list-services").body["items"] if item["metadata"]["name"] == "app0")
    assert service["metadata"]["annotations"] == {"domain": "app0.example.test", "proto": "http"}
    spec = service["spec"]
    assert spec["ports"] == [{"name": "web", "protocol": "TCP", "port": 80, "targetPort": 8080}]
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert (spec["type"], spec["ipFamilies"], spec["ipFamilyPolicy"]) == ("ClusterIP", ["IPv4"], "SingleStack")
    assert (spec["sessionAffinity"], spec["internalTrafficPolicy"]) == ("None", "Cluster")
    assert service["status"] == {"loadBalancer": {}}


def test_nodes_have_addresses_and_a_ready_condition(scene: Scene) -> None:
    node = scene("list-nodes").body["items"][0]
    assert node["status"]["addresses"] == [
        {"type": "InternalIP", "address": "192.0.2.1"},
        {"type": "Hostname", "address": "node-0"},
    ]
    assert ("Ready", "True") in [(entry["type"], entry["status"]) for entry in node["status"]["conditions"]]


def test_a_label_selector_chooses(scene: Scene) -> None:
    assert [pod["metadata"]["labels"] for pod in scene("list-pods").body["items"]] == [{"app": "app0"}] * 3


def _token(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def test_pages_follow_each_other_at_one_resource_version(scene: Scene) -> None:
    first, second = scene("list-endpointslices-page1").body, scene("list-endpointslices-page2").body
    assert [page["metadata"]["remainingItemCount"] for page in (first, second)] == [3, 1]
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    names = [item["metadata"]["name"].rpartition("-")[0] for page in (first, second) for item in page["items"]]
    assert names == ["app0", "app1", "app2", "app3"]
    for page in (first, second):
        token = _token(page["metadata"]["continue"])
        assert token.keys() == {"v", "rv", "start"}
        assert str(token["rv"]) == page["metadata"]["resourceVersion"]
        assert token["start"] == f"demo/{page['items'][-1]['metadata']['name']}\0"


def test_an_expired_continue_gives_a_token_for_the_inconsistent_rest(scene: Scene) -> None:
    answer = scene("error-410-continue-expired")
    assert (answer.status, answer.headers["Content-Type"]) == (410, "application/json")
    assert (answer.body["kind"], answer.body["reason"], answer.body["code"]) == ("Status", "Expired", 410)
    assert answer.body["message"].startswith("The provided continue parameter is too old")
    old = re.search("continue=(.*)", answer.request)
    assert old
    assert _token(answer.body["metadata"]["continue"]) == _token(old[1]) | {"rv": -1}


def _conditions(event: Any, pod: str) -> tuple[bool, ...] | None:
    for endpoint in event["object"]["endpoints"]:
        if endpoint.get("targetRef", {}).get("name") == pod:
            conditions = endpoint["conditions"]
            return conditions["ready"], conditions["serving"], conditions["terminating"]
    return None


def _checked_stream(answer: Exchange, api_version: str, kind: str) -> tuple[list[Any], list[Any]]:
    """Events and bookmarks of a watch, their common rules checked."""
    assert answer.status == 200
    assert answer.headers["Transfer-Encoding"] == "chunked"
    events = [event for event in answer.stream if event["type"] != "BOOKMARK"]
    bookmarks = list(answer.stream[len(events) :])
    assert bookmarks
    versions = []
    for event in answer.stream:
        assert event.keys() == {"type", "object"}
        assert (event["object"]["apiVersion"], event["object"]["kind"]) == (api_version, kind)
        versions.append(int(event["object"]["metadata"]["resourceVersion"]))
    assert versions == sorted(versions)
    assert len(set(versions[: len(events)])) == len(events)
    for bookmark in bookmarks:
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["metadata"].keys() == {"resourceVersion"}
    return events, bookmarks


def test_a_watch_sees_unready_ready_terminating_gone(scene: Scene) -> None:
    answer = scene("watch-endpointslices")
    events, bookmarks = _checked_stream(answer, "discovery.k8s.io/v1", "EndpointSlice")
    assert [event["type"] for event in events] == ["MODIFIED"] * 4 + ["ADDED"]
    well, draining = (True, True, False), (False, True, True)
    assert [_conditions(event, "app1-0") for event in events[:4]] == [(False, False, False), well, well, well]
    assert [_conditions(event, "app1-1") for event in events[:4]] == [well, well, draining, None]
    assert [event["object"]["metadata"]["generation"] for event in events[:4]] == [2, 3, 4, 5]
    assert events[4]["object"]["addressType"] == "IPv6"
    for bookmark in bookmarks:
        empty = {
            key: value for key, value in bookmark["object"].items() if key not in {"kind", "apiVersion", "metadata"}
        }
        assert empty == {"addressType": "", "endpoints": None, "ports": None}


def _ips(event: Any, field: str) -> list[str]:
    subsets = event["object"]["subsets"]
    return sorted(address["ip"] for subset in subsets for address in subset.get(field, []))


def test_the_same_moments_seen_through_endpoints(scene: Scene) -> None:
    events, bookmarks = _checked_stream(scene("watch-endpoints"), "v1", "Endpoints")
    assert [event["type"] for event in events] == ["MODIFIED"] * 4 + ["DELETED"]
    unready, ready, terminating, annotated, deleted = events
    assert _ips(unready, "notReadyAddresses") == ["10.100.0.3"]
    assert _ips(ready, "addresses") == ["10.100.0.3", "10.100.0.4", "10.100.0.5"]
    assert _ips(terminating, "addresses") == ["10.100.0.3", "10.100.0.5"]
    assert _ips(terminating, "notReadyAddresses") == []
    metadata = annotated["object"]["metadata"]
    assert metadata["name"] == "app2"
    assert metadata["annotations"].items() >= {"domain": "two.example.test", "proto": "https"}.items()
    assert deleted["object"]["metadata"]["name"] == "app4"
    assert len(_ips(deleted, "addresses")) == 3
    for bookmark in bookmarks:
        assert bookmark["object"].keys() == {"kind", "apiVersion", "metadata"}


def test_a_watch_from_too_long_ago_gets_410_as_its_only_event(scene: Scene) -> None:
    answer = scene("watch-410-too-old")
    assert answer.status == 200
    (event,) = answer.stream
    status = event["object"]
    assert event["type"] == "ERROR"
    assert (status["kind"], status["status"], status["reason"], status["code"]) == ("Status", "Failure", "Expired", 410)
    assert re.fullmatch(r"too old resource version: 5 \(\d+\)", status["message"])


def test_a_watch_from_the_future_is_silent(scene: Scene) -> None:
    answer = scene("watch-future-resource-version")
    assert (answer.status, answer.stream) == (200, ())


def test_streaming_lists_are_refused_inside_the_stream(scene: Scene) -> None:
    answer = scene("watch-initial-events-refused")
    assert answer.status == 200
    (event,) = answer.stream
    assert event["type"] == "ERROR"
    assert (event["object"]["reason"], event["object"]["code"]) == ("InternalError", 500)
    assert "RequestWatchProgress is disabled" in event["object"]["message"]


ERRORS = {
    "error-401-bad-token": {"message": "Unauthorized", "reason": "Unauthorized", "code": 401},
    "error-403-no-rbac": {
        "message": 'endpoints is forbidden: User "pyconfd" cannot list resource "endpoints" '
        'in API group "" at the cluster scope',
        "reason": "Forbidden",
        "details": {"kind": "endpoints"},
        "code": 403,
    },
    "error-404": {
        "message": 'endpoints "absent" not found',
        "reason": "NotFound",
        "details": {"name": "absent", "kind": "endpoints"},
        "code": 404,
    },
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_status_objects(scene: Scene, name: str) -> None:
    answer = scene(name)
    assert answer.status == ERRORS[name]["code"]
    assert answer.headers["Content-Type"] == "application/json"
    expected = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    assert answer.body == expected | ERRORS[name]
