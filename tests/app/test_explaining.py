"""Explanations where no daemon of this version answers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pyconfd import app
from pyconfd.errors import RejectedInput, TransientError
from pyconfd.model.status import Phase, Status
from pyconfd.settings import HaproxySettings, KubernetesSettings, Settings, StatusSettings, TemplateSettings
from pyconfd.status.server import StatusServer

SNAPSHOT = """
kind: List
items:
- kind: Service
  apiVersion: v1
  metadata: {name: web, namespace: shop, annotations: {domain: a.example.com, proto: http}}
  spec: {ports: [{name: web, port: 80}]}
- kind: EndpointSlice
  apiVersion: discovery.k8s.io/v1
  metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
  addressType: IPv4
  endpoints: [{addresses: [10.0.0.1]}]
  ports: [{name: web, port: 8080}]
"""


@pytest.fixture
def settings_for(tmp_path: Path) -> Callable[[str], Settings]:
    def make(listen: str) -> Settings:
        return Settings(
            templates=TemplateSettings(dir=app.fragments_dir()),
            kubernetes=KubernetesSettings(api_servers=("http://127.0.0.1:1",)),
            haproxy=HaproxySettings(conf=f"{tmp_path}/haproxy.cfg", unit=""),
            status=StatusSettings(listen=listen),
            state_dir=str(tmp_path / "state"),
            runtime_dir=str(tmp_path / "run"),
        )

    return make


def status() -> Status:
    return Status(1.0, "1", 1, started_at=1.0, heartbeat_at=1.0, phase=Phase.SERVING)


def test_a_loop_that_reads_no_cluster_says_so(settings_for: Callable[[str], Settings]) -> None:
    with StatusServer("127.0.0.1:0", status) as server, pytest.raises(RejectedInput, match="explains nothing"):
        app.explain(settings_for(server.address), "web")


def test_an_answer_of_another_version_is_told_as_such(settings_for: Callable[[str], Settings]) -> None:
    with (
        StatusServer("127.0.0.1:0", status, explain=lambda _: b'{"query": 1}') as server,
        pytest.raises(RejectedInput, match="another version"),
    ):
        app.explain(settings_for(server.address), "web")


@pytest.mark.parametrize(("listen", "words"), [("", "switched off"), ("127.0.0.1:1", "no answer")])
def test_neither_a_daemon_nor_a_cluster(settings_for: Callable[[str], Settings], listen: str, words: str) -> None:
    with pytest.raises(TransientError) as caught:
        app.explain(settings_for(listen), "web")
    told = str(caught.value)
    assert words in told
    assert "127.0.0.1:1" in told


def test_files_are_explained_without_asking_anybody(settings_for: Callable[[str], Settings], tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(SNAPSHOT)
    settings = settings_for("127.0.0.1:1")
    found = app.explain(settings, "a.example.com", (str(path),))
    assert found.found
    assert "served by 1 server" in found.text
    assert "read from files" in found.text
    assert "Nothing is refused." in app.explain(settings, "", (str(path),)).text
    assert not app.explain(settings, "nobody", (str(path),)).found
