"""What the loop does when the fragments change."""

import pytest
import structlog.testing

from pyconfd.model.changes import Action
from pyconfd.model.status import Phase
from tests.daemon.fakes import (
    DATED,
    FAILING,
    TEMPLATE,
    cluster,
    serving,
)


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


@pytest.mark.parametrize(
    "bad", ["    blance x\n", "{{ nothing }}\n", "{% fro x %}"], ids=["by haproxy", "at render", "at compile"]
)
def test_a_refused_edit_is_told_and_counted(bad: str) -> None:
    bed = serving()
    good, before = bed.templates, len(bed.changes.told)
    bed.templates = {"02-part.tmpl": TEMPLATE + bad}
    bed.run_for(120)
    (told,) = bed.changes.told[before:]
    assert (told.action, told.generation) == (
        Action.REJECTED,
        bed.status.generation.number if bed.status.generation else 0,
    )
    assert "02-part.tmpl" in told.details[0]
    assert bed.status.applying.plans_by_action["rejected"] >= 1
    bed.templates = good
    bed.settle()
    bed.templates = {"02-part.tmpl": TEMPLATE + bad}
    bed.run_for(30)
    assert [each.action for each in bed.changes.told[before:]] == [Action.REJECTED] * 2


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
