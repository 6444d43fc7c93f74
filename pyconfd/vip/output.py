"""What the hook writes: log, track files, heartbeat, state; without ever waiting for a disk or a reader.

The log is not structlog's: its loggers write in the calling thread, and a journal that hangs would stop the hook.
"""

import json
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Condition, Thread
from typing import Any

from pyconfd.errors import TransientError
from pyconfd.system.state_file import StateFile

SLOW_S = 2.0
"""A job that takes so long is reported."""
LEAVE_S = 2.0
"""How long :meth:`Background.close` waits for the job under way."""
MOST_LINES = 1000
KEPT_TRANSITIONS = 200
_PRIORITIES = {"info": 6, "warning": 4, "error": 3}

Job = Callable[[], str]
"""Returns "" or why it failed."""


class Background:
    """A thread that does jobs one after the other; of several that wait under one name only the last is done."""

    def __init__(self, name: str) -> None:
        self._wake = Condition()
        self._waiting: dict[str, Job] = {}
        self._doing = ""
        self._now = self._since = 0.0
        self._errors: dict[str, str] = {}
        self._leaving = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, name: str, job: Job, now: float) -> None:
        """Queue a job; ``now`` is monotonic, in seconds."""
        with self._wake:
            self._now = now
            if not self._waiting and not self._doing:
                self._since = now
            self._waiting[name] = job
            self._wake.notify()

    def error(self, name: str, now: float) -> str:
        """Return why the job of that name failed last, or that it hangs; "" for neither."""
        with self._wake:
            self._now = now
            if name in {self._doing, *self._waiting} and now - self._since >= SLOW_S:
                return "it does not come to an end: does the disk hang?"
            return self._errors.get(name, "")

    def close(self) -> None:
        """Do the jobs that wait, unless one hangs."""
        with self._wake:
            self._leaving = True
            self._wake.notify()
        self._thread.join(LEAVE_S)

    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._waiting:
                    self._doing = ""
                self._wake.wait_for(lambda: self._waiting or self._leaving)
                if not self._waiting:
                    return
                if self._doing:  # the one before it came to its end
                    self._since = self._now
                self._doing = next(iter(self._waiting))
                job = self._waiting.pop(self._doing)
            error = job()
            with self._wake:
                self._errors[self._doing] = error


class EventLog:
    """Events on standard error, as :mod:`pyconfd.status.logging` writes them: ``format`` is "text" or "json".

    A thread writes them. While nothing reads them, those after MOST_LINES are dropped.
    """

    def __init__(self, format: str) -> None:  # noqa: A002 - the name of the setting log.format
        self._as_json = format == "json"
        self._journal = bool(os.environ.get("JOURNAL_STREAM"))
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._background = Background("log")

    def __call__(self, level: str, event: str, **values: object) -> None:
        """Log one event."""
        stamp = {} if self._journal else {"timestamp": datetime.now(UTC).isoformat(timespec="milliseconds")}
        if self._as_json:
            line = json.dumps(stamp | {"level": level, "event": event} | values, default=str, ensure_ascii=False)
        else:
            words = [*stamp.values(), level.upper().ljust(7), event]
            line = " ".join([*words, *(f"{key}={_value(value)}" for key, value in values.items())])
        if len(self._lines) >= MOST_LINES:
            self._dropped += 1
        else:
            self._lines.append(f"<{_PRIORITIES[level]}>{line}\n" if self._journal else f"{line}\n")
        self._background.put("log", self._write, time.monotonic())

    def close(self) -> None:
        """Write the events that are left, unless nothing reads them."""
        self._background.close()

    def _write(self) -> str:
        with suppress(OSError, ValueError):
            while self._lines:
                sys.stderr.write(self._lines.popleft())
                if not self._lines and self._dropped:
                    dropped, self._dropped = self._dropped, 0
                    sys.stderr.write(f"{dropped} events were dropped here: they were not read in time\n")
            sys.stderr.flush()
        return ""


def _value(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not any(char in ' "=' for char in text) else json.dumps(text)


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


def replace(path: str, content: bytes) -> str:
    """Replace a file of the runtime directory at once, world-readable; return "" or why not."""
    beside = f"{path}.new"
    try:
        with open(beside, "wb") as stream:  # noqa: PTH123 - one call beside the rename
            stream.write(content)
        os.rename(beside, path)  # noqa: PTH104 - one call, one effect
    except OSError as error:
        return error.strerror or str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Drain:
    """An order that this node must not hold the addresses of a router; ``at`` in seconds since the epoch."""

    router: int
    at: float
    reason: str = ""


@dataclass(slots=True)
class HookMemory:
    """What the hook keeps over a restart: orders, the last transitions with their causes, and its last report."""

    drained: list[Drain] = field(default_factory=list)
    transitions: list[dict[str, Any]] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)

    def drain_of(self, router: int) -> Drain | None:
        """Return the order to drain a router."""
        return next((drain for drain in self.drained if drain.router == router), None)

    def add(self, transition: dict[str, Any]) -> None:
        """Add a transition, and drop the oldest."""
        self.transitions.append(transition)
        del self.transitions[:-KEPT_TRANSITIONS]


def memory_file(state_dir: str) -> StateFile[HookMemory]:
    """Return the file of the hook's memory."""
    return StateFile(f"{state_dir}/memory.json", HookMemory)


def write_memory(file: StateFile[HookMemory], memory: HookMemory) -> str:
    """Write the memory, as a :data:`Job` does."""
    try:
        file.write(memory)
    except TransientError as error:
        return error.problems[0].message
    return ""


def tell_systemd(*lines: str) -> None:
    """Send to systemd if it started this process, without waiting for it. Source: sd_notify(3)."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if name[:1] in {"/", "@"}:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), "\0" + name[1:] if name[0] == "@" else name)
