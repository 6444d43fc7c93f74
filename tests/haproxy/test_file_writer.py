"""The file behind the process, and what a killed pyconfd leaves of a change that it had begun."""

import resource
import time
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pyconfd.errors import Problem, TransientError
from pyconfd.haproxy.process import file_writer
from pyconfd.haproxy.process.file_writer import FileWriter, UnfinishedChange
from pyconfd.model.outcome import Generation, Stored
from pyconfd.model.rendering import Piece, Rendering
from tests.world.haproxy import wait_until

STORED = Stored(Generation(1, "", 1.0, ""), Rendering((Piece("a", "b"),)))


def test_what_keeps_the_file_behind_is_said_once_and_again_after_it_was_gone() -> None:
    problems = [Problem("/etc/haproxy", "the disk is full")]

    def write(_: Stored) -> None:
        if problems:
            raise TransientError(*problems)

    file = FileWriter(write)
    try:
        with capture_logs() as logs:
            for _ in range(3):
                file.write_later(STORED)
                file.settle()
        assert [line["event"] for line in logs] == ["file.write_failed"]
        assert file.problems() == tuple(problems)
        problems.clear()
        file.retry()
        file.settle()
        assert not file.pending
        problems.append(Problem("/etc/haproxy", "the disk is full"))
        with capture_logs() as logs:
            file.write_later(STORED)
            file.settle()
        assert [line["event"] for line in logs] == ["file.write_failed"]
    finally:
        file.close()


def test_changes_that_keep_coming_are_written_together_and_a_stop_writes_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_writer, "SHARE", 1e-6)  # the pause is as long as it may be
    written: list[int] = []

    def write(stored: Stored) -> None:
        written.append(stored.generation.number)
        time.sleep(0.001)

    file = FileWriter(write)
    file.write_later(STORED)
    wait_until(lambda: not file.pending, "the first is written at once")
    for number in range(2, 6):
        file.write_later(Stored(replace(STORED.generation, number=number), STORED.rendering))
    assert file.pending
    assert written == [1]
    file.close()
    assert not file.pending
    assert written == [1, 5]


def left_in(folder: Path, pid: int = 4711) -> bool:
    return UnfinishedChange(str(folder)).was_left(pid)


def test_a_change_is_unfinished_until_the_file_says_what_it_is(tmp_path: Path) -> None:
    unfinished = UnfinishedChange(str(tmp_path))
    assert not left_in(tmp_path)
    unfinished.begin(1, 4711)
    assert left_in(tmp_path)
    unfinished.end(1)
    assert not left_in(tmp_path)


def test_a_file_that_is_level_with_an_older_change_ends_nothing(tmp_path: Path) -> None:
    unfinished = UnfinishedChange(str(tmp_path))
    unfinished.begin(1, 4711)
    unfinished.begin(2, 4711)
    unfinished.end(1)
    assert left_in(tmp_path)
    unfinished.end(2)
    assert not left_in(tmp_path)


def test_a_reload_ends_it_whatever_was_begun(tmp_path: Path) -> None:
    unfinished = UnfinishedChange(str(tmp_path))
    unfinished.begin(1, 4711)
    unfinished.forget()
    assert not left_in(tmp_path)
    unfinished.begin(2, 4712)
    assert left_in(tmp_path, 4712)


def test_a_state_directory_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    unfinished = UnfinishedChange(str(tmp_path / "absent"))
    unfinished.begin(1, 4711)
    unfinished.end(1)
    assert not left_in(tmp_path / "absent")


def test_a_file_that_says_nonsense_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "unfinished").write_bytes(b"\xff\xfe")
    assert not left_in(tmp_path)


def test_another_worker_is_none_that_was_being_changed(tmp_path: Path) -> None:
    UnfinishedChange(str(tmp_path)).begin(1, 4711)
    assert not left_in(tmp_path, 4712)
    again = UnfinishedChange(str(tmp_path))
    assert (again.was_left(4711), again.was_left(4711)) == (True, False)


def test_a_disk_that_is_too_full_for_the_number_leaves_a_change_that_is_unfinished(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
        UnfinishedChange(str(tmp_path)).begin(1, 4711)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert left_in(tmp_path)
    assert left_in(tmp_path, 4712), "nobody knows which worker it was"
