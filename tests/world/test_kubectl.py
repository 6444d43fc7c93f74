"""Real kubectl against the fake."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.world.apiserver import ApiServer, tls_context
from tests.world.cluster import Cluster
from tests.world.objects import EndpointSpec
from tests.world.pki import CertificateAuthority

KUBECTL = shutil.which("kubectl")
pytestmark = [pytest.mark.kubectl, pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl")]


class Kubectl:
    """kubectl with a home of its own."""

    def __init__(self, url: str, home: Path) -> None:
        self._url, self._home = url, home

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Not checked."""
        assert KUBECTL
        argv = [KUBECTL, "--server", self._url, *arguments]
        environment = {"HOME": str(self._home), "PATH": "/usr/bin:/bin"}
        return subprocess.run(
            argv, input=stdin, capture_output=True, text=True, env=environment, timeout=90, check=False
        )

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """What it printed; it must have succeeded."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.add_node("node-0", "192.0.2.1")
    cluster.add_service("demo", "shop", annotations={"domain": "shop.example.test"}, type="NodePort")
    pods = [EndpointSpec(f"10.1.0.{number}", pod=f"shop-{number}", node="node-0") for number in range(1, 6)]
    cluster.set_endpoints("demo", "shop", pods)
    return cluster


@pytest.fixture
def server(cluster: Cluster) -> Iterator[ApiServer]:
    with ApiServer(cluster) as api:
        yield api


@pytest.fixture
def kubectl(server: ApiServer, tmp_path: Path) -> Kubectl:
    return Kubectl(server.url, tmp_path)


def test_get_prints_tables(kubectl: Kubectl) -> None:
    printed = kubectl("get", "svc,endpoints,endpointslices,nodes", "-A")
    for expected in ("service/shop", "NodePort", "endpoints/shop", "10.1.0.1:8080", "IPv4", "node/node-0", "Ready"):
        assert expected in printed
    assert "+ 2 more..." in printed


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_get_prints_objects(kubectl: Kubectl, form: str) -> None:
    printed = kubectl("get", "services,endpointslices,endpoints,nodes", "-A", "-o", form)
    listed: Any = yaml.safe_load(printed) if form == "yaml" else json.loads(printed)
    assert listed["kind"] == "List"
    assert [item["kind"] for item in listed["items"]] == ["Service", "EndpointSlice", "Endpoints", "Node"]


def test_what_kubectl_prints_can_be_loaded(kubectl: Kubectl, cluster: Cluster, tmp_path: Path) -> None:
    dump = tmp_path / "dump.yaml"
    dump.write_text(kubectl("get", "services,endpointslices,endpoints,nodes", "-A", "-o", "yaml"))
    other = Cluster()
    assert other.load(dump) == 4
    for resource in ("services", "endpointslices", "endpoints", "nodes"):
        (ours,), (theirs,) = cluster.objects(resource), other.objects(resource)
        del ours["metadata"]["resourceVersion"], theirs["metadata"]["resourceVersion"]
        assert ours == theirs


def test_annotate_and_label(kubectl: Kubectl, cluster: Cluster) -> None:
    kubectl("annotate", "endpoints", "-n", "demo", "shop", "domain=shop.example.test", "proto=http")
    kubectl("annotate", "service", "-n", "demo", "shop", "domain-", "pyconfd.io/domain=new.example.test")
    kubectl("label", "node", "node-0", "zone=a")
    annotations = cluster.get("endpoints", "demo", "shop")["metadata"]["annotations"]
    assert annotations == {"domain": "shop.example.test", "proto": "http"}
    annotations = cluster.get("services", "demo", "shop")["metadata"]["annotations"]
    assert annotations == {"pyconfd.io/domain": "new.example.test"}
    assert cluster.get("nodes", "", "node-0")["metadata"]["labels"]["zone"] == "a"
    refused = kubectl.run("annotate", "service", "-n", "demo", "shop", "pyconfd.io/domain=other")
    assert "--overwrite is false" in refused.stderr


SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: made, namespace: demo, annotations: {domain: made.example.test}}
spec:
  ports: [{name: web, port: PORT}]
  selector: {app: made}
"""


def test_create_apply_delete(kubectl: Kubectl, cluster: Cluster) -> None:
    kubectl("create", "-f", "-", stdin=SERVICE.replace("PORT", "80"))
    assert cluster.get("services", "demo", "made")["spec"]["type"] == "ClusterIP"
    kubectl("delete", "service", "-n", "demo", "made")
    assert not cluster.exists("services", "demo", "made")
    kubectl("apply", "-f", "-", stdin=SERVICE.replace("PORT", "80"))
    kubectl("apply", "-f", "-", stdin=SERVICE.replace("PORT", "8080").replace("made.example", "other.example"))
    made = cluster.get("services", "demo", "made")
    assert [port["port"] for port in made["spec"]["ports"]] == [8080]
    assert made["metadata"]["annotations"]["domain"] == "other.example.test"


def test_server_side_apply(kubectl: Kubectl, cluster: Cluster) -> None:
    kubectl("apply", "--server-side", "-f", "-", stdin=SERVICE.replace("PORT", "80"))
    assert cluster.exists("services", "demo", "made")


def test_patch_cordon_and_scale_down_by_patch(kubectl: Kubectl, cluster: Cluster) -> None:
    kubectl("cordon", "node-0")
    assert cluster.get("nodes", "", "node-0")["spec"]["unschedulable"] is True
    (name,) = [each["metadata"]["name"] for each in cluster.objects("endpointslices")]
    patch = {"endpoints": cluster.get("endpointslices", "demo", name)["endpoints"][:2]}
    kubectl("patch", "endpointslice", "-n", "demo", name, "--type=merge", "-p", json.dumps(patch))
    assert len(cluster.get("endpointslices", "demo", name)["endpoints"]) == 2


def test_what_is_absent_and_what_is_forbidden(kubectl: Kubectl, server: ApiServer) -> None:
    absent = kubectl.run("get", "service", "-n", "demo", "absent")
    assert 'Error from server (NotFound): services "absent" not found' in absent.stderr
    server.faults.deny("secrets")
    forbidden = kubectl.run("get", "secrets", "-n", "demo")
    assert 'Error from server (Forbidden): secrets is forbidden: User "pyconfd" cannot list' in forbidden.stderr


def test_get_watch(kubectl: Kubectl, server: ApiServer, tmp_path: Path) -> None:
    assert KUBECTL
    argv = [KUBECTL, "--server", server.url, "get", "services", "-n", "demo", "--watch"]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout
        try:
            assert "PORT(S)" in process.stdout.readline()
            assert process.stdout.readline().startswith("shop")
            server.wait_for_watches("services")
            server.cluster.add_service("demo", "late")
            assert process.stdout.readline().startswith("late")
        finally:
            process.kill()


def test_over_mutual_tls(cluster: Cluster, tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    client = authority.client("admin")
    with ApiServer(cluster, tls=tls_context(authority.server(), authority.cert)) as server:
        kubectl = Kubectl(server.url, tmp_path)
        trust = ("--certificate-authority", str(authority.cert))
        shown = (*trust, "--client-certificate", str(client.cert), "--client-key", str(client.key))
        assert "node-0" in kubectl(*shown, "get", "nodes")
        assert server.seen("nodes", "list")[0].client_cn == "admin"
        assert kubectl.run(*trust, "get", "nodes").returncode != 0
