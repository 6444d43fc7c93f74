"""run, publish and consume as processes: signals, the service manager, what is said when something is wrong."""

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.world import forked
from tests.world.appliance import PATIENCE_S
from tests.world.haproxy import free_port, wait_until
from tests.world.log import json_lines


class Process:
    """pyconfd with a cluster and an etcd that do not answer, under a service manager that listens."""

    def __init__(self, folder: Path, command: str = "run") -> None:
        self.folder = folder
        self.name = command
        self.log = folder / "log"
        self.config = folder / "pyconfd.toml"
        self.page = f"127.0.0.1:{free_port()}"
        self.state_dir = folder / "state"
        self.interval_s = "1"
        (folder / "templates").mkdir()
        (folder / "templates" / "01.conf").write_text("frontend fe\n    bind :80\n")
        self._sockets = tempfile.TemporaryDirectory(prefix="run-")
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.settimeout(PATIENCE_S)
        self.manager.bind(f"{self._sockets.name}/n")
        self.process: forked.Process | None = None

    def write(self, **kubernetes: str) -> None:
        values = {"api_servers": '["http://127.0.0.1:1"]', "interval_s": self.interval_s} | kubernetes
        lines = [f'state_dir = "{self.state_dir}"', f'runtime_dir = "{self.folder}/run"', "[kubernetes]"]
        lines += [f"{name} = {value}" for name, value in values.items()]
        lines += ["[templates]", f'dir = "{self.folder}/templates"', "[status]", f'listen = "{self.page}"']
        lines += ["[haproxy]", f'conf = "{self.folder}/haproxy.cfg"', 'unit = ""', f'pid_file = "{self.folder}/no.pid"']
        lines += [f'master_socket = "{self.folder}/none"', "[apply]", "boot_wait_s = 0.1", "[log]", 'format = "json"']
        lines += ["[etcd]", 'endpoints = ["http://127.0.0.1:1"]']
        self.config.write_text("\n".join(lines) + "\n")

    def command(self, *arguments: str) -> list[str]:
        return [*arguments, "--config", str(self.config)]

    def start(self) -> None:
        self.write()
        environment = {"PATH": os.environ["PATH"], "NOTIFY_SOCKET": self.manager.getsockname()}
        self.process = forked.start(self.command(self.name), environment, self.log)

    def run_another(self) -> subprocess.CompletedProcess[str]:
        return forked.run(self.command(self.name), {"PATH": os.environ["PATH"]})

    def reload(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "PYCONFD_RUNTIME_DIR": str(self.folder / "run")}
        environment["PYCONFD_STATUS_LISTEN"] = self.page
        return forked.run(self.command("reload", *arguments), environment)

    def hears(self, word: str) -> list[str]:
        """Return all that the service manager hears up to a line that begins with ``word``."""
        heard: list[str] = []
        while not heard or not heard[-1].startswith(word):
            lines = self.manager.recv(65536).decode().splitlines()
            heard += [line for line in lines if line.startswith(("READY", "RELOADING", "STOPPING"))]
        return heard

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def ends(self) -> int:
        assert self.process is not None
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in json_lines(self.log) if line["event"] == name]

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.manager.close()
        self._sockets.cleanup()


@pytest.fixture
def pyconfd(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    process.close()


@pytest.fixture(params=["run", "publish", "consume"])
def each(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Process]:
    process = Process(tmp_path, request.param)
    yield process
    process.close()


def test_it_is_ready_without_a_cluster_and_ends_cleanly(each: Process) -> None:
    each.start()
    assert each.hears("READY") == ["READY=1"]
    each.send(signal.SIGTERM)
    assert each.hears("STOPPING") == ["STOPPING=1"]
    assert each.ends() == 0
    assert [event["code"] for event in each.events("daemon.stopped")] == [0]
    (started,) = each.events("daemon.started")
    assert started["config"] == str(each.config)
    assert not (each.folder / "haproxy.cfg").exists()
    # Made by the process, so that it can see and take back what root puts there.
    assert (each.folder / "run" / "allowed").is_dir()


def test_a_hangup_reads_the_settings_again_and_never_says_stopping(each: Process) -> None:
    """STOPPING would have systemd kill the daemon when its TimeoutStopSec is over."""
    each.start()
    each.hears("READY")
    for _ in range(3):
        each.send(signal.SIGHUP)
        assert each.hears("READY") == ["RELOADING=1", "READY=1"]
    each.send(signal.SIGTERM)
    each.hears("STOPPING")
    assert each.ends() == 0
    assert len(each.events("daemon.started")) == 4


def test_hangups_in_a_row_do_not_end_it(each: Process) -> None:
    each.start()
    each.hears("READY")
    for _ in range(200):
        each.send(signal.SIGHUP)
    each.hears("READY")
    each.send(signal.SIGTERM)
    assert each.ends() == 0


def test_settings_that_cannot_be_used_leave_the_former_in_force(each: Process) -> None:
    each.start()
    each.hears("READY")
    good = each.state_dir
    each.write(interval_s='"never"')
    each.send(signal.SIGHUP)
    assert each.hears("READY") == ["RELOADING=1", "READY=1"]
    assert len(each.events("settings.refused")) == 1
    status = each.folder / "run" / "status.json"
    wait_until(lambda: "are still in force" in str(json.loads(status.read_text())["problems"]), "the status says so")
    if each.name != "consume":  # which reads no cluster
        each.write(api_servers="[]")
        each.send(signal.SIGHUP)
        assert each.hears("READY") == ["RELOADING=1", "READY=1"]
        assert len(each.events("settings.refused")) == 2
    if each.name != "publish":  # which locks nothing
        (each.folder / "file").write_text("")
        each.state_dir = each.folder / "file" / "state"
        each.write()
        each.send(signal.SIGHUP)
        assert each.hears("READY") == ["RELOADING=1", "READY=1"]
        assert str(each.state_dir) in str(each.events("settings.refused")[-1])
        each.state_dir = good
    each.write()
    each.send(signal.SIGHUP)
    each.hears("READY")
    wait_until(lambda: "in force" not in str(json.loads(status.read_text())["problems"]), "until they are mended")
    each.send(signal.SIGTERM)
    assert each.ends() == 0


def test_a_reload_ends_with_the_verdict_on_the_settings(each: Process) -> None:
    each.start()
    each.hears("READY")
    assert each.reload().returncode == 0
    each.write(interval_s='"never"')
    refused = each.reload()
    assert refused.returncode == 78
    assert "the former settings are still in force" in refused.stderr
    assert len(each.events("settings.refused")) == 1
    (each.folder / "file").write_text("")
    if each.name != "publish":  # which locks nothing
        good, each.state_dir = each.state_dir, each.folder / "file" / "state"
        each.write()
        assert each.reload().returncode == 78  # only the daemon can say so
        each.state_dir = good
    each.write()
    assert each.reload("--pid", str(each.process.pid if each.process else 0)).returncode == 0
    each.send(signal.SIGTERM)
    assert each.ends() == 0
    assert each.reload().returncode == 1


def test_a_second_one_is_turned_away_and_told_which_is_the_first(pyconfd: Process) -> None:
    pyconfd.start()
    pyconfd.hears("READY")
    assert pyconfd.process is not None
    second = pyconfd.run_another()
    assert second.returncode == 75
    assert f"another pyconfd (pid {pyconfd.process.pid})" in second.stderr
    assert "->" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_state_directory_that_cannot_be_written_is_said(pyconfd: Process) -> None:
    (pyconfd.folder / "file").write_text("")
    pyconfd.state_dir = pyconfd.folder / "file" / "state"
    pyconfd.write()
    done = pyconfd.run_another()
    assert done.returncode == 75
    assert str(pyconfd.state_dir) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_status_page_whose_port_is_taken_stops_nothing_is_shown_and_heals(each: Process) -> None:
    host, _, port = each.page.partition(":")
    with socket.create_server((host, int(port))):
        each.start()
        each.hears("READY")
        status = each.folder / "run" / "status.json"
        wait_until(lambda: status.exists() and each.page in str(json.loads(status.read_text())["problems"]), "shown")
    wait_until(lambda: bool(each.events("status_page.started")), "it listens when the port is free")
    wait_until(lambda: json.loads(status.read_text())["problems"] == [], "the problem is gone")
    assert len(each.events("status_page.failed")) == 1
