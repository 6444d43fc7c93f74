"""What the loop holds, and what lets it through."""

from pyconfd.model.status import Phase
from tests.daemon.fakes import (
    FAILING,
    cluster,
    serving,
)


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
