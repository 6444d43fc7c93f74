"""What runs beside the hook's loop: jobs, and the log."""

import io
import sys
from threading import Event

import pytest

from pyconfd.vip.output import MOST_LINES, SLOW_S, Background, LogStream
from tests.vip.network import wait_for


def full() -> None:
    raise OSError(28, "No space left on device")


def test_a_job_that_hangs_is_reported_until_it_ends() -> None:
    free, background = Event(), Background("test")
    background.start(lambda: assert_(free.wait(60)), 10.0)
    assert not background.idle
    assert background.error(10.0 + SLOW_S / 2) == ""
    assert "hang" in background.error(10.0 + SLOW_S)
    free.set()
    wait_for("the end of the job", lambda: background.idle)
    assert background.error(99.0) == ""
    background.close()


def assert_(value: object) -> None:
    assert value


def test_an_error_is_reported_until_a_job_succeeds() -> None:
    background = Background("test")
    for job, error in ((full, "No space left on device"), (lambda: None, "")):
        background.start(job, 0.0)
        wait_for("the end of the job", lambda: background.idle)
        assert background.error(99.0) == error
    background.close()


class Journal(io.StringIO):
    """Standard error that nothing reads until :attr:`read`."""

    def __init__(self) -> None:
        super().__init__()
        self.read_ = Event()
        self.has_line = Event()

    def write(self, text: str) -> int:
        self.has_line.set()
        assert self.read_.wait(60)
        return super().write(text)


def test_a_log_that_nothing_reads_loses_lines_and_not_time(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal()
    monkeypatch.setattr(sys, "stderr", journal)
    stream = LogStream()
    stream.write("0\n")
    # The thread has the first line, and takes no other before that is written.
    assert journal.has_line.wait(60)
    for number in range(1, MOST_LINES + 11):
        stream.write(f"{number}\n")
    journal.read_.set()
    stream.close()
    lines = journal.getvalue().splitlines()
    assert lines[-1] == str(MOST_LINES)
    (lost,) = [line for line in lines if "dropped" in line]
    assert int(lost.split()[0]) + len(lines) - 1 == MOST_LINES + 11
