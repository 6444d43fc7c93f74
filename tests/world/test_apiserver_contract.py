"""What the real API server answered, the fake answers, value by value but for what is new each time."""

import base64
import json
import re
from typing import Any

import pytest

from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.exchange import TRANSCRIPTS as TALKS
from tests.world.exchange import Exchange, Talk, fetch, recorded
from tests.world.objects import EndpointSpec, PortSpec

SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
V6_SLICE = {
    "metadata": {
        "name": "v6-manual",
        "namespace": "demo",
        "generation": 1,
        "labels": {"kubernetes.io/service-name": "v6"},
    },
    "addressType": "IPv6",
    "endpoints": [
        {"addresses": ["2001:db8::10"], "conditions": {"ready": True}},
        {"addresses": ["2001:db8::11"], "conditions": {"ready": False, "serving": True, "terminating": True}},
    ],
    "ports": [
        {"name": "web", "protocol": "TCP", "port": 8080},
        {"name": "metrics", "protocol": "TCP", "port": 9090},
    ],
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


LEFT_OUT = {"managedFields", "annotations", "taints", "nodeInfo", "daemonEndpoints", "lastHeartbeatTime"}
LEFT_OUT |= {"lastTransitionTime", "endpoints.kubernetes.io/last-change-trigger-time"}
"""Fields that the fake does not have, or not as many of."""
NEW_EACH_TIME = {"uid": "UID", "resourceVersion": "RV", "creationTimestamp": "TIME"}
SUFFIX = re.compile(r"(?<=^app\d-)[a-z0-9]{5}$")
NUMBER = re.compile(r"\d{3,}|: \d+ \(")


def token(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def _is_left_out(name: str, value: Any) -> bool:
    return (
        name in LEFT_OUT
        or (name, value) == ("eventTime", None)
        or (name == "labels" and value.keys() == {"kubernetes.io/hostname"})
    )


def usual(value: Any, key: str = "") -> Any:
    """Return an answer without what is new each time."""
    if key in NEW_EACH_TIME:
        assert value == "" or re.fullmatch(r"\d+|[0-9a-f-]{36}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value), (key, value)
        return NEW_EACH_TIME[key]
    if key.startswith("clusterIP"):
        return "IP"
    if key == "endpoints" and value:
        value = sorted(value, key=lambda each: str(each["addresses"]))
    if key == "continue" and value:
        parts = token(value)
        return parts | {"rv": "RV" if parts["rv"] > 0 else parts["rv"], "start": SUFFIX.sub("x", parts["start"][5:-1])}
    if isinstance(value, dict):
        return {name: usual(each, name) for name, each in value.items() if not _is_left_out(name, each)}
    if isinstance(value, list):
        return [usual(each) for each in value]
    return NUMBER.sub("N", SUFFIX.sub("x", value)) if isinstance(value, str) else value


TRANSCRIPTS = [
    *("list-services", "list-endpoints", "list-endpointslices", "list-pods", "list-configmaps-lb", "list-secrets-lb"),
    *("list-secret-tls", "list-endpointslices-page1", "list-endpointslices-page2", "error-410-continue-expired"),
    *("watch-endpointslices", "watch-endpoints", "watch-410-too-old", "watch-future-resource-version"),
    *("watch-initial-events-refused", "error-401-bad-token", "error-403-no-rbac", "error-404", "list-nodes"),
]


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_the_fake_answers_as_the_real_one_did(name: str) -> None:
    fake = _Fake()
    try:
        ours, theirs = fake(name), recorded(name)
    finally:
        fake.server.close()
    assert ours.status == theirs.status
    for header in ("Content-Type", "Cache-Control", "Transfer-Encoding", "Warning"):
        assert ours.headers.get(header) == theirs.headers.get(header)
    if "items" in (theirs.body or {}):
        assert usual(ours.body["items"]) == usual(theirs.body["items"])
    assert usual(ours.body) == usual(theirs.body)
    events, bookmarks = _stream(ours)
    assert usual(events) == usual(_stream(theirs)[0])
    for bookmark in bookmarks[:1]:
        assert usual(bookmark) == usual(_stream(theirs)[1][0])
    versions = [int(event["object"]["metadata"].get("resourceVersion", 0)) for event in ours.stream]
    assert versions == sorted(versions)


@pytest.mark.parametrize("name", sorted(path.stem for path in TALKS.glob("talk-*.json")))
def test_the_fake_talks_as_the_real_one_did(name: str) -> None:
    talk, cluster = Talk.read(TALKS / f"{name}.json"), Cluster()
    if name == "talk-absent-api":
        cluster.uninstall("gateway.networking.k8s.io")
    with ApiServer(cluster) as server:
        answers = talk.hold(server.url)
    for ours, theirs in zip(answers, talk.answers, strict=True):
        assert (ours.status, ours.headers.get("Content-Type")) == (theirs.status, theirs.headers.get("Content-Type"))
        assert usual(ours.body) == usual(theirs.body), theirs.request
        assert usual(_stream(ours)[0]) == usual(_stream(theirs)[0])
        assert _applied(ours.body) == _applied(theirs.body)


def _applied(body: Any) -> dict[str, Any]:
    """Return the fields that each manager has applied. The API server gives every field an owner, the fake these."""
    metadata = body.get("metadata", {}) if isinstance(body, dict) else {}
    entries = metadata.get("managedFields", ())
    return {entry["manager"]: entry["fieldsV1"] for entry in entries if entry["operation"] == "Apply"}


def _stream(answer: Exchange) -> tuple[list[Any], list[Any]]:
    """Return the events of a watch and its bookmarks."""
    events = [event for event in answer.stream if event["type"] != "BOOKMARK"]
    return events, [event for event in answer.stream if event["type"] == "BOOKMARK"]
