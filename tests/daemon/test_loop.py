"""The loop, step by step, with a clock that the test moves: start, changes, the service manager, status."""

import itertools
from dataclasses import replace

import pytest
import structlog.testing

from pyconfd.daemon.base_loop import EXIT_BUG, run_until_stopped
from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.outcome import Step
from pyconfd.model.status import ApiServerState, Paused, Phase
from tests.daemon.fakes import (
    DEAD,
    TEMPLATE,
    Bed,
    cluster,
    lived_before,
    serving,
)


def test_the_first_configuration_is_applied_at_once_and_ready_is_said_once() -> None:
    bed = Bed()
    bed.source.show(cluster("192.0.2.10"))
    bed.turn()
    assert bed.phase() is Phase.SERVING
    assert bed.status.verified
    assert bed.status.pending_since == 0.0
    assert bed.notifier.readies == ["READY serving generation 1"]
    bed.source.show(cluster("192.0.2.11"))
    bed.settle()
    assert len(bed.notifier.readies) == 1
    assert bed.notifier.said[-1] == "serving generation 2"


def test_systemctl_status_says_which_servers_are_silent_and_that_somebody_paused_it() -> None:
    bed = Bed()
    bed.source.show(cluster("192.0.2.10"))
    bed.turn()
    up = ApiServerState("https://a:6443", healthy=True)
    down = ApiServerState("https://b:6443", in_use=True, last_error="connection refused")
    bed.source.servers = (up, down)
    bed.run_for(2.0)
    assert bed.notifier.said[-1] == "READY serving generation 1"
    bed.source.servers = (replace(up, healthy=False, last_error="timed out"), down)
    bed.run_for(2.0)
    silent = "no API server answers (https://b:6443: connection refused)"
    assert bed.notifier.said[1:] == [f"serving generation 1; {silent}"]
    bed.source.servers = (up, down)
    bed.paused = Paused(bed.clock.now(), 0.0, "moving racks")
    bed.run_for(2.0)
    assert bed.notifier.said[-1] == "serving generation 1; paused by hand"
    bed.paused = None
    bed.run_for(2.0)
    assert bed.notifier.said[-1] == "serving generation 1"
    assert len(bed.notifier.readies) == 1


def test_changes_without_end_do_not_keep_the_start_from_being_decided() -> None:
    bed = Bed(boot_wait_s=5)
    for _ in range(60):
        bed.source.show(None)
        bed.turn()
        bed.clock.advance(0.1)
    assert bed.phase() is Phase.WAITING


def test_without_a_cluster_the_last_good_generation_is_brought_back() -> None:
    disk = lived_before()
    written, disk.conf = disk.conf, "edited while pyconfd was away"
    bed = Bed(disk)
    bed.run_for(6)
    assert bed.phase() is Phase.SERVING_LAST_GOOD
    assert bed.notifier.readies == ["READY serving last good generation 1"]
    assert disk.conf == written
    assert bed.status.verified
    bed.source.show(cluster("192.0.2.10"))
    bed.settle()
    assert bed.phase() is Phase.SERVING
    assert bed.balancer.disk.history[-1].generation.number == 1


def test_a_last_good_generation_that_cannot_be_brought_back_at_the_start_is_tried_again() -> None:
    disk = lived_before()
    disk.worker, disk.loaded = 0, None
    bed = Bed(disk)
    bed.balancer.broken = DEAD
    bed.run_for(6)
    assert bed.phase() is Phase.WAITING
    assert "is not running" in bed.problems()[0]
    bed.balancer.broken = None
    bed.run_for(12)
    assert bed.phase() is Phase.SERVING_LAST_GOOD
    assert bed.problems() == ()
    assert disk.worker


def test_a_burst_is_applied_once_it_is_quiet() -> None:
    bed = serving(quiet_s=0.2, cap_s=2.0)
    for number in range(5):
        bed.source.show(cluster(f"192.0.2.{20 + number}"))
        bed.run_for(0.1)
    assert len(bed.balancer.attempts) == 1
    bed.run_for(1.0)
    assert len(bed.balancer.attempts) == 2
    assert "192.0.2.24" in bed.serves


def test_a_stream_without_a_pause_is_applied_within_the_cap() -> None:
    """Failure class 10: a debounce without a cap never fires."""
    bed = serving(quiet_s=0.2, cap_s=2.0)
    for number in range(100):
        bed.source.show(cluster(f"192.0.2.{20 + number}"))
        bed.run_for(0.1)
    times = [time for time, _ in bed.balancer.attempts[1:]]
    assert len(times) >= 4
    assert max(b - a for a, b in itertools.pairwise(times)) <= 2.0 + bed.balancer.takes_s + 0.1


def test_thousands_of_events_publish_the_status_no_more_than_a_few_times_a_second() -> None:
    bed = serving(quiet_s=5, cap_s=10)
    before = len(bed.published)
    for _ in range(3000):
        bed.source.show(bed.source.current)
        bed.run_for(0.001)
    assert len(bed.published) - before <= 8
    assert bed.status.events_total >= 3000


def test_the_watchdog_is_fed_each_second_and_during_a_long_apply() -> None:
    bed = serving()
    fed = bed.notifier.fed
    bed.run_for(10)
    assert bed.notifier.fed - fed >= 9
    bed.balancer.takes_s = 200
    fed = bed.notifier.fed
    beat = bed.status.heartbeat_at
    bed.source.show(cluster("192.0.2.11"))
    bed.run_for(1)
    assert bed.notifier.fed - fed >= 2
    assert bed.status.heartbeat_at >= beat + 100


def test_other_problems_are_shown_as_long_as_they_last() -> None:
    bed = serving()
    bed.others = (Problem("status.listen", "port 9101 is taken"),)
    bed.settle()
    assert bed.problems() == ("status.listen: port 9101 is taken",)
    assert bed.published[-1].problems == bed.problems()
    bed.others = ()
    bed.settle()
    assert bed.problems() == ()


def test_a_problem_without_words_breaks_nothing() -> None:
    bed = serving()
    bed.templates = RejectedInput(Problem("", ""))
    bed.settle()
    bed.source.show(cluster("192.0.2.11"))
    bed.settle()
    assert "192.0.2.11" in bed.serves


def test_a_missing_right_is_the_first_problem_until_it_is_given() -> None:
    bed = serving()
    bed.others = (Problem("disk", "is full"),)
    bed.source.problems = (Problem("secrets of namespace shop", "forbidden", "grant it"),)
    bed.settle()
    assert [each.splitlines()[0] for each in bed.problems()] == [
        "secrets of namespace shop: forbidden",
        "disk: is full",
    ]
    bed.source.problems = ()
    bed.settle()
    assert bed.problems() == ("disk: is full",)


@pytest.mark.parametrize(
    ("template", "addresses", "phase", "words"),
    [
        (TEMPLATE + "    blance x\n", ("192.0.2.10",), Phase.REJECTED, "blance"),
        ("{% fro x %}", ("192.0.2.10",), Phase.REJECTED, "fro"),
        (TEMPLATE, (), Phase.HELD, "held"),
    ],
)
def test_ready_is_said_whatever_the_first_outcome_is_while_the_last_good_one_serves(
    template: str, addresses: tuple[str, ...], phase: Phase, words: str
) -> None:
    disk = lived_before()
    written, disk.conf = disk.conf, "edited"
    bed = Bed(disk)
    bed.templates = {"02-part.tmpl": template}
    bed.source.show(cluster(*addresses))
    bed.turn()
    assert bed.phase() is phase
    (said,) = bed.notifier.readies
    assert words in said
    assert (disk.conf, "192.0.2.10" in bed.serves) == (written, True)


def test_a_bug_ends_the_daemon_with_all_closed() -> None:
    bed = serving(quiet_s=0)
    bed.source.bug = RuntimeError("a reflector died")
    bed.source.notify()
    with structlog.testing.capture_logs() as logs:
        assert run_until_stopped(bed.daemon) == EXIT_BUG
    assert bed.source.stopped
    assert "loop.crashed" in [line["event"] for line in logs]


def test_only_what_haproxy_runs_is_published_in_statuses() -> None:
    bed = Bed()
    published = bed.statuses.given
    bed.balancer.verifies = False
    bed.source.show(cluster("192.0.2.10"))
    bed.turn()
    assert published == []  # nobody saw it run
    bed.balancer.verifies = True
    bed.source.show(cluster("192.0.2.11"))
    bed.settle()
    (context,) = published
    for bed.balancer.broken in (DEAD, RejectedInput(Problem("", "invalid"), step=Step.CHECK)):
        bed.source.show(cluster("192.0.2.12"))
        bed.settle()
    assert published == [context]
    bed.source.show(cluster("192.0.2.11"))
    bed.settle()
    assert {each.totals for each in published} == {context.totals}
    assert len(published) > 1  # the cluster may have changed what was written
