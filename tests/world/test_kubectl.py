"""Real kubectl against the fake: what it prints is what pyconfd reads, and what the demo tells people to try works."""

import shutil
import subprocess
from pathlib import Path

import pytest

from pyconfd.sources.file import read_snapshot
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.objects import EndpointSpec

KINDS = "services,endpointslices,endpoints,nodes"
KUBECTL = shutil.which("kubectl") or ""
pytestmark = [pytest.mark.kubectl, pytest.mark.skipif(not KUBECTL, reason="there is no kubectl")]


def kubectl(server: ApiServer, home: Path, *arguments: str) -> str:
    """Return what it printed."""
    argv = [KUBECTL, "--server", server.url, *arguments]
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_kubectl_prints_is_read_and_what_it_annotates_is_stored(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.add_node("node-0", "192.0.2.1")
    cluster.add_service("demo", "shop", annotations={"domain": "shop.example.test"}, type="NodePort")
    pods = [EndpointSpec(f"10.1.0.{number}", pod=f"shop-{number}", node="node-0") for number in range(1, 6)]
    cluster.set_endpoints("demo", "shop", pods)
    with ApiServer(cluster) as server:
        snapshots = []
        for form in ("yaml", "json"):
            dump = tmp_path / f"dump.{form}"
            dump.write_text(kubectl(server, tmp_path, "get", KINDS, "-A", "-o", form))
            snapshot, unreadable = read_snapshot([str(dump)])
            assert not unreadable
            snapshots.append(snapshot)
        assert snapshots[0] == snapshots[1]
        assert all(len(getattr(snapshot, kind)) == 1 for kind in KINDS.split(","))

        change = ("annotate", "service", "-n", "demo", "shop", "--overwrite")
        kubectl(server, tmp_path, *change, "domain-", "pyconfd.io/domain=new.example.test")
        kubectl(server, tmp_path, "cordon", "node-0")
        assert "shop" in kubectl(server, tmp_path, "get", "services,endpointslices", "-A")
    annotations = cluster.get("services", "demo", "shop")["metadata"]["annotations"]
    assert annotations == {"pyconfd.io/domain": "new.example.test"}
    assert cluster.get("nodes", "", "node-0")["spec"]["unschedulable"] is True
