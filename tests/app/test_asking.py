"""What a running pyconfd is asked, by the file that it leaves."""

import json
import os
from itertools import islice
from pathlib import Path

import pytest

from pyconfd import app
from pyconfd.app.holds import Holds
from pyconfd.errors import RejectedInput, TransientError
from pyconfd.model.changes import Action, Change
from pyconfd.model.status import Phase, Status
from pyconfd.settings import Settings, StatusSettings
from pyconfd.status.changes import ChangeLog
from pyconfd.status.report import StatusFile
from pyconfd.wiring import SystemClock


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        status=StatusSettings(listen=""), state_dir=str(tmp_path / "state"), runtime_dir=str(tmp_path / "run")
    )


def _left_behind(settings: Settings, *, pid: int, phase: Phase, hold_id: str = "") -> None:
    # Of this moment, by the clock of the machine: the report judges its age.
    now = SystemClock().now()
    status = Status(now, "0", pid, started_at=now, heartbeat_at=now, phase=phase, hold_id=hold_id)
    StatusFile(settings.runtime_dir).write(status)


def test_status_without_a_daemon(settings: Settings) -> None:
    report = app.status(settings)
    assert not report.alive
    assert report.exit_code == 3
    assert report.status is None
    assert report.text


def test_status_out_of_the_file(settings: Settings) -> None:
    _left_behind(settings, pid=os.getpid(), phase=Phase.HELD, hold_id="0123abcd")
    report = app.status(settings)
    assert report.alive
    assert report.exit_code == 1
    assert report.status is not None
    assert json.loads(json.dumps(report.status))["hold_id"] == "0123abcd"
    assert "0123abcd" in report.text


def test_a_hold_is_allowed_by_its_id(settings: Settings) -> None:
    holds = Holds(settings.runtime_dir)
    holds.prepare()
    _left_behind(settings, pid=os.getpid(), phase=Phase.HELD, hold_id="0123abcd")
    assert "within two seconds" in app.allow(settings, "0123abcd")
    assert holds.allowed() == {"0123abcd"}


def test_what_is_allowed_waits_for_the_end_of_a_pause_of_which_the_daemon_knows_nothing_yet(settings: Settings) -> None:
    Holds(settings.runtime_dir).prepare()
    _left_behind(settings, pid=os.getpid(), phase=Phase.HELD, hold_id="0123abcd")
    Path(settings.state_dir).mkdir()
    app.pause(settings, for_s=None, reason="")
    assert "pyconfd resume" in app.allow(settings, "0123abcd")


def test_what_is_not_held_cannot_be_allowed(settings: Settings) -> None:
    with pytest.raises(RejectedInput, match="no daemon runs"):
        app.allow(settings, "0123abcd")
    _left_behind(settings, pid=os.getpid(), phase=Phase.HELD, hold_id="0123abcd")
    with pytest.raises(RejectedInput, match="what is held is 0123abcd"):
        app.allow(settings, "../../etc")
    with pytest.raises(TransientError, match="cannot be written"):
        app.allow(settings, "0123abcd")
    _left_behind(settings, pid=os.getpid(), phase=Phase.SERVING)
    with pytest.raises(RejectedInput, match="nothing is held"):
        app.allow(settings, "0123abcd")


def _changed(log: ChangeLog, *numbers: int) -> None:
    for number in numbers:
        log.record(Change(1000.0, number, Action.LIVE, f"shop +{number} servers", (), (), 0.001))
    assert log.flush()


def test_watching_begins_with_the_last_ten_and_goes_on(settings: Settings) -> None:
    log = ChangeLog(settings.runtime_dir)
    _changed(log, *range(1, 16))
    watched = app.watch(settings, pause=lambda _: _changed(log, 16))
    assert [each.values["generation"] for each in islice(watched, 11)] == [*range(6, 16), 16]
    watched.close()  # type: ignore[attr-defined]


def test_watching_from_a_generation_on(settings: Settings) -> None:
    log = ChangeLog(settings.runtime_dir)
    _changed(log, *range(1, 16))
    watched = app.watch(settings, 3, pause=lambda _: _changed(log, 16))
    found = list(islice(watched, 13))
    assert [each.values["generation"] for each in found] == [*range(4, 16), 16]
    assert found[0].text.endswith("shop +4 servers, live 1.0 ms, no reload, generation 4")
    assert found[0].values["action"] == "live"
    watched.close()  # type: ignore[attr-defined]
