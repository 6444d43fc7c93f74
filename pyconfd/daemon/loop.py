"""The loop around :func:`pyconfd.daemon.reconcile.reconcile`: when to run it, and what becomes of its outcome."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.daemon.base_loop import MAY_RELOAD, TICK_S, Loop, Task
from pyconfd.daemon.causes import Causes, namespaces_that_changed
from pyconfd.daemon.fragments import Compiled, LiveFragments
from pyconfd.daemon.memory import Memory, Seen
from pyconfd.daemon.ports import World
from pyconfd.daemon.protection import ProtectedSnapshots
from pyconfd.daemon.quarantine import Quarantine
from pyconfd.daemon.reconcile import FailedAttempt, Inputs, Reconciled, reconcile
from pyconfd.daemon.rollout_monitor import RolloutMonitor
from pyconfd.daemon.translation import Translator
from pyconfd.errors import PendingRendering, RejectedInput
from pyconfd.model.context import Context, in_order
from pyconfd.model.hold import ADOPTION
from pyconfd.model.outcome import Applied, Deferred, Failed, Held, Outcome, Rejected, Step, Unchanged
from pyconfd.model.snapshot import Snapshot
from pyconfd.model.status import Phase, Status
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from pyconfd.settings import ApplySettings, HistorySettings

if TYPE_CHECKING:
    from pyconfd.render.cluster_templates import RejectedTemplates

log = structlog.get_logger(__name__)

SLICES_S = 10.0
"""How long a runtime update may go on in slices; then the rest is sent at once.

What is reported of complete changes only, as the status of objects, must not wait for ever where servers change without
an end, faster than slices are sent.
"""


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """``presets`` in the order of the settings; ``version`` and ``pid`` are for the status."""

    apply: ApplySettings
    presets: tuple[str, ...]
    version: str
    pid: int
    removal: RemovalRules = field(default_factory=RemovalRules)
    history: HistorySettings = field(default_factory=HistorySettings)


class Daemon(Loop):
    """Applies what the cluster and the fragments ask for."""

    def __init__(self, world: World, settings: LoopSettings) -> None:
        super().__init__(world, settings.apply, version=settings.version, pid=settings.pid)
        self._world = world
        self._settings = settings
        apply = settings.apply
        self._memo, self.memory = Memo(), Memory()
        self._rejected_templates: RejectedTemplates = {}
        self._quarantine = Quarantine(retry_min_s=apply.retry_min_s, retry_max_s=apply.retry_max_s)
        self._slices_since: float | None = None
        """When the first slice was sent of a runtime update that is not complete yet."""
        applied = world.balancer.last_good()
        self._fragments = LiveFragments(
            world.read_fragments,
            world.make_renderer,
            world.preset_options,
            lambda: world.former_fragments(applied.rendering.inputs) if applied else None,
            world.served_before,
        )
        self._causes = Causes()
        self._without_share = frozenset[str]()
        """The namespaces whose changes wait since their reloads took their share of the old workers."""
        self._protected = ProtectedSnapshots(settings.removal, world, self._report.held)
        self._rollout = RolloutMonitor(world, settings.history, self._report, self._is_in_place)

    def status(self) -> Status:
        """Return the state as of now; safe to call from other threads. A pin ends before changes pend."""
        pin = self._world.pinned(self._fragments.serving, self._queue.is_waiting(Task.RETRY_FRAGMENTS))
        status = self._report.at(self._world.source.health(), undecided=self._fragments.reading)
        status = replace(status, targets=self._world.targets.states(), object_events=self._world.object_events())
        status = replace(status, status_writer=self._world.object_statuses.state())
        status = replace(status, nodes=self._world.nodes.states())
        return replace(status, pin=pin, rollout=self._rollout.status(status.now))

    def fragments_digest(self) -> str:
        """Return the digest of the fragments that are served; "" before there are some. Safe in any thread."""
        serving = self._fragments.serving
        return serving.digest if serving is not None else ""

    def newest(self) -> Snapshot | None:
        """Return the newest Snapshot, applied or not; safe to call from other threads."""
        return self._world.source.snapshot()

    def start(self) -> None:
        """Begin to read the cluster."""
        self._world.balancer.report_progress(self._progressed)
        self._world.targets.start(self.mailbox.nudge)
        self._world.renderings.start(self.mailbox.post)
        self._world.source.start(self.mailbox.post)

    def close(self) -> None:
        """End all threads."""
        self._world.source.stop()
        self._world.targets.stop()
        self._world.renderings.stop()
        self._world.name_register.flush()

    def _poll(self, now: float) -> None:
        """Find what changed without telling: fragments, an operator's permission, the file, the process."""
        former = self._fragments.problems
        if self._fragments.refresh():
            self._report.newer_fragments()
            self._queue.succeeded(Task.RETRY)
            self._queue.succeeded(Task.RETRY_FRAGMENTS)
            self._quarantine.retry_all(now)
            self._note_change(now, at_once=True)
        elif self._fragments.problems != former:
            self._note_change(now, at_once=True)
        if self._fragments.problems and self._fragments.problems != former:
            self._report.edit_failed(Rejected(Step.RENDER, self._fragments.problems))
        self._fragments.reading = False
        self._report.problems("fragments", self._fragments.problems, "fragments.refused")
        self._report.problems("source", self._world.source.health().problems)
        self._report.problems("other", self._world.other_problems())
        hold_id = self._report.status.hold_id
        if (hold_id and hold_id in self._world.allowed_holds()) or self._protected.is_due(now):
            self._note_change(now, at_once=True)
        if self._protected.has_applied and self._world.name_register.is_due(self._world.clock.now()):
            self._note_change(now, at_once=True)  # a reservation has ended: somebody else may have the name now
        self._world.name_register.flush()
        if self._decided:
            self._rollout.poll(now)

    def _attempt(self, now: float, *, may_reload: bool) -> None:
        snapshot, fragments = self._world.source.snapshot(), self._fragments
        if not self._world.name_register.is_ready:
            snapshot = None  # a name must not be given before it is known whose it is
        if snapshot is None or fragments.newest is None:
            self._await()
            if snapshot is not None:  # haproxy's fragments keep no target waiting
                with suppress(RejectedInput):  # a bug of ours, which is logged; haproxy's own part fails the same way
                    context = self._translator(self._world.base_options).translate(snapshot)
                    self._world.targets.offer(context, protect=True)
            if fragments.newest is None and fragments.problems:
                self._conclude(Rejected(Step.RENDER, fragments.problems), now)
            elif snapshot is None:
                self._report.nothing_pending()
            return
        try:
            if fragments.applied is None or fragments.applied is fragments.newest:
                self._reconcile(snapshot, fragments.newest, now, may_reload=may_reload)
            elif self._queue.is_waiting(Task.RETRY_FRAGMENTS) or not may_reload:
                self._reconcile(snapshot, fragments.applied, now, may_reload=may_reload)
            else:
                self._try_new_fragments(snapshot, fragments.newest, fragments.applied, now)
        except PendingRendering:
            self._await()
        except RejectedInput as error:
            # Nothing is known of the cluster: the running configuration stays, and a change or a pause may help.
            self._await()
            outcome = Rejected(Step(error.step or Step.RENDER), error.problems)
            self._retry_later(outcome, None)
            self._conclude(outcome, now)

    def _waits_for_share(self, snapshot: Snapshot) -> bool:
        """Return whether nothing changed but objects of namespaces whose reloads took their share."""
        complete = self.memory.complete
        namespaces = namespaces_that_changed(complete, snapshot) if complete is not None else frozenset()
        waiting = namespaces and not self._world.balancer.may_reload_for(namespaces)
        self._without_share = namespaces if waiting else frozenset()
        return bool(waiting)

    def _await(self) -> None:
        """Try nothing again: something is missing without which nothing can be applied, and its end is an event."""
        for task in MAY_RELOAD:
            self._queue.remove(task)

    def _try_new_fragments(self, snapshot: Snapshot, newest: Compiled, applied: Compiled, now: float) -> None:
        """Reconcile with fragments that were never applied; where they are rejected, the former ones stay."""
        served, done, duration_s = self._reconciled(snapshot, newest)
        outcome = done.outcome
        if isinstance(outcome, Rejected | Failed):
            self._report.new_fragments_failed(outcome, duration_s)
            self._retry_later(outcome, done.rendering, Task.RETRY_FRAGMENTS)
            self._reconcile(snapshot, applied, now)
            return
        self._queue.succeeded(Task.RETRY_FRAGMENTS)
        self._finish(served, done, duration_s, newest, now)

    def _reconcile(self, snapshot: Snapshot, compiled: Compiled, now: float, *, may_reload: bool = True) -> None:
        failed = self._standing_failure
        served, done, duration_s = self._reconciled(snapshot, compiled, failed, may_reload=may_reload)
        self._finish(served, done, duration_s, compiled, now)

    def _translator(self, options: PresetOptions) -> Translator:
        names = self._world.name_register.at(self._world.clock.now())
        return Translator(self._settings.presets, options, self._memo, names)

    def _reconciled(
        self, snapshot: Snapshot, compiled: Compiled, failed: FailedAttempt | None = None, *, may_reload: bool = True
    ) -> tuple[Snapshot, Reconciled, float]:
        """Return the Snapshot that was reconciled, what became of it, and the seconds that it took."""
        clock = self._world.clock
        began, now = clock.monotonic(), clock.now()
        translator = self._translator(compiled.options)
        served = self._protected.protect(snapshot, translator)
        snapshot = served.snapshot
        was_applied = self._fragments.was_applied(compiled)
        in_part = (self._fragments.applied or compiled) is compiled
        may_reload = may_reload and not (in_part and self._waits_for_share(snapshot))
        if not self._queue.is_waiting(Task.RETRY_TEMPLATES):
            self._rejected_templates = {}
        done = reconcile(
            Inputs(
                snapshot=snapshot,
                context=served.context,
                renderer=compiled.renderer,
                translator=translator,
                now=now,
                curdate=clock.date(now),
                judge=self._protected.judge,
                failed=failed,
                may_reload=may_reload,
                in_part=in_part,
                in_slices=in_part and (self._slices_since is None or began - self._slices_since < SLICES_S),
                left_out=self._quarantine.left_out(snapshot, began, may_release=may_reload, were_applied=was_applied),
                rejected_templates=self._rejected_templates,
                monotonic=clock.monotonic,
                progress=self._report.progressed,
            ),
            self._world.balancer,
        )
        return snapshot, done, clock.monotonic() - began

    def _finish(self, snapshot: Snapshot, done: Reconciled, duration_s: float, compiled: Compiled, now: float) -> None:
        outcome, clock = done.outcome, self._world.clock
        self._protected.concluded(outcome)
        self._remember_names(done.context)
        self._conclude_quarantine(done)
        of_source = self._world.source.refusals()
        refused = done.context.refused
        if of_source:
            refused = in_order(refused, of_source, former=refused)
        endpoints = done.context.totals.claimed
        causes = self._causes.of(snapshot, applied=isinstance(outcome, Applied | Unchanged))
        self._report.reconciled(outcome, duration_s=duration_s, endpoints=endpoints, refused=refused, causes=causes)
        serving, without_hold = self._world.balancer.last_good(), self._protected.without_hold
        running = serving.rendering if serving else None
        seen = Seen(snapshot, compiled.options, done.context, done.rendering, refused, running, without_hold)
        self.memory.concluded(seen, outcome, clock.now())
        self._schedule_retries(done)
        self._pace_after(outcome)
        self._schedule_next_slice(outcome, now)
        self._note_share(outcome, now)
        if isinstance(outcome, Deferred):
            self._report.concluded(outcome)
            self._world.targets.offer(done.context, protect=False)  # they need not wait for haproxy's turn
            return
        # Newer fragments than the applied ones may still wait for their first attempt.
        is_waiting = self._queue.is_waiting(Task.RETRY_FRAGMENTS)
        self._report.untried = compiled is not self._fragments.newest and not is_waiting
        if not done.repeated and not self._report.untried:
            self._queue.remove(Task.APPLY)
        self._rollout.concluded(outcome, clock.monotonic())
        if isinstance(outcome, Applied | Unchanged):
            self._world.certificates.keep(done.context, done.rendering)
            self._report.names(done.context)
            if outcome.verified:
                self._world.object_statuses.offer(done.context)
            self._newer_runs()
            if compiled is self._fragments.newest:
                self._report.newest_fragments_run()
            if (allowed := self._world.allowed_holds()) and self._report.status.hold_id not in allowed:
                self._world.forget_holds()
        if not isinstance(outcome, Held):
            self._world.targets.offer(done.context, protect=not isinstance(outcome, Applied | Unchanged))
        self._conclude(outcome, now)
        if isinstance(outcome, Applied | Unchanged):
            self.memory.complete = snapshot
            # Last: what waits for these to be applied then reads the generation's number.
            self._fragments.mark_applied(compiled)

    def _remember_names(self, context: Context) -> None:
        # Until something was applied a list may be held yet: it takes no name from anybody.
        if self._protected.has_applied:
            self._world.name_register.keep(context.register)
        self._world.name_register.flush()

    def _note_share(self, outcome: Outcome, now: float) -> None:
        """Report whose reloads have to wait for former workers, and poll again soon."""
        if not isinstance(outcome, Deferred):
            self._report.waits_for_share(frozenset())
            return
        if not outcome.more:
            self._report.waits_for_share(self._without_share)
        if self._without_share:
            self._queue.add(Task.APPLY, now + TICK_S)

    def _schedule_next_slice(self, outcome: Outcome, now: float) -> None:
        """Go on with a runtime update of which the first slices were sent: at once, but after newer events."""
        if not (isinstance(outcome, Deferred) and outcome.more):
            self._slices_since = None
            return
        if self._slices_since is None:
            self._slices_since = now
        self._note_change(now)
        self._queue.add(Task.RUNTIME_UPDATE, now)

    def _conclude_quarantine(self, done: Reconciled) -> None:
        """Update the quarantine after an attempt, report it, and schedule the next retry."""
        now, wall = self._world.clock.monotonic(), self._world.clock.now()
        if done.left_out is not None:
            concluded = self._quarantine.concluded(
                done.left_out, done.outcome, done.search, now=now, wall=wall, pending=done.pending
            )
            self._report.quarantined(concluded)
        self._queue.remove(Task.RETRY_QUARANTINED)
        if (due_at := self._quarantine.due_at) is not None:
            self._queue.add(Task.RETRY_QUARANTINED, due_at)

    def _schedule_retries(self, done: Reconciled) -> None:
        """Schedule what is tried again though no event comes: a failure, held lists, ports in use, bad templates."""
        outcome, now = done.outcome, self._world.clock.monotonic()
        if not isinstance(outcome, Rejected | Failed):
            self._queue.succeeded(Task.RETRY)
        elif not done.repeated:
            self._retry_later(outcome, done.rendering)
        held = isinstance(outcome, Held) and outcome.hold_id != ADOPTION  # no list of the cluster ends that
        held = held or self._protected.hold is not None
        if self._queue.retry_while(held, Task.RELIST, now) and self._world.source.relisted():
            self._world.source.relist()
        self._queue.retry_while(done.port_conflict, Task.RETRY_PORTS, now)
        problems = done.template_problems
        self._report.rendering = done.pending
        self._report.problems("templates", problems)
        if done.rejected_templates != self._rejected_templates:
            self._rejected_templates = done.rejected_templates
            self._queue.remove(Task.RETRY_TEMPLATES)
        self._queue.retry_while(bool(problems), Task.RETRY_TEMPLATES, now)

    def _decide_without_input(self, now: float) -> None:
        """No API server answered in time: run the last good generation, and say so."""
        self._decided = True
        self._report.phase(Phase.WAITING)
        if not self._paused:
            self._restore_last_good(now)
        phase = self._report.status.phase.value
        log.warning("start.decided", phase=phase, reason="no complete view of the cluster")
        self._report.ready()
