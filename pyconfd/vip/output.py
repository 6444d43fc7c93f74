"""What the hook writes: log, track files, heartbeat, state; without ever waiting for a disk or a reader."""

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from io import TextIOBase
from pathlib import Path
from queue import Full, Queue, SimpleQueue
from threading import Thread
from typing import Any

import structlog

from pyconfd.errors import PyconfdError, first_line
from pyconfd.settings.vip import VipSettings
from pyconfd.system.state_file import StateFile

log = structlog.get_logger(__name__)

SLOW_S = 2.0
"""A job that takes so long is reported."""
LEAVE_S = 2.0
"""How long the end of the program waits for a job, and for the reader of the log."""
MOST_LINES = 1000
REPORT_FILE = "status.json"
"""In the runtime directory."""
KEPT_TRANSITIONS = 200


class Background:
    """A thread that does one job at a time, so that a disk that hangs does not stop the hook."""

    def __init__(self, name: str) -> None:
        self.idle = True
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._since = 0.0
        self._error = ""
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(self, job: Callable[[], None], now: float) -> None:
        """Start a job, which may raise OSError; only when :attr:`idle`. ``now`` is monotonic, in seconds."""
        self.idle, self._since = False, now
        self._jobs.put(job)

    def error(self, now: float) -> str:
        """Return why the last job failed, or that it hangs; "" for neither."""
        if not self.idle and now - self._since >= SLOW_S:
            return "it does not come to an end: does the disk hang?"
        return self._error

    def close(self) -> None:
        """Wait for the job under way, unless it hangs."""
        self._jobs.put(None)
        self._thread.join(LEAVE_S)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
                self._error = ""
            except OSError as error:
                self._error = error.strerror or str(error)
            except PyconfdError as error:
                self._error = first_line(error.problems)
            self.idle = True


class LogStream(TextIOBase):
    """Standard error, written by a thread: a journal that hangs would stop a logger that writes by itself.

    While nothing reads it, lines after MOST_LINES are dropped.
    """

    def __init__(self) -> None:
        self._lines: Queue[str | None] = Queue(MOST_LINES)
        self._dropped = 0
        self._thread = Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Return the descriptor, by which the journal is recognised."""
        return sys.stderr.fileno()

    def write(self, line: str) -> int:
        """Queue a line."""
        try:
            self._lines.put_nowait(line)
        except Full:
            self._dropped += 1
        return len(line)

    def flush(self) -> None:
        """Do nothing: the thread flushes."""

    def close(self) -> None:
        """Write the lines that are left, unless nothing reads them."""
        try:
            self._lines.put(None, timeout=LEAVE_S)
        except Full:
            return
        self._thread.join(LEAVE_S)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                line += f"{dropped} events were dropped here: they were not read in time\n"
            try:
                sys.stderr.write(line)
                sys.stderr.flush()
            except (OSError, ValueError):  # nothing reads it any more
                continue


class InPlaceFile:
    """A file whose content has always the same length, written in place: that needs no space on a full disk.

    keepalived notices when it is closed after writing. After an :attr:`error` the next call writes again.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._written: bytes | None = None
        self.error = ""

    def write(self, content: bytes) -> None:
        """Write the content unless it is there already."""
        if content == self._written:
            return
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                complete = os.pwrite(descriptor, content, 0) == len(content)
            finally:
                os.close(descriptor)
        except OSError as error:
            self.error = error.strerror or str(error)
            return
        self._written = content if complete else None
        self.error = "" if complete else "was written in part only"


def boot_seconds() -> bytes:
    """Return the seconds since boot as the heartbeat holds them, always as many bytes."""
    # As in /proc/uptime, which the backstop reads: setting the clock changes neither.
    return b"%16.2f\n" % time.clock_gettime(time.CLOCK_BOOTTIME)


def replace_file(path: str, content: str) -> None:
    """Replace a file of the runtime directory at once, world-readable.

    Raises:
        OSError: it cannot be written.
    """
    beside = Path(f"{path}.new")
    beside.write_text(content, encoding="utf-8")
    beside.rename(path)


@dataclass(frozen=True, slots=True)
class Drain:
    """An order that this node must not hold the addresses of a router; ``at`` is in seconds since the epoch."""

    router: int
    at: float
    reason: str = ""


@dataclass(slots=True)
class HookMemory:
    """What the hook keeps over a restart: orders, and the last transitions with their causes."""

    drained: list[Drain] = field(default_factory=list)
    transitions: list[dict[str, Any]] = field(default_factory=list)

    def drain_of(self, router: int) -> Drain | None:
        """Return the order to drain a router."""
        return next((drain for drain in self.drained if drain.router == router), None)

    def add(self, transition: dict[str, Any]) -> None:
        """Add a transition, and drop the oldest."""
        self.transitions.append(transition)
        del self.transitions[:-KEPT_TRANSITIONS]


def memory_file(state_dir: str) -> StateFile[HookMemory]:
    """Return the file of the hook's memory."""
    return StateFile(f"{state_dir}/memory.json", HookMemory, effect="orders to drain are forgotten")


def written_report(vip: VipSettings) -> dict[str, Any]:
    """Return the report that the hook writes every few seconds for every user; nothing if it left none."""
    with suppress(OSError, ValueError):
        report: dict[str, Any] = json.loads(Path(vip.runtime_dir, REPORT_FILE).read_bytes())
        return report
    return {}


def last_report(vip: VipSettings) -> dict[str, Any]:
    """Return the last report of a hook that does not run, with the transitions; nothing if it left none."""
    report = written_report(vip)
    memory = memory_file(vip.state_dir).load() or HookMemory()
    return report | {"transitions": memory.transitions} if report else {}
