"""A fork that becomes pyconfd is a process like the one that users start."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.world import forked
from tests.world.appliance import Appliance


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Appliance]:
    with Appliance(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("settings", "--defaults"), 0), (("--nonsense",), 64), (("settings", "--interval", "never"), 78)],
)
def test_a_command_says_and_ends_as_the_real_one(world: Appliance, arguments: tuple[str, ...], code: int) -> None:
    found = world.run(*arguments, REFRESH_INTERVAL="15")
    world.forks = False
    real = world.run(*arguments, REFRESH_INTERVAL="15")
    assert (found.returncode, real.returncode) == (code, code)
    assert (found.stdout, found.stderr) == (real.stdout, real.stderr)
    assert found.stdout or found.stderr


def test_it_has_the_environment_and_the_folder_of_its_start(world: Appliance, tmp_path: Path) -> None:
    (tmp_path / "pyconfd.toml").write_text("[haproxy]\nconf = '/srv/here.cfg'\n")
    former = Path.cwd()
    os.chdir(tmp_path)
    try:
        found = world.run("settings", "--config", "pyconfd.toml", "--json", REFRESH_INTERVAL="15")
    finally:
        os.chdir(former)
    settings: dict[str, Any] = json.loads(found.stdout)["settings"]
    assert settings["haproxy.conf"]["value"] == "/srv/here.cfg"
    assert settings["kubernetes.interval_s"]["value"] == 15
    again = json.loads(world.run("settings", "--json").stdout)["settings"]
    assert again["kubernetes.interval_s"]["value"] != 15


def test_what_counts_when_python_starts_asks_for_the_real_one() -> None:
    assert forked.fits(Appliance.environment(REFRESH_INTERVAL="15"))
    assert not forked.fits(Appliance.environment(PYTHONIOENCODING="ascii"))
    assert not forked.fits(Appliance.environment(LC_ALL="C.never"))


def test_a_daemon_has_nothing_of_the_process_that_it_was_forked_from(world: Appliance) -> None:
    world.spawn()
    world.until(lambda: world.get("/healthz")[0], "the page answers")
    assert isinstance(world.daemon, forked.Forked)
    pid = world.daemon.pid
    parent = int(next(line.split()[1] for line in _status(pid) if line.startswith("PPid:")))
    assert parent != os.getpid()
    assert not _open(pid) & _open(parent)
    assert Path(f"/proc/{pid}/fd/1").readlink() == world.log
    with pytest.raises(subprocess.TimeoutExpired):
        world.daemon.wait(0.01)
    assert world.daemon.poll() is None
    assert world.stop() == 0
    assert not Path(f"/proc/{pid}").exists()


def test_two_daemons_one_after_the_other_have_an_order_of_sets_each(world: Appliance) -> None:
    parents = set()
    for _ in range(2):
        world.spawn()
        assert isinstance(world.daemon, forked.Forked)
        parents.add(next(line for line in _status(world.daemon.pid) if line.startswith("PPid:")))
        world.kill()
    assert len(parents) == 2


@pytest.mark.parametrize("killer", [signal.SIGKILL, signal.SIGABRT])
def test_a_signal_is_an_exit_status(world: Appliance, killer: signal.Signals) -> None:
    world.spawn()
    assert world.daemon is not None
    world.daemon.send_signal(killer)
    assert world.daemon.wait(60) == -killer
    world.daemon.send_signal(killer)
    assert world.stop() == -killer


def _status(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/status").read_text().splitlines()


def _open(pid: int) -> set[str]:
    """Give what a process has open beside its standard streams, without what each process has of its own."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if int(entry.name) > 2:
                found.add(str(entry.readlink()))
    return {link for link in found if not link.startswith("anon_inode")}
