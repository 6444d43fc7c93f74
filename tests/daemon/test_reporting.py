"""What is said of what a loop does, and how often."""

import structlog.testing

from pyconfd.daemon.ports import NoChanges
from pyconfd.daemon.reporting import Reporter
from pyconfd.errors import Problem
from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.context import Context, Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.outcome import Applied, Failed, Generation, Held, Outcome, Rejected, Step, Unchanged
from pyconfd.model.plan import Reload, ReloadReason
from pyconfd.model.reservation import Name, Owner
from pyconfd.model.status import SourceHealth
from tests.daemon.fakes import FakeClock, FakeNotifier

GENERATION = Generation(7, "ab" * 32, 1000.0)
APPLIED = Applied(
    GENERATION, Reload((ReloadReason.SERVERS_CHANGED,), tuple(f"be-{number}" for number in range(10))), verified=True
)
FAILED = Failed(Step.RELOAD, (Problem("haproxy", "does not answer", "look"),))
REJECTED = Rejected(Step.CHECK, (Problem("02.tmpl line 3", "unknown keyword"), Problem("03.tmpl", "no backend")))
HELD = Held("0123abcd", Problem("removal protection", "all gone"))


def reporter(kind: type[Reporter] = Reporter) -> Reporter:
    return kind(FakeClock(), FakeNotifier(), NoChanges(), None, version="0", pid=1)


def said(*outcomes: Outcome) -> list[str]:
    report = reporter()
    with structlog.testing.capture_logs() as logs:
        for outcome in outcomes:
            report.reconciled(outcome, duration_s=0.1234567, endpoints=3)
    return [line["event"] for line in logs]


def test_a_generation_is_one_line_with_the_first_changes() -> None:
    with structlog.testing.capture_logs() as logs:
        reporter().reconciled(APPLIED, duration_s=0.1234567, endpoints=3)
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
    report = reporter()
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            report.new_fragments_failed(REJECTED, 0.0)
            report.reconciled(Unchanged(GENERATION), duration_s=0, endpoints=0)
    assert [line["event"] for line in logs] == ["generation.rejected"] * 2


def test_objects_are_said_when_refused_and_when_taken_again() -> None:
    one, two = (
        Refusal(ObjectRef("Service", "demo", name), "annotation domain", "x", RefusalReason.INVALID_VALUE, "no name")
        for name in ("one", "two")
    )
    report = reporter()
    with structlog.testing.capture_logs() as logs:
        for refused in ((one, two), (one, two), (two,), (one, two)):
            report.reconciled(Unchanged(GENERATION), duration_s=0, endpoints=0, refused=refused)
    assert [(line["event"], line["object"]) for line in logs] == [
        ("object.refused", "Service demo/one"),
        ("object.refused", "Service demo/two"),
        ("refusal.cleared", "Service demo/one"),
        ("object.refused", "Service demo/one"),
    ]


class Watched(Reporter):
    """Notes what a thread would see that asks before and after each step."""

    seen: list[tuple[bool, bool]] | None = None

    def __setattr__(self, name: str, value: object) -> None:
        self._look()
        super().__setattr__(name, value)
        self._look()

    def _look(self) -> None:
        if self.seen is not None:
            status = self.at(SourceHealth())
            self.seen.append((status.pending_since == 0.0, status.generation is not None))


def test_nothing_pending_is_never_seen_beside_the_former_generation() -> None:
    report = reporter(Watched)
    assert isinstance(report, Watched)
    report.pending()
    report.seen = []
    report.concluded(Applied(GENERATION, Reload((ReloadReason.FIRST_CONFIGURATION,)), verified=True))
    report.heartbeat()
    assert (False, False) in report.seen
    assert (True, False) not in report.seen, "all is applied, it says, and the generation is the former one"
    assert report.at(SourceHealth()).pending_since == 0.0


def test_names_are_counted_once() -> None:
    report = reporter()
    assert report.status.hosts_total is None
    owner = Owner("Service", "shop", "web", "")
    owners = {
        "domains": {Name("", "a.example.com"): owner, Name("port 6379", ""): owner},
        "kubefigurator": {Name("*:443", ""): owner, Name("*:443", "a.example.com"): owner, Name("*:443", "b"): owner},
    }
    entries = [{"hostnames": ["c.example.com", "b"]}, {}]
    report.names(Context({"configmap": {"services": entries}}, owners=owners))
    assert report.status.hosts_total == 3
    report.names(Context({}))
    assert report.status.hosts_total == 0


def test_certificates_of_all_presets_are_shown_each_once() -> None:
    report = reporter()
    one, two = (PresentedCertificate("shop", "tls", host, 7) for host in ("a.example.com", "b.example.com"))
    report.names(Context({}, certificates=({"x": one}, {"y": one, "z": two}, {})))
    assert report.status.certificates == (one, two)
    report.names(Context({}))
    assert not report.status.certificates
