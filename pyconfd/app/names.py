"""DNS beside a daemon, by setting: a process of its own, so that whatever becomes of it never touches the loop."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping

import structlog

from pyconfd.app.serving import Build, Surroundings
from pyconfd.daemon.runner import Loop
from pyconfd.errors import Problem
from pyconfd.settings import Resolved, Settings
from pyconfd.settings.table import CONFIG_FLAG, TABLE

log = structlog.get_logger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
_STEADY_S = 60.0
"""Who ran for so long is started again at once when it ends."""
_STOPPING_S = 2.0
"""Its requests may hang for longer: then it is killed, for the daemon must not wait, and each change is whole or not at
all."""


def with_names(build: Build, resolved: Resolved) -> Build:
    """Return what makes a loop and, where the settings say so, the process that keeps the names beside it."""

    def both(settings: Settings, around: Surroundings) -> Loop:
        loop = build(settings, around)
        if settings.dns.in_daemon:
            process = NamesProcess(_arguments(resolved.flags))
            around.parts.callback(process.stop)
            around.watched.append(process.problems)
            process.start()
        return loop

    return both


def _arguments(flags: Mapping[str, object]) -> list[str]:
    """Return the flags of this process again: the environment and the file are read by the other one itself."""
    found = []
    for path, value in flags.items():
        flags_of = (CONFIG_FLAG,) if path == "config" else TABLE[path].flags
        flag = next(flag for flag in flags_of if flag.startswith("--"))
        texts = value if isinstance(value, list | tuple) else [value]
        found += [f"{flag}={text}" for text in texts]
    return found


class NamesProcess:
    """``pyconfd dns run`` as a child that is started again whenever it ends; it ends when this process does."""

    def __init__(self, arguments: list[str]) -> None:
        self._argv = [sys.executable, "-m", "pyconfd", "dns", "run", *arguments, "--child-of", str(os.getpid())]
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._problem: Problem | None = None
        self._thread = threading.Thread(target=self._run, name="dns", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def problems(self) -> tuple[Problem, ...]:
        """Say that it ended by itself, until it has run for a while again."""
        return (self._problem,) if self._problem else ()

    def stop(self) -> None:
        """End it, which changes no record."""
        self._stopping.set()
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()
        if self._thread.is_alive():
            self._thread.join(_STOPPING_S)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            steady = self._ran_steadily()
            if self._stopping.is_set():
                return
            pause_s = FIRST_PAUSE_S if steady else pause_s
            log.error("dns.ended", problem=str(self._problem), again_in_s=pause_s)
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _ran_steadily(self) -> bool:
        """Run it once; tell whether it lasted."""
        try:
            with self._lock:
                if self._stopping.is_set():
                    return True
                self._process = process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL)
        except OSError as error:
            self._problem = Problem("dns", f"its process cannot be started: {error.strerror}")
            return False
        steady = False
        try:
            code = process.wait(_STEADY_S)
        except subprocess.TimeoutExpired:
            steady, self._problem = True, None
            code = process.wait()
        remedy = "the log says why; records stay as they are meanwhile"
        self._problem = Problem("dns", f"the process that keeps the names ended with {code}", remedy)
        return steady
