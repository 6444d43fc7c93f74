"""The rollout monitor: raise an alarm when error rates rise after a change, mark the generations that ran well.

It only reports. Going back is up to the operator (``pyconfd rollback``): an application that is deployed in the same
minute has the same symptoms as a bad edit.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from pyconfd.daemon.error_rates import LEAST_REQUESTS, counted, judge
from pyconfd.daemon.ports import World
from pyconfd.daemon.reporting import Reporter
from pyconfd.errors import Problem, TransientError
from pyconfd.haproxy.config.diff import differences
from pyconfd.haproxy.config.text import emptied
from pyconfd.model.operations import AddBackend, Command, FillSpare, RemoveBackend
from pyconfd.model.outcome import Applied, Outcome, Stored
from pyconfd.model.plan import Reload
from pyconfd.model.status import RolloutAlarm, RolloutStatus, Sample
from pyconfd.settings import HistorySettings

log = structlog.get_logger(__name__)

_SAMPLES = 12
"""Samples that are kept for the time of one rollout: enough to know the error rates before it."""
_WORDS = 3
"""Sentences about a change in an alarm."""


@dataclass(frozen=True, slots=True)
class _Rollout:
    """Changes monitored until ``ends``: ``usual`` was counted before them, ``begins`` is the sample to start at.

    ``before`` was applied before the first of them, ``after`` is the last, applied at ``since``; ``reasons`` are those
    of their reloads. Times are of the monotonic clock.
    """

    since: float
    ends: float
    usual: Sample
    begins: Sample
    before: Stored
    after: Stored
    reasons: tuple[str, ...]

    @property
    def changed_inputs(self) -> bool:
        """Whether fragments or settings changed."""
        return self.before.rendering.inputs not in {"", self.after.rendering.inputs}

    @property
    def change(self) -> str:
        """Return the generation, the reasons of its reload, and the difference in words."""
        number, former = self.after.generation.number, self.before.generation.number
        how = f"reload: {', '.join(self.reasons)}" if self.reasons else "live"
        edited = ("fragments or settings were edited",) if self.changed_inputs else ()
        words = (*edited, *differences(self.before.rendering, self.after.rendering))
        said = "; ".join(words[:_WORDS]) + (f"; and {len(words) - _WORDS} more" if len(words) > _WORDS else "")
        return f"generation {number} after {former} ({how}): {said or 'nothing that has a name'}"


class RolloutMonitor:
    """Called by the loop once a second; ``in_place`` returns whether HAProxy is in sync with the last generation.

    :meth:`status` may be called from any thread.
    """

    def __init__(self, world: World, settings: HistorySettings, report: Reporter, in_place: Callable[[], bool]) -> None:
        self._world = world
        self._port = world.rollout
        self._settings = settings
        self._report = report
        self._in_place = in_place
        self._serving = world.balancer.last_good()
        self._samples: deque[Sample] = deque()
        self._newest: Sample | None = None
        self._rollout: _Rollout | None = None
        self._alarm: RolloutAlarm | None = None
        self._alarms_total = 0
        self._quiet_since: float | None = None
        self._marked = False

    def status(self, now: float) -> RolloutStatus:
        """Return the state of the monitor at ``now``, in seconds since the epoch."""
        rollout = self._rollout
        left_s = rollout.ends - self._world.clock.monotonic() if rollout else 0.0
        return RolloutStatus(round(now + left_s) if left_s > 0 else 0.0, self._alarm, self._alarms_total)

    def concluded(self, outcome: Outcome, now: float) -> None:
        """Start to monitor what was applied at ``now`` (monotonic). Cheap for a runtime update: it is on its path."""
        if not isinstance(outcome, Applied):
            return
        former, self._serving = self._serving, self._world.balancer.last_good()
        reasons, commands = _plan_of(outcome)
        if reasons or any(isinstance(each, AddBackend | FillSpare | RemoveBackend) for each in commands):
            self._quiet_since, self._marked = now, False
        if former is None or self._serving is None or not self._settings.rollout_monitor_s or self._newest is None:
            return
        if reasons or former.rendering.inputs != self._serving.rendering.inputs:
            self._begin(former, self._serving, reasons, self._newest, now)

    def _begin(self, before: Stored, after: Stored, reasons: tuple[str, ...], newest: Sample, now: float) -> None:
        ends, known = now + self._settings.rollout_monitor_s, self._rollout
        if known is not None:  # compare with before the first of several changes
            merged = tuple(dict.fromkeys((*known.reasons, *reasons)))
            self._rollout = replace(known, since=now, ends=ends, begins=newest, after=after, reasons=merged)
            return
        oldest = next((each for each in self._samples if each.worker == newest.worker), newest)
        usual = counted(oldest if oldest is not newest else None, newest)
        self._rollout = _Rollout(now, ends, usual, newest, before, after, reasons)

    def poll(self, now: float) -> None:
        """Read the newest counters; ``now`` is of the monotonic clock."""
        self._serving = self._world.balancer.last_good()
        sample = self._port.traffic()
        self._check_ran_well(sample, now)
        if sample is None or sample is self._newest:
            return
        self._newest = sample
        if not self._samples or sample.at - self._samples[-1].at >= self._settings.rollout_monitor_s / _SAMPLES:
            self._samples.append(sample)
        while len(self._samples) > 1 and self._samples[1].at <= sample.at - self._settings.rollout_monitor_s:
            self._samples.popleft()
        if self._rollout is not None and sample.at >= self._rollout.since:
            self._judge(self._from_the_change_on(self._rollout, sample), sample, now)

    def _from_the_change_on(self, rollout: _Rollout, sample: Sample) -> _Rollout:
        """Start at the first sample after the change if the same worker also counted requests before it."""
        if rollout.begins.at < rollout.since and rollout.begins.worker == sample.worker:
            rollout = self._rollout = replace(rollout, begins=sample)
        return rollout

    def _judge(self, rollout: _Rollout, sample: Sample, now: float) -> None:
        later = (each for each in self._samples if each.at > rollout.begins.at and each.worker == sample.worker)
        window = sample.at - self._settings.rollout_monitor_s
        begins = rollout.begins if rollout.begins.at >= window else next(later, rollout.begins)
        after = _without_emptied(counted(begins, sample), self._serving)
        findings = judge(rollout.usual, after)
        if findings and self._alarm is None:
            self._raise(rollout, findings)
        elif not findings and self._alarm is not None and after.clients.requests >= LEAST_REQUESTS:
            log.info("rollout.alarm_cleared", generation=self._alarm.generation)
            self._alarm = None
            self._report.problems("rollout", ())
        if self._alarm is None and now >= rollout.ends:
            self._rollout = None

    def _raise(self, rollout: _Rollout, findings: tuple[str, ...]) -> None:
        change = rollout.change
        self._alarm = RolloutAlarm(rollout.after.generation.number, self._world.clock.now(), change, findings)
        self._alarms_total += 1
        log.error("rollout.alarm_raised", generation=self._alarm.generation, change=change, findings=list(findings))
        remedy = "pyconfd diff shows it; pyconfd rollback brings back the former fragments and settings"
        self._report.problems("rollout", (Problem("rollout", f"since {change}: {'; '.join(findings)}", remedy),))

    def _check_ran_well(self, sample: Sample | None, now: float) -> None:
        """Mark the running structure as the one for a boot once it has run for ``ran_well_s`` without an event."""
        replaced = sample is not None and self._newest is not None and sample.worker != self._newest.worker
        if self._quiet_since is None or replaced or self._alarm is not None:
            self._quiet_since = now
        if self._marked or now - self._quiet_since < self._settings.ran_well_s or self._serving is None:
            return
        if not (self._world.balancer.runs() and self._in_place()):
            self._quiet_since = now
            return
        try:
            self._port.mark_ran_well()
        except TransientError as error:
            log.warning("ran_well.not_marked", problem=error.problems[0].message, place=error.problems[0].place)
            self._quiet_since = now
            return
        self._marked = True
        log.info("generation.ran_well", number=self._serving.generation.number)


def _without_emptied(sample: Sample, serving: Stored | None) -> Sample:
    """Leave out backends that have no server in the configuration: those still seen there are draining."""
    down = [name for name, counts in sample.backends.items() if counts.servers and not counts.servers_up]
    if not down or serving is None:
        return sample
    empty = set(emptied(serving.rendering.text, down))
    left = {name: counts for name, counts in sample.backends.items() if name not in empty}
    return replace(sample, backends=left) if empty else sample


def _plan_of(outcome: Applied) -> tuple[tuple[str, ...], tuple[Command, ...]]:
    """Return the reasons of a reload, or the commands of a runtime update."""
    if isinstance(outcome.plan, Reload):
        return tuple(reason.value for reason in outcome.plan.reasons), ()
    return (), outcome.plan.commands
