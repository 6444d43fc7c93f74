"""The loop, step by step, with a clock that the test moves."""

import itertools
import threading

import structlog.testing

from pyconfd.daemon.runner import EXIT_BUG, EXIT_OK, run_until_stopped
from pyconfd.errors import ApplyError, Problem, RejectedInput, TransientError
from pyconfd.model.outcome import Step
from pyconfd.model.plan import ReloadReason
from pyconfd.model.status import Phase
from tests.daemon.fakes import DATED, TEMPLATE, Bed, FakeDisk, cluster

DEAD = ApplyError(Step.VERIFY, Problem("haproxy", "is not running, and did not appear", "start it"))
FAILING = ApplyError(Step.RELOAD, Problem("haproxy.reload_cmd", "ended with 1", "run it by hand"))
DISRUPTIVE = ApplyError(Step.VERIFY, Problem("haproxy", "the new worker did not start", "see its log"), disruptive=True)
AWAY = TransientError(Problem("/etc/pyconfd", "the template directory does not exist", "create it"))


def serving(*addresses: str, **apply: float) -> Bed:
    bed = Bed(None, **apply)
    bed.source.show(cluster(*(addresses or ("192.0.2.10",))))
    bed.settle()
    assert bed.phase() is Phase.SERVING
    return bed


def lived_before() -> FakeDisk:
    """Give what a pyconfd that served once has left, HAProxy included."""
    return serving().balancer.disk


# Start


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


def test_without_a_cluster_it_waits_and_serves_when_one_appears() -> None:
    bed = Bed(boot_wait_s=5)
    bed.run_for(4.5)
    assert bed.notifier.readies == []
    bed.run_for(1.0)
    assert bed.phase() is Phase.WAITING
    assert bed.status.pending_since == 0.0
    assert bed.notifier.readies == ["READY waiting"]
    bed.source.show(cluster("192.0.2.10"))
    bed.settle()
    assert bed.phase() is Phase.SERVING
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


def test_a_restart_changes_nothing() -> None:
    disk = lived_before()
    worker = disk.worker
    bed = Bed(disk)
    bed.source.show(cluster("192.0.2.10"))
    bed.run_for(30)
    assert (bed.phase(), bed.status.verified) == (Phase.SERVING, True)
    assert (disk.worker, len(disk.history)) == (worker, 1)


def test_ready_is_said_when_the_first_outcome_is_a_rejection_and_the_last_good_one_serves() -> None:
    disk = lived_before()
    disk.conf = "edited"
    bed = Bed(disk)
    bed.templates = {"02-part.tmpl": TEMPLATE + "    blance x\n"}
    bed.source.show(cluster("192.0.2.10"))
    bed.turn()
    assert bed.phase() is Phase.REJECTED
    assert len(bed.notifier.readies) == 1
    assert "blance" in bed.notifier.readies[0]
    assert "192.0.2.10" in bed.serves
    assert disk.conf != "edited"


def test_ready_is_said_when_the_first_outcome_is_a_hold() -> None:
    bed = Bed(lived_before())
    bed.source.show(cluster())
    bed.turn()
    assert bed.phase() is Phase.HELD
    assert len(bed.notifier.readies) == 1
    assert "192.0.2.10" in bed.serves


def test_ready_is_said_when_fragments_never_compiled() -> None:
    bed = Bed(lived_before())
    bed.templates = {"02-part.tmpl": "{% fro x %}"}
    bed.turn()
    assert bed.phase() is Phase.REJECTED
    assert len(bed.notifier.readies) == 1


# Changes


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


# Failures


def test_a_reload_that_fails_once_is_tried_again_without_a_new_event() -> None:
    """Failure class 2: the predecessor had noted the change as done."""
    bed = serving(retry_min_s=1)
    bed.balancer.broken = FAILING
    bed.source.show(cluster("192.0.2.11"))
    bed.run_for(0.6)
    assert bed.phase() is Phase.FAILED
    assert bed.status.pending_since > 0
    assert "192.0.2.10" in bed.serves
    bed.balancer.broken = None
    bed.run_for(2)
    assert bed.phase() is Phase.SERVING
    assert (bed.problems(), bed.status.pending_since) == ((), 0.0)
    assert "192.0.2.11" in bed.serves


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


def test_a_haproxy_that_is_started_by_hand_ends_the_waiting() -> None:
    bed = Bed(retry_min_s=60)
    bed.balancer.disk.worker = 0
    bed.balancer.broken = DEAD
    bed.source.show(cluster("192.0.2.10"))
    bed.settle()
    assert bed.phase() is Phase.FAILED
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


# Fragments


def test_an_edit_applies_within_two_seconds() -> None:
    bed = serving()
    bed.templates = {"02-part.tmpl": TEMPLATE + "# edited\n"}
    bed.run_for(1.9)
    assert "# edited" in bed.serves


def test_fragments_that_do_not_compile_are_told_once_while_the_former_go_on() -> None:
    bed = serving()
    good = bed.templates
    with structlog.testing.capture_logs() as logs:
        bed.templates = {"02-part.tmpl": TEMPLATE, "03-x.tmpl": "{% fro x %}"}
        bed.run_for(10)
        compiled = bed.compiled
        bed.source.show(cluster("192.0.2.11"))
        bed.settle()
        assert "192.0.2.11" in bed.serves
        assert bed.phase() is Phase.SERVING
        assert "03-x.tmpl line 1" in bed.problems()[0]
        assert bed.status.pending_since > 0, "what the fragments ask for does not serve"
        assert bed.compiled == compiled, "the same text is not compiled again and again"
        bed.templates = good
        bed.settle()
    assert (bed.problems(), bed.status.pending_since) == ((), 0.0)
    events = [line["event"] for line in logs]
    assert events == ["fragments.refused", "generation.applied", "fragments.read", "problem.cleared"]


def test_a_template_directory_that_goes_away_and_comes_back_reloads_nothing() -> None:
    bed = serving()
    good, worker = bed.templates, bed.balancer.disk.worker
    bed.templates = AWAY
    bed.settle()
    assert "does not exist" in bed.problems()[0]
    bed.templates = good
    bed.settle()
    assert bed.problems() == ()
    assert bed.balancer.disk.worker == worker


def test_problems_of_fragments_are_shown_while_there_is_no_cluster_too() -> None:
    bed = Bed(lived_before())
    bed.run_for(6)
    bed.templates = AWAY
    bed.settle()
    assert bed.phase() is Phase.SERVING_LAST_GOOD
    assert "does not exist" in bed.problems()[0]


def test_while_new_fragments_are_refused_the_former_ones_follow_the_cluster() -> None:
    for bad in ("    blance x\n", "{{ nothing }}\n"):
        bed = serving()
        with structlog.testing.capture_logs() as logs:
            bed.templates = {"02-part.tmpl": TEMPLATE + bad}
            bed.settle()
            assert bed.phase() is Phase.REJECTED
            bed.source.show(cluster("192.0.2.11"))
            bed.run_for(30)
        assert "192.0.2.11" in bed.serves
        assert bed.phase() is Phase.REJECTED
        assert bed.status.generation == bed.balancer.disk.history[-1].generation
        assert len(bed.problems()) == 1
        assert bed.status.pending_since > 0
        assert [line["event"] for line in logs].count("generation.rejected") == 1
        assert bed.status.failures_by_step
        bed.templates = {"02-part.tmpl": TEMPLATE}
        bed.settle()
        assert (bed.phase(), bed.problems()) == (Phase.SERVING, ())


def test_fragments_that_cannot_be_made_to_serve_are_tried_again_beside_the_former_ones() -> None:
    bed = serving(retry_min_s=1, retry_max_s=4)
    bed.templates = {"02-part.tmpl": TEMPLATE + "# new\n"}
    bed.balancer.broken = FAILING
    bed.run_for(3)
    assert bed.phase() is Phase.FAILED
    bed.balancer.broken = None
    bed.run_for(6)
    assert bed.phase() is Phase.SERVING
    assert "# new" in bed.serves


def test_the_date_in_new_fragments_that_are_refused_does_not_hurry_them() -> None:
    bed = serving(retry_min_s=20)
    bed.templates = {"02-part.tmpl": DATED + "    blance x\n"}
    bed.settle()
    checks = bed.balancer.checks
    for _ in range(10):
        bed.source.show(bed.source.current)
        bed.run_for(1)
    assert bed.balancer.checks == checks


def test_a_hold_while_new_fragments_are_refused_can_be_let_through() -> None:
    bed = serving()
    bed.templates = {"02-part.tmpl": TEMPLATE + "    blance x\n"}
    bed.settle()
    bed.source.show(cluster())
    bed.settle()
    assert bed.phase() is Phase.HELD
    bed.allowed.add(bed.status.hold_id)
    bed.settle()
    assert bed.phase() is Phase.REJECTED
    assert "192.0.2.10" not in bed.serves


def test_new_fragments_that_came_with_a_loss_follow_when_it_is_let_through() -> None:
    bed = serving()
    bed.templates = {"02-part.tmpl": TEMPLATE + "# new\n"}
    bed.source.show(cluster())
    bed.settle()
    bed.allowed.add(bed.status.hold_id)
    bed.settle()
    assert bed.phase() is Phase.SERVING
    assert "# new" in bed.serves


def test_refused_fragments_that_would_be_held_once_mended_do_not_spin() -> None:
    bed = serving(retry_min_s=1)
    bed.templates = {"02-part.tmpl": TEMPLATE + "{% if domains['shop.example.com'].ips %}{{ nothing }}{% endif %}\n"}
    bed.settle()
    bed.source.show(cluster())
    bed.run_for(30)
    assert bed.phase() is Phase.HELD


# Holds


def test_a_hold_ends_by_itself_when_the_endpoints_return() -> None:
    bed = serving()
    bed.source.show(cluster())
    bed.settle()
    assert bed.phase() is Phase.HELD
    assert bed.status.hold_id
    for number in range(100):
        bed.source.show(cluster(extra=f"node-{number}"))
        bed.run_for(1)
    assert 3 <= bed.source.relists <= 12, "it lists again with back-off, not for each event"
    bed.source.show(cluster("192.0.2.10"))
    bed.settle()
    assert (bed.phase(), bed.status.hold_id, bed.problems()) == (Phase.SERVING, "", ())


def test_a_permission_lets_one_change_through_and_is_used_up() -> None:
    bed = serving()
    bed.source.show(cluster())
    bed.settle()
    bed.allowed.add(bed.status.hold_id)
    bed.settle()
    assert bed.phase() is Phase.SERVING
    assert bed.allowed == set()
    bed.source.show(cluster("192.0.2.10"))
    bed.settle()
    bed.source.show(cluster())
    bed.settle()
    assert bed.phase() is Phase.HELD


def test_a_permission_that_was_not_needed_is_taken_back() -> None:
    bed = serving()
    bed.source.show(cluster())
    bed.settle()
    hold_id = bed.status.hold_id
    bed.source.show(cluster("192.0.2.10"))
    bed.settle()
    bed.allowed.add(hold_id)
    bed.source.show(cluster("192.0.2.10", extra="node-1"))
    bed.settle()
    bed.source.show(cluster())
    bed.settle()
    assert bed.phase() is Phase.HELD


def test_a_permission_survives_an_apply_that_fails() -> None:
    bed = serving(retry_min_s=1)
    bed.source.show(cluster())
    bed.settle()
    bed.balancer.broken = FAILING
    bed.allowed.add(bed.status.hold_id)
    bed.run_for(10)
    assert bed.phase() is Phase.FAILED
    bed.balancer.broken = None
    bed.run_for(30)
    assert bed.phase() is Phase.SERVING


# What others do to file and process


def test_a_file_that_somebody_edits_comes_back() -> None:
    bed = serving()
    bed.balancer.disk.conf = "edited by hand"
    bed.run_for(8)
    assert "edited" not in (bed.balancer.disk.conf or "")
    assert bed.status.reloads_by_reason[ReloadReason.FILE_EDITED] == 1
    assert bed.status.pending_since == 0.0


def test_the_last_good_one_is_kept_up_in_every_phase() -> None:
    held, rejected, waiting = serving(), Bed(lived_before()), Bed(lived_before())
    held.source.show(cluster())
    rejected.templates = {"02-part.tmpl": "{% fro x %}"}
    for bed, phase in (
        (held, Phase.HELD),
        (rejected, Phase.REJECTED),
        (waiting, Phase.SERVING_LAST_GOOD),
    ):
        bed.run_for(7)
        assert bed.phase() is phase
        bed.balancer.disk.conf = "edited by hand"
        bed.run_for(7)
        assert bed.balancer.disk.conf != "edited by hand"
        assert bed.phase() is phase


def test_refused_fragments_do_not_keep_an_edited_file_from_coming_back() -> None:
    bed = serving()
    bed.templates = {"02-part.tmpl": TEMPLATE + "    blance x\n"}
    bed.settle()
    bed.balancer.disk.conf = "edited by hand"
    bed.run_for(7)
    assert bed.balancer.disk.conf != "edited by hand"


# The service manager, status, the end


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
