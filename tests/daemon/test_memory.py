"""Since when things are so."""

from pyconfd.daemon.memory import Memory
from pyconfd.daemon.reconcile import Reconciled
from pyconfd.errors import Problem
from pyconfd.model.context import Context, Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.outcome import Generation, Held, Outcome, Stored, Unchanged
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.preset import PresetOptions

SERVES = Stored(Generation(1, "", 0.0), Rendering((Piece("a", "global\n"),)))
WELL: Outcome = Unchanged(SERVES.generation)


def refusal(name: str, detail: str = "x", reason: RefusalReason = RefusalReason.INVALID_VALUE) -> Refusal:
    return Refusal(ObjectRef("Service", "demo", name), "annotation domain", "v", reason, detail)


def test_a_refusal_keeps_its_age_whatever_happens_to_others_and_to_its_words() -> None:
    memory, first = Memory(), refusal("a")
    memory.finished(WELL, (), SERVES, 5.0)
    memory.finished(WELL, (first,), SERVES, 10.0)
    again = refusal("a", "said otherwise")
    memory.finished(WELL, (again, refusal("b")), SERVES, 20.0)
    assert {each.ref.name: (age.since, age.at_least) for each, age in memory.ages().items()} == {
        "a": (10.0, False),
        "b": (20.0, False),
    }
    memory.finished(WELL, (), SERVES, 30.0)
    memory.finished(WELL, (first,), SERVES, 40.0)
    assert memory.ages()[first].since == 40.0
    other = refusal("a", reason=RefusalReason.NAME_TAKEN)
    memory.finished(WELL, (other,), SERVES, 50.0)
    assert memory.ages()[other].since == 50.0


def test_what_is_refused_at_the_first_look_may_be_older() -> None:
    memory, first = Memory(), refusal("a")
    memory.finished(WELL, (first,), SERVES, 10.0)
    assert memory.ages()[first].at_least
    memory.finished(WELL, (first, refusal("b")), SERVES, 20.0)
    assert [age.at_least for age in memory.ages().values()] == [True, False]


def test_an_outcome_keeps_its_age_until_there_is_another_kind() -> None:
    memory = Memory()
    for held, now, since in (("1", 10.0, 10.0), ("1", 20.0, 10.0), ("2", 30.0, 30.0)):
        memory.finished(Held(held, Problem("removal protection", "x")), (), SERVES, now)
        assert memory.outcome_since == since


def test_what_serves_is_what_was_applied_and_not_what_was_rendered() -> None:
    memory, context, wanted = Memory(), Context({}), Rendering((Piece("a", "other\n"),))
    assert memory.seen is None
    memory.made(Snapshot("here"), PresetOptions(), Reconciled(WELL, context, wanted))
    memory.finished(Held("1", Problem("removal protection", "x")), (), SERVES, 10.0)
    assert memory.seen is not None
    assert (memory.seen.desired, memory.seen.serving) == (wanted, SERVES.rendering)
