"""What ends a loop: being asked to, and a bug."""

import threading

import structlog.testing

from pyconfd.daemon.base_loop import EXIT_BUG, EXIT_OK, run_until_stopped
from tests.daemon.fakes import (
    serving,
)


def test_a_stop_ends_the_loop_and_the_source_and_nothing_else() -> None:
    bed = serving()
    worker = bed.balancer.disk.worker
    ended: list[int] = []
    thread = threading.Thread(target=lambda: ended.append(run_until_stopped(bed.daemon)))
    thread.start()
    bed.daemon.mailbox.stop()
    thread.join(20)
    assert ended == [EXIT_OK]
    assert bed.source.stopped
    assert bed.balancer.disk.worker == worker


def test_a_bug_ends_the_daemon_with_all_closed() -> None:
    bed = serving(quiet_s=0)
    bed.source.bug = RuntimeError("a reflector died")
    bed.source.notify()
    with structlog.testing.capture_logs() as logs:
        assert run_until_stopped(bed.daemon) == EXIT_BUG
    assert bed.source.stopped
    assert "loop.crashed" in [line["event"] for line in logs]
