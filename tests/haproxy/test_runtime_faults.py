"""Every kind of broken answer ends in an error that says so, and the next batch is none the worse for it."""

from collections.abc import Iterator

import pytest

from pyconfd.haproxy.runtime.runtime import FORMER_ANSWERS_S, NotConfirmed, Runtime
from pyconfd.haproxy.runtime.sockets import NoAnswer, RuntimeSocket
from pyconfd.model.operations import RemoveServer, SetWeight
from tests.haproxy.broken_socket import BrokenSocket, Fault

BROKEN = [fault for fault in Fault if fault not in {Fault.GOOD, Fault.ENDLESS}]
TIMEOUT_S = 1.0
"""How long a hanging socket is waited for here: no answer of a fake that works takes nearly as long."""


@pytest.fixture
def broken() -> Iterator[BrokenSocket]:
    with BrokenSocket() as made:
        yield made


def connected(broken: BrokenSocket) -> Runtime:
    runtime = Runtime(timeout_s=TIMEOUT_S)
    assert runtime.connect([broken.path]).runtime
    return runtime


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("when", ["set server be/one weight 7", "show servers state be", "show info", "show cli level"])
def test_a_broken_answer_is_never_taken_for_a_good_one(broken: BrokenSocket, fault: Fault, when: str) -> None:
    runtime = connected(broken)
    runtime.execute([SetWeight("be", "one", 3)])
    broken.break_next(fault, when)
    # Closed before the first answer, nothing was carried out: that is tried again by itself.
    retried = fault is Fault.CLOSED and when == "show info"
    if retried:
        runtime.execute([SetWeight("be", "one", 7)])
    else:
        with pytest.raises(NotConfirmed):
            runtime.execute([SetWeight("be", "one", 7)])
    assert broken.fault is Fault.GOOD  # it was met
    runtime.connect([broken.path])
    runtime.execute([SetWeight("be", "one", 9)])
    assert broken.weight == 9
    runtime.close()


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("when", ["prompt", "set timeout cli", "help", "show info"])
def test_a_socket_that_is_broken_from_the_start_can_do_nothing(broken: BrokenSocket, fault: Fault, when: str) -> None:
    runtime = Runtime(timeout_s=TIMEOUT_S)
    broken.break_next(fault, when)
    abilities = runtime.connect([broken.path])
    harmless = fault in {Fault.ERROR_TEXT, Fault.GARBAGE} and when in {"prompt", "set timeout cli"}
    assert abilities.runtime or not harmless
    assert runtime.connect([broken.path]).runtime
    runtime.execute([SetWeight("be", "one", 9)])
    assert broken.weight == 9
    runtime.close()


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("at", range(6))
def test_answers_are_never_given_to_another_command(broken: BrokenSocket, fault: Fault, at: int) -> None:
    questions = [f"get map m k{number}" for number in range(6)]
    with_socket = RuntimeSocket(broken.path, timeout_s=TIMEOUT_S)
    broken.break_next(fault, questions[at])
    try:
        _, answers = with_socket.ask(questions)
    except NoAnswer:
        pass
    else:
        assert fault in {Fault.ERROR_TEXT, Fault.GARBAGE}  # wrong, but one answer to one command
        assert ["v-" in answer for answer in answers] == [number != at for number in range(6)]
    for _ in range(2):
        _, answers = with_socket.ask(questions)
        assert [f'value="v-k{number}"' in answer for number, answer in enumerate(answers)] == [True] * 6
    with_socket.close()


def test_an_answer_without_end_is_given_up(broken: BrokenSocket) -> None:
    limited = RuntimeSocket(broken.path, timeout_s=TIMEOUT_S, max_answer_bytes=1_000_000)
    broken.break_next(Fault.ENDLESS, "show map")
    with pytest.raises(NoAnswer, match="does not end"):
        limited.ask(["show map m"])
    assert len(limited.ask(["get map m k1"])[1]) == 1
    limited.close()


def test_a_connection_that_was_closed_meanwhile_is_opened_again(broken: BrokenSocket) -> None:
    runtime = connected(broken)
    runtime.execute([SetWeight("be", "one", 3)])
    broken.disconnect()
    runtime.execute([SetWeight("be", "one", 4)])
    assert broken.weight == 4
    assert broken.connections == 2
    runtime.close()


def test_nothing_is_repeated_once_something_was_answered(broken: BrokenSocket) -> None:
    runtime = connected(broken)
    broken.break_next(Fault.CLOSED, "show servers state")
    with pytest.raises(NotConfirmed):
        runtime.execute([SetWeight("be", "one", 4)])
    assert broken.commands.count("set server be/one weight 4") == 1
    runtime.close()


def test_another_worker_is_sent_nothing(broken: BrokenSocket) -> None:
    runtime = connected(broken)
    broken.disconnect()
    broken.pid = 4712
    with pytest.raises(NotConfirmed, match="4712"):
        runtime.execute([SetWeight("be", "one", 4)])
    assert broken.weight == 1
    runtime.close()


def test_a_worker_that_is_about_to_end_can_do_nothing(broken: BrokenSocket) -> None:
    broken.stopping = 1
    runtime = Runtime(timeout_s=TIMEOUT_S)
    assert "about to end" in runtime.connect([broken.path]).why
    broken.stopping = 0
    assert runtime.connect([broken.path]).runtime
    broken.stopping = 1
    with pytest.raises(NotConfirmed, match="another program reloaded"):
        runtime.execute([SetWeight("be", "one", 4)])
    runtime.close()


def test_the_former_worker_may_answer_for_a_moment_after_a_reload(broken: BrokenSocket) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            broken.pid = 4712

    runtime = Runtime(timeout_s=TIMEOUT_S, monotonic=lambda: sum(pauses), pause=pause)
    assert runtime.connect([broken.path], 4712).runtime
    assert (runtime.pid, len(pauses)) == (4712, 3)
    assert runtime.connect([broken.path], 4713).runtime  # a master elsewhere: who answers is taken
    assert (runtime.pid, sum(pauses) < FORMER_ANSWERS_S + 0.1) == (4712, True)
    runtime.close()


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("when", ["show stat", "set server be/one state maint", "del server", "show info"])
def test_a_leaving_server_is_kept_until_haproxy_says_that_it_is_gone(
    broken: BrokenSocket, fault: Fault, when: str
) -> None:
    runtime = connected(broken)
    runtime.leaving.clear()
    runtime.note_leaving(RemoveServer("be", "one", "127.0.0.1:80"))
    broken.break_next(fault, when)
    runtime.reap(60)
    assert broken.fault is Fault.GOOD
    answered = when == "set server be/one state maint" and fault in {Fault.ERROR_TEXT, Fault.GARBAGE}
    answered = answered or (when == "show info" and fault is Fault.CLOSED)
    assert bool(runtime.leaving) is not answered
    runtime.connect([broken.path])
    runtime.reap(60)
    assert not runtime.leaving
    runtime.close()


def test_nobody_listens() -> None:
    runtime = Runtime(timeout_s=TIMEOUT_S)
    assert "No such file" in runtime.connect(["/nowhere/at/all"]).why
    with pytest.raises(NotConfirmed):
        runtime.execute([SetWeight("be", "one", 4)])
    with pytest.raises(NotConfirmed):
        runtime.servers()
