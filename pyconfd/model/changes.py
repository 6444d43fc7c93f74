"""What became of one change, in words and numbers; shown by ``pyconfd watch``, counted by the metrics. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate
from types import MappingProxyType
from typing import assert_never

from pyconfd.model.hold import HoldEvent, HoldStep
from pyconfd.model.operations import Command
from pyconfd.model.outcome import Applied, Deferred, Failed, Held, Outcome, Rejected, Unchanged
from pyconfd.model.plan import Reload
from pyconfd.printable import long_duration

SUMMARY_GROUPS = 4
"""Backends, maps and certificates that a summary names; of the rest it gives the number."""

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histogram: a runtime update takes about a millisecond, a reload up to seconds."""


class Action(StrEnum):
    """What was done; a label of the metric ``pyconfd_plans_total``."""

    NOOP = "noop"
    LIVE = "live"
    FILE = "file"
    """The process was right already: only the file had to follow."""
    RELOAD = "reload"
    DEFERRED = "deferred"
    HELD = "held"
    RELEASED = "released"
    """What was held of a change is held no more; recorded, never a plan."""
    REJECTED = "rejected"
    FAILED = "failed"
    ENDED = "ended"
    """A former worker was ended with its sessions to make room for a reload; recorded, never a plan."""


@dataclass(frozen=True, slots=True)
class EndedWorker:
    """A former worker that was ended with its ``connections``, since there were ``workers``: as many as may be.

    ``replaced_s`` before, a reload had replaced it, for names of ``namespaces`` as far as that is known.
    """

    pid: int
    connections: int
    replaced_s: float
    workers: int
    namespaces: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What happened, and which setting makes it so."""
        whose = f", which a change of {', '.join(self.namespaces)} had replaced" if self.namespaces else ""
        return (
            f"former worker {self.pid}{whose} {long_duration(self.replaced_s)} ago, was ended with "
            f"{self.connections} connections: {self.workers} is haproxy.max_old_workers"
        )


@dataclass(frozen=True, slots=True)
class RoomForReload:
    """Whether a reload may come now; ``ended`` is the worker that was ended for it just now."""

    free: bool
    ended: EndedWorker | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One change, or why there was none.

    ``at`` is seconds since the epoch, ``generation`` the running one after it (0 for none), ``duration_s`` from when
    it was noticed until it was applied. ``summary`` says what was updated at run time, ``details`` what the reload is
    about, or the problem. ``causes`` are the objects of the cluster that changed, as far as they are named; none where
    fragments, settings or an operator are the cause.
    """

    at: float
    generation: int
    action: Action
    summary: str = ""
    details: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    duration_s: float = 0.0
    causes: tuple[str, ...] = ()


def change_of(outcome: Outcome, *, at: float, serving: int, duration_s: float) -> Change | None:
    """Return the change that ``outcome`` stands for; None where nothing had to change.

    ``serving`` is the number of the generation that serves where the outcome names none.
    """
    match outcome:
        case Unchanged():
            return None
        case Applied(generation, plan):
            applied = Change(at, generation.number, Action.LIVE, "", plan.details, duration_s=duration_s)
            if isinstance(plan, Reload):
                return replace(applied, action=Action.RELOAD, reasons=_reasons(plan))
            action = Action.LIVE if plan.commands else Action.FILE
            # Without commands the details say it.
            summary = "; ".join((*plan.moves, summary_of(plan.commands))) if plan.commands else ""
            return replace(applied, action=action, summary=summary)
        case Deferred(plan, generation, live):
            number = generation.number if generation else serving
            summary = summary_of(live.commands) if live else ""
            action, reasons = (Action.DEFERRED, _reasons(plan)) if isinstance(plan, Reload) else (Action.LIVE, ())
            return Change(at, number, action, summary, plan.details, reasons, duration_s)
        case Held(_, problem):
            return Change(at, serving, Action.HELD, "", (str(problem),), (), duration_s)
        case Rejected(step, problems) | Failed(step, problems):
            action = Action.REJECTED if isinstance(outcome, Rejected) else Action.FAILED
            return Change(at, serving, action, "", tuple(map(str, problems)), (step.value,), duration_s)
    assert_never(outcome)


_ENDS: Mapping[HoldStep, str] = MappingProxyType(
    {
        HoldStep.EXPIRED: "the loss has lasted and is applied",
        HoldStep.ALLOWED: "an operator allowed it",
        HoldStep.RETURNED: "the endpoints are back",
    }
)


def change_of_hold(event: HoldEvent, *, at: float, serving: int) -> Change | None:
    """Return the change of a hold: that it began, and how it ended; None for what lies between.

    ``duration_s`` of the end is how long it lasted.
    """
    hold = event.hold
    if event.step is HoldStep.BEGUN:
        return Change(at, serving, Action.HELD, "", (str(hold.problem),))
    if event.step not in _ENDS:
        return None
    return Change(at, serving, Action.RELEASED, hold.hold_id, (_ENDS[event.step],), (), max(0.0, at - hold.since))


def _reasons(plan: Reload) -> tuple[str, ...]:
    return tuple(reason.value for reason in plan.reasons)


def summary_of(commands: Iterable[Command]) -> str:
    """Return what the commands do by backend, map and certificate: ``shop +2 servers, -1 server; web 3 weights``."""
    groups: dict[str, Counter[str]] = {}
    for command in commands:
        groups.setdefault(command.group(), Counter())[command.counted] += command.number()
    texts = [
        f"{name} {', '.join(_counted(what, number) for what, number in groups[name].items() if what)}"
        for name in groups
    ]
    more = len(texts) - SUMMARY_GROUPS
    return "; ".join(texts[:SUMMARY_GROUPS]) + (f"; and {more} more" if more > 0 else "")


def _counted(what: str, number: int) -> str:
    if not number:
        return what
    sign, _, noun = what.partition(" ")
    if number > 1:
        first, *rest = noun.split(" ", 1) if not noun.startswith(("changed ", "reloaded ")) else [noun]
        plural = f"{first[:-1]}ies" if first.endswith("y") else f"{first}s"
        noun = " ".join((plural, *rest))
    return f"{sign}{number} {noun}"


@dataclass(frozen=True, slots=True)
class Times:
    """How long changes took: ``counts`` for each of :data:`BUCKETS_S` and one for what took longer."""

    counts: tuple[int, ...] = (0,) * (len(BUCKETS_S) + 1)
    sum_s: float = 0.0

    def and_one(self, duration_s: float) -> "Times":
        """Return these with one more."""
        place = next((number for number, bound in enumerate(BUCKETS_S) if duration_s <= bound), len(BUCKETS_S))
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return Times(counts, self.sum_s + duration_s)

    def cumulative(self) -> tuple[int, ...]:
        """Return how many took at most each bound; the last is the number of all."""
        return tuple(accumulate(self.counts))


@dataclass(frozen=True, slots=True)
class FormerWorkers:
    """The workers that reloads have replaced, and that still end their sessions.

    The oldest was started at ``oldest_since`` (seconds since the epoch); ``hard-stop-after`` ends the last of them at
    ``last_ends_at``, 0.0 where it never does.
    """

    count: int = 0
    oldest_since: float = 0.0
    connections: int = 0
    last_ends_at: float = 0.0

    def after(self, known: "FormerWorkers") -> "FormerWorkers":
        """Return these with the times that are ``known`` already where they are the same."""
        since, ends_at = _steady(self.oldest_since, known.oldest_since), _steady(self.last_ends_at, known.last_ends_at)
        return replace(self, oldest_since=since, last_ends_at=ends_at)


@dataclass(frozen=True, slots=True)
class ApplyingStatus:
    """How changes are applied, since the start, and what former changes have left behind.

    ``plans_by_action`` has a count for each :class:`Action` that occurred, ``times_by_action`` those of runtime
    updates and of reloads. ``file_behind_since`` is 0.0 where the file is in sync with the process. ``last_ended`` of
    all former workers that were ended to make room for a reload was so at ``last_ended_at``.
    """

    plans_by_action: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    times_by_action: Mapping[str, Times] = field(default_factory=lambda: MappingProxyType({}))
    former: FormerWorkers = FormerWorkers()
    file_behind_since: float = 0.0
    workers_ended_total: int = 0
    last_ended: EndedWorker | None = None
    last_ended_at: float = 0.0

    def ended(self, now: float, worker: EndedWorker) -> "ApplyingStatus":
        """Return this with one more former worker that was ended to make room."""
        total = self.workers_ended_total + 1
        return replace(self, workers_ended_total=total, last_ended=worker, last_ended_at=now)

    def after(self, change: Change | None) -> "ApplyingStatus":
        """Return this with one more change counted; None where nothing had to change."""
        action = change.action.value if change else Action.NOOP.value
        plans = MappingProxyType({**self.plans_by_action, action: self.plans_by_action.get(action, 0) + 1})
        if change is None or change.action not in {Action.LIVE, Action.RELOAD}:
            return replace(self, plans_by_action=plans)
        times = self.times_by_action.get(action, Times()).and_one(change.duration_s)
        return replace(
            self, plans_by_action=plans, times_by_action=MappingProxyType({**self.times_by_action, action: times})
        )

    def seen(self, former: FormerWorkers) -> "ApplyingStatus":
        """Return this with the former workers that were seen."""
        return replace(self, former=former.after(self.former))

    def written(self, now: float, *, behind: bool) -> "ApplyingStatus":
        """Return this with whether the file is behind the process at ``now``."""
        return replace(self, file_behind_since=(self.file_behind_since or now) if behind else 0.0)


def _steady(at: float, known: float) -> float:
    """Return the time that is known already where ``at`` is the same one."""
    return known if at and abs(at - known) < _AGE_GRAIN_S else at


_AGE_GRAIN_S = 2.0
"""HAProxy gives ages in whole seconds: what differs by less is the same worker."""
