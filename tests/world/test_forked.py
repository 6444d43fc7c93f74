"""A fork that becomes pyconfd is a process like the one that users start."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.world import forked
from tests.world.appliance import Appliance


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Appliance]:
    with Appliance(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("settings", "--config", "pyconfd.toml"), 0),
        (("--nonsense",), 64),
        (("settings", "--interval", "never"), 78),
    ],
)
def test_a_command_says_and_ends_as_the_real_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyconfd.toml").write_text("[haproxy]\nconf = '/srv/here.cfg'\n")
    environment = Appliance.environment(REFRESH_INTERVAL="15")
    assert forked.fits(environment)
    found, real = (forked.run(arguments, environment, forks=forks) for forks in (True, False))
    assert (found.returncode, real.returncode) == (code, code)
    assert (found.stdout, found.stderr) == (real.stdout, real.stderr)
    assert found.stdout or found.stderr


@pytest.mark.parametrize("variable", ["PYTHONIOENCODING", "LC_ALL"])
def test_what_counts_when_python_starts_asks_for_the_real_one(variable: str) -> None:
    assert not forked.fits(Appliance.environment(**{variable: "ascii"}))


def test_a_daemon_ends_by_itself_and_by_signals(world: Appliance) -> None:
    world.servers[0].refuse()  # or a stop waits for the haproxy of the first configuration
    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        world.spawn()
        world.until(lambda: world.get("/healthz")[0], "the page answers")
        daemon = world.daemon
        assert isinstance(daemon, forked.Forked)
        assert Path(f"/proc/{daemon.pid}/fd/1").readlink() == world.log
        assert daemon.poll() is None
        os.kill(daemon.pid, number)
        assert daemon.wait(60) == code
        daemon.send_signal(number)
        assert world.stop() == code
