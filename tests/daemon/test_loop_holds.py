"""What the loop holds, and what lets it through."""

from dataclasses import replace

import pytest
import structlog.testing

from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.model.hold import HoldKind
from pyconfd.model.snapshot import HostFacts, Snapshot
from pyconfd.model.status import Phase, Status
from tests.daemon.fakes import FAILING, TEMPLATE, Bed, RememberedHolds, cluster, serving


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


PODS = tuple(f"192.0.2.{number}" for number in range(10, 20))


def _two_services(*, second: int) -> Snapshot:
    """Return four endpoints behind one service, and so many behind another."""
    first, other = cluster(*PODS[:4], name="first"), cluster(*PODS[4 : 4 + second], name="second")
    return Snapshot(
        services={**first.services, **other.services},
        endpointslices={**first.endpointslices, **other.endpointslices},
    )


def _lossy(rules: RemovalRules | None = None, memory: RememberedHolds | None = None) -> Bed:
    """Return a daemon that holds a loss of six of ten endpoints."""
    bed = Bed(None, rules, memory)
    bed.source.show(_two_services(second=6))
    bed.settle()
    assert bed.phase() is Phase.SERVING
    bed.source.show(_two_services(second=0))
    bed.settle()
    return bed


def test_a_partial_loss_is_shown_and_kept_and_believed_when_it_lasts() -> None:
    with structlog.testing.capture_logs() as logs:
        bed = _lossy()
        hold = bed.status.hold
        assert hold is not None
        assert (bed.phase(), hold.kind, hold.lost, hold.of) == (Phase.HELD, HoldKind.SHARE, 6, 10)
        assert all(pod in bed.serves for pod in PODS)
        assert "6 of 10 ready endpoints are gone at once (behind second.example.com)" in bed.problems()[0]
        assert f"pyconfd allow {bed.status.hold_id}" in bed.problems()[0]
        assert bed.status.pending_since > 0
        assert bed.source.relists >= 1
        bed.run_for(50)
        assert bed.phase() is Phase.HELD
        bed.run_for(12)
    assert (bed.phase(), bed.problems(), bed.status.hold, bed.status.hold_id) == (Phase.SERVING, (), None, "")
    assert [pod in bed.serves for pod in PODS] == [True] * 4 + [False] * 6
    assert dict(bed.status.holds_by_step) == {"begun": 1, "confirmed": 1, "expired": 1}
    told = [(line["event"], line["endpoints"], line["of"]) for line in logs if line["event"].startswith("hold.")]
    assert told == [("hold.begun", 6, 10), ("hold.confirmed", 6, 10), ("hold.expired", 6, 10)]


def test_a_partial_loss_is_applied_at_once_when_an_operator_allows_it() -> None:
    bed = _lossy()
    bed.allowed.add(bed.status.hold_id)
    bed.settle()
    assert bed.phase() is Phase.SERVING
    assert bed.allowed == set()
    assert [pod in bed.serves for pod in PODS] == [True] * 4 + [False] * 6
    assert bed.status.holds_by_step["allowed"] == 1


@pytest.mark.parametrize(("more", "serves"), [("# edited\n", True), ("    blance x\n", False)])
def test_newer_fragments_beside_a_hold_are_untried_until_something_came_of_them(more: str, *, serves: bool) -> None:
    bed, seen = _lossy(), list[Status]()
    before = bed.status.generation
    bed.run_for(20)
    assert (bed.phase(), bed.status.untried) == (Phase.HELD, False)
    bed.balancer.report_progress(lambda: seen.append(bed.status))
    bed.templates = {"02-part.tmpl": TEMPLATE + more}
    bed.settle()
    assert seen[0].untried
    assert seen[0].generation == before
    assert not bed.status.untried
    assert (bed.status.generation != before) is serves


def test_a_loss_is_held_by_the_same_name_after_a_restart_and_what_comes_is_served() -> None:
    memory = RememberedHolds()
    bed = _lossy(memory=memory)
    again = Bed(bed.balancer.disk, None, memory)
    again.source.show(_two_services(second=0))
    again.settle()
    assert (again.phase(), again.status.hold_id) == (Phase.HELD, bed.status.hold_id)
    assert all(pod in again.serves for pod in PODS)
    again.source.show(_two_services(second=1))
    again.settle()
    assert again.phase() is Phase.SERVING, "five of ten are not more than half"
    assert memory.data == b"{}"


def test_a_total_loss_during_a_stop_is_held_by_what_the_history_counts() -> None:
    disk = serving(*PODS).balancer.disk
    bed = Bed(disk)
    bed.source.show(cluster())
    bed.run_for(7200, turns=100_000)
    assert bed.phase() is Phase.HELD
    assert all(pod in bed.serves for pod in PODS)
    bed.allowed.add(bed.status.hold_id)
    bed.settle()
    assert bed.phase() is Phase.SERVING
    assert PODS[0] not in bed.serves


@pytest.mark.parametrize("template", ["{{ nothing }}\n", "blance\n"])
def test_a_loss_during_a_stop_is_held_after_something_else_was_refused(template: str) -> None:
    bed = serving("192.0.2.10")
    served = bed.serves
    again = Bed(bed.balancer.disk)
    again.templates = {"02-part.tmpl": TEMPLATE + template}
    again.source.show(Snapshot())
    again.settle()
    again.templates = {"02-part.tmpl": TEMPLATE}
    again.run_for(100)
    assert (again.serves, again.phase()) == (served, Phase.HELD)


def test_facts_of_the_host_are_no_loss_and_hide_none() -> None:
    bed = Bed()
    bed.source.show(_two_services(second=6))
    bed.settle()
    own = HostFacts(addresses=frozenset(PODS[4:]))
    bed.source.show(replace(_two_services(second=6), host=own))
    bed.settle()
    assert (bed.phase(), [pod in bed.serves for pod in PODS]) == (Phase.SERVING, [True] * 4 + [False] * 6)
    bed.source.show(replace(_two_services(second=6), host=HostFacts()))
    bed.settle()
    bed.source.show(replace(_two_services(second=0), host=HostFacts(addresses=frozenset({PODS[0]}))))
    bed.settle()
    hold = bed.status.hold
    assert hold is not None
    assert (hold.lost, hold.of) == (6, 9)
    assert [pod in bed.serves for pod in PODS] == [False] + [True] * 9
