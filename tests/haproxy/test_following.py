"""The file behind the process: what is in its way is said once."""

from structlog.testing import capture_logs

from pyconfd.errors import Problem, TransientError
from pyconfd.haproxy.following import FollowingFile
from pyconfd.model.outcome import Generation, Stored
from pyconfd.model.rendering import Piece, Rendering

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
