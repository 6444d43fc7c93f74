"""Sees whether what was applied does well: errors and servers after a reload, and a while without an event."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from secrets import token_hex

import structlog

from pyconfd.daemon.account import Account
from pyconfd.daemon.ports import World
from pyconfd.errors import Problem, TransientError
from pyconfd.haproxy.difference import difference, in_short
from pyconfd.haproxy.sections import emptied
from pyconfd.model.outcome import Applied, Outcome, Stored
from pyconfd.model.pin import Pin, PinnedBy
from pyconfd.model.plan import AddBackend, Command, Reload, RemoveBackend
from pyconfd.model.traffic import Alarm, ProbationStatus, Sample
from pyconfd.probation import LEAST_REQUESTS, counted, judge
from pyconfd.settings import HistorySettings

log = structlog.get_logger(__name__)

_SAMPLES = 12
"""So many are remembered of the time that a probation takes: enough to say what was usual before."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """Changes on probation until ``ends`` (monotonic): ``usual`` is what was counted before, ``begins`` where to begin.

    ``before`` served before the first of them, ``after`` since the last, at ``since`` (monotonic); ``reasons`` are
    those of their reloads.
    """

    since: float
    ends: float
    usual: Sample
    begins: Sample
    before: Stored
    after: Stored
    reasons: tuple[str, ...]

    @property
    def changed_basis(self) -> bool:
        """Whether fragments or settings changed, so that going back means something."""
        return self.before.rendering.basis not in {"", self.after.rendering.basis}

    @property
    def change(self) -> str:
        """Name the change: generation, reasons, and what it was in words."""
        number, former = self.after.generation.number, self.before.generation.number
        how = f"reload: {', '.join(self.reasons)}" if self.reasons else "live"
        edited = ("fragments or settings were edited",) if self.changed_basis else ()
        words = (*edited, *difference(self.before.rendering, self.after.rendering).sentences)
        return f"generation {number} after {former} ({how}): {in_short(words) or 'nothing that has a name'}"


class Proving:
    """The proof of one loop. All is looked at once a second; ``in_place`` says whether HAProxy is as it should be.

    :meth:`status` may be called from any thread.
    """

    def __init__(self, world: World, settings: HistorySettings, account: Account, in_place: Callable[[], bool]) -> None:
        self._world = world
        self._proof = world.proof
        self._settings = settings
        self._account = account
        self._in_place = in_place
        self._serving = world.balancer.last_good()
        self._samples: deque[Sample] = deque()
        self._newest: Sample | None = None
        self._trial: _Trial | None = None
        self._alarm: Alarm | None = None
        self._alarms_total = 0
        self._quiet_since: float | None = None
        self._marked = False

    def status(self, now: float) -> ProbationStatus:
        """Give what is on probation at ``now``, in seconds since the epoch."""
        trial = self._trial
        left_s = trial.ends - self._world.clock.monotonic() if trial else 0.0
        return ProbationStatus(round(now + left_s) if left_s > 0 else 0.0, self._alarm, self._alarms_total)

    def concluded(self, outcome: Outcome, now: float) -> None:
        """Note what serves from ``now`` on; cheap where it went live."""
        if not isinstance(outcome, Applied):
            return
        former, self._serving = self._serving, self._world.balancer.last_good()
        reasons, commands = _plan_of(outcome)
        if reasons or any(isinstance(each, AddBackend | RemoveBackend) for each in commands):
            self._quiet_since, self._marked = now, False
        if former is None or self._serving is None or not self._settings.probation_s or self._newest is None:
            return
        if reasons or former.rendering.basis != self._serving.rendering.basis:
            self._begin(former, self._serving, reasons, self._newest, now)

    def _begin(self, before: Stored, after: Stored, reasons: tuple[str, ...], newest: Sample, now: float) -> None:
        ends, known = now + self._settings.probation_s, self._trial
        if known is not None:  # what was usual before the first of several changes still is the measure
            merged = tuple(dict.fromkeys((*known.reasons, *reasons)))
            self._trial = replace(known, since=now, ends=ends, begins=newest, after=after, reasons=merged)
            return
        oldest = next((each for each in self._samples if each.worker == newest.worker), newest)
        usual = counted(oldest if oldest is not newest else None, newest)
        self._trial = _Trial(now, ends, usual, newest, before, after, reasons)

    def look(self, now: float) -> None:
        """Take what was counted since; ``now`` is of the monotonic clock."""
        self._serving = self._world.balancer.last_good()
        sample = self._proof.traffic()
        self._see_whether_it_ran_well(sample, now)
        if sample is None or sample is self._newest:
            return
        self._newest = sample
        if not self._samples or sample.at - self._samples[-1].at >= self._settings.probation_s / _SAMPLES:
            self._samples.append(sample)
        while len(self._samples) > 1 and self._samples[1].at <= sample.at - self._settings.probation_s:
            self._samples.popleft()
        if self._trial is not None and sample.at >= self._trial.since:
            self._judge(self._from_the_change_on(self._trial, sample), sample, now)

    def _from_the_change_on(self, trial: _Trial, sample: Sample) -> _Trial:
        """Begin with the first sample after the change, where its worker has also counted what was before it."""
        if trial.begins.at < trial.since and trial.begins.worker == sample.worker:
            trial = self._trial = replace(trial, begins=sample)
        return trial

    def _judge(self, trial: _Trial, sample: Sample, now: float) -> None:
        later = (each for each in self._samples if each.at > trial.begins.at and each.worker == sample.worker)
        window = sample.at - self._settings.probation_s
        begins = trial.begins if trial.begins.at >= window else next(later, trial.begins)
        after = _without_emptied(counted(begins, sample), self._serving)
        findings = judge(trial.usual, after)
        if findings and self._alarm is None:
            self._raise(trial, findings)
        elif not findings and self._alarm is not None and after.clients.requests >= LEAST_REQUESTS:
            log.info("probation.recovered", generation=self._alarm.generation)
            self._clear()
        if self._alarm is not None:
            self._go_back(trial)
        elif now >= trial.ends:
            self._trial = None

    def _raise(self, trial: _Trial, findings: tuple[str, ...]) -> None:
        change = trial.change
        self._alarm = Alarm(trial.after.generation.number, self._world.clock.now(), change, findings)
        self._alarms_total += 1
        log.error("probation.failed", generation=self._alarm.generation, change=change, findings=list(findings))
        self._show()

    def _clear(self) -> None:
        self._alarm = None
        self._account.problems("probation", ())

    def _show(self) -> None:
        if self._alarm is None:
            return
        back = self._alarm.rolled_back
        remedy = (
            f"the fragments of generation {back} are back; mend those on disk, then: pyconfd unpin"
            if back
            else "pyconfd diff shows it; pyconfd rollback brings back the former fragments and settings"
        )
        message = f"since {self._alarm.change}: {'; '.join(self._alarm.findings)}"
        self._account.problems("probation", (Problem("probation", message, remedy),))

    def _go_back(self, trial: _Trial) -> None:
        """Bring back what served before, once, where that is wanted and means anything."""
        alarm, number = self._alarm, trial.before.generation.number
        wanted = self._settings.probation_rollback and trial.changed_basis
        if alarm is None or alarm.rolled_back or not wanted or self._proof.pinned():
            return
        reason = f"probation of generation {alarm.generation}: {'; '.join(alarm.findings)}"
        pin = Pin(token_hex(4), number, trial.before.rendering.basis, alarm.since, reason, PinnedBy.PROBATION)
        try:
            self._proof.pin(pin)
        except TransientError as error:
            log.error("rollback.failed", problem=error.problems[0].message, place=error.problems[0].place)  # noqa: TRY400 - the message says all
            return
        log.warning("generation.rolled_back", pinned=number, after=alarm.generation, reason=reason)
        self._alarm = replace(alarm, rolled_back=number)
        self._show()

    def _see_whether_it_ran_well(self, sample: Sample | None, now: float) -> None:
        """Mark the structure that serves for a boot, once it has run for a while without an event."""
        replaced = sample is not None and self._newest is not None and sample.worker != self._newest.worker
        if self._quiet_since is None or replaced or self._alarm is not None:
            self._quiet_since = now
        if self._marked or now - self._quiet_since < self._settings.ran_well_s or self._serving is None:
            return
        if not (self._world.balancer.runs() and self._in_place()):
            self._quiet_since = now
            return
        try:
            self._proof.mark_ran_well()
        except TransientError as error:
            log.warning("ran_well.not_marked", problem=error.problems[0].message, place=error.problems[0].place)
            self._quiet_since = now
            return
        self._marked = True
        log.info("generation.ran_well", number=self._serving.generation.number)


def _without_emptied(sample: Sample, serving: Stored | None) -> Sample:
    """Leave out backends that are to have no server: those that are still seen there are on their way out."""
    down = [name for name, counts in sample.backends.items() if counts.servers and not counts.servers_up]
    if not down or serving is None:
        return sample
    empty = set(emptied(serving.rendering.text, down))
    left = {name: counts for name, counts in sample.backends.items() if name not in empty}
    return replace(sample, backends=left) if empty else sample


def _plan_of(outcome: Applied) -> tuple[tuple[str, ...], tuple[Command, ...]]:
    """Give the reasons of a reload, or the commands of what went live."""
    if isinstance(outcome.plan, Reload):
        return tuple(reason.value for reason in outcome.plan.reasons), ()
    return (), outcome.plan.commands
