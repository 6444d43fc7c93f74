"""The daemon's life: start, restart, kill, signals, edits, and who may call it how."""

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.expect import (
    all_is_well,
    beats,
    complaints,
    found_in,
    new_pod_answers,
    serving,
    undisturbed,
)
from tests.world.appliance import Appliance
from tests.world.haproxy import free_port

pytestmark = pytest.mark.haproxy


class NotifySocket:
    """What systemd would hear."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)
        self._heard: list[str] = []

    def heard(self) -> list[str]:
        """Return all messages so far but those for the watchdog."""
        while True:
            try:
                message = self._socket.recv(65536).decode()
            except BlockingIOError:
                return self._heard
            if message != "WATCHDOG=1":
                self._heard.append(message)

    def ready(self) -> list[str]:
        """Return the messages that say READY."""
        return [message for message in self.heard() if message.startswith("READY=1")]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[NotifySocket]:
    # The path of a UNIX socket may have 107 bytes.
    folder = Path(os.path.relpath(tmp_path)) if len(str(tmp_path)) > 90 else tmp_path
    listening = NotifySocket(folder)
    yield listening
    listening.close()


@pytest.fixture(autouse=True)
def _as_users_start_it(appliance: Appliance) -> None:
    """What begins here and how it ends is the very command, not a fork of what imported it before."""
    appliance.forks = False


# Start and end


def test_a_restart_changes_nothing(appliance: Appliance) -> None:
    serving(appliance)
    before, generation = appliance.haproxy.running(), appliance.generation
    text = appliance.haproxy.conf.read_bytes()
    with undisturbed(appliance):
        assert appliance.stop() == 0
        appliance.spawn()
        appliance.until(appliance.settled, "it serves again")
        beats(appliance)
        assert appliance.haproxy.running() == before
        assert appliance.generation == generation
        assert appliance.haproxy.conf.read_bytes() == text
        new_pod_answers(appliance)


def test_a_kill_under_load_disturbs_nobody_and_the_next_start_catches_up(appliance: Appliance) -> None:
    serving(appliance)
    with undisturbed(appliance):
        appliance.scale_up("shop")
        appliance.kill()
        missed = appliance.scale_up("shop")
        status = appliance.command("status")
        assert status.returncode == 3
        assert "NOT RUNNING" in status.stdout
        assert "last known" in status.stdout
        appliance.spawn()
        appliance.until(lambda: appliance.ask("shop") == missed, "what was missed is applied")
    all_is_well(appliance)

    def leftovers() -> list[Path]:
        found = (path for path in found_in(appliance.folder) if path.name.startswith(".pyconfd-"))
        return [path for path in found if path.parent.name != "run"]

    appliance.until(lambda: not leftovers(), "nothing is left behind once the file has followed")


def test_sigterm_ends_in_time_and_haproxy_goes_on(appliance: Appliance, systemd: NotifySocket) -> None:
    appliance.serve("shop")
    appliance.start(NOTIFY_SOCKET=systemd.path)
    appliance.until(appliance.settled, "it serves")
    appliance.until(systemd.ready, "systemd is told")
    assert "STATUS=serving generation 1" in systemd.ready()[0]
    before = appliance.haproxy.running()
    assert appliance.stop() == 0
    assert systemd.heard()[-1].startswith("STOPPING=1")
    assert appliance.haproxy.running() == before
    assert appliance.ask("shop") == "shop-1"


def test_a_boot_without_api_server_serves_the_last_good_generation(appliance: Appliance, systemd: NotifySocket) -> None:
    appliance.values["apply"]["boot_wait_s"] = 0.5
    serving(appliance)
    appliance.stop()
    appliance.haproxy.stop()
    appliance.haproxy.conf.unlink()
    (server,) = appliance.servers
    server.refuse()
    appliance.start(NOTIFY_SOCKET=systemd.path)
    appliance.until(lambda: appliance.ask("shop") == "shop-1", "the last good generation serves")
    appliance.until(systemd.ready, "systemd is told that it is decided")
    assert "haproxy: has just started" in systemd.ready()[0]
    appliance.until(lambda: "serving last good" in systemd.heard()[-1], "systemd is told that it serves")
    assert appliance.get("/healthz")[0] == 200
    assert appliance.get("/readyz")[0] == 200
    assert appliance.command("status").returncode == 1
    pod = appliance.scale_up("shop")
    server.listen()
    appliance.until(lambda: appliance.ask("shop") == pod, "the cluster's state is applied when it can be had")
    appliance.until(lambda: appliance.get("/readyz")[0] == 200, "ready")
    all_is_well(appliance)


def test_a_boot_with_nothing_at_all_waits_and_says_so(appliance: Appliance, systemd: NotifySocket) -> None:
    appliance.values["apply"]["boot_wait_s"] = 0.5
    appliance.serve("shop")
    (server,) = appliance.servers
    server.refuse()
    appliance.spawn(NOTIFY_SOCKET=systemd.path)
    appliance.until(systemd.ready, "systemd is told that it is decided")
    assert "STATUS=waiting" in systemd.ready()[0]
    assert appliance.get("/healthz")[0] == 200
    code, why = appliance.get("/readyz")
    assert (code, "nothing to serve" in why) == (503, True)
    code, metrics = appliance.get("/metrics")
    assert code == 200
    assert f'server="{server.url}"' in metrics
    assert "WAITING" in appliance.command("status").stdout
    assert not appliance.haproxy.conf.exists()
    server.listen()
    appliance.until(appliance.haproxy.conf.exists, "the first configuration is written")
    appliance.haproxy.start()
    all_is_well(appliance)
    assert appliance.get("/readyz")[0] == 200
    assert appliance.command("status").returncode == 0


def test_a_second_pyconfd_on_the_same_state_directory_ends_with_a_clear_message(appliance: Appliance) -> None:
    serving(appliance)
    assert appliance.daemon is not None
    second = appliance.command("run")
    assert second.returncode == 75
    assert f"another pyconfd (pid {appliance.daemon.pid})" in second.stderr
    assert "state_dir" in second.stderr
    assert "Traceback" not in second.stderr
    new_pod_answers(appliance)


# Settings and fragments


def test_sighup_reads_settings_and_fragments_again(appliance: Appliance, systemd: NotifySocket) -> None:
    appliance.serve("shop")
    appliance.start(NOTIFY_SOCKET=systemd.path)
    appliance.until(appliance.settled, "it serves")
    appliance.until(systemd.ready, "systemd is told")
    assert appliance.daemon is not None
    pid, before = appliance.daemon.pid, appliance.haproxy.running()
    other = free_port()
    with undisturbed(appliance):
        appliance.values["templates.vars"]["stats_bind"] = f"127.0.0.1:{other}"
        appliance.write_settings()
        appliance.hang_up()
        appliance.until(lambda: f"127.0.0.1:{other}" in appliance.haproxy.conf.read_text(), "the new bind is there")
        appliance.until(lambda: len(systemd.ready()) == 2, "ready again")
    assert any(message.startswith("RELOADING=1") for message in systemd.heard())
    assert not any(message.startswith("STOPPING=1") for message in systemd.heard()), "systemd would kill it"
    assert appliance.daemon.pid == pid
    assert before is not None
    all_is_well(appliance)


def test_many_hangups_at_once_kill_nobody(appliance: Appliance) -> None:
    serving(appliance)
    before = appliance.haproxy.running()
    for _ in range(19):
        appliance.hang_up()
    appliance.reload_settings()
    for _ in range(20):
        appliance.hang_up()
        appliance.ask("shop")
    all_is_well(appliance)
    new_pod_answers(appliance)
    assert before is not None
    assert appliance.stop() == 0


def test_sighup_with_settings_that_cannot_be_used_keeps_the_old_ones(appliance: Appliance) -> None:
    serving(appliance)
    good = appliance.config.read_text()
    page = f'[status]\nlisten = "127.0.0.1:{appliance.page}"\n[log]\nformat = "json"\n'
    dirs = "".join(f'{name} = "{path}"\n' for name, path in appliance.values[""].items())
    with undisturbed(appliance):
        for number, (broken, word) in enumerate(
            (("[haproxy\n", "pyconfd.toml"), ('[haproxy]\nbinry = "x"\n', "binry"), ("", "API server")), start=2
        ):
            appliance.config.write_text(dirs + page + broken)
            appliance.hang_up()
            appliance.until(lambda word=word: complaints(appliance, "settings.refused", word), "it says so")  # type: ignore[misc]
            appliance.until(
                lambda number=number: len(appliance.events("fragments.read")) == number,  # type: ignore[misc]
                "it goes on with the old ones",
            )
        assert len(complaints(appliance, "settings.refused")) == 3
        new_pod_answers(appliance)
        appliance.config.write_text(good)
        appliance.reload_settings()
    all_is_well(appliance)


def test_a_configmap_that_is_swapped_applies_as_a_whole(appliance: Appliance) -> None:
    """The kubelet mounts files as links through ``..data``, which it swaps in one rename."""
    templates = appliance.own_fragments()
    first, second = templates / "..2026_01", templates / "..2026_02"
    first.mkdir()
    for path in [*templates.glob("*.conf"), *templates.glob("*.tmpl")]:
        path.rename(first / path.name)
    (templates / "..data").symlink_to(first.name)
    for path in first.iterdir():
        (templates / path.name).symlink_to(f"..data/{path.name}")
    serving(appliance)
    shutil.copytree(first, second)
    with (second / "01-defaults.conf").open("a") as file:
        file.write("# the second\n")
    with undisturbed(appliance):
        (templates / "..data.new").symlink_to(second.name)
        (templates / "..data.new").rename(templates / "..data")
        shutil.rmtree(first)
        appliance.until(lambda: "# the second" in appliance.haproxy.conf.read_text(), "the swap is applied")
    all_is_well(appliance)
    assert complaints(appliance) == []


# What stays equal


def test_an_installed_file_that_was_edited_by_hand_is_repaired(appliance: Appliance) -> None:
    serving(appliance)
    text = appliance.haproxy.conf.read_text()
    with undisturbed(appliance):
        appliance.haproxy.conf.write_text(text.replace("mode http", "mode tcp"))
        appliance.until(lambda: appliance.haproxy.conf.read_text() == text, "the file is repaired")
        appliance.until(lambda: "file_edited" in appliance.status()["reloads_by_reason"], "and it is said why")
    all_is_well(appliance)


def test_polling_gives_the_same_result_as_watching(appliance: Appliance) -> None:
    (server,) = appliance.servers
    serving(appliance)
    watched = appliance.haproxy.conf.read_bytes()
    appliance.stop()
    appliance.values["kubernetes"] |= {"mode": "poll", "interval_s": 0.2}
    before = appliance.haproxy.running()
    requests = len(server.seen(verb="watch"))
    appliance.spawn()
    appliance.until(appliance.settled, "it serves")
    assert (appliance.haproxy.conf.read_bytes(), appliance.haproxy.running()) == (watched, before)
    new_pod_answers(appliance)
    assert len(server.seen(verb="watch")) == requests
