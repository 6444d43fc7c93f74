import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pyconfd.errors import Problem, TransientError
from pyconfd.model.status import ApiServerState, Phase, SourceHealth, Status
from pyconfd.settings import Settings, StatusSettings
from pyconfd.status.document import FILE_PAUSE_S, Freshness, StatusFile, StatusReport, decode, read_report
from pyconfd.status.text import render_text
from tests.status.serving import served

NOW = 4_000_000_000.0
"""After the start of any process that these tests can meet."""


@pytest.fixture
def status(make_status: Callable[..., Status]) -> Status:
    source = SourceHealth(synced=True, last_sync_at=NOW - 5)
    return make_status(now=NOW, started_at=NOW - 7500, heartbeat_at=NOW - 1, pid=os.getpid(), source=source)


@pytest.fixture
def dead_pid() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        return process.pid


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(runtime_dir=str(tmp_path), status=StatusSettings(listen=""))


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A listener that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_the_daemon_is_asked_first(settings: Settings, status: Status) -> None:
    StatusFile(settings.runtime_dir).write(replace(status, now=NOW - 900, phase=Phase.FAILED))
    with served(lambda: status) as page:
        report = read_report(replace(settings, status=StatusSettings(listen=page.address)), clock=lambda: NOW)
    assert report.freshness is Freshness.LIVE
    assert report.status == status
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("alive", "written", "read_after_s", "freshness", "words"),
    [
        (True, NOW, 4, Freshness.RECENT_FILE, "from its file, 4 s old"),
        (True, NOW, 300, Freshness.LAST_KNOWN, "does not answer: last known, 5 minutes ago"),
        (True, NOW, -3600, Freshness.LAST_KNOWN, "the clock was set back"),
        (True, 1000.0, 10, Freshness.LAST_KNOWN, "is gone"),  # long before this process was born: another one's number
        (False, NOW, 1, Freshness.LAST_KNOWN, "last known, 1 second ago"),
        (False, NOW, 720, Freshness.LAST_KNOWN, "is gone: last known, 12 minutes ago"),
    ],
)
def test_what_a_file_is_worth(
    settings: Settings,
    status: Status,
    dead_pid: int,
    alive: bool,
    written: float,
    read_after_s: float,
    freshness: Freshness,
    words: str,
) -> None:
    StatusFile(settings.runtime_dir).write(replace(status, now=written, pid=os.getpid() if alive else dead_pid))
    report = read_report(settings, clock=lambda: written + read_after_s)
    assert (report.freshness, report.exit_code) == (freshness, 0 if freshness is Freshness.RECENT_FILE else 3)
    assert words in render_text(report) + str(report.problems)


def test_values_of_a_dead_daemon_are_shown_as_old(settings: Settings, status: Status, dead_pid: int) -> None:
    StatusFile(settings.runtime_dir).write(replace(status, pid=dead_pid))
    text = render_text(read_report(settings, clock=lambda: NOW + 720))
    assert text.startswith("NOT RUNNING")
    assert "last known, 12 minutes ago" in text.splitlines()[0]
    assert "was SERVING" in text
    assert "applied 15 m ago" not in text  # the sample was applied long before
    assert "confirmed 5 s ago" not in text


def test_no_daemon_and_no_file(settings: Settings) -> None:
    report = read_report(settings, clock=lambda: NOW)
    assert (report.freshness, report.exit_code, report.status) == (Freshness.UNKNOWN, 3, None)
    text = render_text(report)
    assert text.startswith("NOT RUNNING")
    assert "systemctl start pyconfd, once there is /etc/pyconfd/pyconfd.toml" in text


def test_a_file_that_is_half_there_or_something_else(settings: Settings) -> None:
    Path(settings.runtime_dir, "status.json").write_text('{"now": 1')
    report = read_report(settings, clock=lambda: NOW)
    assert report.freshness is Freshness.UNKNOWN
    assert "not a status of pyconfd" in render_text(report)


def test_a_page_that_never_answers_falls_back_to_the_file(settings: Settings, status: Status, silent_port: int) -> None:
    StatusFile(settings.runtime_dir).write(status)
    listening = replace(settings, status=StatusSettings(listen=f"127.0.0.1:{silent_port}"))
    report = read_report(listening, clock=lambda: NOW + 4, timeout_s=0.2)
    assert (report.freshness, report.exit_code) == (Freshness.RECENT_FILE, 1)
    assert "no answer" in render_text(report)


def test_a_problem_that_daemon_and_command_found_is_printed_once(status: Status) -> None:
    problem = Problem("/etc/pyconfd/token", "cannot be read: No such file or directory", "write it")
    report = StatusReport(Freshness.RECENT_FILE, NOW, replace(status, problems=(str(problem),)), (problem,))
    assert render_text(report).count("cannot be read") == 1


def test_another_program_on_the_address_is_not_taken_for_pyconfd(settings: Settings, status: Status) -> None:
    def answer(listener: socket.socket) -> None:
        client, _ = listener.accept()
        with client:
            client.recv(65536)
            client.sendall(b"HTTP/1.0 200 OK\r\n\r\n<html>")

    StatusFile(settings.runtime_dir).write(status)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        listening = replace(settings, status=StatusSettings(listen=f"127.0.0.1:{listener.getsockname()[1]}"))
        report = read_report(listening, clock=lambda: NOW)
        thread.join()
    assert report.freshness is Freshness.RECENT_FILE
    assert "not a status of pyconfd" in report.problems[0].message


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.SERVING])
def test_every_phase_but_serving_is_a_problem_for_scripts(status: Status, phase: Phase) -> None:
    assert StatusReport(Freshness.LIVE, NOW, replace(status, phase=phase)).exit_code == 1


def test_old_data_is_a_problem_though_the_phase_says_serving(status: Status) -> None:
    old = replace(status, source=SourceHealth(synced=True, last_sync_at=NOW - 3600))
    report = StatusReport(Freshness.LIVE, NOW, old)
    assert report.exit_code == 1
    assert "the data is 1 h old" in render_text(report)


def test_a_loop_that_hangs_behind_a_living_page_is_a_problem(status: Status) -> None:
    report = StatusReport(Freshness.LIVE, NOW, replace(status, heartbeat_at=NOW - 240))
    assert report.exit_code == 1
    assert "no progress for 4 m" in render_text(report)


def test_the_file_is_for_the_group_and_whole(tmp_path: Path, status: Status) -> None:
    StatusFile(tmp_path / "run").write(status)
    path = tmp_path / "run" / "status.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert decode(path.read_bytes()) == status
    assert list(path.parent.iterdir()) == [path]


def test_the_file_is_written_at_a_change_and_each_period(tmp_path: Path, status: Status) -> None:
    file = StatusFile(tmp_path)
    assert file.update(status)
    assert not file.update(replace(status, now=NOW + 1, heartbeat_at=NOW + 1, events_total=9999))
    assert file.update(replace(status, now=NOW + 1, phase=Phase.HELD))
    assert not file.update(replace(status, now=NOW + 2, phase=Phase.HELD))
    assert file.update(replace(status, now=NOW + 11, phase=Phase.HELD))


def test_an_api_server_that_goes_down_is_a_change_and_its_last_answer_is_none(tmp_path: Path, status: Status) -> None:
    def with_server(**state: object) -> Status:
        server = replace(ApiServerState("https://10.0.0.1", healthy=True, last_ok_at=NOW), **state)  # type: ignore[arg-type]
        return replace(status, source=replace(status.source, api_servers=(server,), last_sync_at=NOW))

    file = StatusFile(tmp_path)
    assert file.update(with_server())
    later = status.now + FILE_PAUSE_S
    assert not file.update(replace(with_server(last_ok_at=NOW + 1), now=later))
    assert file.update(replace(with_server(healthy=False), now=later))


def test_a_file_that_cannot_be_written_stops_nothing_and_heals(tmp_path: Path, status: Status) -> None:
    blocked = tmp_path / "run"
    blocked.write_text("a file where the directory should be")
    file = StatusFile(blocked)
    assert not file.update(status)
    with pytest.raises(TransientError, match="cannot be written"):
        file.write(status)
    blocked.unlink()
    assert file.update(status)


def test_a_stop_writes_what_waited_for_its_time(tmp_path: Path, status: Status) -> None:
    file = StatusFile(tmp_path)
    assert file.update(status)
    last = replace(status, now=NOW + 0.5, phase=Phase.HELD)
    assert not file.update(last)
    file.close()
    assert decode((tmp_path / "status.json").read_bytes()) == last
    (tmp_path / "status.json").unlink()
    file.close()
    assert not (tmp_path / "status.json").exists(), "nothing waits"
