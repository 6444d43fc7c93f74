"""The loop around :func:`pyconfd.daemon.reconcile.reconcile`: when to run it, and what to say about it."""

from dataclasses import dataclass, replace
from types import MappingProxyType

import structlog

from pyconfd.daemon.debounce import Backoff, Debounce
from pyconfd.daemon.fragments import LiveFragments
from pyconfd.daemon.journal import Journal
from pyconfd.daemon.mailbox import Mailbox
from pyconfd.daemon.ports import World
from pyconfd.daemon.reconcile import Attempt, Inputs, Reconciled, reconcile
from pyconfd.errors import PyconfdError
from pyconfd.model.outcome import Applied, Failed, Held, Outcome, Rejected, Step, Unchanged
from pyconfd.model.plan import Noop
from pyconfd.model.status import Phase, Status
from pyconfd.presets import registry
from pyconfd.settings import ApplySettings, TotalLoss

log = structlog.get_logger(__name__)

TICK_S = 1.0
"""How often fragments and holds are looked at: edits are to apply within two seconds."""

DRIFT_S = 5.0
"""How often disk and process are compared with what was applied."""

EXIT_OK = 0
EXIT_BUG = 70
"""Source: sysexits.h, EX_SOFTWARE."""


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """``presets`` in the order of the settings; ``version`` and ``pid`` are for the status."""

    apply: ApplySettings
    presets: tuple[str, ...]
    version: str
    pid: int


class Daemon:
    """One run of pyconfd, from start to stop. A stop changes nothing that serves."""

    def __init__(self, world: World, settings: LoopSettings) -> None:
        self._world = world
        self._settings = settings
        apply = settings.apply
        self._mailbox = Mailbox()
        self._debounce = Debounce(quiet_s=apply.quiet_s, cap_s=apply.cap_s)
        self._backoff = Backoff(first_s=apply.retry_min_s, last_s=apply.retry_max_s)
        self._fragments = LiveFragments(world.read_fragments, world.make_renderer, world.preset_options)
        self._journal = Journal()
        self._stopping = False
        self._decided = False
        self._last: Attempt | None = None
        self._retry_at: float | None = None
        self._next_tick = self._next_drift = 0.0
        started = world.clock.now()
        self._boot_ends = world.clock.monotonic() + apply.boot_wait_s
        applied = world.balancer.last_good()
        self._status = Status(
            now=started,
            version=settings.version,
            pid=settings.pid,
            started_at=started,
            heartbeat_at=started,
            generation=applied.generation if applied else None,
        )

    def status(self) -> Status:
        """Give the state as of now; safe to call from other threads."""
        targets = self._world.targets.states()
        problems = (*self._status.problems, *(problem for target in targets for problem in target.problems))
        now, source = self._world.clock.now(), self._world.source.health()
        return replace(self._status, now=now, source=source, targets=targets, problems=problems)

    def stop(self) -> None:
        """Ask the loop to end; safe to call from other threads."""
        self._stopping = True
        self._mailbox.nudge()

    def run(self) -> int:
        """Run until :meth:`stop`; give the exit status."""
        try:
            self._world.targets.start(self._mailbox.nudge)
            self._world.source.start(self._mailbox.post)
            while not self._stopping:
                posts = self._mailbox.take(self._wait_s())
                self._turn(posts)
        except Exception:
            log.exception("loop.crashed")
            return EXIT_BUG
        finally:
            self._world.notifier.stopping()
            self._world.source.stop()
            self._world.targets.stop()
        return EXIT_OK

    def _wait_s(self) -> float:
        now = self._world.clock.monotonic()
        times = [self._next_tick, *(t for t in (self._debounce.due_at(), self._retry_at) if t is not None)]
        return max(0.0, min(times) - now)

    def _turn(self, posts: int) -> None:
        now = self._world.clock.monotonic()
        if posts:
            self._note_change(events=posts, at_once=not self._decided)
        if now >= self._next_tick:
            self._next_tick = now + TICK_S
            self._look_around(now)
        retry_due = self._retry_at is not None and now >= self._retry_at
        if self._debounce.take(now) or retry_due:
            self._retry_at = None
            self._attempt()
        elif not self._decided and now >= self._boot_ends:
            self._decide_without_cluster()
        self._status = replace(self._status, heartbeat_at=self._world.clock.now())
        self._world.notifier.watchdog()
        self._world.publish(self.status())

    def _note_change(self, *, events: int = 0, at_once: bool = False) -> None:
        self._debounce.changed(self._world.clock.monotonic(), at_once=at_once)
        self._status = replace(
            self._status,
            events_total=self._status.events_total + events,
            pending_since=self._status.pending_since or self._world.clock.now(),
        )

    def _look_around(self, now: float) -> None:
        """Find what changed without telling: fragments, an operator's permission, the file, the process."""
        had_problems = self._fragments.problems
        if self._fragments.refresh():
            log.info("fragments.read")
            self._note_change(at_once=True)
        elif self._fragments.problems != had_problems:
            self._note_change(at_once=True)
        if self._status.hold_id and self._status.hold_id in self._world.allowed_holds():
            self._note_change(at_once=True)
        if now >= self._next_drift and self._status.phase is Phase.SERVING:
            self._next_drift = now + DRIFT_S
            last = self._world.balancer.last_good()
            if last and not isinstance(self._world.balancer.plan(last.rendering), Noop):
                self._note_change(at_once=True)

    def _attempt(self) -> None:
        snapshot, renderer = self._world.source.snapshot(), self._fragments.renderer
        if snapshot is None or renderer is None:
            if renderer is None and self._fragments.problems:
                self._conclude(Rejected(Step.RENDER, self._fragments.problems))
                if snapshot is not None:  # broken fragments of haproxy keep no target waiting
                    presets, options = self._settings.presets, self._world.base_options
                    self._world.targets.offer(registry.translate(snapshot, presets, options), guarded=True)
            return
        clock = self._world.clock
        began, now = clock.monotonic(), clock.now()
        done = reconcile(
            Inputs(
                snapshot=snapshot,
                renderer=renderer,
                presets=self._settings.presets,
                options=self._fragments.options,
                now=now,
                curdate=clock.date(now),
                guarded=self._settings.apply.total_loss is TotalLoss.HOLD,
                allowed=self._world.allowed_holds(),
                last=self._last,
            ),
            self._world.balancer,
        )
        self._finish(done, duration_s=clock.monotonic() - began)

    def _finish(self, done: Reconciled, *, duration_s: float) -> None:
        repeated = self._last is not None and done.outcome is self._last.outcome
        refused = tuple(sorted({*done.context.refused, *self._world.source.refusals()}))
        self._journal.refused(refused)
        self._journal.outcome(done.outcome, duration_s=duration_s, endpoints=done.context.census.claimed)
        self._status = replace(
            self._status, refused=refused, reconciliations_total=self._status.reconciliations_total + 1
        )
        if isinstance(done.outcome, Held) and not repeated and self._status.hold_id != done.outcome.hold_id:
            self._world.source.relist()
        if isinstance(done.outcome, Rejected | Failed) and not repeated:
            delay_s = self._backoff.next()
            self._last = Attempt(done.digest, done.outcome, self._world.clock.now() + delay_s)
            self._retry_at = self._world.clock.monotonic() + delay_s
            counts = dict(self._status.failures_by_step)
            counts[done.outcome.step.value] = counts.get(done.outcome.step.value, 0) + 1
            self._status = replace(self._status, failures_by_step=MappingProxyType(counts))
        elif isinstance(done.outcome, Rejected | Failed) and self._last:
            self._retry_at = self._world.clock.monotonic() + max(0.0, self._last.retry_at - self._world.clock.now())
        else:
            self._last = None
            self._backoff.reset()
            if isinstance(done.outcome, Applied):
                self._world.forget_holds()
        if not isinstance(done.outcome, Held):
            self._world.targets.offer(done.context, guarded=not isinstance(done.outcome, Applied | Unchanged))
        self._conclude(done.outcome)

    def _conclude(self, outcome: Outcome) -> None:
        """Put an outcome into the status, and make sure that something serves."""
        status = self._status
        fragment_problems = tuple(str(problem) for problem in self._fragments.problems)
        match outcome:
            case Applied(generation, plan, verified):
                counts = dict(status.reloads_by_reason)
                for reason in plan.reasons:
                    counts[reason.value] = counts.get(reason.value, 0) + 1
                status = replace(
                    status, generation=generation, verified=verified, reloads_by_reason=MappingProxyType(counts)
                )
                status = replace(status, phase=Phase.SERVING, problems=fragment_problems, hold_id="", pending_since=0.0)
            case Unchanged(generation):
                status = replace(status, generation=generation, phase=Phase.SERVING, problems=fragment_problems)
                status = replace(status, hold_id="", pending_since=0.0)
            case Held(hold_id, problem):
                status = replace(status, phase=Phase.HELD, hold_id=hold_id, problems=(str(problem), *fragment_problems))
            case Rejected(_, problems):
                status = replace(status, phase=Phase.REJECTED, hold_id="", problems=tuple(str(p) for p in problems))
            case Failed(_, problems):
                status = replace(status, phase=Phase.FAILED, hold_id="", problems=tuple(str(p) for p in problems))
        self._status = status
        if not self._decided:
            self._decided = True
            if not isinstance(outcome, Applied | Unchanged):
                self._serve_last_good()
            self._world.notifier.ready(self._line())
        else:
            self._world.notifier.status(self._line())

    def _decide_without_cluster(self) -> None:
        """No API server answered in time: serve what served last, and say so."""
        self._decided = True
        phase = Phase.SERVING_LAST_GOOD if self._serve_last_good() else Phase.WAITING
        self._status = replace(self._status, phase=phase, problems=tuple(str(p) for p in self._fragments.problems))
        log.warning("start.decided", phase=phase.value, reason="no complete view of the cluster yet")
        self._world.notifier.ready(self._line())

    def _serve_last_good(self) -> bool:
        try:
            outcome = self._world.balancer.restore_last_good(now=self._world.clock.now())
        except PyconfdError as error:
            log.error("last_good.failed", problem=str(error))  # noqa: TRY400 - the message says all; no traceback
            return False
        return isinstance(outcome, Applied | Unchanged)

    def _line(self) -> str:
        status = self._status
        number = f" generation {status.generation.number}" if status.generation else ""
        problem = f": {status.problems[0].splitlines()[0]}" if status.problems else ""
        return f"{status.phase.value.replace('_', ' ')}{number}{problem}"
