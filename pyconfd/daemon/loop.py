"""The loop around :func:`pyconfd.daemon.reconcile.reconcile`: when to run it, and what to say about it.

Everything that is to be done later is a key in the work queue (:class:`Task`); the loop sleeps until the first is due.
"""

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

import structlog

from pyconfd.daemon.account import Account
from pyconfd.daemon.arbitration import translator
from pyconfd.daemon.fragments import Compiled, LiveFragments
from pyconfd.daemon.journal import Journal
from pyconfd.daemon.last_good import RESTORE, LastGood
from pyconfd.daemon.loop_settings import LoopSettings
from pyconfd.daemon.mailbox import Mailbox
from pyconfd.daemon.memory import Memory
from pyconfd.daemon.ports import World
from pyconfd.daemon.protection import ProtectedSnapshots
from pyconfd.daemon.pulse import Pulse
from pyconfd.daemon.quarantine import Quarantine
from pyconfd.daemon.queue import WorkQueue
from pyconfd.daemon.reconcile import Attempt, Inputs, Reconciled, reconcile
from pyconfd.daemon.rollout_monitor import RolloutMonitor
from pyconfd.daemon.upkeep import Surroundings, Upkeep
from pyconfd.errors import PendingRendering
from pyconfd.model.hold import ADOPTION
from pyconfd.model.outcome import Applied, Deferred, Failed, Held, Outcome, Rejected, Step, Unchanged
from pyconfd.model.plan import Reload
from pyconfd.model.snapshot import Snapshot
from pyconfd.model.status import Phase, Status
from pyconfd.presets.memo import Memo

if TYPE_CHECKING:
    from pyconfd.render.cluster_text import RejectedTemplates

log = structlog.get_logger(__name__)

TICK_S = 1.0
"""How often fragments and holds are looked at: edits are to apply within two seconds."""

DRIFT_S = 5.0
"""How often disk and process are compared with what was applied."""


class Task(StrEnum):
    """What the loop does, or may do again, at a time."""

    APPLY = "apply changes"
    RUNTIME_UPDATE = "runtime update"
    RETRY = "retry the failed configuration"
    RETRY_FRAGMENTS = "retry the new fragments"
    RETRY_PORTS = "retry ports that are in use"
    RETRY_TEMPLATES = "retry rejected templates of the cluster"
    RETRY_QUARANTINED = "retry quarantined objects"
    RELIST = "list again while something is held"
    LOOK = "look for edits"
    DRIFT = "compare disk and process"
    BOOT = "start without the cluster"


_MAY_RELOAD = (
    Task.APPLY,
    Task.RETRY,
    Task.RETRY_FRAGMENTS,
    Task.RETRY_PORTS,
    Task.RETRY_TEMPLATES,
    Task.RETRY_QUARANTINED,
    Task.RELIST,
)
"""Each leads to a whole attempt, which may take a reload; these come no oftener than ``apply.reload_interval_s``."""


class Daemon:
    """One run of pyconfd, from start to stop. A stop changes nothing that runs.

    It is *decided* what runs, and the service manager told so once, by the first outcome, whatever it is, or when
    no cluster could be read in ``boot_wait_s``. All deadlines are of the monotonic clock.
    """

    def __init__(self, world: World, settings: LoopSettings) -> None:
        self._world = world
        self._settings = settings
        apply = settings.apply
        started, now = world.clock.now(), world.clock.monotonic()
        self.mailbox = Mailbox()
        self._queue = WorkQueue(retry_min_s=apply.retry_min_s, retry_max_s=apply.retry_max_s)
        self._queue.add(Task.LOOK, now)
        self._queue.add(Task.DRIFT, now)
        self._queue.add(Task.BOOT, now + apply.boot_wait_s)
        self._journal = Journal()
        self._memo, self.memory = Memo(), Memory()
        self._failed: Attempt | None = None
        """The failure that is not repeated while RETRY waits."""
        self._rejected_templates: RejectedTemplates = {}
        self._quarantine = Quarantine(retry_min_s=apply.retry_min_s, retry_max_s=apply.retry_max_s)
        self._decided = self._waits_for_start = False
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
        told = (self._account, self._journal, self._queue)
        self._last_good = LastGood(world.balancer, world.clock, *told, reloaded=self._reloaded)
        self._rollout = RolloutMonitor(world, settings.history, self._account, self._last_good.is_in_place)

    def status(self) -> Status:
        """Return the state as of now; safe to call from other threads. A pin ends before changes pend."""
        pin = self._world.pinned(self._fragments.serving, self._queue.is_waiting(Task.RETRY_FRAGMENTS))
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
        skipped = (*_MAY_RELOAD, Task.RUNTIME_UPDATE) if self._upkeep.paused else ()
        first = self._queue.next(without=skipped)
        return max(0.0, first[0] - self._world.clock.monotonic()) if first else TICK_S

    def step(self, posts: int) -> None:
        """Do what is due; ``posts`` changes of the cluster came since the last step."""
        now = self._world.clock.monotonic()
        # Looked at each time: nothing is applied once the command has said so.
        resumed = self._upkeep.resumed()
        if posts or resumed:
            self._account.events(posts)
            self._note_change(now, at_once=resumed or not self._decided)
            if self._decided and self._world.balancer.goes_live():
                self._queue.add(Task.RUNTIME_UPDATE, now)
        looked = self._queue.pop(now, Task.LOOK)
        if looked:
            self._queue.add(Task.LOOK, now + TICK_S)
            self._look_around(now)
        if self._queue.pop(now, Task.DRIFT, RESTORE):
            self._queue.add(Task.DRIFT, now + DRIFT_S)
            if self._decided and not self._upkeep.paused:
                self._look_at_balancer(now)
        if not self._upkeep.paused:  # else whatever comes is applied when an operator, or the clock, ends that
            self._apply_what_is_due(now)
        if self._queue.pop(now, Task.BOOT) and not self._decided:
            self._decide_without_cluster(now)
        if looked or self._account.changed:
            self._account.changed = False
            self._upkeep.flush()
            self._pulse.beat()
            self._world.publish(self._pulse.told(self.status()))

    def _apply_what_is_due(self, now: float) -> None:
        if self._may_reload(now):
            self._queue.remove(Task.RUNTIME_UPDATE)
            self._attempt(now)
        elif self._queue.pop(now, Task.RUNTIME_UPDATE):
            self._attempt(now, may_reload=False)
            # Never more than half of the time: what comes meanwhile is collected.
            ended = self._world.clock.monotonic()
            self._queue.pace((Task.RUNTIME_UPDATE,), ended + (ended - now))

    def _may_reload(self, now: float) -> bool:
        """Return whether everything may be applied now; too many old workers make it wait."""
        if not any((at := self._queue.due_at(task)) is not None and at <= now for task in _MAY_RELOAD):
            return False
        if self._decided and self._world.balancer.crowded():
            self._queue.pace(_MAY_RELOAD, now + TICK_S)
            return False
        return self._queue.pop(now, *_MAY_RELOAD)

    def _reloaded(self, now: float) -> None:
        self._queue.pace(_MAY_RELOAD, now + self._settings.apply.reload_interval_s)

    def _note_change(self, now: float, *, at_once: bool = False) -> None:
        if at_once:
            self._queue.add(Task.APPLY, now)
        else:
            apply = self._settings.apply
            self._queue.debounce(Task.APPLY, now, quiet_s=apply.quiet_s, cap_s=apply.cap_s)
        self._account.pending(self._world.clock.now())

    def _look_around(self, now: float) -> None:
        """Find what changed without telling: fragments, an operator's permission, the file, the process."""
        former = self._fragments.problems
        if self._fragments.refresh():
            log.info("fragments.read")
            self._account.newer()
            self._upkeep.edited()
            self._queue.succeeded(Task.RETRY)
            self._queue.succeeded(Task.RETRY_FRAGMENTS)
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
            self._note_change(now, at_once=True)  # a reservation has ended: somebody else may have the name now
        self._world.tenants.flush()
        if self._decided:
            self._upkeep.look()
            self._rollout.look(now)

    def _look_at_balancer(self, now: float) -> None:
        """Have put right what somebody else did to the file or the process."""
        if self._waits_for_start and self._world.balancer.runs():
            self._waits_for_start = False
            self._queue.succeeded(Task.RETRY)
            self._queue.succeeded(Task.RETRY_FRAGMENTS)
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
            self._await()
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
            elif self._queue.is_waiting(Task.RETRY_FRAGMENTS) or not may_reload:
                self._reconcile(snapshot, fragments.proven, now, may_reload=may_reload)
            else:
                self._try_new_fragments(snapshot, fragments.newest, fragments.proven, now)
        except PendingRendering:
            self._await()

    def _await(self) -> None:
        """Try nothing again: something is missing without which nothing can be applied, and its end is an event."""
        for task in _MAY_RELOAD:
            self._queue.remove(task)

    def _try_new_fragments(self, snapshot: Snapshot, newest: Compiled, proven: Compiled, now: float) -> None:
        """Reconcile with fragments that were never applied; where they are rejected, the former ones stay."""
        done, duration_s = self._reconciled(snapshot, newest)
        outcome = done.outcome
        if isinstance(outcome, Rejected | Failed):
            self._journal.outcome(outcome, duration_s=duration_s, endpoints=0, topic="candidate")
            self._account.candidate(outcome)
            self._upkeep.tell_edit(outcome, duration_s)
            self._retry_later(Task.RETRY_FRAGMENTS, outcome)
            self._reconcile(snapshot, proven, now)
            return
        self._queue.succeeded(Task.RETRY_FRAGMENTS)
        self._finish(done, duration_s, newest, now)

    def _reconcile(self, snapshot: Snapshot, compiled: Compiled, now: float, *, may_reload: bool = True) -> None:
        failed = self._failed if self._queue.is_waiting(Task.RETRY) else None
        done, duration_s = self._reconciled(snapshot, compiled, failed, may_reload=may_reload)
        self._finish(done, duration_s, compiled, now)

    def _reconciled(
        self, snapshot: Snapshot, compiled: Compiled, failed: Attempt | None = None, *, may_reload: bool = True
    ) -> tuple[Reconciled, float]:
        clock = self._world.clock
        began, now = clock.monotonic(), clock.now()
        remembered = self._world.tenants.at(now)
        snapshot = self._protected.protect(snapshot, self._settings.presets, compiled.options, remembered)
        proven = self._fragments.is_proven(compiled)
        if not self._queue.is_waiting(Task.RETRY_TEMPLATES):
            self._rejected_templates = {}
        done = reconcile(
            Inputs(
                snapshot=snapshot,
                renderer=compiled.renderer,
                presets=self._settings.presets,
                options=compiled.options,
                now=now,
                curdate=clock.date(now),
                judge=self._protected.judge,
                failed=failed,
                memo=self._memo,
                may_reload=may_reload,
                partly=(self._fragments.proven or compiled) is compiled,
                left_out=self._quarantine.left_out(snapshot, began, may_release=may_reload, proven=proven),
                rejected_templates=self._rejected_templates,
                monotonic=clock.monotonic,
                progress=self._pulse.progressed,
                remembered=remembered,
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
        self._conclude_quarantine(done)
        refused = tuple(sorted({*done.context.refused, *self._world.source.refusals()}))
        self._journal.refused(refused)
        self._journal.outcome(outcome, duration_s=duration_s, endpoints=done.context.census.claimed)
        self._account.reconciled(refused)
        self.memory.finished(outcome, refused, self._world.balancer.last_good(), self._world.clock.now())
        self._upkeep.tell(outcome, duration_s)
        if not isinstance(outcome, Rejected | Failed):
            self._queue.succeeded(Task.RETRY)
        elif not done.repeated:
            self._failed = Attempt(done.rendering, outcome)
            self._retry_later(Task.RETRY, outcome)
        self._relist_while_held(outcome)
        self._retry_ports(done)
        self._retry_templates(done)
        if isinstance(outcome, Applied) and isinstance(outcome.plan, Reload):
            self._reloaded(self._world.clock.monotonic())
        if isinstance(outcome, Deferred):
            self._account.outcome(outcome)
            self._world.targets.offer(done.context, guarded=False)  # they need not wait for haproxy's turn
            return
        # Newer fragments than the proven ones may still wait for their first attempt.
        is_waiting = self._queue.is_waiting(Task.RETRY_FRAGMENTS)
        self._account.untried = compiled is not self._fragments.newest and not is_waiting
        if not done.repeated and not self._account.untried:
            self._queue.remove(Task.APPLY)
        self._rollout.concluded(outcome, self._world.clock.monotonic())
        if isinstance(outcome, Applied | Unchanged):
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

    def _conclude_quarantine(self, done: Reconciled) -> None:
        """Have the quarantine learn from an attempt, show who is in it, and schedule the next retry."""
        now, wall = self._world.clock.monotonic(), self._world.clock.now()
        if done.left_out is not None:
            concluded = self._quarantine.concluded(
                done.left_out, done.outcome, done.search, now=now, wall=wall, pending=done.pending
            )
            self._account.quarantined(concluded)
        self._queue.remove(Task.RETRY_QUARANTINED)
        if (due_at := self._quarantine.due_at) is not None:
            self._queue.add(Task.RETRY_QUARANTINED, due_at)

    def _relist_while_held(self, outcome: Outcome) -> None:
        """List again while something is held: the lists may be whole again without any event that says so."""
        held = isinstance(outcome, Held) and outcome.hold_id != ADOPTION  # no list of the cluster ends that
        if not held and self._protected.hold is None:
            self._queue.succeeded(Task.RELIST)
        elif not self._queue.is_waiting(Task.RELIST):
            if self._world.source.relisted():
                self._world.source.relist()
            self._queue.retry(Task.RELIST, self._world.clock.monotonic())

    def _retry_ports(self, done: Reconciled) -> None:
        """Try again while an object waits for a port: nobody tells when it comes free."""
        if not done.contested:
            self._queue.succeeded(Task.RETRY_PORTS)
        elif not self._queue.is_waiting(Task.RETRY_PORTS):
            self._queue.retry(Task.RETRY_PORTS, self._world.clock.monotonic())

    def _retry_templates(self, done: Reconciled) -> None:
        """Show templates of the cluster that are rejected, and try them again: what rejected them may pass."""
        self._account.rendering = done.pending
        self._account.problems("templates", done.template_problems)
        is_new = done.rejected_templates != self._rejected_templates
        self._rejected_templates = done.rejected_templates
        if not done.template_problems:
            self._queue.succeeded(Task.RETRY_TEMPLATES)
        elif is_new or not self._queue.is_waiting(Task.RETRY_TEMPLATES):
            self._queue.retry(Task.RETRY_TEMPLATES, self._world.clock.monotonic())

    def _retry_later(self, task: Task, outcome: Rejected | Failed) -> None:
        self._account.failure(outcome)
        disruptive = isinstance(outcome, Failed) and outcome.disruptive
        self._queue.retry(task, self._world.clock.monotonic(), disruptive=disruptive)
        self._waits_for_start = not self._world.balancer.runs()

    def _conclude(self, outcome: Outcome, now: float, compiled: Compiled | None = None) -> None:
        """Put an outcome into the status, and make sure that something is running."""
        decided, self._decided = self._decided, True
        self._pulse.concluded(outcome, lambda: self._last_good.restore(now), decided=decided)
        if compiled is not None and isinstance(outcome, Applied | Unchanged):
            self._fragments.prove(compiled)  # who waits for these to be applied reads the generation's number then

    def _decide_without_cluster(self, now: float) -> None:
        """No API server answered in time: run the last good generation, and say so."""
        self._decided = True
        self._account.phase(Phase.WAITING)
        if not self._upkeep.paused:
            self._last_good.restore(now)
        log.warning("start.decided", phase=self._account.status.phase.value, reason="no complete view of the cluster")
        self._pulse.ready()
