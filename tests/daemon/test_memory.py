"""Since when things are so."""

from pyconfd.daemon.memory import Memory, Seen
from pyconfd.errors import Problem
from pyconfd.model.context import Context, Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.outcome import Generation, Held, Outcome, Unchanged
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.preset import PresetOptions

WELL: Outcome = Unchanged(Generation(1, "", 0.0))


def seen(*refused: Refusal) -> Seen:
    return Seen(Snapshot("here"), PresetOptions(), Context({}), None, refused)


def refusal(name: str, detail: str = "x", reason: RefusalReason = RefusalReason.INVALID_VALUE) -> Refusal:
    return Refusal(ObjectRef("Service", "demo", name), "annotation domain", "v", reason, detail)


def test_a_refusal_keeps_its_age_whatever_happens_to_others_and_to_its_words() -> None:
    memory, first = Memory(), refusal("a")
    memory.concluded(seen(), WELL, 5.0)
    memory.concluded(seen(first), WELL, 10.0)
    again = refusal("a", "said otherwise")
    memory.concluded(seen(again, refusal("b")), WELL, 20.0)
    assert {each.ref.name: (age.since, age.at_least) for each, age in memory.ages().items()} == {
        "a": (10.0, False),
        "b": (20.0, False),
    }
    memory.concluded(seen(), WELL, 30.0)
    memory.concluded(seen(first), WELL, 40.0)
    assert memory.ages()[first].since == 40.0
    other = refusal("a", reason=RefusalReason.NAME_TAKEN)
    memory.concluded(seen(other), WELL, 50.0)
    assert memory.ages()[other].since == 50.0


def test_what_is_refused_at_the_first_look_may_be_older() -> None:
    memory, first = Memory(), refusal("a")
    memory.concluded(seen(first), WELL, 10.0)
    assert memory.ages()[first].at_least
    memory.concluded(seen(first, refusal("b")), WELL, 20.0)
    assert [age.at_least for age in memory.ages().values()] == [True, False]


def test_an_outcome_keeps_its_age_until_there_is_another_kind() -> None:
    memory = Memory()
    for held, now, since in (("1", 10.0, 10.0), ("1", 20.0, 10.0), ("2", 30.0, 30.0)):
        memory.concluded(seen(), Held(held, Problem("removal protection", "x")), now)
        assert memory.outcome_since == since
