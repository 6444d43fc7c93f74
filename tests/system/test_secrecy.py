"""What is known to be secret is in nothing that is said."""

import io
import threading

import pytest

from pyconfd.cli.exits import Boundary, Exit
from pyconfd.errors import Problem, TransientError
from pyconfd.status.logging import configure
from pyconfd.system.secrecy import hide, known_secrets, without_secrets
from tests.world.log import logging_restored


def test_the_longest_goes_first_and_the_short_ones_are_no_secrets() -> None:
    hide(["aaaa1", "aaaa1bbbb2", "xy", ""])
    assert without_secrets("aaaa1bbbb2 and aaaa1, xy") == "[hidden] and [hidden], xy"


def test_the_oldest_of_very_many_are_forgotten() -> None:
    hide(f"token-{number:04}" for number in range(1000))
    assert without_secrets("token-0999") == "[hidden]"
    assert without_secrets("token-0000") == "token-0000"


def test_the_output_of_a_crash_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    hide(["planted-in-a-crash"])
    with pytest.raises(SystemExit) as ended, Boundary():
        raise RuntimeError("lost planted-in-a-crash")
    said = capsys.readouterr().err
    assert ended.value.code == Exit.BUG
    assert "RuntimeError: lost [hidden]" in said
    assert "planted-in-a-crash" not in said


def test_a_message_of_a_command_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    hide(["planted-in-a-message"])
    with pytest.raises(SystemExit), Boundary():
        raise TransientError(Problem("x", "saw planted-in-a-message", "not planted-in-a-message"))
    assert "planted" not in capsys.readouterr().err


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_thread_that_crashes_tells_of_it_without_secrets(style: str) -> None:
    hide(["planted-in-a-thread"])
    stream = io.StringIO()

    def crash() -> None:
        raise RuntimeError("lost planted-in-a-thread")

    with logging_restored():
        configure("INFO", style, stream=stream)
        thread = threading.Thread(target=crash, name="reader")
        thread.start()
        thread.join()
    assert "thread.crashed" in stream.getvalue()
    assert "lost [hidden]" in stream.getvalue()
    assert "planted" not in stream.getvalue()


def test_a_token_that_is_read_again_changes_no_order() -> None:
    hide(["token-b", "token-a", "longer-than-these"])
    known = known_secrets()
    assert known[0] == "longer-than-these"
    hide(["token-b"])
    assert known_secrets() == known
