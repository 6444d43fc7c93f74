"""The rollout monitor and the mark of what ran well, in the loop with a fake balancer and figures of the test's own."""

from itertools import count

import pytest

from pyconfd.model.status import Counts, Sample
from tests.daemon.fakes import DEAD, TEMPLATE, Bed, cluster, serving
from tests.daemon.test_runtime_and_reload import NAMED, live_bed

GOOD, BAD = Counts(100, 0, 2, 2), Counts(100, 60, 2, 2)


class Haproxy:
    """Counts for a bed, second by second; a reload begins at zero."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.total = Counts()
        self.worker = bed.balancer.disk.worker
        self.numbers = count()

    def passes(self, seconds: int, each: Counts) -> None:
        for _ in range(seconds):
            self.counts(each)
            self.bed.run_for(1.0)

    def counts(self, each: Counts) -> None:
        worker = self.bed.balancer.disk.worker
        if worker != self.worker:
            self.worker, self.total = worker, Counts()
        self.total = Counts(
            self.total.requests + each.requests, self.total.failed + each.failed, each.servers_up, each.servers
        )
        self.bed.sample = Sample(self.bed.clock.monotonic(), worker, self.total, {"be": self.total})


@pytest.fixture
def bed() -> Bed:
    return serving("192.0.2.10")


def edit(bed: Bed, text: str = "# edited\n") -> int:
    """Edit the fragment, return the generation that came of it."""
    bed.templates = {"02-part.tmpl": TEMPLATE + text}
    bed.run_for(3.0)
    assert bed.status.generation is not None
    return bed.status.generation.number


def test_alarm_names_the_edit_and_is_raised_once(bed: Bed) -> None:
    haproxy = Haproxy(bed)
    haproxy.passes(30, GOOD)
    before = bed.status.generation
    number = edit(bed)
    assert bed.status.rollout.until > bed.clock.now()
    haproxy.passes(5, BAD)
    alarm = bed.status.rollout.alarm
    assert alarm is not None
    assert before is not None
    assert alarm.generation == number
    assert alarm.change.startswith(f"generation {number} after {before.number} (reload: ")
    assert "fragments or settings were edited" in alarm.change
    assert alarm.findings == ("backend be: 60 % of 100 requests failed, 0 % before",)
    assert any("rollout" in problem and "pyconfd rollback" in problem for problem in bed.problems())
    haproxy.passes(5, BAD)
    assert bed.status.generation is not None
    assert bed.status.generation.number == number
    assert bed.status.rollout.alarms_total == 1


def test_an_alarm_ends_when_all_is_well_again(bed: Bed) -> None:
    haproxy = Haproxy(bed)
    haproxy.passes(30, GOOD)
    edit(bed)
    haproxy.passes(5, BAD)
    assert bed.status.rollout.alarm is not None
    haproxy.passes(90, GOOD)
    assert bed.status.rollout.alarm is None
    assert bed.problems() == ()
    assert bed.status.rollout.until == 0


def test_alarm_after_a_change_of_the_cluster(bed: Bed) -> None:
    haproxy = Haproxy(bed)
    haproxy.passes(30, GOOD)
    bed.source.show(cluster("192.0.2.10", "192.0.2.11"))
    bed.run_for(3.0)
    haproxy.passes(5, BAD)
    assert bed.status.rollout.alarm is not None


def test_of_two_changes_in_a_row_the_first_is_named_too(bed: Bed) -> None:
    haproxy = Haproxy(bed)
    haproxy.passes(30, GOOD)
    before = bed.status.generation
    edit(bed)
    haproxy.passes(2, Counts(5, 0, 2, 2))
    number = edit(bed, "# twice\n")
    haproxy.passes(5, BAD)
    alarm = bed.status.rollout.alarm
    assert alarm is not None
    assert before is not None
    assert alarm.change.startswith(f"generation {number} after {before.number} ")


def test_a_backend_that_is_to_have_no_server_is_not_down(bed: Bed) -> None:
    bed.templates = {"02-part.tmpl": TEMPLATE + "backend be\n    server a 192.0.2.1:80\n\n    server b 192.0.2.2:80\n"}
    bed.run_for(3.0)
    haproxy = Haproxy(bed)
    haproxy.passes(30, GOOD)
    edit(bed, "backend be\n    mode http\n\nbackend other\n    server a 192.0.2.1:80\n")
    haproxy.passes(5, Counts(0, 0, 0, 2))  # both drain
    assert bed.status.rollout.alarm is None
    edit(bed, "backend be\n    mode http\n\n    # one\n    server a 192.0.2.1:80\n")
    haproxy.passes(5, Counts(0, 0, 0, 1))
    alarm = bed.status.rollout.alarm
    assert alarm is not None
    assert alarm.findings == ("no server is up any more: be",)


def test_what_failed_between_the_last_look_and_the_change_is_not_its_fault(bed: Bed) -> None:
    haproxy = Haproxy(bed)
    haproxy.passes(30, GOOD)
    before = bed.balancer.disk.worker
    bed.balancer.report_progress(lambda: haproxy.counts(BAD) if bed.balancer.disk.worker == before else None)
    edit(bed)
    assert bed.balancer.disk.worker != before
    haproxy.passes(5, GOOD)
    assert bed.status.rollout.alarms_total == 0
    haproxy.passes(10, BAD)
    assert bed.status.rollout.alarms_total == 1


@pytest.mark.parametrize("failed", [0, 60])
def test_of_a_worker_that_serves_on_only_what_it_counts_after_the_change_is_judged(failed: int) -> None:
    bed, balancer = live_bed()
    haproxy = Haproxy(bed)
    haproxy.passes(30, GOOD)
    bed.balancer.report_progress(lambda: haproxy.counts(BAD))
    bed.templates = {"02-part.tmpl": NAMED + "    server edited 192.0.2.9:80\n"}
    bed.run_for(3.0)
    bed.balancer.report_progress(lambda: None)
    assert len(balancer.live) == 1
    haproxy.passes(5, Counts(100, failed, 2, 2))
    assert bed.status.rollout.alarms_total == bool(failed)


def test_after_its_time_a_change_is_not_to_blame(bed: Bed) -> None:
    haproxy = Haproxy(bed)
    haproxy.passes(30, GOOD)
    edit(bed)
    haproxy.passes(70, GOOD)
    haproxy.passes(70, BAD)
    assert bed.status.rollout.alarm is None


def test_without_figures_there_is_no_alarm(bed: Bed) -> None:
    edit(bed)
    assert bed.status.rollout.until == 0
    Haproxy(bed).passes(5, BAD)
    assert bed.status.rollout.alarm is None


def test_a_structure_is_marked_once_it_ran_for_a_minute_without_an_event(bed: Bed) -> None:
    began = bed.clock.monotonic()
    bed.run_for(50.0)
    assert bed.marked == []
    bed.run_for(30.0)
    (at,) = bed.marked
    assert at >= began + 50
    bed.run_for(200.0)
    assert len(bed.marked) == 1
    edited = bed.clock.monotonic()
    edit(bed)
    bed.run_for(100.0)
    assert len(bed.marked) == 2
    assert bed.marked[1] >= edited + 60


def test_another_worker_begins_that_minute_again(bed: Bed) -> None:
    haproxy = Haproxy(bed)
    haproxy.passes(40, GOOD)
    bed.balancer.disk.load()
    restarted = bed.clock.monotonic()
    haproxy.passes(100, GOOD)
    (at,) = bed.marked
    assert at >= restarted + 60


def test_what_does_not_run_has_not_run_well(bed: Bed) -> None:
    bed.balancer.disk.worker, bed.balancer.broken = 0, DEAD
    bed.run_for(100.0)
    assert bed.marked == []


@pytest.mark.parametrize("jump_s", [-3e7, 3e7])
def test_a_clock_that_jumps_hides_no_alarm_and_makes_nothing_look_proven(bed: Bed, jump_s: float) -> None:
    haproxy = Haproxy(bed)
    haproxy.passes(30, GOOD)
    edit(bed)
    edited = bed.clock.monotonic()
    bed.clock.wall += jump_s
    haproxy.passes(5, BAD)
    assert bed.status.rollout.alarm is not None
    haproxy.passes(150, GOOD)
    assert bed.status.rollout.alarm is None
    assert [at - edited > 60 for at in bed.marked] == [True]
