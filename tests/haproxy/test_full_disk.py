"""What went live while the disk is full, and what becomes of it when pyconfd is killed."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog.testing

from pyconfd.errors import ApplyError, RejectedInput
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.model.outcome import Applied, Unchanged
from pyconfd.model.plan import Noop, Reload
from pyconfd.model.rendering import Piece, Rendering
from tests.haproxy.bench import Live


@contextmanager
def no_space() -> Iterator[None]:
    """Forbid every file to grow, as on a disk that is full."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with structlog.testing.capture_logs():  # what is logged goes to a file too
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def killed_while_the_disk_is_full(live: Live) -> Balancer:
    """Serve what the file could not follow to, and give the balancer of the next pyconfd."""
    live.begin(1)
    live.change(1, 9)
    live.follow()  # the note of a change is a file that is there by now
    with no_space():
        live.change(1, 2)
        live.balancer._file.settle()
    assert live.balancer.file_behind
    live.balancer._file.discard()  # it dies here
    live.balancer.close()
    again = live.bench.balancer()
    again.startup()
    return again


def test_what_went_live_before_a_kill_goes_on_while_nothing_newer_can_be_written(live: Live) -> None:
    again, worker = killed_while_the_disk_is_full(live), live.worker()
    wanted = live.rendering(1, 2, 3)
    for _ in range(3):
        with no_space():
            plan = again.plan(wanted)
            assert isinstance(plan, Reload)
            with pytest.raises(ApplyError):
                again.apply(wanted, plan, curdate="", now=3.0)
        # The older file would fit by now.
        assert isinstance(again.restore_last_good(now=3.0), Unchanged)
        assert (live.worker(), live.serving()) == (worker, {"s1", "s2"})
        assert "goes on" in str(again.sync().problems)
    plan = again.plan(wanted)
    assert isinstance(plan, Reload)
    again.apply(wanted, plan, curdate="", now=4.0)
    assert isinstance(again.refresh(), Noop)
    assert live.serving() == {"s1", "s2", "s3"}
    assert again.sync().problems == ()
    again.close()


def test_what_went_live_before_a_kill_does_not_outlive_a_refusal(live: Live) -> None:
    again = killed_while_the_disk_is_full(live)
    broken = live.rendering(1, 2)
    broken = Rendering((Piece("01-part.tmpl", broken.text + "    blance\n"),))
    plan = again.plan(broken)
    assert isinstance(plan, Reload)
    with pytest.raises(RejectedInput):
        again.apply(broken, plan, curdate="", now=3.0)
    assert isinstance(again.restore_last_good(now=3.0), Applied)
    assert live.serving() == {"s1", "s9"}, "nobody knows whether it was that which went live"
    again.close()
