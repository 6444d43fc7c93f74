"""What a manifest allows, and nothing else; and what an Event has to be."""

import http.client
import json
from typing import Any

import pytest

from tests.world.apiserver import ApiServer
from tests.world.rbac import Rules

MANIFEST = """
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [services], verbs: [list, watch]}
- {apiGroups: [""], resources: [events], verbs: [create]}
---
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {kind: ClusterRole, name: reader}
---
kind: Role
metadata: {name: one, namespace: lb}
rules:
- {apiGroups: [""], resources: [configmaps], resourceNames: [services], verbs: [list]}
---
kind: RoleBinding
metadata: {name: one, namespace: lb}
roleRef: {kind: Role, name: one}
"""
EVENT = {
    "metadata": {"name": "web.1", "namespace": "shop"},
    "involvedObject": {"kind": "Service", "namespace": "shop", "name": "web"},
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingComponent": "pyconfd.io/pyconfd",
    "reportingInstance": "lb1",
    "action": "Refused",
    "reason": "InvalidValue",
    "message": "why",
    "type": "Warning",
}


def ask(server: ApiServer, method: str, path: str, body: Any = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()).get("message", "")
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/services", 200),
        ("GET", "/api/v1/namespaces/shop/services", 200),
        ("GET", "/api/v1/namespaces/shop/services/web", 403),
        ("GET", "/api/v1/endpoints", 403),
        ("GET", "/api/v1/configmaps", 403),
        ("GET", "/api/v1/namespaces/lb/configmaps", 403),
        ("GET", "/api/v1/namespaces/lb/configmaps?fieldSelector=metadata.name%3Dservices", 200),
        ("GET", "/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Dservices", 403),
        ("GET", "/api/v1/namespaces/lb/configmaps?fieldSelector=metadata.name%3Dother", 403),
        ("DELETE", "/api/v1/namespaces/shop/services/web", 403),
    ],
)
def test_only_what_is_granted_is_allowed(method: str, path: str, code: int) -> None:
    with ApiServer() as server:
        server.rules = Rules(MANIFEST)
        found, message = ask(server, method, path)
        assert found == code
        assert code == 200 or "is forbidden: User" in message


def test_an_event_is_created_or_tried_or_denied() -> None:
    path = "/api/v1/namespaces/shop/events"
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        server.rules = Rules(MANIFEST)
        assert ask(server, "POST", f"{path}?dryRun=All", EVENT)[0] == 201
        assert server.cluster.objects("events") == []
        assert ask(server, "POST", path, EVENT)[0] == 201
        assert ask(server, "POST", path, EVENT)[0] == 409
        server.rules = Rules(MANIFEST.replace("create", "list"))
        code, message = ask(server, "POST", path, EVENT)
        assert code == 403
        assert 'cannot create resource "events" in API group "" in the namespace "shop"' in message


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"involvedObject": {"kind": "Service", "name": "web"}}, 422, "does not match event.namespace"),
        ({"action": "x" * 129}, 422, "action: Invalid value"),
        ({"metadata": {"name": "Web_1", "namespace": "shop"}}, 422, "RFC 1123"),
        ({"eventTime": "yesterday"}, 400, "cannot be handled"),
    ],
)
def test_an_event_that_the_real_server_would_refuse(change: dict[str, Any], code: int, words: str) -> None:
    with ApiServer() as server:
        server.cluster.add_namespace("shop")
        found, message = ask(server, "POST", "/api/v1/namespaces/shop/events", EVENT | change)
        assert found == code
        assert words in message
