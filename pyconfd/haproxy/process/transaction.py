"""From a Rendering to a verified running HAProxy, and back again if it does not get there.

The transaction: check, judge the new binds, write everything beside its place, rename certificates, maps and
configuration, reload, see the new worker run that very text, record. Whatever fails on the way, the former files are
back and the former text serves.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pyconfd.errors import ApplyError, Problem, RejectedInput, TransientError
from pyconfd.haproxy.config import binds
from pyconfd.haproxy.config.binds import BindFault
from pyconfd.haproxy.config.text import Bind, digest_in, hard_stop_after, mark
from pyconfd.haproxy.config.text import binds as binds_of
from pyconfd.haproxy.history.generations import GenerationStore
from pyconfd.haproxy.process import host
from pyconfd.haproxy.process.check import check
from pyconfd.haproxy.process.haproxy_process import HaproxyProcess
from pyconfd.haproxy.process.layout import Identity, Layout, identity_of
from pyconfd.haproxy.process.observation import ChangedWorker, NotRunning, Observation, Running, RunningState
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Generation, Step
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import HostFacts
from pyconfd.settings import HaproxySettings
from pyconfd.system.files import Installation


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the present state.

    ``applied`` is what runs, updated or loaded; ``written`` is what was installed last; ``changed`` is the
    worker that was updated at run time to ``applied``.
    """

    applied: Rendering | None = None
    written: Rendering | None = None
    changed: ChangedWorker | None = None


class Transaction:
    """Installs renderings for one HAProxy, with a reload or behind a process that was changed live."""

    def __init__(
        self, settings: HaproxySettings, unit: UnitFacts, process: HaproxyProcess, store: GenerationStore
    ) -> None:
        self._settings = settings
        self._unit = unit
        self._process = process
        self._store = store
        self.layout = Layout(settings, unit)
        self._read: tuple[Identity, str] | None = None
        self._hard_stop: tuple[str, float | None] = "", None
        self._installed: tuple[Rendering, Mapping[str, Identity]] | None = None
        """What was installed last and by what its files are known; the one that is being written is none of them."""
        self._read_whole: tuple[Rendering, Mapping[str, Identity]] | None = None
        """The same of files whose contents were read."""

    def observe(self, known: Known) -> Observation:
        """Return what is installed and what runs."""
        untouched = self._untouched()
        written = known.written or known.applied
        if untouched is not None and written is not None and not untouched.same_as(written):
            untouched = None
        self._read_whole = None
        if written is not None and untouched is None:
            # Before the contents are read: a file that is written in between has another identity.
            self._read_whole = written, self.layout.identities(written)
        text = self._installed_text()
        running = self.running(known)
        digests = self.layout.file_digests(written.files if written is not None and untouched is None else ())
        return Observation(text, running, digests, known.written, known.changed, untouched)

    def running(self, known: Known) -> RunningState:
        """Return what runs."""
        return self._process.observe(_possible_texts(self._installed_text(), known.applied))

    def hard_stop_s(self) -> float | None:
        """Return after how many seconds HAProxy ends a replaced worker, by the installed text."""
        text = self._installed_text() or ""
        if self._hard_stop[0] is not text:
            self._hard_stop = text, hard_stop_after(text)
        return self._hard_stop[1]

    def outage(self) -> Problem:
        """Return why HAProxy does not run, as far as the installed text, this host and the journal say."""
        text = self._installed_text()
        if text is None:
            message = f"there is no {self._settings.conf} to load yet"
            return Problem("haproxy", message, "see the problems below; HAProxy can be started when it is there")
        wanted = binds_of(text)
        addresses, ports = binds.addresses_and_ports(wanted, ())
        own = self._process.pids()
        facts = host.gather(ports=ports, probe=addresses, ignore_pids=own)
        if own:
            # It tries to start at this moment: a socket whose owner cannot be seen may be its own.
            facts = replace(facts, listening=tuple(each for each in facts.listening if each.owner))
        found = binds.unbindable(wanted, (), facts, may_bind_low_ports=self._unit.low_ports)
        return self._process.outage([fault.problem for fault in found])

    def confirm(self) -> None:
        """Record that the files are what they should be, as :meth:`observe` read them: the next look need not."""
        self._installed = self._read_whole or self._installed

    def _untouched(self) -> Rendering | None:
        """Return what was installed last, if its files were not written since."""
        if self._installed is None:
            return None
        rendering, identities = self._installed
        return rendering if self.layout.identities(rendering) == identities else None

    def _installed_text(self) -> str | None:
        """Read the installed configuration, but for what was written or read last and is there still."""
        try:
            identity = identity_of(self._settings.conf)
        except OSError:
            self._read = None
            return None
        if self._read is None or self._read[0] != identity:
            content = self.layout.read(self._settings.conf)
            if content is None:
                return None
            self._read = identity, content.decode(errors="replace")
        return self._read[1]

    def check(self, rendering: Rendering, progress: Callable[[], None]) -> None:
        """Validate ``rendering``; nothing is installed.

        Raises:
            RejectedInput: it cannot be used; the problems name fragments and lines.
            TransientError: the check could not be run.
        """
        check(rendering, settings=self._settings, unit=self._unit, progress=progress)

    def listener_conflicts(self, rendering: Rendering, known: Known) -> Mapping[Listener, str]:
        """Return what the new binds of ``rendering`` ask for and cannot have, and why: mostly another process."""
        found: dict[Listener, str] = {}
        for fault in self._bind_faults(rendering, self.observe(known), known):
            found = {**fault.unavailable, **found}
        return found

    def bind_problems(self, rendering: Rendering, known: Known) -> tuple[Problem, ...]:
        """Return what is wrong with the new binds of ``rendering``, by fragments and lines."""
        return self._bind_problems(rendering, self.observe(known), known)

    def reload(
        self, rendering: Rendering, generation: Generation | None, known: Known, progress: Callable[[], None]
    ) -> Running | None:
        """Apply ``rendering`` by a reload; ``generation`` None keeps the history as it is.

        Return the worker that a socket showed to run that very text, None where no socket could be asked.

        Raises:
            RejectedInput: the check or the judgement of its binds rejected it; nothing was changed.
            ApplyError: it could not be made to serve; the former files are back, the former text serves.
        """
        with _as_apply_error(Step.CHECK):
            self.check(rendering, progress)
        before = self.observe(known)
        if problems := self._bind_problems(rendering, before, known):
            raise RejectedInput(*problems, step=Step.BINDS)
        return self._apply(rendering, generation, known, before)

    def write(self, rendering: Rendering, generation: Generation) -> None:
        """Install and record what the process was changed to, without a reload.

        Raises:
            RejectedInput: the check rejected the text; the installed one stays.
            ApplyError: it could not be written; the installed one stays.
        """
        with _as_apply_error(Step.CHECK):
            check(rendering, settings=self._settings, unit=self._unit, same_shape=True)
        self._apply(rendering, generation, Known(), None)

    def _apply(
        self, rendering: Rendering, generation: Generation | None, known: Known, before: Observation | None
    ) -> Running | None:
        """Install, reload, record, or undo all of it; ``before`` None changes the files and reloads nothing."""
        declared_before = self._store.declared_paths()
        prepared = self._prepared(rendering, generation)
        # Before their contents are read: a file that is written in between has another identity.
        identities = self.layout.identities(rendering)
        changed = self.layout.changed_files(rendering)
        installation = Installation(changed)
        worker: Running | None = None
        try:
            identities |= self._install(rendering, installation)
            if before is not None:
                # With the history lost, HAProxy may run this very text all the same: then it is only recorded.
                worker = _already_runs(before, rendering) if known.applied is None and not changed else None
                worker = worker or self._process.reload(rendering.digest, _texts(rendering, before), before.running)
            if prepared is not None and generation is not None:
                with _as_apply_error(Step.RECORD):
                    self._store.commit(prepared, generation.number)
        except ApplyError as error:
            if prepared is not None:
                self._store.discard(prepared)
            undone = self._undo(rendering, installation, before, known) if before else installation.roll_back()
            raise ApplyError(error.step, *error.problems, *undone, disruptive=error.disruptive) from error
        installation.finish()
        self._note_installed(rendering, identities)
        self.layout.prune(declared_before, rendering)
        return worker

    def _prepared(self, rendering: Rendering, generation: Generation | None) -> Path | None:
        if generation is None:
            return None
        with _as_apply_error(Step.RECORD):
            return self._store.prepare(rendering, generation)

    def _install(self, rendering: Rendering, installation: Installation) -> dict[str, Identity]:
        """Install, and return the identities of what was written.

        They are of the staged files: those of the installed ones might be of what another program wrote right after.
        """
        self._installed = None
        with _as_apply_error(Step.INSTALL):
            self.layout.make_directories(rendering)
            installation.stage()
            identities = {path: identity_of(staged) for path, staged in installation.staged_paths().items()}
            installation.install()
        return identities

    def _note_installed(self, rendering: Rendering, identities: Mapping[str, Identity]) -> None:
        self._installed = rendering, identities
        if (identity := identities.get(self._settings.conf)) is not None:
            self._read = identity, mark(rendering.text, rendering.digest)

    def _bind_problems(self, rendering: Rendering, before: Observation, known: Known) -> tuple[Problem, ...]:
        problems = tuple(fault.problem for fault in self._bind_faults(rendering, before, known))
        # The former haproxy itself may have the port; to whom a socket belongs only root can see.
        former = self._process.not_restarted() if problems and isinstance(before.running, NotRunning) else None
        return (former, *problems) if former is not None else problems

    def _bind_faults(self, rendering: Rendering, before: Observation, known: Known) -> tuple[BindFault, ...]:
        wanted, held = binds_of(rendering.text), self._held_binds(before, known)
        addresses, ports = binds.addresses_and_ports(wanted, held)
        facts = HostFacts()
        if ports:
            facts = host.gather(ports=ports, probe=addresses, ignore_pids=self._process.pids())
        low = self._may_bind_low_ports(before.running)
        return binds.judge(wanted, held, facts, place_of=rendering.place_of, may_bind_low_ports=low)

    def _held_binds(self, before: Observation, known: Known) -> tuple[Bind, ...]:
        """Return the binds that a reload inherits; where it is not known which text runs, those of all that may."""
        if isinstance(before.running, NotRunning):
            return ()
        texts = {digest_in(text): text for text in [before.installed_text] if text}
        if known.applied is not None:
            # What is changed live has the binds of the text that was loaded.
            for digest in (known.applied.digest, *([known.changed.digest] if known.changed else [])):
                texts.setdefault(digest, known.applied.text)
        if isinstance(before.running, Running) and before.running.digest in texts and before.running.digest:
            return binds_of(texts[before.running.digest])
        for path in self._unit.configurations:
            if Path(path) != Path(self._settings.conf) and (content := self.layout.read(path)):
                texts[path] = content.decode(errors="replace")
        return tuple(bind for text in dict.fromkeys(texts.values()) for bind in binds_of(text))

    def _may_bind_low_ports(self, running: RunningState) -> bool:
        if isinstance(running, Running) and running.master_pid:
            answer = host.may_bind_low_ports(running.master_pid)
            if answer is not None:
                return answer
        return self._unit.low_ports

    def _undo(
        self, rendering: Rendering, installation: Installation, before: Observation, known: Known
    ) -> tuple[Problem, ...]:
        """Restore the former files, and the former text if the process lost it; return what went wrong with that.

        Files that were never loaded, left by a pyconfd that was killed, are not what a restart of HAProxy shall find:
        where the rendering serves already, its own files stay in their place.
        """
        running = self._process.observe(_texts(rendering, before))
        if _is_same_worker(running, before.running) and _is_served_beside(rendering, before, known):
            installation.finish()
            return ()
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


def _possible_texts(installed: str | None, applied: Rendering | None) -> Iterator[str]:
    """Yield the texts that may run; the second is only joined where the first did not lead to a socket."""
    if installed:
        yield installed
    if applied is not None:
        yield applied.text


def _already_runs(before: Observation, rendering: Rendering) -> Running | None:
    running = before.running
    return running if isinstance(running, Running) and running.digest == rendering.digest else None


def _is_same_worker(running: RunningState, before: RunningState) -> bool:
    """Return whether one worker runs on with its text: what else is told of it depends on which socket answered."""
    if not isinstance(running, Running) or not isinstance(before, Running):
        return False
    return (running.worker_pid, running.digest) == (before.worker_pid, before.digest)


def _is_served_beside(rendering: Rendering, before: Observation, known: Known) -> bool:
    """Return whether the process runs ``rendering`` beside a configuration on disk that it never loaded."""
    running = before.running
    if before.installed_text is None or not isinstance(running, Running) or running.digest is None:
        return False
    if digest_in(before.installed_text) == running.digest:
        return False  # or it was edited below the marker, and may have been loaded
    if (running.worker_pid, running.digest) == known.changed:
        return known.applied is not None and known.applied.same_as(rendering)
    return running.digest == rendering.digest


def _texts(rendering: Rendering, before: Observation) -> list[str]:
    """Return the texts in whose ``stats socket`` lines a worker may be found, the newest first."""
    return [mark(rendering.text, rendering.digest), *([before.installed_text] if before.installed_text else [])]


@contextmanager
def _as_apply_error(step: Step) -> Iterator[None]:
    try:
        yield
    except TransientError as error:
        raise ApplyError(step, *error.problems) from error
