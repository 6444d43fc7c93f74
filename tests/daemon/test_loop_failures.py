"""What the loop does about failures, and about what others do to file and process."""

import itertools

import pytest
import structlog.testing

from pyconfd.daemon.base_loop import Task
from pyconfd.errors import ApplyError, RejectedInput
from pyconfd.model.plan import ReloadReason
from pyconfd.model.status import Phase
from tests.daemon.fakes import (
    DEAD,
    DISRUPTIVE,
    FAILING,
    TAKEN,
    TEMPLATE,
    Bed,
    cluster,
    lived_before,
    serving,
)


def test_retries_slow_down_to_their_cap() -> None:
    bed = serving(retry_min_s=1, retry_max_s=8)
    bed.balancer.broken = FAILING
    bed.source.show(cluster("192.0.2.11"))
    bed.run_for(60)
    times = [time for time, _ in bed.balancer.attempts[1:]]
    gaps = [round(b - a - bed.balancer.takes_s / 2) for a, b in itertools.pairwise(times)]
    assert gaps[:4] == [1, 2, 4, 8]
    assert set(gaps[4:]) == {8}
    assert bed.status.failures_by_step == {"reload": len(times)}
    attempt = bed.status.next_attempt
    assert attempt is not None
    assert attempt.task == Task.RETRY
    assert 0 <= attempt.at - bed.status.now <= 8


def test_new_events_do_not_hurry_a_failure() -> None:
    bed = serving(retry_min_s=10, retry_max_s=60)
    bed.balancer.broken = FAILING
    for number in range(20):
        bed.source.show(cluster(f"192.0.2.{20 + number}"))
        bed.run_for(0.5)
    assert len(bed.balancer.attempts) == 2


def test_an_attempt_that_costs_traffic_is_not_repeated_soon() -> None:
    bed = serving(retry_min_s=1, retry_max_s=60)
    bed.balancer.broken = DISRUPTIVE
    bed.source.show(cluster("192.0.2.11"))
    bed.run_for(600)
    assert len(bed.balancer.attempts) - 1 <= 5
    bed.balancer.broken = None
    bed.run_for(600)
    assert "192.0.2.11" in bed.serves


def test_an_edit_of_the_fragments_hurries_a_failure() -> None:
    bed = serving(retry_min_s=60)
    bed.balancer.broken = DISRUPTIVE
    bed.source.show(cluster("192.0.2.11"))
    bed.settle()
    bed.balancer.broken = None
    bed.templates = {"02-part.tmpl": TEMPLATE + "# mended\n"}
    bed.run_for(1.5)
    assert bed.phase() is Phase.SERVING


@pytest.mark.parametrize(("broken", "phase"), [(DEAD, Phase.FAILED), (TAKEN, Phase.REJECTED)])
def test_a_haproxy_that_is_started_by_hand_ends_the_waiting(broken: ApplyError | RejectedInput, phase: Phase) -> None:
    """The former haproxy, with another configuration, may have the ports until it is restarted."""
    bed = Bed(retry_min_s=60)
    bed.balancer.disk.worker = 0
    bed.balancer.broken = broken
    bed.source.show(cluster("192.0.2.10"))
    bed.settle()
    assert bed.phase() is phase
    bed.balancer.broken = None
    bed.balancer.disk.load()
    bed.run_for(6)
    assert bed.phase() is Phase.SERVING


def test_a_clock_that_is_set_back_postpones_no_retry() -> None:
    bed = serving(retry_min_s=1)
    bed.balancer.broken = FAILING
    bed.source.show(cluster("192.0.2.11"))
    bed.run_for(0.6)
    bed.clock.wall -= 86_400
    bed.balancer.broken = None
    bed.run_for(2)
    assert bed.phase() is Phase.SERVING


def test_a_failure_is_logged_once_and_its_end_too() -> None:
    bed = serving(retry_min_s=1)
    with structlog.testing.capture_logs() as logs:
        bed.balancer.broken = FAILING
        bed.source.show(cluster("192.0.2.11"))
        bed.run_for(20)
        bed.balancer.broken = None
        bed.run_for(20)
    events = [line["event"] for line in logs]
    assert events == ["generation.failed", "generation.applied", "problem.cleared"]


def test_an_edited_file_comes_back_in_every_phase() -> None:
    applied, held, rejected, refused, waiting = (
        serving(),
        serving(),
        Bed(lived_before()),
        serving(),
        Bed(lived_before()),
    )
    held.source.show(cluster())
    rejected.templates = {"02-part.tmpl": "{% fro x %}"}
    refused.templates = {"02-part.tmpl": TEMPLATE + "    blance x\n"}
    for bed, phase in (
        (applied, Phase.SERVING),
        (held, Phase.HELD),
        (rejected, Phase.REJECTED),
        (refused, Phase.REJECTED),
        (waiting, Phase.SERVING_LAST_GOOD),
    ):
        bed.run_for(7)
        assert bed.phase() is phase
        bed.balancer.disk.conf = "edited by hand"
        bed.run_for(7)
        assert bed.balancer.disk.conf != "edited by hand"
        assert bed.phase() is phase
    assert applied.status.reloads_by_reason[ReloadReason.FILE_EDITED] == 1
    assert applied.status.pending_since == 0.0
