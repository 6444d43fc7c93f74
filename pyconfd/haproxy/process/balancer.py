"""One HAProxy: changed at run time where that can be, by a reload where it cannot; and the history of both.

A runtime update is in the process before it is in the file. The file is written at once in a thread of its own
(:mod:`pyconfd.haproxy.process.file_writer`), and every reload installs what is newest, so no reload brings back the
former configuration. The balancer is in one of these states:

========  ====================================================================  =======================
state     meaning                                                               next step
========  ====================================================================  =======================
UNKNOWN   process and files were not compared with what is applied              refresh
IN_SYNC   the process runs what is applied, and the files say so                compare renderings only
AHEAD     the process was changed at run time, the file is not written yet      compare renderings only
SUSPECT   a change was not confirmed, or drifted: what runs is not known        reload
DOWN      no process                                                            refresh, then start
========  ====================================================================  =======================

AHEAD is IN_SYNC while a write is pending. ``_refresh_state``, ``_repair_drift``, ``_update_process`` and ``_reload``
enter states; everything else only reads them.

=================  =======================================================================  =======
from               event                                                                    to
=================  =======================================================================  =======
all but SUSPECT    refresh: process and files are as applied                                IN_SYNC
..                 the same while a write is pending                                        AHEAD
..                 refresh: they differ, or cannot be asked                                 UNKNOWN
..                 refresh: no process runs                                                 DOWN
..                 a reload failed and was undone                                           UNKNOWN
IN_SYNC, AHEAD     a runtime update was confirmed                                           AHEAD
..                 another worker answers                                                   UNKNOWN
AHEAD              the file was written                                                     IN_SYNC
all                a runtime update or a repair was not confirmed                           SUSPECT
all                a former pyconfd was killed between an update and the file               SUSPECT
IN_SYNC, AHEAD     drift that only a reload repairs, once for each rendering                SUSPECT
all                a reload was verified                                                    UNKNOWN
=================  =======================================================================  =======
"""

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

import structlog

from pyconfd.errors import AdoptionNeeded, ApplyError, Problem, RejectedInput, TransientError
from pyconfd.haproxy.config import diff
from pyconfd.haproxy.config.diff import Comparison, Slice
from pyconfd.haproxy.config.spares import NO_SPARES, Spares
from pyconfd.haproxy.config.text import stats_sockets
from pyconfd.haproxy.history.generations import GenerationStore
from pyconfd.haproxy.process import adoption
from pyconfd.haproxy.process import unit as systemd
from pyconfd.haproxy.process.file_writer import FileWriter, UnfinishedChange
from pyconfd.haproxy.process.haproxy_process import HaproxyProcess
from pyconfd.haproxy.process.observation import (
    ChangedWorker,
    NotRunning,
    Observation,
    Running,
    RunningState,
    UnknownProcess,
)
from pyconfd.haproxy.process.old_workers import OldWorkers
from pyconfd.haproxy.process.presence import SETTLES_S, Presence
from pyconfd.haproxy.process.transaction import Known, Transaction
from pyconfd.haproxy.runtime.batch import without_servers
from pyconfd.haproxy.runtime.drift import DriftMonitor
from pyconfd.haproxy.runtime.former_workers import connections_of_former
from pyconfd.haproxy.runtime.overrides import OverrideStore, with_overrides
from pyconfd.haproxy.runtime.runtime import NotConfirmed, OtherWorker, PartlyRefused, Runtime
from pyconfd.haproxy.runtime.sockets import NoAnswer
from pyconfd.model.changes import EndedWorker, FormerWorkers, RoomForReload
from pyconfd.model.context import EndpointTotals
from pyconfd.model.listener import Listener
from pyconfd.model.operations import AddServer, EmptyBackend, FillSpare
from pyconfd.model.outcome import Applied, Deferred, Failed, Generation, Outcome, Rejected, Step, Stored, Unchanged
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import Rendering
from pyconfd.model.reservation import namespaces_of_changes
from pyconfd.model.status import BalancerStatus, HaproxyState, SparesStatus
from pyconfd.settings import ApplySettings, HaproxySettings
from pyconfd.system.files import refuse_as_root, remove_stale
from pyconfd.system.state_file import StateLock

log = structlog.get_logger(__name__)

_FILE_REJECTED = Reload((ReloadReason.NOT_LIVE,), ("the file behind the running configuration is rejected",))


class BalancerState(Enum):
    """What is known of the process; the module's docstring has the transitions."""

    UNKNOWN = "unknown"
    IN_SYNC = "in_sync"
    AHEAD = "ahead"
    SUSPECT = "suspect"
    DOWN = "down"


_CHECK_SHARE = 0.1
_ORDER_SLACK_S = 0.1
_MASTER_SILENT_S = 60.0
"""How long what the master said of old workers counts while it cannot be asked, as for a moment during a reload."""
_CAUSE_EVERY_S = 5.0
"""How often it is checked why HAProxy does not run."""


class _PartApplied(NamedTuple):
    """A part of a change that serves, and the generation that it made."""

    generation: Generation
    plan: RuntimeUpdate


def _have_all_names(namespaces: Collection[str], rendering: Rendering) -> bool:
    return all(owner.namespace in namespaces for mine in rendering.owners.values() for owner in mine.values())


CUT_SHORT = "a former pyconfd ended in the middle of a change"
_REPLACEMENT_REJECTED = f"{CUT_SHORT}, and the configuration to replace it was rejected"


class Balancer:
    """One HAProxy: what is installed for it, what it runs, and the history of both.

    ``unit`` are the facts of its systemd unit; they are gathered where none are given. Construction changes nothing.
    """

    def __init__(
        self,
        settings: HaproxySettings,
        apply: ApplySettings,
        state_dir: str,
        *,
        unit: systemd.UnitFacts | None = None,
        keep_for_s: float = float("inf"),
    ) -> None:
        self._settings = settings
        self._apply_settings = apply
        self._unit = systemd.gather(settings.unit) if unit is None else unit
        self._progress: Callable[[], None] = lambda: None
        self.before_reload: Callable[[], None] = lambda: None
        """Called before each reload: up to HAProxy 3.0 its stick tables are gone behind it."""
        self._process = HaproxyProcess(settings, self._unit, self._progressed)
        self.store = GenerationStore(state_dir, apply.keep_generations, keep_for_s)
        self._transaction = Transaction(settings, self._unit, self._process, self.store)
        self._runtime = Runtime(progress=self._progressed, dynamic_backends=settings.dynamic_backends)
        self._comparison = Comparison()
        self._file = FileWriter(self._write_file)
        self._lock = StateLock(state_dir)
        self.state_dir = state_dir
        self._state, self._why = BalancerState.UNKNOWN, ""
        self._last_good: Stored | None = None
        self._written: Rendering | None = None
        """What the file says, where that is not what is applied."""
        self._changed: ChangedWorker | None = None
        """The worker that was changed at run time, and what it began with."""
        self._worker_pid = 0
        """The worker that was seen last; 0 before the first, and after a reload of pyconfd's until it is seen."""
        self._first_free = 0
        self._has_served = False
        """Whether this pyconfd has applied or restored anything."""
        self.sockets = tuple[str, ...]()
        self._refused = set[AddServer]()
        self._spares_since: float | None = None
        """Since when spares are in use."""
        self._judged_spares = self._runtime.spares, False
        """The spares that were judged last, and whether they are scarce."""
        self._spare_causes = frozenset[str]()
        """The namespaces whose new and removed backends the next reload puts in order."""
        self._unfinished = UnfinishedChange(state_dir)
        self._overrides = OverrideStore(state_dir)
        self._drift = DriftMonitor(self._overrides)
        self._reloaded_for_drift: Rendering | None = None
        self._planned: tuple[Rendering, Stored | None, Plan] | None = None
        """The last rendering, what it was compared with, and what followed."""
        self._old, self._former = OldWorkers(settings.max_old_workers), FormerWorkers()
        self._old_seen_at = -math.inf
        """When the master said last which old workers there are; a worker does not know."""
        self._presence, self._condition = Presence(), HaproxyState()
        self._process_due, self._cause_due = 0.0, 0.0
        """When it is checked again whether HAProxy runs, and why it does not."""

    def condition(self) -> HaproxyState:
        """Return whether HAProxy runs, and why not; safe in any thread."""
        return self._condition

    def _refresh_process(self) -> None:
        """Check whether HAProxy runs. A worker that hangs takes seconds: a tenth of the time is spent on it at most."""
        began = time.monotonic()
        if began >= self._process_due:
            self._note_running(self._transaction.running(self._known()))
            self._poll_former()
            self._process_due = began + (time.monotonic() - began) / _CHECK_SHARE

    def _note_running(self, running: RunningState) -> None:
        """Record what a refresh found; before the first generation HAProxy has nothing to serve."""
        now = time.monotonic()
        if isinstance(running, Running) and running.master_pid:
            self._old.see(running.old_workers)
            self._old_seen_at = now
        elif now - self._old_seen_at > _MASTER_SILENT_S:
            self._old.see(())
        if self.last_good() is None:
            return
        match running:
            case NotRunning():
                self._presence.see(frozenset(), now, answers=False)
            case Running():
                self._presence.see(frozenset({running.master_pid, running.worker_pid}) - {0}, now, answers=True)
            case UnknownProcess() if running.pids:
                self._presence.see(running.pids, now, answers=False, may_ask=running.may_ask)
        self._judge_presence(now)

    def _note_reloaded(self, worker: Running) -> None:
        """Record that a reload was verified: after an outage HAProxy counts as up once it has stayed for a while."""
        now = time.monotonic()
        self._presence.replaced(frozenset({worker.master_pid, worker.worker_pid}) - {0}, now)
        self._judge_presence(now)
        if self._condition.up is False:
            cause = f"has just started; it counts as up when it has answered for {SETTLES_S:g} s"
            self._condition = replace(self._condition, cause=cause, remedy="wait")
            self._cause_due = now + _CAUSE_EVERY_S

    def _judge_presence(self, now: float) -> None:
        """Set the condition; the cause of an outage is looked for as often as it may have become another one."""
        up = self._presence.up
        if up is not False:
            if self._condition.up is not up:
                self._condition = HaproxyState(up, time.time())
            return
        if self._condition.up is False and now < self._cause_due:
            return
        self._cause_due = now + _CAUSE_EVERY_S
        since = self._condition.since if self._condition.up is False else time.time()
        found = self._transaction.outage()
        self._condition = HaproxyState(False, since, found.message, found.remedy)

    @property
    def master_socket(self) -> str:
        """The path of HAProxy's master socket."""
        return self._process.master_socket

    @property
    def state(self) -> BalancerState:
        """The state at this moment: the file is written in another thread."""
        ahead = self._state is BalancerState.IN_SYNC and self._file.pending
        return BalancerState.AHEAD if ahead else self._state

    @property
    def _is_known(self) -> bool:
        """Whether the process runs what is applied."""
        return self._state is BalancerState.IN_SYNC

    def _enter(self, state: BalancerState, why: str = "", *, reloaded: bool = False) -> None:
        """Change the state; SUSPECT ends by a verified reload only."""
        if reloaded or state is BalancerState.SUSPECT or self._state is not BalancerState.SUSPECT:
            self._state, self._why = state, why

    def _suspect(self, error: Exception) -> None:
        """Record that a change of the process was not confirmed: what runs is not known."""
        self._enter(BalancerState.SUSPECT, str(error))
        self._process.failed_to_answer(self._worker_pid, error)

    def startup(self) -> tuple[Problem, ...]:
        """Acquire the lock, remove what a killed pyconfd left behind, and return what would prevent an apply.

        Raises:
            TransientError: another pyconfd uses the state directory, it cannot be written, or root would write in
                directories of another user.
        """
        refuse_as_root(self._settings.conf, f"{self.state_dir}/lock")
        self._lock.acquire()
        remove_stale([*self._transaction.layout.directories(), self.state_dir])
        self.store.clean()
        return self.problems()

    def report_progress(self, progress: Callable[[], None]) -> None:
        """Call ``progress``, at least about each second, while a check or a reload is waited for."""
        self._progress = progress

    def _progressed(self) -> None:
        self._progress()

    def close(self) -> None:
        """Write what is pending and release the lock; HAProxy goes on."""
        self._file.close()
        self._unfinished.close()
        self._runtime.close()
        self._lock.release()

    def problems(self) -> tuple[Problem, ...]:
        """Return what is wrong with the set-up itself, whatever is rendered; empty on a good machine."""
        return (
            *systemd.problems(self._settings, self._unit),
            *self._transaction.layout.problems(),
            *self._process.problems(),
        )

    def sync(self, *, may_repair: bool = True) -> BalancerStatus:
        """Delete servers that have gone, repair drift, and return the status.

        Raises what a bug in the thread of the file raised.
        """
        last = self.last_good()
        if last is not None and self._is_known and self._runtime.abilities.runtime:
            self._repair_drift(last, may_repair=may_repair)
        self._refresh_process()
        if last is not None and not last.generation.digest and not self._file.pending:
            # The file is written, and the thread that did so knows its digest: to compute it takes long.
            digest = (self._written or last.rendering).digest
            self._last_good = Stored(replace(last.generation, digest=digest), last.rendering)
        live = replace(self._drift.status(self._runtime), spares=self._spares_status())
        if self._is_known and not self._runtime.abilities.runtime:
            live = replace(live, unavailable=self._runtime.abilities.why)
        own = (*self._file.problems(), *self._suspect_problems(), *self._process.silent_problems())
        return BalancerStatus(own, live, self._former)

    def _poll_former(self) -> None:
        """Count what former workers have left, and when the last of them ends."""
        old = self._old.known
        connections = connections_of_former(self._process.master_socket, old)
        ends_s = self._old.ends_s(self._transaction.hard_stop_s())
        now = time.time()
        since, ends_at = now - self._old.oldest_age_s if old else 0.0, 0.0 if ends_s is None else now + ends_s
        self._former = FormerWorkers(len(old), since, connections, ends_at)

    def _suspect_problems(self) -> tuple[Problem, ...]:
        if not self._why.startswith(CUT_SHORT):
            return ()
        message = (
            f"{CUT_SHORT}, and the file does not say what it changed: what runs goes on until a newer one is loaded"
        )
        remedy = (
            "the other problems say why nothing newer could be; until then a restart of haproxy loads the older file"
        )
        return (Problem("haproxy", message, remedy),)

    def _repair_drift(self, last: Stored, *, may_repair: bool) -> None:
        try:
            found = self._drift.sweep(self._runtime, self._comparison.index(last.rendering), repair=may_repair)
        except OtherWorker:
            # It has loaded the file, which is what is applied: the next refresh finds what has to be done.
            self._enter(BalancerState.UNKNOWN)
            self.refresh()
            return
        except NotConfirmed as error:
            self._suspect(error)
            log.warning("runtime.state_unknown", problem=str(error))
            return
        self._process.answered(self._worker_pid)
        if may_repair:
            self._runtime.reap(self._apply_settings.drain_limit_s)
        if may_repair and found.beyond and self._reloaded_for_drift is not last.rendering:
            # Once for each rendering: what is so again after a reload would be so after the next one.
            self._reloaded_for_drift = last.rendering
            self._enter(BalancerState.SUSPECT, next(iter(found.beyond)))

    def last_good(self) -> Stored | None:
        """Return the newest generation, with its rendering, or None before the first."""
        if self._last_good is None:
            self._last_good = self.store.last_good()
            if self._last_good is not None and self._last_good.generation.loaded:
                generation = self._last_good.generation
                self._changed = ChangedWorker(generation.worker, generation.loaded)
        return self._last_good

    @property
    def file_behind(self) -> bool:
        """Whether the process was changed and the file does not say so yet."""
        return self._file.pending

    def observe(self) -> Observation:
        """Return what is installed and what runs."""
        observed = self._transaction.observe(self._known())
        self._note_running(observed.running)
        if isinstance(found := observed.running, Running):
            if self._worker_pid not in {0, found.worker_pid}:
                log.info("worker.replaced", former=self._worker_pid, now=found.worker_pid)
            self._worker_pid = found.worker_pid
        return observed

    def _known(self) -> Known:
        return Known(last.rendering if (last := self.last_good()) else None, self._written, self._changed)

    def runs(self) -> bool:
        """Return whether HAProxy runs, whatever it has loaded."""
        return not isinstance(self.observe().running, NotRunning)

    def plan(self, rendering: Rendering) -> Plan:
        """Return what has to be done to make ``rendering`` serve.

        In IN_SYNC and AHEAD the process is not looked at: each change of it asks first which worker answers.
        """
        return self._unless_due(self._to_serve(rendering))

    def _to_serve(self, rendering: Rendering) -> Plan:
        """Return what makes ``rendering`` serve, by spares where they do."""
        last, known = self.last_good(), self._planned
        if known is None or known[0] is not rendering or known[1] is not last or not self._is_known:
            known = self._planned = rendering, last, self._compare(rendering, last)
        return self._unless_rejected(known[2])

    def _compare(self, rendering: Rendering, last: Stored | None) -> Plan:
        observed = None
        if last is None or not self._is_known:
            observed = self._refresh_state()
            observed = None if self._is_known else observed
        applied, can = last.rendering if last else None, self._runtime.abilities
        can = replace(can, refused=frozenset(self._refused)) if self._refused else can
        if last is not None and self._are_spares_scarce():
            causes = namespaces_of_changes(last.rendering.owners, rendering.owners)
            if not (self._has_share(causes) or _have_all_names(causes, last.rendering)):
                # What is left is for the others: its next backends wait as they would with none.
                can = replace(can, spares=can.spares.without_free())
        found = diff.plan(rendering, applied, observed, comparison=self._comparison, abilities=can)
        if last is None:
            return found
        found = self._unless_suspect(found)
        if isinstance(found, Noop) and not self._file.rejected:
            # The same text, but in the blocks that the next rendering will be compared with.
            self._last_good = Stored(last.generation, rendering) if last.gives(rendering) else last
            # At the start, and not when the first change comes: 40 ms for 5,000 backends.
            self._comparison.index(self._last_good.rendering)
        return found

    def _unless_suspect(self, found: Plan) -> Plan:
        """Return ``found``, or the reload that finds out what runs."""
        if self._state is BalancerState.SUSPECT and not isinstance(found, Reload):
            return Reload((ReloadReason.NOT_LIVE,), (self._why,))
        return found

    def spares_of(self, pid: int) -> Spares:
        """Return the spares of a worker, none where another one runs; safe in any thread."""
        spares = self._runtime.spares
        return spares if self._runtime.pid == pid else NO_SPARES

    def order_due_s(self) -> float | None:
        """Return in how many seconds spares in use are due for the reload that puts them in order; None for not at all.

        At once where few are left: one shall be free when the next backend comes. But those who used them up share
        reloads as for names that no spare serves.
        """
        spares, now = self._runtime.spares, time.monotonic()
        if not spares or not self._is_known:
            self._spares_since = None
            return None
        if self._spares_since is None:
            self._spares_since = now
        if self._are_spares_scarce() and self._old.has_share(self._spare_causes, now):
            return 0.0
        return max(0.0, self._spares_since + self._apply_settings.rename_interval_s - now)

    def _are_spares_scarce(self) -> bool:
        spares = self._runtime.spares
        if spares is not self._judged_spares[0]:
            self._judged_spares = spares, spares.are_scarce
        return self._judged_spares[1]

    def _spares_status(self) -> SparesStatus:
        spares, due_s = self._runtime.spares, self.order_due_s()
        order_at = 0.0 if due_s is None else time.time() + due_s
        return SparesStatus(len(spares.served), len(spares.free), len(spares.emptied), order_at)

    def _unless_due(self, found: Plan) -> Plan:
        """Return ``found``, or where nothing else has to be done the reload that is due for spares in use."""
        due_s = self.order_due_s() if isinstance(found, Noop) else None
        if due_s is None or due_s > _ORDER_SLACK_S:
            return found
        return Reload((ReloadReason.SPARES_IN_USE,), self._runtime.spares.details)

    def _unless_rejected(self, found: Plan) -> Plan:
        """Return ``found``, or where nothing else has to be done the reload whose check says what is wrong."""
        return _FILE_REJECTED if isinstance(found, Noop) and self._file.rejected else found

    def refresh(self) -> Plan:
        """Compare files and process with what is applied; what is being written at this moment is not compared."""
        last = self.last_good()
        if last is None or not self._file.lock.acquire(blocking=False):
            return Noop()
        try:
            observed = self._refresh_state()
            found = diff.plan(last.rendering, last.rendering, None if self._is_known else observed)
        finally:
            self._file.lock.release()
        if isinstance(found, Noop):
            self._file.retry()
        return self._unless_rejected(self._unless_suspect(found))

    def _refresh_state(self) -> Observation:
        """Observe files and process, connect to its socket, and enter the state that this shows."""
        observed, last = self.observe(), self.last_good()
        running = observed.running
        if isinstance(running, Running) and self._unfinished.was_left(running.worker_pid):
            self._enter(BalancerState.SUSPECT, CUT_SHORT)
        if last is not None and diff.is_in_sync(last.rendering, observed):
            self._transaction.confirm()
            self._enter(BalancerState.IN_SYNC)
        else:
            self._enter(BalancerState.DOWN if isinstance(running, NotRunning) else BalancerState.UNKNOWN)
        if isinstance(running, NotRunning):
            self._runtime.close()
        elif isinstance(running, Running) and running.worker_pid == self._runtime.pid:
            # A worker keeps those that it began with, whatever is written since.
            self._runtime.connect(self.sockets, self._worker_pid)
        else:
            self._connect(observed.installed_text or (last.rendering.text if last else ""))
        return observed

    def _connect(self, text: str) -> None:
        self.sockets = stats_sockets(text, self._settings.runtime_socket)
        self._runtime.connect(self.sockets, self._worker_pid)

    def listener_conflicts(self, rendering: Rendering) -> Mapping[Listener, str]:
        """Return the new binds of ``rendering`` that cannot be had, and why: mostly another process has them."""
        if self._is_known and isinstance(self.plan(rendering), Noop | RuntimeUpdate):
            return {}  # a runtime update binds nothing
        return self._transaction.listener_conflicts(rendering, self._known())

    def check(self, rendering: Rendering) -> None:
        """Validate ``rendering``, install nothing. Raises: RejectedInput: it is invalid. TransientError: not run."""
        self._transaction.check(rendering, self._progressed)

    def bind_problems(self, rendering: Rendering) -> tuple[Problem, ...]:
        """Return what is wrong with its new binds, as a reload would."""
        return self._transaction.bind_problems(rendering, self._known())

    def updates_at_runtime(self) -> bool:
        """Return whether some changes may need no reload at present: what was not looked at yet may take them."""
        return self.state is not BalancerState.SUSPECT and (self._runtime.abilities.runtime or not self._is_known)

    def make_room(self) -> RoomForReload:
        """Return whether a reload may come. At the bound of old workers one of them is ended for it."""
        if not self._old.at_bound:
            return RoomForReload(free=True)
        self.observe()
        if not self._old.at_bound:
            return RoomForReload(free=True)
        chosen = self._old.next_to_end()
        if chosen is None:
            return RoomForReload(free=False)
        try:
            connections = self._process.end_worker(chosen.pid)
        except NoAnswer as error:
            log.warning("worker.end_failed", pid=chosen.pid, problem=str(error))
            return RoomForReload(free=False)
        self._old.ended(chosen)
        ended = EndedWorker(
            chosen.pid, connections, chosen.replaced_s, len(self._old.known), self._old.causes_of(chosen.pid)
        )
        return RoomForReload(free=False, ended=ended)

    def may_reload_for(self, namespaces: Collection[str]) -> bool:
        """Return whether changes of these namespaces alone may reload now, or wait as their reloads took their share.

        Where nobody else has a name nobody else waits; and what repairs the process or the file never does.
        """
        last = self.last_good()
        if last is None or not self._is_known or self._file.rejected or self._has_share(namespaces):
            return True
        self.observe()
        return self._has_share(namespaces) or _have_all_names(namespaces, last.rendering)

    def _has_share(self, namespaces: Collection[str]) -> bool:
        return self._old.has_share(namespaces, time.monotonic())

    def change(
        self,
        rendering: Rendering,
        plan: RuntimeUpdate,
        *,
        curdate: str,
        now: float,
        totals: EndpointTotals | None = None,
        in_slices: bool = False,
    ) -> Applied | Deferred | Reload:
        """Change what runs, and have the file written; where that failed, return the reload that it takes instead.

        ``in_slices``: of many servers only the first are changed, so that newer events are looked at before the rest.
        """
        last = self.last_good()
        if in_slices and last is not None and (first := self._comparison.first_slice(last.rendering)):
            done = self._update_part(first, last, now)
            return done if isinstance(done, Reload) else Deferred(plan, done.generation, done.plan, more=True)
        return self._update_process(
            rendering, plan, Generation(self._next_number(), "", now, curdate, (), totals or EndpointTotals())
        )

    def apply(
        self, rendering: Rendering, plan: Reload, *, curdate: str, now: float, totals: EndpointTotals | None = None
    ) -> Applied:
        """Apply ``rendering`` by a reload; ``now`` is seconds since the epoch.

        Raises:
            RejectedInput: the check or the judgement of its binds rejected it; nothing was changed.
            ApplyError: it could not be made to serve; the former files are back, the former text serves.
            AdoptionNeeded: it would end what HAProxy serves by a configuration that pyconfd did not write.
        """
        if problem := self.adoption(rendering):
            raise AdoptionNeeded(problem)
        reasons, digest = tuple(reason.value for reason in plan.reasons), rendering.digest
        generation = Generation(self._next_number(), digest, now, curdate, reasons, totals or EndpointTotals())
        former = last.rendering.owners if (last := self.last_good()) else {}
        causes = namespaces_of_changes(former, rendering.owners)
        verified = self._reload(rendering, generation, causes | self._spare_causes)
        self._last_good = Stored(generation, rendering)
        return Applied(generation, plan, verified)

    def loaded_elsewhere(self) -> tuple[str, ...]:
        """Return what the running haproxy was started with where that is not what pyconfd writes, else nothing."""
        return adoption.loaded_elsewhere(self._settings, self._unit)

    def adoption(self, rendering: Rendering) -> Problem | None:
        """Return what the first configuration would end, None where nothing or where an operator has adopted it."""
        if self.last_good() is not None or adoption.adopted(self.state_dir):
            return None
        found = adoption.foreign(self._settings, self._unit)
        return found.problem(rendering.text) if found is not None else None

    def defer(self, plan: Reload, *, now: float, in_slices: bool = False) -> Deferred:
        """Postpone a reload, and apply what needs none at once: all of that, or the first slice."""
        last = self.last_good()
        if last is None or plan.live is None or self._state is BalancerState.SUSPECT:
            return Deferred(plan, last.generation if last else None)
        first = self._comparison.first_slice(last.rendering) if in_slices else None
        done = self._update_part(first or self._comparison.partial(last.rendering), last, now)
        if isinstance(done, Reload):
            return Deferred(done, (self.last_good() or last).generation)
        return Deferred(plan, done.generation, done.plan, more=first is not None)

    def _update_part(self, part: Slice, last: Stored, now: float) -> "_PartApplied | Reload":
        """Make a part of a change; what runs then is what the next rendering is compared with."""
        update = RuntimeUpdate(part.commands)
        generation = replace(last.generation, number=self._next_number(), applied_at=now, reasons=())
        done = self._update_process(part.rendering, update, generation)
        return done if isinstance(done, Reload) else _PartApplied(done.generation, update)

    def _next_number(self) -> int:
        last = self.last_good()
        self._first_free = self._first_free or self.store.next_number()
        return max(self._first_free, last.generation.number + 1 if last else 1)

    def _update_process(self, rendering: Rendering, plan: RuntimeUpdate, generation: Generation) -> Applied | Reload:
        if any(isinstance(command, FillSpare | EmptyBackend) for command in plan.commands):
            former = last.rendering.owners if (last := self.last_good()) else {}
            self._spare_causes |= namespaces_of_changes(former, rendering.owners)
        self._unfinished.begin(generation.number, self._worker_pid)
        try:
            self._runtime.execute(with_overrides(plan.commands, self._overrides.known, self._overrides.now()))
        except PartlyRefused as error:
            # What runs is known. HAProxy may take them from a file; if not, the check says why.
            self._refused |= error.refused.keys()
            log.warning("runtime_update.rejected", problem=str(error), servers=len(error.refused))
            self._note_updated(without_servers(rendering, error.refused), generation)
            return Reload((ReloadReason.NOT_LIVE,), (str(error), *plan.details))
        except NotConfirmed as error:
            self._suspect(error)
            log.warning("runtime_update.failed", problem=str(error), commands=len(plan.commands))
            return Reload((ReloadReason.NOT_LIVE,), (str(error), *plan.details))
        return Applied(self._note_updated(rendering, generation), plan, verified=True)

    def _note_updated(self, rendering: Rendering, generation: Generation) -> Generation:
        """Record that the process runs ``rendering`` now, and write the file soon."""
        last = self.last_good()
        if self._written is None and last is not None:
            self._written = last.rendering
        if last is not None and (self._changed is None or self._changed.pid != self._worker_pid):
            self._changed = ChangedWorker(self._worker_pid, last.rendering.digest)
        if self._changed is not None:
            generation = replace(generation, loaded=self._changed.digest, worker=self._changed.pid)
        self._last_good, self._has_served = Stored(generation, rendering), True
        self._file.write_later(self._last_good)
        self._enter(BalancerState.IN_SYNC)
        return generation

    def _write_file(self, stored: Stored) -> None:
        """Write the file behind the process; in the thread of the file."""
        generation = replace(stored.generation, digest=stored.rendering.digest)
        self._transaction.write(stored.rendering, generation)
        self._written = stored.rendering
        self._unfinished.end(generation.number)

    def _reload(
        self, rendering: Rendering, generation: Generation | None, causes: frozenset[str] = frozenset()
    ) -> bool:
        former, self._worker_pid = self._worker_pid, 0
        try:
            with self._file.lock:
                self._take_lock()
                self.before_reload()
                worker = self._transaction.reload(rendering, generation, self._known(), self._progressed)
                self._file.discard()
        except (RejectedInput, ApplyError) as error:
            self._enter(BalancerState.UNKNOWN)
            log.debug("candidate.kept", path=self.store.reject(rendering, f"{error.step}: {error}"), step=error.step)
            if self._why == CUT_SHORT and isinstance(error, RejectedInput) and error.step != Step.BINDS:
                self._why = _REPLACEMENT_REJECTED
            if self._file.pending and (last := self.last_good()):
                self._file.write_later(last)
            raise
        self._written, self._changed, self._has_served = None, None, True
        self._comparison.forget_unused()
        self._old.replaced(former, causes, time.monotonic())
        self._enter(BalancerState.UNKNOWN, reloaded=True)
        self._refused.clear()
        self._spare_causes, self._spares_since = frozenset(), None
        self._unfinished.forget()
        self._runtime.forget()
        self._worker_pid = worker.worker_pid if worker else 0
        if worker is not None:
            self._note_reloaded(worker)
        self._restore_overrides(rendering)
        return worker is not None

    def _restore_overrides(self, rendering: Rendering) -> None:
        """Set the states that operators set before: a new worker begins with those of its text."""
        if not self._overrides.refresh():
            return
        try:
            self._connect(rendering.text)
            if self._runtime.abilities.runtime:
                self._drift.restore(self._runtime, self._comparison.index(rendering))
        except NotConfirmed as error:
            log.warning("overrides.restore_failed", problem=str(error))

    def _take_lock(self) -> None:
        try:
            self._lock.acquire()
        except TransientError as error:
            raise ApplyError(Step.INSTALL, *error.problems) from error

    def restore_last_good(self, now: float) -> Outcome | None:
        """Serve the last good generation where no rendering can be had; None where there is none yet.

        Where another one than the newest has to be loaded at the start, it is the newest that ran well. It keeps its
        number, and its time: ``now`` is not needed. What a former pyconfd was changing is newer than all of these
        and goes on, unless what was to replace it was rejected.
        """
        del now
        if (last := self.last_good()) is None:
            return None
        self._enter(BalancerState.UNKNOWN)
        plan = self._to_serve(last.rendering)
        if isinstance(plan, Reload) and plan.details == (CUT_SHORT,):
            return Unchanged(last.generation, verified=False)
        if not self._has_served and not isinstance(plan, Noop) and (proven := self.store.last_that_ran_well()):
            self._last_good = last = proven
            plan = self._to_serve(last.rendering)
        self._has_served = True
        if isinstance(plan, Noop):
            return Unchanged(last.generation, plan.verified)
        try:
            verified = self._reload(last.rendering, None)
        except RejectedInput as error:
            return Rejected(Step(error.step), error.problems)
        except ApplyError as error:
            return Failed(Step(error.step), error.problems, error.disruptive)
        return Applied(last.generation, plan, verified)
