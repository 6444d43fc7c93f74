"""Explanations where no daemon of this version answers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from pyconfd.app.explaining import Query, ask_daemon, explainer
from pyconfd.daemon.memory import Memory
from pyconfd.errors import RejectedInput
from pyconfd.explain.request import request_of
from pyconfd.explain.text import render
from pyconfd.fragments import directory
from pyconfd.model.explanation import Explanation
from pyconfd.model.status import Phase, Status
from pyconfd.settings import HaproxySettings, KubernetesSettings, Settings, StatusSettings, TemplateSettings
from tests.cli.invoking import invoke
from tests.status.serving import served

if TYPE_CHECKING:
    from pyconfd.daemon.loop import Daemon

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
            templates=TemplateSettings(dir=directory()),
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
    with served(status) as server, pytest.raises(RejectedInput, match="explains nothing"):
        ask_daemon(settings_for(server.address), "web")


def test_an_answer_of_another_version_is_told_as_such(settings_for: Callable[[str], Settings]) -> None:
    with (
        served(status, explain=lambda _: b'{"query": 1}') as server,
        pytest.raises(RejectedInput, match="another version"),
    ):
        ask_daemon(settings_for(server.address), "web")


@pytest.mark.parametrize(("listen", "words"), [("", "switched off"), ("127.0.0.1:1", "no answer")])
def test_neither_a_daemon_nor_a_cluster(tmp_path: Path, listen: str, words: str) -> None:
    own = {"status-listen": listen, "state-dir": tmp_path / "state", "runtime-dir": tmp_path / "run"}
    own |= {"api-servers": "http://127.0.0.1:1", "template-dir": directory(), "haproxy-unit": ""}
    done = invoke("explain", "web", *(f"--{name}={value}" for name, value in own.items()))
    assert done.exit_code == 75
    assert words in done.stderr
    assert "127.0.0.1:1" in done.stderr


def test_files_are_explained_without_asking_anybody(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(SNAPSHOT)
    options = ("--snapshot", str(path), "--template-dir", directory(), "--status-listen", "127.0.0.1:1")
    found = invoke("explain", "service", "shop/web", *options)
    assert found.exit_code == 0
    assert "served by 1 server" in found.stdout
    assert "read from files" in found.stdout
    assert "Nothing is refused." in invoke("explain", "--all-refused", *options).stdout
    assert json.loads(invoke("explain", "--json", "a.example.com", *options).stdout)["query"] == "a.example.com"
    nobody = invoke("explain", "nobody", *options)
    assert (nobody.exit_code, "nobody" in nobody.stdout) == (1, True)


def test_a_host_shows_its_owner_who_else_asks_and_the_refused_whose_it_is(tmp_path: Path) -> None:
    path, host = tmp_path / "cluster.yaml", "a.example.com"
    younger = SNAPSHOT.replace("shop", "late").replace("kind: List\nitems:\n", "")
    path.write_text(
        SNAPSHOT.replace("namespace: shop, annot", 'namespace: shop, creationTimestamp: "2026", annot') + younger
    )
    options = ("--snapshot", str(path), "--template-dir", directory(), "--status-listen", "127.0.0.1:1", "--json")
    found = json.loads(invoke("explain", host, *options).stdout)["claims"]
    accepted = {each["object"]: each["conditions"][0]["status"] for each in found}
    assert accepted == {"Service shop/web": "True", "Service late/web": "False"}
    (refused,) = json.loads(invoke("explain", "service", "late/web", *options).stdout)["claims"]
    assert "Service shop/web has this host" in refused["conditions"][0]["message"]


def test_a_url_that_is_none_is_a_wrong_command_line() -> None:
    done = invoke("explain", "htp://a.example.com/")
    assert done.exit_code == 64
    assert "scheme htp: expected one of http" in done.stderr


def test_a_url_is_a_request(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(SNAPSHOT)
    options = ("--snapshot", str(path), "--template-dir", directory(), "--status-listen", "127.0.0.1:1")
    url = "http://a.example.com/cart?x=1"
    found = invoke("explain", url, "-X", "POST", "-H", "X-Canary: yes", *options)
    assert found.exit_code == 0
    assert f"POST {url}" in found.stdout
    assert "chosen: path prefix /  (Service shop/web, annotation domain)" in found.stdout
    assert "not covered" not in found.stdout
    answer = json.loads(invoke("explain", url, "--json", *options).stdout)
    assert answer["request"]["backends"] == [["be-a.example.com", 100.0]]
    assert [each["address"] for each in answer["servers"]] == ["10.0.0.1:8080"]
    other = json.loads(invoke("explain", "http://b.example.com/", "--json", *options).stdout)
    assert other["request"]["status"] == 404


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("web", "-X", "POST"), "are for a URL"),
        (("http://a b/",), "expected SCHEME"),
        (("ftp://a/",), "scheme ftp: expected one of"),
    ],
)
def test_what_is_no_request_is_said(arguments: tuple[str, ...], words: str) -> None:
    found = invoke("explain", *arguments)
    assert found.exit_code
    assert words in found.stderr


def test_a_changed_fragment_is_not_covered(tmp_path: Path) -> None:
    path, templates = tmp_path / "cluster.yaml", tmp_path / "templates"
    path.write_text(SNAPSHOT)
    shutil.copytree(directory(), templates, ignore=shutil.ignore_patterns("tests", "*.py", "__pycache__"))
    with (templates / "02-http.tmpl").open("a") as fragment:
        fragment.write("# changed\n")
    options = ("--snapshot", str(path), f"--template-dir={templates}", "--status-listen", "127.0.0.1:1", "--json")
    found = json.loads(invoke("explain", "http://a.example.com/", *options).stdout)
    assert found["request"]["uncovered"] == ["fragment 02-http.tmpl, which is not the shipped one"]


def test_a_daemon_that_knows_no_requests_is_told_as_such(settings_for: Callable[[str], Settings]) -> None:
    names_only = b'{"query": "q", "now": 1.0, "instance": {}, "looked_in": ["1 Service objects"]}'
    request = request_of({"url": ["http://a.example.com/"]})
    with served(status, explain=lambda _: names_only) as server, pytest.raises(RejectedInput, match="older version"):
        ask_daemon(settings_for(server.address), request)


@pytest.mark.parametrize("query", ["web", request_of({"url": ["http://a.example.com/"]})])
def test_a_daemon_that_begins_says_so(settings_for: Callable[[str], Settings], query: Query) -> None:
    daemon = cast("Daemon", SimpleNamespace(status=status, memory=Memory()))
    with served(status, explain=explainer(settings_for(""), daemon)) as server:
        found = ask_daemon(settings_for(server.address), query)
    assert isinstance(found, Explanation)
    assert not found.found
    assert "has not read the cluster" in render(found)
    if isinstance(query, str):
        assert found.request is None
    else:
        assert found.request is not None
        assert "has not read the cluster" in found.request.uncovered[0]


def test_a_request_that_the_daemon_rejects_is_an_answer(settings_for: Callable[[str], Settings]) -> None:
    daemon = cast("Daemon", SimpleNamespace(status=status, memory=Memory()))
    body = explainer(settings_for(""), daemon)("q=ftp://a/&url=ftp://a/")
    found = msgspec.json.decode(body, type=Explanation)
    assert (found.query, found.found) == ("ftp://a/", False)
    assert found.request is not None
    assert "scheme ftp: expected one of" in render(found)
