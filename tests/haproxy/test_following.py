"""The file behind the process: what is in its way is said once."""

import time
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from pyconfd.errors import Problem, TransientError
from pyconfd.haproxy import following
from pyconfd.haproxy.following import FollowingFile
from pyconfd.model.outcome import Generation, Stored
from pyconfd.model.rendering import Piece, Rendering
from tests.world.haproxy import wait_until

STORED = Stored(Generation(1, "", 1.0, ""), Rendering((Piece("a", "b"),)))


def test_what_keeps_the_file_behind_is_said_once_and_again_after_it_was_gone() -> None:
    problems = [Problem("/etc/haproxy", "the disk is full")]

    def write(_: Stored) -> None:
        if problems:
            raise TransientError(*problems)

    file = FollowingFile(write)
    try:
        with capture_logs() as logs:
            for _ in range(3):
                file.follow(STORED)
                file.settle()
        assert [line["event"] for line in logs] == ["file.behind"]
        assert file.problems() == tuple(problems)
        problems.clear()
        file.retry()
        file.settle()
        assert not file.behind
        problems.append(Problem("/etc/haproxy", "the disk is full"))
        with capture_logs() as logs:
            file.follow(STORED)
            file.settle()
        assert [line["event"] for line in logs] == ["file.behind"]
    finally:
        file.close()


def test_changes_that_keep_coming_are_written_together_and_a_stop_writes_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "SHARE", 1e-6)  # the pause is as long as it may be
    written: list[int] = []

    def write(stored: Stored) -> None:
        written.append(stored.generation.number)
        time.sleep(0.001)

    file = FollowingFile(write)
    file.follow(STORED)
    wait_until(lambda: not file.behind, "the first is written at once")
    for number in range(2, 6):
        file.follow(Stored(replace(STORED.generation, number=number), STORED.rendering))
    assert file.behind
    assert written == [1]
    file.close()
    assert not file.behind
    assert written == [1, 5]
