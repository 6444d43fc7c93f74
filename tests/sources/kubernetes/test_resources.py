"""What is read of a cluster, as lists and watches, and the rights that this takes."""

import json
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyconfd.model.snapshot import Named, Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.resources import manifest, reads

CONFIG = Named(Resource.CONFIGMAPS, "lb", "config")
KEYS = Named(Resource.SECRETS, "lb", "keys")
BALANCER = Named(Resource.DEPLOYMENTS, "default", "haproxy")
SERVICES, SLICES, NODES, PODS = Resource.SERVICES, Resource.ENDPOINTSLICES, Resource.NODES, Resource.PODS
SECRETS, CONFIGMAPS = Resource.SECRETS, Resource.CONFIGMAPS


@pytest.mark.parametrize(
    ("resources", "named", "expected", "essential"),
    [
        ([SERVICES, SLICES, NODES], [], ["services", "endpointslices", "nodes"], ["services", "endpointslices"]),
        ([SECRETS], [], ["secrets of namespace web", "secrets of namespace shop"], []),
        # What is read as a whole is not read by name too; ConfigMaps are never read as a whole.
        ([SERVICES, CONFIGMAPS], [CONFIG, Named(SERVICES, "a", "b")],
         ["services", "configmaps lb/config"], ["services"]),
        ([PODS, SECRETS], [KEYS], ["secrets of namespace web", "secrets of namespace shop", "secrets lb/keys", "pods"],
         ["secrets lb/keys", "pods"]),
        ([], [CONFIG, BALANCER], ["configmaps lb/config", "deployments default/haproxy"],
         ["configmaps lb/config", "deployments default/haproxy"]),
    ],
)  # fmt: skip
def test_what_is_read(resources: list[Resource], named: list[Named], expected: list[str], essential: list[str]) -> None:
    found = reads(KubernetesSettings(secret_namespaces=("web", "shop")), resources, named)
    assert [str(read) for read in found] == expected
    assert [str(read) for read in found if read.essential] == essential


def test_only_tls_secrets_of_named_namespaces_are_read() -> None:
    assert reads(KubernetesSettings(), [SECRETS], []) == ()
    (read,) = reads(KubernetesSettings(secret_namespaces=("web",)), [SECRETS], [])
    assert (read.path, dict(read.params)) == (
        "/api/v1/namespaces/web/secrets",
        {"fieldSelector": "type=kubernetes.io/tls"},
    )


def rules(text: str) -> dict[tuple[str, str], Any]:
    """Return the rules of each role by its kind and namespace."""
    return {
        (document["kind"], document["metadata"].get("namespace", "")): document["rules"]
        for document in yaml.safe_load_all(text)
        if "rules" in document
    }


def rule(group: str, resource: str, *names: str) -> dict[str, Any]:
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": [resource], **named, "verbs": ["list", "watch"]}


@pytest.mark.parametrize(
    ("resources", "namespaces", "named", "expected"),
    [
        (
            [SERVICES, SLICES], [], [],
            {("ClusterRole", ""): [rule("", "services"), rule("discovery.k8s.io", "endpointslices")]},
        ),
        ([SERVICES], ["web"], [], {("ClusterRole", ""): [rule("", "services")]}),
        (
            [SECRETS], ["web", "shop"], [],
            {("Role", "web"): [rule("", "secrets")], ("Role", "shop"): [rule("", "secrets")]},
        ),
        (
            [PODS], [], [CONFIG, KEYS, BALANCER, Named(PODS, "a", "b")],
            {
                ("ClusterRole", ""): [rule("", "pods")],
                ("Role", "lb"): [rule("", "configmaps", "config"), rule("", "secrets", "keys")],
                ("Role", "default"): [rule("apps", "deployments", "haproxy")],
            },
        ),
    ],
)  # fmt: skip
def test_list_and_watch_on_exactly_what_is_read(
    resources: list[Resource], namespaces: list[str], named: list[Named], expected: dict[tuple[str, str], Any]
) -> None:
    text = manifest(resources, namespaces, named=named)
    assert rules(text) == expected
    bindings = [each for each in yaml.safe_load_all(text) if each["kind"].endswith("Binding")]
    assert len(bindings) == len(expected)
    account = [{"kind": "ServiceAccount", "name": "pyconfd", "namespace": "pyconfd"}]
    assert all(binding["subjects"] == account for binding in bindings)
    assert all(binding["roleRef"]["name"] == binding["metadata"]["name"] for binding in bindings)
    assert all(
        f"{one.resource} {one.namespace}/{one.name}" in text.split("---")[0] for one in named if one != named[-1]
    )


def test_a_token_of_the_account_and_how_to_get_it() -> None:
    text = manifest([Resource.NODES], service_account="lb", namespace="kube-system")
    (token,) = [each for each in yaml.safe_load_all(text) if each["kind"] == "Secret"]
    assert token["type"] == "kubernetes.io/service-account-token"
    assert token["metadata"] == {
        "name": "lb-token",
        "namespace": "kube-system",
        "annotations": {"kubernetes.io/service-account.name": "lb"},
    }
    assert "kubectl -n kube-system get secret lb-token" in text
    assert "kind: Namespace" not in text


def discovery(path: str) -> object:
    """Just enough of an API server for kubectl to know the kinds of the manifest."""
    group = {"groupVersion": "rbac.authorization.k8s.io/v1", "version": "v1"}
    kinds = {"Namespace": False, "ServiceAccount": True, "Secret": True}
    rbac = {"ClusterRole": False, "ClusterRoleBinding": False, "Role": True, "RoleBinding": True}
    of_path = {"/api/v1": ("v1", kinds), "/apis/rbac.authorization.k8s.io/v1": (group["groupVersion"], rbac)}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [{"name": "rbac.authorization.k8s.io", "versions": [group], "preferredVersion": group}]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    version, served = of_path[path]
    resources = [
        {"name": f"{kind.lower()}s", "singularName": kind.lower(), "namespaced": namespaced, "kind": kind, "verbs": []}
        for kind, namespaced in served.items()
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


class Discovery(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(discovery(self.path.partition("?")[0])).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_accepts_it(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Discovery)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        arguments = ["--server", f"http://127.0.0.1:{server.server_port}", "--cache-dir", str(tmp_path)]
        done = subprocess.run(
            ["kubectl", *arguments, "create", "--dry-run=client", "--validate=false", "-o", "name", "-f", "-"],
            input=manifest(list(Resource), ["web"]),
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "namespace/pyconfd",
        "serviceaccount/pyconfd",
        "clusterrole.rbac.authorization.k8s.io/pyconfd",
        "clusterrolebinding.rbac.authorization.k8s.io/pyconfd",
        "role.rbac.authorization.k8s.io/pyconfd-secrets",
        "rolebinding.rbac.authorization.k8s.io/pyconfd-secrets",
        "secret/pyconfd-token",
    ]


def test_events_may_be_created_only_where_that_is_asked_for() -> None:
    assert "events" not in manifest([Resource.SERVICES])
    text = manifest([Resource.SERVICES], events=True)
    roles = [each for each in yaml.safe_load_all(text) if each["kind"] == "ClusterRole"]
    assert roles[1]["rules"] == [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]
    assert "create events" in text


def test_the_head_needs_no_kubectl_on_the_balancer() -> None:
    head = manifest([Resource.SERVICES]).partition("\n---")[0]
    assert "install -m 0640 -g pyconfd token /etc/pyconfd/token" in head
    assert not [line for line in head.splitlines() if "kubectl" in line and "/etc/" in line]
