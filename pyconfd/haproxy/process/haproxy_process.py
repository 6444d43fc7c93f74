"""The HAProxy process: what it runs, how it is reloaded, whether that worked, and whether it answers."""

import os
import signal
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import assert_never

import psutil
import structlog

from pyconfd.errors import ApplyError, Problem, TransientError
from pyconfd.haproxy.config.text import stats_sockets
from pyconfd.haproxy.process import host, outage
from pyconfd.haproxy.process.observation import NotRunning, Running, RunningState, UnknownProcess
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.haproxy.runtime.sockets import (
    NoAnswer,
    ask,
    end_worker,
    is_accepting,
    processes,
    running_by_master,
    running_by_stats_socket,
)
from pyconfd.model.outcome import Step
from pyconfd.settings import HaproxySettings, ReloadMethod
from pyconfd.system.command import run

log = structlog.get_logger(__name__)

POLL_S = 0.02
"""Between two looks at a process that is loading; a reload takes 0.05 s and more."""
SETTLE_S = 1.0
"""How long to look on when a reload command has failed, or when no socket can tell what became of it."""
_LONGEST_COMMAND = 200
"""Characters of a reload command in a message."""
_PIDS_LIMIT_S = 1.0
"""How long a master is waited for that may know more processes than the command lines tell."""
_JOURNAL_LIMIT_S = 2.0
REOPEN_S = 5.0
"""How long a master may keep its socket closed after a reload that failed. Measured on 2.6: 2.1 s."""


class HaproxyProcess:
    """Talks to the HAProxy that loads ``settings.conf``, by the means that the settings and its unit offer.

    ``progress`` is called again and again while a reload is waited for.
    """

    def __init__(self, settings: HaproxySettings, unit: UnitFacts, progress: Callable[[], None] = lambda: None) -> None:
        self._progress = progress
        self._settings = settings
        self._unit = unit
        defaults = HaproxySettings()
        self.master_socket = settings.master_socket
        if settings.master_socket == defaults.master_socket and unit.master_socket:
            self.master_socket = unit.master_socket
        self._stats_socket = ""
        self._newest_worker = self._silent_worker = 0
        self.pid_file = settings.pid_file
        if settings.pid_file == defaults.pid_file and unit.pid_file:
            self.pid_file = unit.pid_file

    def observe(self, texts: Iterable[str]) -> RunningState:
        """Return what runs; the ``stats socket`` lines of ``texts`` are tried where the master cannot be asked."""
        refusals: list[NoAnswer] = []
        found = self._ask_sockets(texts, refusals)
        if found is not None:
            self._newest_worker = found.worker_pid
            self.answered(found.worker_pid)
            return found
        if any(refusal.silent for refusal in refusals):
            with suppress(NoAnswer):
                self._newest_worker = processes(self.master_socket).worker_pid or self._newest_worker
            self._silent_worker = self._newest_worker
        forbidden = [refusal for refusal in refusals if refusal.forbidden]
        if (pids := self.pids()) or forbidden:
            why = str((forbidden or refusals)[0]) if refusals else ""
            return UnknownProcess(why, pids, may_ask=not forbidden)
        return NotRunning()

    def answered(self, worker: int) -> None:
        """Record that ``worker`` has answered a question."""
        if worker == self._silent_worker:
            self._silent_worker = 0

    def failed_to_answer(self, worker: int, error: Exception) -> None:
        """Record that a question to ``worker`` ended with ``error``, which may say that it is silent."""
        cause = error.__cause__
        if isinstance(cause, NoAnswer) and cause.silent:
            self._silent_worker = worker

    def silent_problems(self) -> tuple[Problem, ...]:
        """Return the worker that did not answer last, until it answers or is gone.

        A reload does not end it: the worker hears of that as little as of anything else, and keeps its share of new
        connections.
        """
        if self._silent_worker and self._silent_worker not in self.pids():
            self._silent_worker = 0
        if not self._silent_worker:
            return ()
        message = f"its worker {self._silent_worker} does not answer: connections that it has, or gets, hang"
        remedy = (
            f"pyconfd reloads; if this stays: kill -9 {self._silent_worker}, which ends the connections of that worker "
            "(systemd restarts haproxy where no other worker runs)"
        )
        return (Problem("haproxy", message, remedy),)

    def pids(self) -> frozenset[int]:
        """Return the processes of this HAProxy, by their command line, the master socket and the pid file."""
        found = host.haproxy_pids(self._settings.conf, self._settings.binary)
        with suppress(NoAnswer):
            found |= processes(self.master_socket, timeout_s=_PIDS_LIMIT_S).pids
        master = self._master_by_pid_file()
        return found | {master.pid} if master is not None else found

    def problems(self) -> tuple[Problem, ...]:
        """Return why the master socket cannot be used, if it is there."""
        with suppress(OSError):
            if Path(self.master_socket).exists() and not os.access(self.master_socket, os.W_OK):
                user = psutil.Process().username()
                message = f"{user} may not use {self.master_socket}: only root may unless haproxy opens it"
                return (Problem("haproxy.master_socket", message, self._socket_remedy()),)
        return ()

    def not_restarted(self) -> Problem | None:
        """Return a problem if haproxy was not started since its unit has a master socket, as after an installation."""
        with suppress(OSError):
            if self._unit.master_socket and not Path(self._unit.master_socket).exists():
                message = f"has not been started since its settings are pyconfd's: no {self._unit.master_socket} yet"
                remedy = f"as root: systemctl restart {self._unit.name}; it ends connections, this once"
                return Problem(self._unit.name, message, remedy)
        return None

    def _socket_remedy(self) -> str:
        return f"start haproxy with -S {self.master_socket},mode,660,group,GROUP, where GROUP is one of pyconfd's"

    def reload(self, digest: str | None, texts: Sequence[str], before: RunningState) -> Running | None:
        """Reload what is installed, and return its newest worker once that shows ``digest``.

        ``digest`` None means a text without pyconfd's marker. None where no socket could be asked and nothing spoke
        against it.

        Raises:
            ApplyError: the reload failed, it did not load the text, or it is not running and did not start.
        """
        method = self.method(before)
        deadline = time.monotonic() + self._settings.reload_timeout_s
        log.debug("reload.requested", method=method.value)
        complaint = self._trigger(method, before)
        if complaint is not None:
            deadline = min(deadline, time.monotonic() + SETTLE_S)
        return self._verify(digest, texts, before, deadline, complaint)

    def method(self, running: RunningState) -> ReloadMethod:
        """Choose how to reload: the method of the settings, or for AUTO the first that can be used.

        Raises:
            ApplyError: AUTO found none.
        """
        chosen = self._settings.reload_method
        if chosen is not ReloadMethod.AUTO:
            return chosen
        if self._settings.reload_cmd:
            return ReloadMethod.COMMAND
        if self._master_answers(running):
            return ReloadMethod.MASTER
        if self._unit.found:
            return ReloadMethod.SYSTEMD
        if self._master_by_pid_file() is not None:
            return ReloadMethod.SIGNAL
        if isinstance(running, NotRunning):
            return ReloadMethod.MASTER
        raise ApplyError(
            Step.RELOAD,
            Problem(
                "haproxy.reload_method",
                f"haproxy runs, but there is no way to reload it: {self.master_socket} does not answer, there is no "
                f"unit {self._settings.unit or '(none set)'}, and {self.pid_file} names no master process",
                f"start haproxy with -W -S {self.master_socket},mode,660,group,GROUP, or set haproxy.reload_cmd",
            ),
        )

    def _master_answers(self, running: RunningState) -> bool:
        """Ask for a while where the socket is there but closed: a master reopens it late after a failed reload."""
        deadline = time.monotonic() + (0 if isinstance(running, NotRunning) else REOPEN_S)
        while True:
            try:
                processes(self.master_socket)
            except NoAnswer as error:
                closed = error.refused and Path(self.master_socket).exists()
                if not closed or time.monotonic() >= deadline or not self.pids():
                    return False
                self._progress()
                time.sleep(POLL_S)
            else:
                return True

    def _trigger(self, method: ReloadMethod, before: RunningState) -> Problem | None:
        """Send the reload; what went wrong is judged together with what the process shows afterwards."""
        match method:
            case ReloadMethod.COMMAND:
                return self._run(self._settings.reload_cmd, "haproxy.reload_cmd")
            case ReloadMethod.SYSTEMD:
                complaint = self._run(("systemctl", "reload-or-restart", self._settings.unit), "haproxy.unit")
                denied = complaint is not None and any(word in complaint.message for word in _DENIED)
                if not denied:
                    return complaint
                return self.not_restarted() or (self._not_running() if isinstance(before, NotRunning) else complaint)
            case ReloadMethod.MASTER | ReloadMethod.AUTO:
                return None if isinstance(before, NotRunning) else self._ask_master()
            case ReloadMethod.SIGNAL:
                return None if isinstance(before, NotRunning) else self._send_signal()
            case _:
                assert_never(method)

    def _run(self, argv: Sequence[str], place: str) -> Problem | None:
        # A command may be a whole script; what became of it stands behind it in each message.
        written = textwrap.shorten(" ".join(argv), _LONGEST_COMMAND, placeholder=" ...")
        if not argv:
            return Problem(place, "is empty", "set the command that reloads haproxy")
        try:
            result = run(argv, timeout_s=self._settings.reload_timeout_s, progress=self._progress)
        except TransientError as error:
            return Problem(place, f"`{written}`: {error.problems[0].message}", error.problems[0].remedy)
        if result.timed_out:
            message = f"`{written}` did not end within {self._settings.reload_timeout_s:g} s and was killed"
            return Problem(place, message, "run it by hand to see what it waits for, or raise reload_timeout_s")
        if not result.ok:
            message = f"`{written}` ended with {result.exit_code}: {result.summary or 'it printed nothing'}"
            return Problem(place, message, "run it by hand as the user that pyconfd runs as; most need root")
        return None

    def _ask_master(self) -> Problem | None:
        remedy = self._socket_remedy()
        if not self._master_answers(UnknownProcess()):
            return Problem("haproxy.master_socket", f"{self.master_socket} does not answer", remedy)
        try:
            answer = ask(self.master_socket, "reload", timeout_s=self._settings.reload_timeout_s)
        except NoAnswer as error:
            # HAProxy 2.6 closes the connection in the middle of the reload: what the process shows decides.
            return None if not error.forbidden else Problem("haproxy.master_socket", str(error), remedy)
        if answer.startswith("Success=0"):
            lines = [line.strip() for line in answer.splitlines()[2:] if line.strip()]
            return Problem("haproxy", f"the new worker did not start: {' | '.join(lines[-4:])}", _START_REMEDY)
        if "permission" in answer.lower():
            return Problem("haproxy.master_socket", answer.strip(), remedy)
        return None

    def _send_signal(self) -> Problem | None:
        master = self._master_by_pid_file()
        if master is None:
            message = f"{self.pid_file} names no running haproxy master process (started with -W or -Ws)"
            return Problem("haproxy.pid_file", message, "correct haproxy.pid_file; haproxy writes it with -p")
        try:
            master.send_signal(signal.SIGUSR2)
        except psutil.AccessDenied:
            message = f"pyconfd may not send a signal to haproxy (pid {master.pid})"
            return Problem("haproxy.pid_file", message, "use the master socket, which can be opened to a group")
        except psutil.NoSuchProcess:
            return Problem("haproxy.pid_file", "haproxy ended just now")
        return None

    @property
    def master_by_pid_file(self) -> int:
        """The master that the pid file names, 0 for none."""
        master = self._master_by_pid_file()
        return master.pid if master is not None else 0

    def _master_by_pid_file(self) -> psutil.Process | None:
        """Return the master, only if it surely is one: SIGUSR2 ends any other process."""
        with suppress(OSError, ValueError, psutil.Error):
            process = psutil.Process(int(Path(self.pid_file).read_text().split()[0]))
            named = process.name() in {Path(self._settings.binary).name, "haproxy"}
            if named and {"-W", "-Ws"} & set(process.cmdline()):
                return process
        return None

    def _ask_sockets(self, texts: Iterable[str], refusals: list[NoAnswer] | None = None) -> Running | None:
        try:
            return running_by_master(self.master_socket)
        except NoAnswer as error:
            if refusals is not None:
                refusals.append(error)
        # What answered last comes first: to find the others the whole text is searched.
        found = (path for text in texts for path in stats_sockets(text))
        tried: set[str] = set()
        for path in chain(filter(None, [self._stats_socket]), found):
            if path in tried:
                continue
            tried.add(path)
            try:
                running = running_by_stats_socket(path)
            except NoAnswer as error:
                if refusals is not None:
                    refusals.append(error)
            else:
                self._stats_socket = path
                return running
        return None

    def _verify(
        self,
        digest: str | None,
        texts: Sequence[str],
        before: RunningState,
        deadline: float,
        complaint: Problem | None,
    ) -> Running | None:
        verified, seen = self._watch(digest, texts, before, deadline)
        if verified:
            self._wait_for_former(before)
            return seen
        if complaint is not None:
            failed = seen is not None and _has_failed(seen, before)
            raise ApplyError(Step.RELOAD, complaint, disruptive=failed)
        if seen is not None:
            raise ApplyError(Step.VERIFY, self._wrong_text(seen, before), disruptive=_has_failed(seen, before))
        if not self.pids():
            raise ApplyError(Step.VERIFY, self._not_running())
        if isinstance(before, Running):
            message = f"haproxy did not answer within {self._settings.reload_timeout_s:g} s after the reload"
            raise ApplyError(Step.VERIFY, Problem("haproxy", message, _START_REMEDY))
        return None

    def _wait_for_former(self, before: RunningState) -> None:
        """Wait until the former worker has stopped accepting: the new one answers a few milliseconds earlier.

        Until then either may answer at a stats socket, and that is all there is: the master reopens its own late.
        """
        until = time.monotonic() + SETTLE_S
        while isinstance(before, Running) and before.master_pid and time.monotonic() < until:
            with suppress(NoAnswer):
                if not is_accepting(self.master_socket, before.worker_pid):
                    return
            time.sleep(POLL_S / 4)

    def _watch(
        self, digest: str | None, texts: Sequence[str], before: RunningState, deadline: float
    ) -> tuple[bool, Running | None]:
        """Wait until the newest worker shows ``digest``, the reload failed, or time is up; return what runs."""
        seen: Running | None = None
        blind_until = time.monotonic() + SETTLE_S
        while True:
            self._progress()
            found = self._ask_sockets(texts)
            now = time.monotonic()
            if found is not None:
                seen = found
                if found.digest == digest and _is_new(found, before):
                    return True, seen
            never_saw = seen is None and isinstance(before, UnknownProcess) and now >= blind_until
            if never_saw or now >= deadline or (seen is not None and _has_failed(seen, before)):
                return False, seen
            time.sleep(POLL_S)

    def _wrong_text(self, seen: Running, before: RunningState) -> Problem:
        if _has_failed(seen, before):
            return Problem("haproxy", "the new worker did not start; the former one goes on", _START_REMEDY)
        what = "a configuration without pyconfd's marker" if seen.digest is None else f"{seen.digest[:12]}"
        loads = ""
        with suppress(psutil.Error):
            loads = " ".join(psutil.Process(seen.master_pid or seen.worker_pid).cmdline())
        return Problem(
            "haproxy",
            f"still runs {what} {self._settings.reload_timeout_s:g} s after the reload (its command: {loads})",
            f"make it load {self._settings.conf}: CONFIG={self._settings.conf} in /etc/default/haproxy; if it does, "
            f"{_START_REMEDY}",
        )

    def _not_running(self) -> Problem:
        remedy = f"start it: `{self.start_command}`; it loads what is installed"
        return Problem("haproxy", "is not running, and did not appear", remedy)

    def end_worker(self, pid: int) -> int:
        """End an old worker; return how many connections it had. Raises: NoAnswer."""
        return end_worker(self.master_socket, pid)

    @property
    def start_command(self) -> str:
        """What an operator types to start it."""
        if self._unit.found:
            return f"systemctl start {self._settings.unit}"
        return f"{self._settings.binary} -W -S {self.master_socket} -f {self._settings.conf}"

    def outage(self, faults: Sequence[Problem]) -> Problem:
        """Return why HAProxy does not run: the ``faults`` of the binds of its text, or what its journal says."""
        return outage.cause(faults, self._journal() if not faults else "", self.start_command, self._settings.unit)

    def _journal(self) -> str:
        if not self._unit.found:
            return ""
        with suppress(TransientError):
            argv = ("journalctl", "--unit", self._settings.unit, "--lines", "50", "--output", "cat", "--no-pager", "-q")
            result = run(argv, timeout_s=_JOURNAL_LIMIT_S)
            return result.output if result.ok else ""
        return ""


_DENIED = ("Access denied", "authentication required")
"""What systemctl says to a user that is not root, without and with polkit."""
_START_REMEDY = "haproxy's own log has the reason (`journalctl -u haproxy`): often a port, an address or a limit"


def _is_new(found: Running, before: RunningState) -> bool:
    return not isinstance(before, Running) or found.worker_pid != before.worker_pid


def _has_failed(found: Running, before: RunningState) -> bool:
    """Compare the counts of the master: every reload, and those that failed since the last good one."""
    return (
        isinstance(before, Running)
        and found.master_pid == before.master_pid != 0
        and found.reloads > before.reloads
        and found.failed_reloads > 0
    )
