"""Credentials from a program that the kubeconfig names."""

import sys
import textwrap
from pathlib import Path

import pytest

from pyconfd.model.snapshot import Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.credentials import RENEW_EVERY_S, Credentials
from pyconfd.sources.kubernetes.failures import ApiError
from tests.sources.kubernetes.clocks import StandingClock
from tests.sources.kubernetes.conftest import Start, ended, synced
from tests.sources.kubernetes.kubeconfigs import kubeconfig
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster

PLUGIN = """
import json, pathlib, sys
counter = pathlib.Path(sys.argv[1])
count = int(counter.read_text()) + 1 if counter.exists() else 1
counter.write_text(str(count))
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {"token": f"token-{count}"} if count < 9 else {}}))
"""


def test_an_exec_plugin_is_run_again_after_a_401(cluster: Cluster, tmp_path: Path, start: Start) -> None:
    (tmp_path / "plugin.py").write_text(textwrap.dedent(PLUGIN))
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(tmp_path / "plugin.py"), str(tmp_path / "count")],
    }
    with ApiServer(cluster, token="token-2") as server:
        source = start(
            kubeconfig=kubeconfig(tmp_path / "config", server.url, {"exec": plugin}), resources=[Resource.NODES]
        )
        synced(source)
        tokens = [request.headers["authorization"] for request in server.seen("nodes", "list")]
        assert (tokens[0], tokens[-1]) == ("Bearer token-1", "Bearer token-2")
        ended(source)


def test_an_exec_plugin_that_fails_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false"}
    path = kubeconfig(tmp_path / "config", "http://a", {"exec": plugin})
    made = Credentials(KubernetesSettings(kubeconfig=path), StandingClock(), environ={})
    with pytest.raises(ApiError, match="the plugin /bin/false gave no credentials"):
        made.pool_manager("http://a")
    assert "process returned 1" in caplog.text


def test_an_exec_plugin_that_fails_is_not_run_with_each_try(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\necho >>{runs}\nexit 1\n")
    plugin.chmod(0o755)
    exec_section = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    clock = StandingClock()
    path = kubeconfig(tmp_path / "config", "http://a", {"exec": exec_section})
    made = Credentials(KubernetesSettings(kubeconfig=path), clock, environ={})
    counts = []
    for seconds in (0, 0, 5, 5, 5, 5, RENEW_EVERY_S):
        clock.now_s += seconds
        with pytest.raises(ApiError, match="gave no credentials"):
            made.pool_manager("http://a")
        counts.append(len(runs.read_text().splitlines()))
    # At once a second time, and then as seldom as after a 401.
    assert counts == [1, 2, 2, 2, 2, 2, 3]
