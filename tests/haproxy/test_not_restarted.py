"""A haproxy that runs with the command line that it had before pyconfd was installed."""

import os
import socket
from pathlib import Path

import pytest

from pyconfd.errors import ApplyError
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.haproxy_process import HaproxyProcess
from pyconfd.haproxy.process.observation import NotRunning, UnknownProcess
from pyconfd.haproxy.process.prerequisites import FIRST_START, process
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.finding import Level
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.settings import ApplySettings, HaproxySettings, ReloadMethod
from tests.haproxy.bench import Bench

NOBODY = 65534
RESTART = "systemctl restart haproxy.service"


def installed(folder: Path) -> tuple[HaproxySettings, UnitFacts]:
    """Return the settings, and a unit whose drop-in has come and that was not started since."""
    conf, master = str(folder / "haproxy.cfg"), str(folder / "master.sock")
    unit = UnitFacts("haproxy.service", found=True, configurations=(conf,), master_socket=master)
    return HaproxySettings(conf=conf, reload_method=ReloadMethod.SYSTEMD, reload_timeout_s=1.0), unit


@pytest.mark.parametrize("said", ["Access denied", "Interactive authentication required."])
def test_a_refused_reload_says_to_restart_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\necho 'Failed to reload-or-restart haproxy.service: {said}' >&2\nexit 4\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("pyconfd.haproxy.process.haproxy_process.SETTLE_S", 0.05)  # nothing runs that could settle
    settings, unit = installed(tmp_path)
    for state in (NotRunning(), UnknownProcess("it does not say")):
        with pytest.raises(ApplyError) as caught:
            HaproxyProcess(settings, unit).reload("0" * 64, [], state)
        assert RESTART in caught.value.problems[0].remedy
    # One that was restarted left its socket: where it does not run it has to be started, else the refusal is told.
    Path(unit.master_socket).touch()
    with pytest.raises(ApplyError, match="is not running") as caught:
        HaproxyProcess(settings, unit).reload("0" * 64, [], NotRunning())
    assert "systemctl start haproxy.service" in caught.value.problems[0].remedy
    with pytest.raises(ApplyError, match=said):
        HaproxyProcess(settings, unit).reload("0" * 64, [], UnknownProcess("it does not say"))


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes nobody")
def test_preflight_says_to_restart_it_and_not_to_start_it() -> None:
    settings, unit = installed(Path("/run/no-pyconfd-here"))
    os.seteuid(NOBODY)
    try:
        found = list(process(settings, unit, ""))
    finally:
        os.seteuid(0)
    warnings = [each.remedy for each in found if each.level is Level.WARNING]
    assert len(warnings) == 2
    assert all(RESTART in remedy for remedy in warnings)


def test_a_port_that_the_former_haproxy_may_hold_says_so_first(tmp_path: Path) -> None:
    settings, unit = installed(tmp_path)
    balancer = Balancer(settings, ApplySettings(), str(tmp_path / "state"), unit=unit)
    with socket.create_server(("127.0.0.1", 0)) as former:
        text = f"frontend a\n bind 127.0.0.1:{former.getsockname()[1]}\n"
        first, second = balancer.bind_problems(Rendering((Piece("a.conf", text),)))
    assert RESTART in first.remedy
    assert "is taken" in second.message


def test_what_keeps_haproxy_running_until_the_first_configuration_lacks_no_runtime_socket(bench: Bench) -> None:
    prestart = Path(__file__).parents[2] / "systemd" / "pyconfd-haproxy-prestart"
    assert f"printf '{FIRST_START} " in prestart.read_text()
    bench.serve()

    def told(text: str) -> list[str]:
        return [each.what for each in process(bench.haproxy.settings(), UnitFacts(), text)]

    own = "global\n stats socket /run/no-pyconfd-here/bootstrap.sock mode 600 level user\n"
    assert "runtime socket" in told(own)
    assert "runtime socket" not in told(FIRST_START + "\n" + own)
