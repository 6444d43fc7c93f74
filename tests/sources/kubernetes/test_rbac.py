import json
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from pyconfd.model.snapshot import Resource
from pyconfd.sources.kubernetes.resources import manifest


def documents(text: str) -> dict[tuple[str, str], dict[str, object]]:
    return {(d["kind"], d["metadata"].get("namespace", "")): d for d in yaml.safe_load_all(text)}


def test_list_and_watch_on_exactly_what_is_read() -> None:
    made = documents(manifest([Resource.SERVICES, Resource.ENDPOINTSLICES]))
    assert made["ClusterRole", ""]["rules"] == [
        {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    assert ("Role", "") not in made
    subjects = [{"kind": "ServiceAccount", "name": "pyconfd", "namespace": "pyconfd"}]
    assert made["ClusterRoleBinding", ""]["subjects"] == subjects


def test_secrets_only_in_the_named_namespaces() -> None:
    made = documents(manifest(list(Resource), ["web", "shop"]))
    assert "secrets" not in str(made["ClusterRole", ""])
    for namespace in ("web", "shop"):
        assert made["Role", namespace]["rules"] == [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}
        ]
        assert made["RoleBinding", namespace]["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": "pyconfd-secrets",
        }


def test_no_right_on_secrets_where_they_are_not_read() -> None:
    text = manifest([Resource.SERVICES], ["web"])
    assert ("Role", "web") not in documents(text)


def test_a_token_of_the_account_and_how_to_get_it() -> None:
    text = manifest([Resource.NODES], service_account="lb", namespace="kube-system")
    token = documents(text)["Secret", "kube-system"]
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


def test_the_head_writes_no_secret_for_everybody_and_needs_no_kubectl_on_the_balancer() -> None:
    head = manifest([Resource.SERVICES]).partition("\n---")[0]
    assert "install -m 0640 -g pyconfd token /etc/pyconfd/token" in head
    assert not [line for line in head.splitlines() if "kubectl" in line and "/etc/" in line]
