"""What ``check`` and ``plan`` note beside their answer, with a real haproxy and a fake API server."""

import shutil
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pyconfd.cli.commands.check import check_once
from pyconfd.cli.commands.plan import plan_once
from pyconfd.haproxy.history.generations import GenerationStore
from pyconfd.model.context import Census
from pyconfd.model.outcome import Generation
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.settings import Settings, resolve
from tests.cli.invoking import invoke
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.haproxy import BINARY

pytestmark = [
    pytest.mark.haproxy,
    pytest.mark.skipif(shutil.which(BINARY) is None, reason="there is no haproxy"),
]
FRAGMENT = """
defaults
    mode http
    option idle-close-on-response
    timeout client 5s
    timeout connect 5s
    timeout server 5s
frontend main
    bind unix@pyconfd-test.sock
    http-request return status 200
"""
EMPTY = "apiVersion: v1\nkind: List\nitems: []\n"


def settings_for(folder: Path, **flags: str) -> Settings:
    templates = folder / "templates"
    templates.mkdir(exist_ok=True)
    (templates / "01-all.conf").write_text(FRAGMENT)
    own = {
        "templates.dir": str(templates),
        "haproxy.conf": str(folder / "generated" / "haproxy.cfg"),
        "haproxy.binary": BINARY,
        "state_dir": str(folder / "state"),
    }
    paths = {name.replace("__", "."): value for name, value in flags.items()}
    return resolve(own | paths, {}, lambda path: Path(path).read_text()).settings


def test_check_says_what_keeps_this_machine_from_applying_it(tmp_path: Path) -> None:
    with ApiServer(Cluster()) as server:
        settings = settings_for(tmp_path, kubernetes__api_servers=server.url)
        (note,) = check_once(settings, ()).notes
        assert note.startswith(f"haproxy.conf: the directory {tmp_path / 'generated'} does not exist; create it")
        (tmp_path / "generated").mkdir()
        assert check_once(settings, ()).notes == ()


def test_check_says_that_reloads_would_close_idle_connections(tmp_path: Path) -> None:
    settings, objects = settings_for(tmp_path), tmp_path / "objects.yaml"
    objects.write_text(EMPTY)
    fragment = Path(settings.templates.dir) / "01-all.conf"
    fragment.write_text(FRAGMENT.replace("    option idle-close-on-response\n", ""))
    (note,) = check_once(settings, (str(objects),)).notes
    assert note.startswith("frontend main: a reload closes idle keep-alive connections")


def test_check_says_that_the_directory_of_the_runtime_socket_is_missing(tmp_path: Path) -> None:
    (tmp_path / "generated").mkdir()
    objects = tmp_path / "objects.yaml"
    objects.write_text(EMPTY)
    with ApiServer(Cluster()) as server, TemporaryDirectory() as short:
        settings = settings_for(tmp_path, kubernetes__api_servers=server.url)
        opened = f"global\n    stats socket {short}/run/s level admin\n"
        (Path(settings.templates.dir) / "00-runtime.conf").write_text(opened)
        (note,) = check_once(settings, ()).notes
        assert note.startswith(f"stats socket {short}/run/s: its directory does not exist")
        assert check_once(settings, (str(objects),)).notes == (), "files are not about this machine"
        Path(short, "run").mkdir()
        assert check_once(settings, ()).notes == ()


def test_check_of_files_is_not_about_this_machine(tmp_path: Path) -> None:
    objects = tmp_path / "objects.yaml"
    objects.write_text(EMPTY)
    assert check_once(settings_for(tmp_path), (str(objects),)).notes == ()


def test_plan_says_that_a_change_would_be_held(tmp_path: Path) -> None:
    objects = tmp_path / "objects.yaml"
    objects.write_text(EMPTY)
    before = Rendering((Piece("01-all.conf", "global\n    maxconn 99\n"),))
    generation = Generation(1, before.digest, 1_700_000_000.0, census=Census(claimed=3, total=3))
    GenerationStore(str(tmp_path / "state"), 5).record(before, generation)

    (note,) = plan_once(settings_for(tmp_path), (str(objects),)).notes
    assert note.startswith("the daemon would hold this change: all 3 ready endpoints")
    assert "pyconfd allow " in note
    assert plan_once(settings_for(tmp_path, apply__total_loss="apply"), (str(objects),)).notes == ()


ASKING = """
{% for domain, items in domains.items() if items.listen_port %}
frontend {{ domain }}
    mode tcp
    bind 127.0.0.1:{{ items.listen_port }}
{% endfor %}
"""


def test_plan_and_check_leave_out_what_another_program_has_unless_they_read_files(tmp_path: Path) -> None:
    cluster = Cluster()
    with ApiServer(cluster) as server, socket.create_server(("127.0.0.1", 0)) as program:
        port = program.getsockname()[1]
        (tmp_path / "generated").mkdir()
        settings = settings_for(tmp_path, kubernetes__api_servers=server.url, presets__listen_ports="1024-65535")
        (tmp_path / "templates" / "02-asking.tmpl").write_text(ASKING)
        asked = {"domain": "cache.example.com", "proto": "redis", "pyconfd.io/listen-port": str(port)}
        cluster.add_service("demo", "cache", annotations=asked)

        planned, checked = plan_once(settings, ()), check_once(settings, ())
        assert "frontend cache.example.com" not in planned.diff
        for (refusal,) in (planned.refused, checked.refused):
            assert (str(refusal.ref), refusal.field, refusal.value) == (
                "Service demo/cache",
                "annotation listen-port",
                str(port),
            )
            assert f"listens on 127.0.0.1:{port}" in refusal.detail

        flags = ("--api-servers", server.url, "--template-dir", settings.templates.dir)
        assert invoke("record", str(tmp_path / "objects.yaml"), *flags).exit_code == 0
        assert "frontend cache.example.com" in plan_once(settings, (str(tmp_path / "objects.yaml"),)).diff
