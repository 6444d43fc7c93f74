"""A worker that hangs is told for as long as it is there, also when a reload has put another one beside it."""

import os
import signal

import pytest

from pyconfd.haproxy.process.haproxy_process import Silence
from pyconfd.haproxy.runtime.runtime import NotConfirmed
from pyconfd.haproxy.runtime.sockets import NoAnswer
from tests.haproxy.live_bench import Live


def caused_by(error: OSError) -> NotConfirmed:
    made = NotConfirmed("a question")
    made.__cause__ = NoAnswer("/run/haproxy/pyconfd.sock", error)
    return made


def test_it_is_told_until_it_answers_or_is_gone() -> None:
    there = {7, 8}
    silence = Silence(lambda: there)
    silence.note(caused_by(ConnectionRefusedError()), 7)
    silence.note(NotConfirmed("haproxy answered otherwise"), 7)
    assert silence.problems() == ()
    silence.note(caused_by(TimeoutError()), 7)
    silence.ended(8)
    [problem] = silence.problems()
    assert "worker 7 does not answer" in problem.message
    silence.ended(7)
    assert silence.problems() == ()
    silence.note(caused_by(TimeoutError()), 7)
    there.remove(7)
    assert silence.problems() == ()


@pytest.mark.parametrize("look_first", [False, True])
def test_a_worker_that_is_stopped_is_told_whichever_question_finds_it(live: Live, *, look_first: bool) -> None:
    live.begin(1)
    assert live.balancer.standing().problems == ()
    worker = int(live.worker())
    os.kill(worker, signal.SIGSTOP)
    try:
        if look_first:
            live.balancer.look()
        problems = live.balancer.standing().problems
    finally:
        os.kill(worker, signal.SIGCONT)
    assert f"worker {worker} does not answer" in problems[0].message
    live.balancer.look()
    assert live.balancer.standing().problems == ()
