"""A worker that hangs is reported for as long as it is there, also when a reload has put another one beside it."""

import os
import signal
from pathlib import Path

import pytest

from pyconfd.haproxy.process.haproxy_process import HaproxyProcess
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.haproxy.runtime.runtime import NotConfirmed
from pyconfd.haproxy.runtime.sockets import NoAnswer
from pyconfd.settings import HaproxySettings
from tests.haproxy.bench import Live
from tests.world.haproxy import wait_until


def caused_by(error: OSError) -> NotConfirmed:
    made = NotConfirmed("a question")
    made.__cause__ = NoAnswer("/run/haproxy/pyconfd.sock", error)
    return made


def test_it_is_reported_until_it_answers_or_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {7, 8}
    process = HaproxyProcess(HaproxySettings(), UnitFacts())
    monkeypatch.setattr(process, "pids", lambda: there)
    process.failed_to_answer(7, caused_by(ConnectionRefusedError()))
    process.failed_to_answer(7, NotConfirmed("haproxy answered otherwise"))
    assert process.silent_problems() == ()
    process.failed_to_answer(7, caused_by(TimeoutError()))
    process.answered(8)
    [problem] = process.silent_problems()
    assert "worker 7 does not answer" in problem.message
    process.answered(7)
    assert process.silent_problems() == ()
    process.failed_to_answer(7, caused_by(TimeoutError()))
    there.remove(7)
    assert process.silent_problems() == ()


def _is_stopped(pid: int) -> bool:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return all((each / "stat").read_text().rpartition(")")[2].split()[0] == "T" for each in threads)


@pytest.mark.parametrize("look_first", [False, True])
def test_a_stopped_worker_is_reported_by_the_first_question(
    live: Live, monkeypatch: pytest.MonkeyPatch, *, look_first: bool
) -> None:
    monkeypatch.setattr("pyconfd.haproxy.runtime.sockets.ANSWER_TIMEOUT_S", 0.5)
    live.begin(1)
    assert live.balancer.sync().problems == ()
    worker = int(live.worker())
    os.kill(worker, signal.SIGSTOP)
    try:
        wait_until(lambda: _is_stopped(worker), "each of its threads is stopped")
        if look_first:
            live.balancer.refresh()
        problems = live.balancer.sync().problems
    finally:
        os.kill(worker, signal.SIGCONT)
    assert f"worker {worker} does not answer" in problems[0].message
    live.balancer.refresh()
    assert live.balancer.sync().problems == ()
