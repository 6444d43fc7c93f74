import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.errors import Problem
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason, RuntimeUpdate
from pyconfd.testing.cases import CaseStep, Expectation, ExpectedPlan, Kind
from pyconfd.testing.judge import CaseOutcome, judge, judge_failure, judge_plan

TEXT = "frontend a\n    bind :80\nbackend b\n    server one 10.0.0.1:80\n    server two 10.0.0.2:80\n"
REFUSED = Refusal(ObjectRef("Service", "demo", "x"), "annotation domain", "'?'", RefusalReason.INVALID_VALUE, "no name")
SEEN = CaseOutcome({"": TEXT, "01.conf": "frontend a\n", "maps/m.map": "k v\n"}, (REFUSED,), {"e.cfg": "frontend a\n"})


def found(kind: Kind, *texts: str, within: str = "", times: int | None = None) -> tuple[str, tuple[str, ...]] | None:
    failure = judge(Expectation(kind, texts, within, times), SEEN)
    return (failure.message, failure.lines) if failure else None


@pytest.mark.parametrize(
    ("kind", "texts", "within", "times"),
    [
        (Kind.CONTAINS, ("backend b\n    server one",), "", None),
        (Kind.CONTAINS, ("k v",), "maps/m.map", None),
        (Kind.LACKS, ("server",), "01.conf", None),
        (Kind.MATCHES, (r"^    server \w+ 10\.",), "", 2),
        (Kind.MATCHES, ("server",), "", None),
        (Kind.MATCHES, ("nothing",), "", 0),
        (Kind.IN_ORDER, ("frontend", "backend", "two"), "", None),
        (Kind.EQUALS, ("k v\n",), "maps/m.map", None),
        (Kind.EQUALS_FILE, ("e.cfg",), "01.conf", None),
        (Kind.REFUSED, ("Service demo/x",), "", None),
        (Kind.REFUSED, ("invalid_value",), "", None),
    ],
)
def test_what_holds(kind: Kind, texts: tuple[str, ...], within: str, times: int | None) -> None:
    assert found(kind, *texts, within=within, times=times) is None


@pytest.mark.parametrize(
    ("kind", "texts", "within", "times", "message", "line"),
    [
        (Kind.CONTAINS, ("server ome 10.0.0.1:80",), "", None, "does not contain", "line 4: server one 10.0.0.1:80"),
        (Kind.LACKS, ("two",), "", None, "contains 'two'", "line 5: server two 10.0.0.2:80"),
        (Kind.MATCHES, ("server",), "", 3, "matches 'server' 2 times, expected 3", "line 4: server one"),
        (Kind.MATCHES, ("x{3}",), "", None, "0 times, expected at least once", ""),
        (Kind.IN_ORDER, ("backend", "frontend"), "", None, "'frontend' does not come behind 'backend'", "line 1"),
        (Kind.EQUALS, ("other\n",), "01.conf", None, "is not what expected says in 01.conf", "-other"),
        (Kind.EQUALS_FILE, ("e.cfg",), "", None, "is not what e.cfg says", "+backend b"),
        (Kind.CONTAINS, ("x",), "01.cnf", None, "there is no '01.cnf'", "did you mean 01.conf?"),
        (Kind.REFUSED, ("Service demo/y",), "", None, "nothing was refused with", "Service demo/x"),
    ],
)
def test_what_does_not_hold_is_shown(
    kind: Kind, texts: tuple[str, ...], within: str, times: int | None, message: str, line: str
) -> None:
    failure = found(kind, *texts, within=within, times=times)
    assert failure is not None
    assert message in failure[0]
    assert line in "\n".join(failure[1])


RELOAD = Reload((ReloadReason.SECTION_ADDED, ReloadReason.BINDS_CHANGED), ("backend x",), ("name it",))


@pytest.mark.parametrize(
    ("way", "reasons", "plan", "message"),
    [
        (None, None, RELOAD, ""),
        (ExpectedPlan.NOTHING, None, Noop(), ""),
        (ExpectedPlan.LIVE, None, RuntimeUpdate(()), ""),
        (ExpectedPlan.RELOAD, None, RELOAD, ""),
        (ExpectedPlan.RELOAD, (ReloadReason.BINDS_CHANGED, ReloadReason.SECTION_ADDED), RELOAD, ""),
        (ExpectedPlan.RELOAD, (ReloadReason.BINDS_CHANGED,), RELOAD, "expected reload (binds_changed)"),
        (ExpectedPlan.LIVE, None, RELOAD, "the plan is reload (section_added, binds_changed), expected live"),
        (ExpectedPlan.RELOAD, None, RuntimeUpdate(()), "the plan is live, expected reload"),
        (ExpectedPlan.NOTHING, None, RuntimeUpdate(()), "the plan is live, expected nothing"),
    ],
)
def test_plans(way: ExpectedPlan | None, reasons: tuple[ReloadReason, ...] | None, plan: Plan, message: str) -> None:
    failure = judge_plan(CaseStep((), "", way=way, reasons=reasons), plan)
    assert (failure.message if failure else "")[-len(message) :] == message
    assert bool(failure) == bool(message)


def test_a_plan_that_differs_says_what_would_avoid_the_reload() -> None:
    failure = judge_plan(CaseStep((), "", way=ExpectedPlan.LIVE), RELOAD)
    assert failure is not None
    assert failure.lines == ("backend x", "to avoid it: name it")


def test_what_should_fail() -> None:
    problem = Problem("02.tmpl line 3", "'x' is undefined", "define it")
    assert judge_failure("'x' is undefined", (problem,)) is None
    other, none = judge_failure("y", (problem,)), judge_failure("y", ())
    assert other is not None
    assert "'x' is undefined" in "\n".join(other.lines)
    assert none is not None
    assert "is fine" in none.message


@given(st.text(), st.text(min_size=1))
def test_contains_and_lacks_are_opposites(text: str, wanted: str) -> None:
    seen = CaseOutcome({"": text})
    contains, lacks = (judge(Expectation(kind, (wanted,)), seen) for kind in (Kind.CONTAINS, Kind.LACKS))
    assert (contains is None) != (lacks is None)


@given(st.text(), st.text())
def test_equal_is_equality(text: str, wanted: str) -> None:
    assert (judge(Expectation(Kind.EQUALS, (wanted,)), CaseOutcome({"": text})) is None) == (text == wanted)
