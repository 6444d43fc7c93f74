"""One HAProxy: changed while it runs where that can be, by a reload where it cannot; and the history of both.

A change that goes live is in the process before it is in the file. The file follows at once in a thread of its own
(:mod:`pyconfd.haproxy.following`), and every reload installs what is newest, so no reload brings back what was. What
the process does not confirm makes it *suspect*: then the next step is a reload.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from pyconfd.errors import AdoptionNeeded, ApplyError, Problem, RejectedInput, TransientError
from pyconfd.haproxy import adoption, diff
from pyconfd.haproxy import unit as systemd
from pyconfd.haproxy.compare import Comparison
from pyconfd.haproxy.drift import Drift, live_status
from pyconfd.haproxy.following import FollowingFile
from pyconfd.haproxy.generations import GenerationStore
from pyconfd.haproxy.observation import ChangedWorker, NotRunning, Observation, Running
from pyconfd.haproxy.overrides import OverrideStore, with_overrides
from pyconfd.haproxy.process import HaproxyProcess
from pyconfd.haproxy.refused import without_servers
from pyconfd.haproxy.runtime import NotLive, OtherWorker, PartlyRefused, Runtime
from pyconfd.haproxy.sections import stats_sockets
from pyconfd.haproxy.silence import Silence
from pyconfd.haproxy.transaction import Known, Transaction
from pyconfd.haproxy.unfinished import CUT_SHORT, Unfinished, is_cut_short, problems_of
from pyconfd.model.context import Census
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Applied, Deferred, Failed, Generation, Outcome, Rejected, Step, Stored, Unchanged
from pyconfd.model.plan import AddServer, Noop, Plan, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import OutputFile, Rendering
from pyconfd.model.status import Standing
from pyconfd.settings import ApplySettings, HaproxySettings
from pyconfd.system.files import refuse_as_root, remove_stale
from pyconfd.system.state_file import StateLock

log = structlog.get_logger(__name__)


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
        self._process = HaproxyProcess(settings, self._unit, self._progressed)
        self.store = GenerationStore(state_dir, apply.keep_generations, keep_for_s)
        self._transaction = Transaction(settings, self._unit, self._process, self.store)
        self._runtime = Runtime(progress=self._progressed)
        self._comparison = Comparison()
        self._file = FollowingFile(self._follow)
        self._lock = StateLock(state_dir)
        self._state_dir = state_dir
        self._last_good: Stored | None = None
        self._written: Rendering | None = None
        self._changed: ChangedWorker | None = None
        self._worker_pid, self._first_free, self._met = 0, 0, False
        self._suspect, self._trusted, self._served, self._turned_away = "", False, False, False
        self.sockets = tuple[str, ...]()
        self._refused: set[AddServer] = set()
        self._unfinished = Unfinished(state_dir)
        self._overrides = OverrideStore(state_dir)
        self._drift = Drift(self._overrides)
        self._silence = Silence(self._process.pids)
        self._beyond: Rendering | None = None
        self._planned: tuple[Rendering, Stored | None, Plan] | None = None
        self.old_workers, self._oldest_worker_age_s = 0, 0.0

    def startup(self) -> tuple[Problem, ...]:
        """Take the lock, remove what a killed pyconfd left behind, and give what would prevent an apply.

        Raises:
            TransientError: another pyconfd uses the state directory, it cannot be written, or root would write in
                directories of another user.
        """
        refuse_as_root(self._settings.conf, f"{self._state_dir}/lock")
        self._lock.acquire()
        remove_stale([*self._transaction.layout.directories(), self._state_dir])
        self.store.clean()
        return self.problems()

    def report_progress(self, progress: Callable[[], None]) -> None:
        """Have ``progress`` called, at least about each second, while a check or a reload is waited for."""
        self._progress = progress

    def _progressed(self) -> None:
        self._progress()

    def close(self) -> None:
        """Let the file get level, give the lock back; HAProxy goes on."""
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

    def standing(self, *, may_repair: bool = True) -> Standing:
        """Delete servers that have gone, repair drift, and return how it stands.

        Raises what a bug in the thread of the file raised.
        """
        last = self.last_good()
        if last is not None and self._trusted and self._runtime.abilities.runtime and not self._suspect:
            self._look_after(last, may_repair=may_repair)
        if last is not None and not last.generation.digest and not self._file.behind:
            # The file has followed: its digest is known by now.
            self._last_good = Stored(replace(last.generation, digest=last.rendering.digest), last.rendering)
        live = live_status(self._overrides, self._runtime, monotonic=time.monotonic(), paused=None, drift=self._drift)
        if self._trusted and not self._runtime.abilities.runtime:
            live = replace(live, unavailable=self._runtime.abilities.why)
        doubts = (*problems_of(self._suspect), *self._silence.problems())
        own = (*self._file.problems(), *doubts)
        return Standing(own, live, self.old_workers, self._oldest_worker_age_s, self._file.behind, self._file.refused)

    def _look_after(self, last: Stored, *, may_repair: bool) -> None:
        try:
            found = self._drift.look(self._runtime, self._comparison.index(last.rendering), repair=may_repair)
        except OtherWorker:
            # It has loaded the file, which is level: the next look tells whether anything needs to be done.
            self._trusted = False
            self.look()
            return
        except NotLive as error:
            self._suspect, self._trusted = str(error), False
            log.warning("process.unclear", problem=str(error))
            self._silence.note(error, self._worker_pid)
            return
        self._silence.ended(self._worker_pid)
        if may_repair:
            self._runtime.reap(self._apply_settings.drain_limit_s)
        if may_repair and found.beyond and self._beyond is not last.rendering:
            # Once for each text: what is so again after a reload would be so after the next one.
            self._beyond, self._suspect = last.rendering, found.beyond[0]

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
        return self._file.behind

    def observe(self, files: Sequence[OutputFile] = ()) -> Observation:
        """Look at what is installed and what runs; ``files`` are those whose content matters."""
        observed = self._transaction.observe(self._known(), files)
        self._silence.saw(found := observed.running, self._worker_pid)
        if isinstance(found, Running):
            if self._met and found.worker_pid != self._worker_pid:
                log.info("worker.replaced", former=self._worker_pid, now=found.worker_pid)
            self._worker_pid, self._met = found.worker_pid, True
            self._suspect = CUT_SHORT if self._unfinished.was_left(self._worker_pid) else self._suspect
            self.old_workers, self._oldest_worker_age_s = found.old_workers, found.oldest_worker_age_s
        return observed

    def _known(self) -> Known:
        return Known(last.rendering if (last := self.last_good()) else None, self._written, self._changed)

    def runs(self) -> bool:
        """Return whether HAProxy runs, whatever it has loaded."""
        return not isinstance(self.observe().running, NotRunning)

    def plan(self, rendering: Rendering) -> Plan:
        """Return what has to be done to make ``rendering`` serve.

        Once a look has shown that disk and process are level with what is applied, that is trusted until the next
        :meth:`look`: each change of the process asks it anyway who it is.
        """
        last = self.last_good()
        if self._planned is not None and self._planned[0] is rendering and self._planned[1] is last and self._trusted:
            return self._planned[2]
        observed = None
        if last is None or not self._trusted:
            observed = self._look(rendering.files)
            self._trusted = last is not None and diff.is_level(last.rendering, observed)
            observed = None if self._trusted else observed
        applied, can = last.rendering if last else None, self._runtime.abilities
        can = replace(can, refused=frozenset(self._refused)) if self._refused else can
        found = diff.plan(rendering, applied, observed, comparison=self._comparison, abilities=can)
        if self._suspect and last is not None and not isinstance(found, Reload):
            found = Reload((ReloadReason.NOT_LIVE,), (self._suspect,))
        self._planned = rendering, last, found
        if last is not None and isinstance(found, Noop):
            # The same text, but in the blocks that the next rendering will be compared with.
            self._last_good = Stored(last.generation, rendering) if last.gives(rendering) else last
        return found

    def look(self) -> Plan:
        """Compare disk and process with what is applied; what is written at this moment is not looked at."""
        last = self.last_good()
        if last is None or not self._file.lock.acquire(blocking=False):
            return Noop()
        try:
            observed = self._look(())
            self._trusted = diff.is_level(last.rendering, observed)
            found = Noop(verified=True) if self._trusted else diff.plan(last.rendering, last.rendering, observed)
        finally:
            self._file.lock.release()
        if self._trusted:
            self._file.retry()
        return Reload((ReloadReason.NOT_LIVE,), (self._suspect,)) if self._suspect else found

    def _look(self, files: Sequence[OutputFile]) -> Observation:
        observed = self.observe(files)
        running = observed.running
        if isinstance(running, NotRunning):
            self._runtime.close()
        elif isinstance(running, Running) and running.worker_pid == self._runtime.pid:
            self._runtime.connect(self.sockets)  # a worker keeps those that it began with, whatever is written since
        else:
            last = self.last_good()
            self._connect(observed.installed_text or (last.rendering.text if last else ""))
        return observed

    def _connect(self, text: str) -> None:
        self.sockets = tuple(dict.fromkeys(filter(None, (self._settings.runtime_socket, *stats_sockets(text)))))
        self._runtime.connect(self.sockets)

    def contested(self, rendering: Rendering) -> Mapping[Listener, str]:
        """Return the new binds of ``rendering`` that somebody else has already, and who that is."""
        if self._trusted and isinstance(self.plan(rendering), Noop | RuntimeUpdate):
            return {}  # what goes live binds nothing
        return self._transaction.contested(rendering, self._known())

    def check(self, rendering: Rendering) -> None:
        """Let HAProxy judge ``rendering``, install nothing. Raises: RejectedInput: refused. TransientError: not run."""
        self._transaction.check(rendering, self._progressed)

    def judge_binds(self, rendering: Rendering) -> None:
        """Judge its new binds, as before a reload. Raises: RejectedInput: one cannot be had."""
        self._transaction.judge_binds(rendering, self._known())

    def goes_live(self) -> bool:
        """Return whether some changes may need no reload at present: what was not looked at yet may take them."""
        return not self._suspect and (self._runtime.abilities.runtime or not self._trusted)

    def crowded(self) -> bool:
        """Return whether a reload has to wait until workers of the past have ended."""
        if self.old_workers < self._settings.max_old_workers:
            return False
        self.observe()
        return self.old_workers >= self._settings.max_old_workers

    def change(
        self, rendering: Rendering, plan: RuntimeUpdate, *, curdate: str, now: float, census: Census | None = None
    ) -> Applied | Reload:
        """Change what runs, and let the file follow; where that did not work, give the reload that it takes instead."""
        return self._go_live(rendering, plan, Generation(self._next_number(), "", now, curdate, (), census or Census()))

    def apply(
        self, rendering: Rendering, plan: Reload, *, curdate: str, now: float, census: Census | None = None
    ) -> Applied:
        """Make ``rendering`` serve by a reload; ``now`` is seconds since the epoch.

        Raises:
            RejectedInput: the check or the judgement of its binds turned it away; nothing was changed.
            ApplyError: it could not be made to serve; the former files are back, the former text serves.
            AdoptionNeeded: it would end what HAProxy serves by a configuration that pyconfd did not write.
        """
        if problem := self.adoption(rendering):
            raise AdoptionNeeded(problem)
        reasons, digest = tuple(reason.value for reason in plan.reasons), rendering.digest
        generation = Generation(self._next_number(), digest, now, curdate, reasons, census or Census())
        verified = self._reload(rendering, generation)
        self._last_good = Stored(generation, rendering)
        return Applied(generation, plan, verified)

    def adoption(self, rendering: Rendering) -> Problem | None:
        """Return what the first configuration would end, None where nothing or where an operator has adopted it."""
        if self.last_good() is not None or adoption.adopted(self._state_dir):
            return None
        found = adoption.foreign(self._settings, self._unit)
        return found.problem(rendering.text) if found is not None else None

    def defer(self, plan: Reload, *, now: float) -> Deferred:
        """Let a reload wait, and do what needs none at once."""
        last = self.last_good()
        if last is None or plan.live is None or self._suspect:
            return Deferred(plan, last.generation if last else None)
        partial = self._comparison.partial(last.rendering)
        generation = replace(last.generation, number=self._next_number(), applied_at=now, reasons=())
        done = self._go_live(partial, plan.live, generation)
        if isinstance(done, Reload):
            return Deferred(done, (self.last_good() or last).generation)
        return Deferred(plan, done.generation, plan.live)

    def _next_number(self) -> int:
        last = self.last_good()
        self._first_free = self._first_free or self.store.next_number()
        return max(self._first_free, last.generation.number + 1 if last else 1)

    def _go_live(self, rendering: Rendering, plan: RuntimeUpdate, generation: Generation) -> Applied | Reload:
        self._unfinished.begin(generation.number, self._worker_pid)
        try:
            self._runtime.execute(with_overrides(plan.commands, self._overrides.known, self._overrides.now()))
        except PartlyRefused as error:
            # What runs is known. HAProxy may take them from a file; if not, the check says why.
            self._refused |= error.refused.keys()
            log.warning("live_change.refused", problem=str(error), servers=len(error.refused))
            self._went_live(without_servers(rendering, error.refused), generation)
            return Reload((ReloadReason.NOT_LIVE,), (str(error), *plan.details))
        except NotLive as error:
            self._suspect, self._trusted = str(error), False
            self._silence.note(error, self._worker_pid)
            log.warning("live_change.failed", problem=str(error), commands=len(plan.commands))
            return Reload((ReloadReason.NOT_LIVE,), (self._suspect, *plan.details))
        return Applied(self._went_live(rendering, generation), plan, verified=True)

    def _went_live(self, rendering: Rendering, generation: Generation) -> Generation:
        """Take it that the process is level with ``rendering``, and let the file follow."""
        last = self.last_good()
        if self._written is None and last is not None:
            self._written = last.rendering
        if last is not None and (self._changed is None or self._changed.pid != self._worker_pid):
            self._changed = ChangedWorker(self._worker_pid, last.rendering.digest)
        if self._changed is not None:
            generation = replace(generation, loaded=self._changed.digest, worker=self._changed.pid)
        self._last_good, self._served = Stored(generation, rendering), True
        self._file.follow(self._last_good)
        return generation

    def _follow(self, stored: Stored) -> None:
        """Bring the file level; in the thread of the file."""
        generation = replace(stored.generation, digest=stored.rendering.digest)
        self._transaction.follow(stored.rendering, generation)
        self._written = stored.rendering
        self._unfinished.end(generation.number)

    def _reload(self, rendering: Rendering, generation: Generation | None) -> bool:
        self._met = False  # the next worker is ours
        try:
            with self._file.lock:
                self._take_lock()
                verified = self._transaction.reload(rendering, generation, self._known(), self._progressed)
                self._file.level()
        except (RejectedInput, ApplyError) as error:
            self._trusted = False
            log.debug("candidate.kept", path=self.store.reject(rendering, f"{error.step}: {error}"), step=error.step)
            self._turned_away = isinstance(error, RejectedInput) and error.step != Step.BINDS
            if self._file.behind and (last := self.last_good()):
                self._file.follow(last)
            raise
        self._written, self._changed, self._served = None, None, True
        self.old_workers += 1
        self._suspect, self._trusted = "", False
        self._refused.clear()
        self._unfinished.forget()
        self._runtime.forget()
        self._bring_overrides_back(rendering)
        return verified

    def _bring_overrides_back(self, rendering: Rendering) -> None:
        """Set the states that operators set before: a new worker begins with those of its text."""
        if not self._overrides.refresh():
            return
        try:
            self._connect(rendering.text)
            if self._runtime.abilities.runtime:
                self._drift.bring_back(self._runtime, self._comparison.index(rendering))
        except NotLive as error:
            log.warning("overrides.not_brought_back", problem=str(error))

    def _take_lock(self) -> None:
        try:
            self._lock.acquire()
        except TransientError as error:
            raise ApplyError(Step.INSTALL, *error.problems) from error

    def restore_last_good(self, now: float) -> Outcome | None:
        """Serve the last good generation where no rendering can be had; None where there is none yet.

        Where another one than the newest has to be loaded at the start, it is the newest that ran well. It keeps its
        number, and its time: ``now`` is not needed. What a former pyconfd was changing is newer than all of these
        and goes on, unless what was to replace it was turned away.
        """
        del now
        if (last := self.last_good()) is None:
            return None
        self._trusted = False
        plan = self.plan(last.rendering)
        if is_cut_short(plan) and not self._turned_away:
            return Unchanged(last.generation, verified=False)
        if not self._served and not isinstance(plan, Noop) and (proven := self.store.last_that_ran_well()):
            self._last_good = last = proven
            plan = self.plan(last.rendering)
        self._served = True
        if isinstance(plan, Noop):
            return Unchanged(last.generation, plan.verified)
        try:
            verified = self._reload(last.rendering, None)
        except RejectedInput as error:
            return Rejected(Step(error.step), error.problems)
        except ApplyError as error:
            return Failed(Step(error.step), error.problems, error.disruptive)
        return Applied(last.generation, plan, verified)
