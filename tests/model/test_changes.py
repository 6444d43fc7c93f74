import pytest

from pyconfd.errors import Problem
from pyconfd.model.changes import BUCKETS_S, Action, ApplyingStatus, Change, FormerWorkers, Times, change_of, summary_of
from pyconfd.model.operations import (
    AddBackend,
    AddCertificate,
    AddListLines,
    AddMapEntries,
    AddServer,
    ChangeMapEntries,
    Command,
    RemoveBackend,
    RemoveCertificate,
    RemoveListLines,
    RemoveMapEntries,
    RemoveServer,
    ReplaceMap,
    ServerState,
    SetState,
    SetWeight,
    ShrinkMap,
    UpdateCertificate,
)
from pyconfd.model.outcome import (
    Applied,
    Deferred,
    Failed,
    Generation,
    Held,
    Outcome,
    Rejected,
    Step,
    Unchanged,
)
from pyconfd.model.plan import Reload, ReloadReason, RuntimeUpdate

SERVING = Generation(418, "d", 900.0)
ADDED = RuntimeUpdate((AddServer("shop", "a", "10.0.0.1:80"), AddServer("shop", "b", "10.0.0.2:80")), ("shop changed",))
RELOAD = Reload((ReloadReason.BINDS_CHANGED,), ("frontend fe: 1 bind added",))
PROBLEM = Problem("02-http.tmpl line 3", "wrong", "mend it")


def change(outcome: Outcome) -> Change | None:
    return change_of(outcome, at=1000.0, serving=417, duration_s=0.5)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Unchanged(SERVING), None),
        (
            Applied(SERVING, ADDED, verified=True),
            Change(1000.0, 418, Action.LIVE, "shop +2 servers", ("shop changed",), (), 0.5),
        ),
        (
            Applied(SERVING, RuntimeUpdate((), ("a comment",)), verified=True),
            Change(1000.0, 418, Action.FILE, "", ("a comment",), (), 0.5),
        ),
        (
            Applied(SERVING, RELOAD, verified=True),
            Change(1000.0, 418, Action.RELOAD, "", RELOAD.details, ("binds_changed",), 0.5),
        ),
        (
            Deferred(RELOAD, SERVING, ADDED),
            Change(1000.0, 418, Action.DEFERRED, "shop +2 servers", RELOAD.details, ("binds_changed",), 0.5),
        ),
        (
            Deferred(RELOAD, None),
            Change(1000.0, 417, Action.DEFERRED, "", RELOAD.details, ("binds_changed",), 0.5),
        ),
        (Held("3f", PROBLEM), Change(1000.0, 417, Action.HELD, "", (str(PROBLEM),), (), 0.5)),
        (
            Rejected(Step.CHECK, (PROBLEM,)),
            Change(1000.0, 417, Action.REJECTED, "", (str(PROBLEM),), ("check",), 0.5),
        ),
        (
            Failed(Step.RELOAD, (PROBLEM, PROBLEM)),
            Change(1000.0, 417, Action.FAILED, "", (str(PROBLEM), str(PROBLEM)), ("reload",), 0.5),
        ),
    ],
)
def test_what_became_of_it(outcome: Outcome, expected: Change | None) -> None:
    assert change(outcome) == expected


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ((), ""),
        (
            (AddServer("shop", "a", "x"), RemoveServer("shop", "b"), RemoveServer("shop", "c")),
            "shop +1 server, -2 servers",
        ),
        (
            (SetWeight("shop", "a", 3), SetWeight("web", "a", 3), SetWeight("web", "b", 3)),
            "shop 1 weight; web 2 weights",
        ),
        ((SetState("shop", "a", ServerState.DRAIN), SetState("shop", "b", ServerState.DRAIN)), "shop 2 servers drain"),
        ((SetState("shop", "a", ServerState.MAINT),), "shop 1 server maint"),
        ((AddBackend("new", "d"), AddServer("new", "a", "x")), "new added, +1 server"),
        ((RemoveBackend("old"),), "old removed"),
        ((AddMapEntries("/m/hosts.map", (("a", "b"),)),), "hosts.map +1 entry"),
        ((RemoveMapEntries("/m/hosts.map", ("a", "b")),), "hosts.map -2 entries"),
        ((ChangeMapEntries("/m/hosts.map", (("a", "b"), ("c", "d"))),), "hosts.map 2 changed entries"),
        ((ReplaceMap("/m/hosts.map", (("a", "b"), ("c", "d"))),), "hosts.map 2 reloaded entries"),
        ((ShrinkMap("/m/hosts.map", (("a", "b"),), 2),), "hosts.map -2 entries"),
        ((UpdateCertificate("/c/a.pem", "KEY"),), "a.pem renewed"),
        ((AddCertificate("/c/a.pem", "KEY"), RemoveCertificate("/c/b.pem")), "a.pem added; b.pem removed"),
        ((AddListLines("/l", ("/c/a.pem x",)), RemoveListLines("/l", ("/c/b.pem",))), "l +1 line, -1 line"),
        (
            tuple(AddServer(f"b{number}", "a", "x") for number in range(6)),
            "b0 +1 server; b1 +1 server; b2 +1 server; b3 +1 server; and 2 more",
        ),
    ],
)
def test_a_summary_groups_by_what_was_changed(commands: tuple[Command, ...], expected: str) -> None:
    assert summary_of(commands) == expected


def test_changes_are_counted() -> None:
    status = ApplyingStatus()
    for outcome in (Unchanged(SERVING), Applied(SERVING, ADDED, verified=True), Applied(SERVING, ADDED, verified=True)):
        status = status.after(change(outcome))
    status = status.after(change(Applied(SERVING, RELOAD, verified=True))).after(change(Deferred(RELOAD, SERVING)))
    assert status.plans_by_action == {"noop": 1, "live": 2, "reload": 1, "deferred": 1}
    assert set(status.times_by_action) == {"live", "reload"}, "what waits has not taken its time yet"
    assert status.times_by_action["live"].sum_s == 1.0


def test_times_fall_into_the_buckets_up_to_their_bound() -> None:
    times = Times()
    for duration_s in (0.0, BUCKETS_S[0], BUCKETS_S[1], BUCKETS_S[-1], 1e9):
        times = times.and_one(duration_s)
    assert times.cumulative()[:2] == (2, 3)
    assert times.cumulative()[-2:] == (4, 5)


def test_the_oldest_worker_keeps_its_start_though_ages_are_whole_seconds() -> None:
    seen = ApplyingStatus().seen(FormerWorkers(2, 900.0, 14, 1500.0))
    assert seen.former == FormerWorkers(2, 900.0, 14, 1500.0)
    later = seen.seen(FormerWorkers(1, 900.9, 3, 1501.9))
    assert later.former == FormerWorkers(1, 900.0, 3, 1500.0)
    younger = later.seen(FormerWorkers(1, 960.0, 3, 1502.0))
    assert younger.former == FormerWorkers(1, 960.0, 3, 1502.0)
    assert younger.seen(FormerWorkers()) == ApplyingStatus()


def test_the_file_is_behind_since_it_was_seen_so_first() -> None:
    behind = ApplyingStatus().written(1000.0, behind=True)
    assert behind.file_behind_since == 1000.0
    assert behind.written(1001.0, behind=True) == behind
    assert behind.written(1002.0, behind=False) == ApplyingStatus()
