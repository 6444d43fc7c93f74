import structlog.testing

from pyconfd.daemon.journal import Journal
from pyconfd.errors import Problem
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.outcome import Applied, Failed, Generation, Held, Outcome, Rejected, Step, Unchanged
from pyconfd.model.plan import Reload, ReloadReason

GENERATION = Generation(7, "ab" * 32, 1000.0)
APPLIED = Applied(
    GENERATION, Reload((ReloadReason.SERVERS_CHANGED,), tuple(f"be-{number}" for number in range(10))), verified=True
)
FAILED = Failed(Step.RELOAD, (Problem("haproxy", "does not answer", "look"),))
REJECTED = Rejected(Step.CHECK, (Problem("02.tmpl line 3", "unknown keyword"), Problem("03.tmpl", "no backend")))
HELD = Held("0123abcd", Problem("removal protection", "all gone"))


def said(*outcomes: Outcome, journal: Journal | None = None) -> list[str]:
    journal = journal or Journal()
    with structlog.testing.capture_logs() as logs:
        for outcome in outcomes:
            journal.outcome(outcome, duration_s=0.1234567, endpoints=3)
    return [line["event"] for line in logs]


def test_a_generation_is_one_line_with_the_first_changes() -> None:
    with structlog.testing.capture_logs() as logs:
        Journal().outcome(APPLIED, duration_s=0.1234567, endpoints=3)
    (line,) = logs
    assert line["event"] == "generation.applied"
    assert (line["number"], line["reasons"], line["endpoints"]) == (7, ["servers_changed"], 3)
    assert (len(line["changes"]), line["more_changes"], line["duration_s"]) == (8, 2, 0.1235)


def test_a_failure_is_said_once_however_often_it_is_repeated() -> None:
    assert said(FAILED, FAILED, FAILED) == ["generation.failed"]
    assert said(HELD, HELD) == ["generation.held"]


def test_each_problem_of_a_rejection_is_said() -> None:
    assert said(REJECTED, REJECTED) == ["generation.rejected"] * 2


def test_the_end_of_a_problem_is_said_once_and_its_return_again() -> None:
    unchanged = Unchanged(GENERATION)
    assert said(FAILED, unchanged, unchanged, FAILED) == ["generation.failed", "problem.cleared", "generation.failed"]


def test_what_changes_nothing_is_silent() -> None:
    assert said(Unchanged(GENERATION), Unchanged(GENERATION)) == []


def test_topics_do_not_clear_each_other() -> None:
    journal = Journal()
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            journal.outcome(REJECTED, duration_s=0, endpoints=0, topic="candidate")
            journal.outcome(Unchanged(GENERATION), duration_s=0, endpoints=0)
    assert [line["event"] for line in logs] == ["generation.rejected"] * 2


def test_objects_are_said_when_refused_and_when_taken_again() -> None:
    one, two = (
        Refusal(ObjectRef("Service", "demo", name), "annotation domain", "x", RefusalReason.INVALID_VALUE, "no name")
        for name in ("one", "two")
    )
    journal = Journal()
    with structlog.testing.capture_logs() as logs:
        journal.refused((one, two))
        journal.refused((one, two))
        journal.refused((two,))
        journal.refused((one, two))
    assert [(line["event"], line["object"]) for line in logs] == [
        ("object.refused", "Service demo/one"),
        ("object.refused", "Service demo/two"),
        ("refusal.cleared", "Service demo/one"),
        ("object.refused", "Service demo/one"),
    ]
