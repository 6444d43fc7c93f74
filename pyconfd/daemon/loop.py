"""The loop around :func:`pyconfd.daemon.reconcile.reconcile`: when to run it, and what to say about it."""

from dataclasses import replace

import structlog

from pyconfd.daemon.account import Account
from pyconfd.daemon.arbitration import translator
from pyconfd.daemon.debounce import Debounce, LiveClock
from pyconfd.daemon.fragments import Compiled, LiveFragments
from pyconfd.daemon.journal import Journal
from pyconfd.daemon.last_good import LastGood
from pyconfd.daemon.loop_settings import LoopSettings
from pyconfd.daemon.mailbox import Mailbox
from pyconfd.daemon.memory import Memory
from pyconfd.daemon.ports import World
from pyconfd.daemon.protection import ProtectedSnapshots
from pyconfd.daemon.pulse import Pulse
from pyconfd.daemon.quarantine import Quarantine
from pyconfd.daemon.reconcile import Attempt, Inputs, Reconciled, reconcile
from pyconfd.daemon.retry import Retry
from pyconfd.daemon.rollout_monitor import RolloutMonitor
from pyconfd.daemon.upkeep import Surroundings, Upkeep
from pyconfd.errors import PendingRendering
from pyconfd.model.hold import ADOPTION
from pyconfd.model.outcome import Applied, Deferred, Failed, Held, Outcome, Rejected, Step, Unchanged
from pyconfd.model.plan import Reload
from pyconfd.model.snapshot import Snapshot
from pyconfd.model.status import Phase, Status
from pyconfd.presets.memo import Memo

log = structlog.get_logger(__name__)

TICK_S = 1.0
"""How often fragments and holds are looked at: edits are to apply within two seconds."""

DRIFT_S = 5.0
"""How often disk and process are compared with what was applied."""


class Daemon:
    """One run of pyconfd, from start to stop. A stop changes nothing that serves.

    It is *decided* what serves, and the service manager told so once, by the first outcome, whatever it is, or when
    no cluster could be read in ``boot_wait_s``. All deadlines are of the monotonic clock.
    """

    def __init__(self, world: World, settings: LoopSettings) -> None:
        self._world = world
        self._settings = settings
        apply = settings.apply
        self.mailbox = Mailbox()
        self._debounce = Debounce(quiet_s=apply.quiet_s, cap_s=apply.cap_s, interval_s=apply.reload_interval_s)
        self._live = LiveClock()
        self._journal = Journal()
        self._memo, self.memory = Memo(), Memory()
        (
            self._retry,
            self._retry_candidate,
            self._retry_held,
            self._retry_contested,
            self._retry_templates,
            restoring,
        ) = (Retry(first_s=apply.retry_min_s, last_s=apply.retry_max_s) for _ in range(6))
        self._quarantine = Quarantine(self._memo, retry_min_s=apply.retry_min_s, retry_max_s=apply.retry_max_s)
        self._decided = self._waits_for_start = False
        started, now = world.clock.now(), world.clock.monotonic()
        self._boot_ends = now + apply.boot_wait_s
        self._next_tick = self._next_drift = now
        applied = world.balancer.last_good()
        self._fragments = LiveFragments(
            world.read_fragments,
            world.make_renderer,
            world.preset_options,
            lambda: world.former_fragments(applied.rendering.basis) if applied else None,
            world.served_before,
        )
        self._account = Account.begun(started, applied, version=settings.version, pid=settings.pid)
        self._pulse = Pulse(world.clock, world.notifier, self._account)
        around = Surroundings(world.balancer, world.clock, world.paused, world.changes)
        self._upkeep = Upkeep(around, self._account, self._journal)
        self._protected = ProtectedSnapshots(settings.removal, world, self._memo, self._upkeep.held)
        told, reloaded = (self._account, self._journal, restoring), self._debounce.applied
        self._last_good = LastGood(world.balancer, world.clock, *told, reloaded=reloaded)
        self._rollout = RolloutMonitor(world, settings.history, self._account, self._last_good.is_in_place)

    def status(self) -> Status:
        """Return the state as of now; safe to call from other threads. A pin ends before changes pend."""
        pin = self._world.pinned(self._fragments.serving, self._retry_candidate.attempt is not None)
        now, health = self._world.clock.now(), self._world.source.health()
        status = self._account.at(now, health, undecided=self._fragments.reading)
        status = replace(status, targets=self._world.targets.states(), object_events=self._world.object_events())
        return replace(status, pin=pin, rollout=self._rollout.status(status.now))

    def newest(self) -> Snapshot | None:
        """Return the newest Snapshot, applied or not; safe to call from other threads."""
        return self._world.source.snapshot()

    def start(self) -> None:
        """Begin to read the cluster."""
        self._world.balancer.report_progress(self._pulse.progressed)
        self._world.targets.start(self.mailbox.nudge)
        self._world.renderings.start(self.mailbox.post)
        self._world.source.start(self.mailbox.post)

    def close(self) -> None:
        """End all threads."""
        self._world.source.stop()
        self._world.targets.stop()
        self._world.renderings.stop()
        self._world.tenants.flush()

    def wait_s(self) -> float:
        """Return the seconds until there is something to do even if nothing happens."""
        boot_ends = None if self._decided else self._boot_ends
        times = (self._due_at(), self._live.due_at(), boot_ends)
        first = min([self._next_tick, *(time for time in times if time is not None and not self._upkeep.paused)])
        return max(0.0, first - self._world.clock.monotonic())

    def _due_at(self) -> float | None:
        """Return when to apply everything, or try again what failed: it may take a reload. None where nothing waits."""
        retries = (self._retry, self._retry_candidate, self._retry_templates, self._retry_held, self._retry_contested)
        dues = (retry.due_at for retry in (*retries, self._quarantine))
        again = (self._debounce.earliest(due_at) for due_at in dues if due_at is not None)
        return min((*again, *(() if (noted := self._debounce.due_at()) is None else (noted,))), default=None)

    def step(self, posts: int) -> None:
        """Do what is due; ``posts`` changes of the cluster came since the last step."""
        now = self._world.clock.monotonic()
        # Looked at each time: nothing is applied once the command has said so.
        resumed = self._upkeep.resumed()
        if posts or resumed:
            self._account.events(posts)
            self._note_change(now, at_once=resumed or not self._decided)
            # A refused template of the cluster is judged by whole attempts: to put one off would look like its end.
            if self._decided and self._retry_templates.attempt is None and self._world.balancer.goes_live():
                self._live.changed(now)
        ticked = now >= self._next_tick
        if ticked:
            self._next_tick = now + TICK_S
            self._look_around(now)
        if self._upkeep.paused:
            pass  # whatever comes is applied when an operator, or the clock, ends that
        elif self._reload_is_due(now):
            self._live.forget()
            self._attempt(now)
        elif self._live.take(now):
            self._attempt(now, may_reload=False)
            self._live.ended(now, self._world.clock.monotonic())
        if not self._decided and now >= self._boot_ends:
            self._decide_without_cluster(now)
        if ticked or self._account.changed:
            self._account.changed = False
            self._upkeep.flush()
            self._pulse.beat()
            self._world.publish(self._pulse.told(self.status()))

    def _reload_is_due(self, now: float) -> bool:
        """Return whether what was noted may be applied as a whole; too many workers of the past make it wait."""
        due_at = self._due_at()
        if due_at is None or now < due_at:
            return False
        if self._decided and self._world.balancer.crowded():
            self._debounce.postpone(now + TICK_S)
            return False
        self._debounce.take(now)
        return True

    def _note_change(self, now: float, *, at_once: bool = False) -> None:
        self._debounce.changed(now, at_once=at_once)
        self._account.pending(self._world.clock.now())

    def _look_around(self, now: float) -> None:
        """Find what changed without telling: fragments, an operator's permission, the file, the process."""
        former = self._fragments.problems
        if self._fragments.refresh():
            log.info("fragments.read")
            self._account.newer()
            self._upkeep.edited()
            self._retry.clear()
            self._retry_candidate.clear()
            self._quarantine.retry_all(now)
            self._note_change(now, at_once=True)
        elif self._fragments.problems != former:
            self._note_change(now, at_once=True)
        if self._fragments.problems and self._fragments.problems != former:
            self._upkeep.tell_edit(Rejected(Step.RENDER, self._fragments.problems))
        self._fragments.reading = False
        self._journal.problems("fragments", "fragments.refused", self._fragments.problems)
        self._account.problems("fragments", self._fragments.problems)
        self._account.problems("source", self._world.source.health().problems)
        self._account.problems("other", self._world.other_problems())
        hold_id = self._account.status.hold_id
        if (hold_id and hold_id in self._world.allowed_holds()) or self._protected.is_due(now):
            self._note_change(now, at_once=True)
        if self._decided and self._world.tenants.is_due(self._world.clock.now()):
            self._note_change(now, at_once=True)  # whoever waits for a name that was kept may have it now
        self._world.tenants.flush()
        if now >= self._next_drift and self._decided and not self._upkeep.paused:
            self._next_drift = now + DRIFT_S
            self._look_at_balancer(now)
        if self._decided:
            self._upkeep.look()
            self._rollout.look(now)
        if self._upkeep.file_refused and self._account.in_step:
            self._note_change(now, at_once=True)  # what went live cannot be loaded: who is behind that?

    def _look_at_balancer(self, now: float) -> None:
        """Have put right what somebody else did to the file or the process."""
        if self._waits_for_start and self._world.balancer.runs():
            self._waits_for_start = False
            self._retry.clear()
            self._retry_candidate.clear()
            self._note_change(now, at_once=True)
        if self._last_good.is_in_place():
            return
        if self._account.in_step:
            self._note_change(now, at_once=True)
        else:
            self._last_good.restore(now)

    def _attempt(self, now: float, *, may_reload: bool = True) -> None:
        snapshot, fragments = self._world.source.snapshot(), self._fragments
        if snapshot is None or fragments.newest is None:
            self._await(now)
            if snapshot is not None:  # haproxy's fragments keep no target waiting
                known, options = self._world.tenants.at(self._world.clock.now()), self._world.base_options
                context = translator(snapshot, self._settings.presets, options, self._memo, known)({})
                self._world.targets.offer(context, guarded=True)
            if fragments.newest is None and fragments.problems:
                self._conclude(Rejected(Step.RENDER, fragments.problems), now)
            elif snapshot is None:
                self._account.nothing_pending()
            return
        try:
            if fragments.proven is None or fragments.proven is fragments.newest:
                self._reconcile(snapshot, fragments.newest, now, may_reload=may_reload)
            elif self._retry_candidate.standing(now) or not may_reload:
                self._reconcile(snapshot, fragments.proven, now, may_reload=may_reload)
            else:
                self._try_candidate(snapshot, fragments.newest, fragments.proven, now)
        except PendingRendering:
            self._await(now)

    def _await(self, now: float) -> None:
        """Try nothing again: something is missing without which nothing can be applied, and its end is an event."""
        for each in (self._retry, self._retry_candidate, self._retry_held, self._retry_contested):
            each.clear()
        self._retry_templates.clear()
        self._quarantine.postpone(now)

    def _try_candidate(self, snapshot: Snapshot, newest: Compiled, proven: Compiled, now: float) -> None:
        """Reconcile with fragments that never came to serve; where they do not, the former ones go on."""
        done, duration_s = self._reconciled(snapshot, newest, None)
        outcome = done.outcome
        if isinstance(outcome, Rejected | Failed):
            self._journal.outcome(outcome, duration_s=duration_s, endpoints=0, topic="candidate")
            self._account.candidate(outcome)
            self._upkeep.tell_edit(outcome, duration_s)
            self._failed(self._retry_candidate, done, outcome)
            if done.verdict is not None:
                self._quarantine.note(done.verdict, self._world.clock.monotonic())
            self._reconcile(snapshot, proven, now)
            return
        self._retry_candidate.clear()
        if isinstance(outcome, Held):
            former, former_duration_s = self._reconciled(snapshot, proven, self._retry.standing(now))
            if not isinstance(former.outcome, Unchanged):
                # The loss is the cluster's: what is held, and may be let through, is the change of what serves.
                self._finish(former, former_duration_s, proven, now)
                if isinstance(former.outcome, Applied):
                    self._note_change(now, at_once=True)
                return
        self._finish(done, duration_s, newest, now)

    def _reconcile(self, snapshot: Snapshot, compiled: Compiled, now: float, *, may_reload: bool = True) -> None:
        done, duration_s = self._reconciled(snapshot, compiled, self._retry.standing(now), may_reload=may_reload)
        self._finish(done, duration_s, compiled, now)

    def _reconciled(
        self, snapshot: Snapshot, compiled: Compiled, last: Attempt | None, *, may_reload: bool = True
    ) -> tuple[Reconciled, float]:
        clock = self._world.clock
        began, now = clock.monotonic(), clock.now()
        remembered = self._world.tenants.at(now)
        snapshot = self._protected.protect(snapshot, self._settings.presets, compiled.options, remembered)
        done = reconcile(
            Inputs(
                snapshot=snapshot,
                renderer=compiled.renderer,
                presets=self._settings.presets,
                options=compiled.options,
                now=now,
                curdate=clock.date(now),
                judge=self._protected.judge,
                last=last,
                memo=self._memo,
                may_reload=may_reload,
                partly=(self._fragments.proven or compiled) is compiled,
                refused=self._retry_templates.standing(began),
                accepted=self._world.templates.known(),
                remembered=remembered,
                isolation=self._quarantine.isolation(
                    snapshot, began, may_retry=may_reload, proven=self._fragments.is_proven(compiled)
                ),
                file_refused=self._upkeep.file_refused,
                monotonic=clock.monotonic,
                progress=self._pulse.progressed,
            ),
            self._world.balancer,
        )
        self.memory.made(snapshot, compiled.options, done, self._protected.unheld)
        return done, clock.monotonic() - began

    def _finish(self, done: Reconciled, duration_s: float, compiled: Compiled, now: float) -> None:
        outcome = done.outcome
        self._protected.concluded(outcome)
        self._world.tenants.keep(done.context.tenancy)
        self._world.tenants.flush()
        self._isolated(done)
        refused = tuple(sorted({*done.context.refused, *self._world.source.refusals()}))
        self._journal.refused(refused)
        self._journal.outcome(outcome, duration_s=duration_s, endpoints=done.context.census.claimed)
        self._account.reconciled(refused)
        self.memory.finished(outcome, refused, self._world.balancer.last_good(), self._world.clock.now())
        self._upkeep.tell(outcome, duration_s)
        if isinstance(outcome, Rejected | Failed):
            if not done.repeated:
                self._failed(self._retry, done, outcome)
        else:
            self._retry.clear()
        self._doubt(outcome)
        self._ask_again_for_ports(done)
        self._ask_again_for_templates(done)
        if isinstance(outcome, Applied) and isinstance(outcome.plan, Reload):
            self._debounce.applied(self._world.clock.monotonic())
        if isinstance(outcome, Deferred):
            self._account.outcome(outcome)
            self._world.targets.offer(done.context, guarded=False)  # they need not wait for haproxy's turn
            return
        # Newer fragments than those that serve may still wait for their first attempt.
        self._account.untried = compiled is not self._fragments.newest and self._retry_candidate.attempt is None
        if not done.repeated and not self._account.untried:
            self._debounce.forget()
        self._rollout.concluded(outcome, self._world.clock.monotonic())
        if isinstance(outcome, Applied | Unchanged):
            self._world.templates.keep(done.accepted)
            self._world.certificates.keep(done.context, done.rendering)
            self._account.asked_for(done.context.dns_names)
            self._account.serves(done.context)
            self._last_good.replaced()
            if compiled is self._fragments.newest:
                self._account.candidate(None)
                self._journal.problems("candidate", "candidate.accepted", ())
            if (allowed := self._world.allowed_holds()) and self._account.status.hold_id not in allowed:
                self._world.forget_holds()
        if not isinstance(outcome, Held):
            self._world.targets.offer(done.context, guarded=not isinstance(outcome, Applied | Unchanged))
        self._conclude(outcome, now, compiled)

    def _isolated(self, done: Reconciled) -> None:
        """Have the quarantine learn from an attempt, and show who is in it."""
        if done.isolation is not None:
            now, wall = self._world.clock.monotonic(), self._world.clock.now()
            outcome, verdict, quarantine = done.outcome, done.verdict, self._quarantine
            concluded = quarantine.concluded(done.isolation, outcome, verdict, now=now, wall=wall, pending=done.pending)
            self._account.quarantined(concluded)

    def _doubt(self, outcome: Outcome) -> None:
        """List again while something is held: the lists may be whole again without any event that says so."""
        now = self._world.clock.monotonic()
        held = isinstance(outcome, Held) and outcome.hold_id != ADOPTION  # no list of the cluster ends that
        if not held and self._protected.hold is None:
            self._retry_held.clear()
        elif not self._retry_held.standing(now):
            if self._world.source.relisted():
                self._world.source.relist()
            self._retry_held.failed(Attempt(None, outcome), now)

    def _ask_again_for_ports(self, done: Reconciled) -> None:
        """Try again while an object waits for a port: nobody tells when it comes free."""
        now = self._world.clock.monotonic()
        if not done.contested:
            self._retry_contested.clear()
        elif not self._retry_contested.standing(now):
            self._retry_contested.failed(Attempt(None, done.outcome), now)

    def _ask_again_for_templates(self, done: Reconciled) -> None:
        """Show templates of the cluster that are refused, and try them again: what refused them may pass."""
        self._account.rendering = done.pending
        problems, now = done.template_problems, self._world.clock.monotonic()
        self._account.problems("templates", problems)
        standing = self._retry_templates.standing(now)
        attempt = done.refused or Attempt(None, Rejected(Step.RENDER, problems))
        if problems:
            self._live.forget()
        if not problems:
            self._retry_templates.clear()
        elif standing is None or standing.rendering is not attempt.rendering:
            self._retry_templates.failed(attempt, now)

    def _failed(self, retry: Retry, done: Reconciled, outcome: Rejected | Failed) -> None:
        self._account.failure(outcome)
        retry.failed(Attempt(done.rendering, outcome), self._world.clock.monotonic())
        self._waits_for_start = not self._world.balancer.runs()

    def _conclude(self, outcome: Outcome, now: float, compiled: Compiled | None = None) -> None:
        """Put an outcome into the status, and make sure that something serves."""
        decided, self._decided = self._decided, True
        self._pulse.concluded(outcome, lambda: self._last_good.restore(now), decided=decided)
        if compiled is not None and isinstance(outcome, Applied | Unchanged):
            self._fragments.prove(compiled)  # who waits for these to serve reads the generation's number then

    def _decide_without_cluster(self, now: float) -> None:
        """No API server answered in time: serve what served last, and say so."""
        self._decided = True
        self._account.phase(Phase.WAITING)
        if not self._upkeep.paused:
            self._last_good.restore(now)
        log.warning("start.decided", phase=self._account.status.phase.value, reason="no complete view of the cluster")
        self._pulse.ready()
