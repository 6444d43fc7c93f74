"""From a Rendering to a verified running HAProxy, and back again if it does not get there.

The transaction: check, judge the new binds, write everything beside its place, rename certificates, maps and
configuration, reload, see the new worker run that very text, record. Whatever fails on the way, the former files are
back and the former text serves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from pyconfd.errors import ApplyError, Problem, RejectedInput, TransientError
from pyconfd.haproxy import binds, diff, host
from pyconfd.haproxy import unit as systemd
from pyconfd.haproxy.check import check
from pyconfd.haproxy.generations import GenerationStore, PreparedGeneration
from pyconfd.haproxy.layout import Layout
from pyconfd.haproxy.marker import digest_in, mark
from pyconfd.haproxy.observation import NotRunning, Observation, Running, RunningState
from pyconfd.haproxy.process import HaproxyProcess
from pyconfd.haproxy.sections import Bind
from pyconfd.haproxy.sections import binds as binds_of
from pyconfd.model.context import Census
from pyconfd.model.host import HostFacts
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Applied, Failed, Generation, Outcome, Rejected, Step, Stored, Unchanged
from pyconfd.model.plan import Noop, Plan, Reload
from pyconfd.model.rendering import OutputFile, Rendering
from pyconfd.settings import ApplySettings, HaproxySettings
from pyconfd.system.files import Installation, remove_stale
from pyconfd.system.lock import StateLock

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
    ) -> None:
        self._settings = settings
        self._unit = systemd.gather(settings.unit) if unit is None else unit
        self._layout = Layout(settings, self._unit)
        self._progress: Callable[[], None] = _nobody
        self._process = HaproxyProcess(settings, self._unit, self._progressed)
        self._store = GenerationStore(state_dir, apply.keep_generations)
        self._lock = StateLock(state_dir)
        self._state_dir = state_dir
        self._last_good: Stored | None = None

    def startup(self) -> tuple[Problem, ...]:
        """Take the lock, remove what a killed pyconfd left behind, and give what would prevent an apply.

        Raises:
            TransientError: another pyconfd uses the state directory, or it cannot be written.
        """
        self._lock.acquire()
        remove_stale([*self._layout.directories(), self._state_dir])
        self._store.clean()
        return self.problems()

    def report_progress(self, progress: Callable[[], None]) -> None:
        """Have ``progress`` called, at least about each second, while a check or a reload is waited for."""
        self._progress = progress

    def _progressed(self) -> None:
        self._progress()

    def close(self) -> None:
        """Give the lock back; HAProxy goes on."""
        self._lock.release()

    def problems(self) -> tuple[Problem, ...]:
        """Give what is wrong with the set-up itself, whatever is rendered; empty on a good machine."""
        return (
            *systemd.problems(self._settings, self._unit),
            *self._layout.problems(),
            *self._process.problems(),
        )

    def last_good(self) -> Stored | None:
        """Give the newest generation, with its rendering, or None before the first."""
        if self._last_good is None:
            self._last_good = self._store.last_good()
        return self._last_good

    def history(self) -> tuple[Generation, ...]:
        """Give the generations on disk, newest first."""
        return self._store.history()

    def observe(self, files: Sequence[OutputFile] = ()) -> Observation:
        """Look at what is installed and what runs; ``files`` are those whose content matters."""
        content = self._layout.read(self._settings.conf)
        text = None if content is None else content.decode(errors="replace")
        last = self.last_good()
        texts = [known for known in (text, last.rendering.text if last else None) if known]
        wanted = {file.path: file for file in (*files, *(last.rendering.files if last else ()))}
        return Observation(text, self._process.observe(texts), self._layout.file_digests(wanted.values()))

    def runs(self) -> bool:
        """Say whether HAProxy runs, whatever it has loaded."""
        return not isinstance(self.observe().running, NotRunning)

    def plan(self, rendering: Rendering) -> Plan:
        """Give what has to be done to make ``rendering`` serve."""
        last = self.last_good()
        found = diff.plan(rendering, last.rendering if last else None, self.observe(rendering.files))
        if last is not None and isinstance(found, Noop) and last.gives(rendering):
            # The same text, but in the blocks that the next rendering will be compared with.
            self._last_good = Stored(last.generation, rendering)
        return found

    def contested(self, rendering: Rendering) -> Mapping[Listener, str]:
        """Give the new binds of ``rendering`` that somebody else has already, and who that is."""
        wanted, held = binds_of(rendering.text), self._held_binds(self.observe(rendering.files))
        return binds.contested(wanted, held, self._host_facts(wanted, held))

    def check(self, rendering: Rendering) -> None:
        """Let HAProxy judge ``rendering``; nothing is installed.

        Raises:
            RejectedInput: it cannot be used; the problems name fragments and lines.
            TransientError: the check could not be run.
        """
        check(rendering, settings=self._settings, unit=self._unit, progress=self._progressed)

    def apply(
        self, rendering: Rendering, plan: Reload, *, curdate: str, now: float, census: Census | None = None
    ) -> Applied:
        """Make ``rendering`` serve, as one transaction; ``now`` is seconds since the epoch.

        Raises:
            RejectedInput: the check or the judgement of its binds turned it away; nothing was changed.
            ApplyError: it could not be made to serve; the former files are back, the former text serves.
        """
        generation = Generation(
            number=self._store.next_number(),
            digest=rendering.digest,
            applied_at=now,
            curdate=curdate,
            reasons=tuple(reason.value for reason in plan.reasons),
            census=census or Census(),
        )
        verified = self._keeping_rejected(rendering, generation)
        self._last_good = Stored(generation, rendering)
        return Applied(generation, plan, verified)

    def restore_last_good(self, now: float) -> Outcome | None:
        """Serve the last good generation where no rendering can be had; None where there is none yet.

        It keeps its number: ``now`` is only the time that is logged.
        """
        last = self.last_good()
        if last is None:
            return None
        plan = self.plan(last.rendering)
        if isinstance(plan, Noop):
            return Unchanged(last.generation, plan.verified)
        try:
            verified = self._keeping_rejected(last.rendering, None)
        except RejectedInput as error:
            return Rejected(Step(error.step), error.problems)
        except ApplyError as error:
            return Failed(Step(error.step), error.problems, error.disruptive)
        log.info("generation.restored", number=last.generation.number, at=now, verified=verified)
        return Applied(last.generation, plan, verified)

    def _keeping_rejected(self, rendering: Rendering, generation: Generation | None) -> bool:
        try:
            with _as_apply_error(Step.INSTALL):
                self._lock.acquire()
            return self._transact(rendering, generation)
        except (RejectedInput, ApplyError) as error:
            kept = self._store.reject(rendering, f"{error.step}: {error}")
            log.debug("candidate.kept", path=kept, step=error.step)
            raise

    def _transact(self, rendering: Rendering, generation: Generation | None) -> bool:
        with _as_apply_error(Step.CHECK):
            self.check(rendering)
        before = self.observe(rendering.files)
        self._judge_binds(rendering, before)
        declared_before = self._store.declared_paths()
        prepared: PreparedGeneration | None = None
        if generation is not None:
            with _as_apply_error(Step.RECORD):
                prepared = self._store.prepare(rendering, generation)
        changed = self._layout.changed_files(rendering)
        installation = Installation(changed)
        try:
            with _as_apply_error(Step.INSTALL):
                self._layout.make_directories(rendering)
                installation.stage()
                installation.install()
            # With the history lost, HAProxy may run this very text all the same: then it is only recorded.
            verified = self.last_good() is None and not changed and _runs(before, rendering)
            if not verified:
                verified = self._process.reload(rendering.digest, _texts(rendering, before), before.running)
            if prepared is not None:
                with _as_apply_error(Step.RECORD):
                    self._store.commit(prepared)
        except ApplyError as error:
            if prepared is not None:
                self._store.discard(prepared)
            problems = (*error.problems, *self._undo(rendering, installation, before))
            raise ApplyError(error.step, *problems, disruptive=error.disruptive) from error
        installation.finish()
        self._layout.prune(declared_before, rendering)
        return verified

    def _judge_binds(self, rendering: Rendering, before: Observation) -> None:
        wanted, held = binds_of(rendering.text), self._held_binds(before)
        problems = binds.judge(
            wanted,
            held,
            self._host_facts(wanted, held),
            place_of=rendering.place_of,
            may_bind_low_ports=self._may_bind_low_ports(before.running),
        )
        if problems:
            raise RejectedInput(*problems, step=Step.BINDS)

    def _host_facts(self, wanted: Sequence[Bind], held: Sequence[Bind]) -> HostFacts:
        addresses, ports = binds.addresses_and_ports(wanted, held)
        return host.gather(ports=ports, probe=addresses, ignore_pids=self._process.pids()) if ports else HostFacts()

    def _held_binds(self, before: Observation) -> tuple[Bind, ...]:
        """Give the binds that a reload inherits; where it is not known which text runs, those of all that may."""
        if isinstance(before.running, NotRunning):
            return ()
        last = self.last_good()
        known = {digest_in(text): text for text in [before.installed_text] if text}
        if last is not None:
            known.setdefault(last.rendering.digest, last.rendering.text)
        if isinstance(before.running, Running) and before.running.digest in known and before.running.digest:
            return binds_of(known[before.running.digest])
        for path in self._unit.configurations:
            if Path(path) != Path(self._settings.conf) and (content := self._layout.read(path)):
                known[path] = content.decode(errors="replace")
        return tuple(bind for text in known.values() for bind in binds_of(text))

    def _may_bind_low_ports(self, running: RunningState) -> bool:
        if isinstance(running, Running) and running.master_pid:
            answer = host.may_bind_low_ports(running.master_pid)
            if answer is not None:
                return answer
        return self._unit.low_ports

    def _undo(self, rendering: Rendering, installation: Installation, before: Observation) -> tuple[Problem, ...]:
        """Put the former files back, and the former text if the process lost it; give what went wrong with that."""
        running = self._process.observe(_texts(rendering, before))
        if before.installed_text is None and isinstance(before.running, NotRunning) and isinstance(running, NotRunning):
            # The very first file, and nothing serves: it stays, so that haproxy can be started with it.
            installation.finish()
            return ()
        problems = installation.roll_back()
        if before.installed_text is None or isinstance(before.running, NotRunning):
            return problems
        former = digest_in(before.installed_text)
        expected = before.running.digest if isinstance(before.running, Running) else former
        lost = isinstance(running, NotRunning) or (isinstance(running, Running) and running.digest != expected)
        if lost:
            try:
                self._process.reload(former, [before.installed_text], running)
            except ApplyError as error:
                return (*problems, *error.problems)
        return problems


def _runs(before: Observation, rendering: Rendering) -> bool:
    return isinstance(before.running, Running) and before.running.digest == rendering.digest


def _nobody() -> None:
    """Stand in before :meth:`Balancer.report_progress`."""


def _texts(rendering: Rendering, before: Observation) -> list[str]:
    """Give the texts in whose ``stats socket`` lines a worker may be found, the newest first."""
    return [mark(rendering.text, rendering.digest), *([before.installed_text] if before.installed_text else [])]


@contextmanager
def _as_apply_error(step: Step) -> Iterator[None]:
    try:
        yield
    except TransientError as error:
        raise ApplyError(step, *error.problems) from error
