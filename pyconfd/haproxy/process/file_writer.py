"""Write the file behind a process that was changed at run time: in a thread, and at a pace.

The first change after a quiet time is written at once, those that come soon after it together. The newest rendering
wins: an older one is neither checked nor written. A reload takes :attr:`FileWriter.lock` first, so that none happens
during a write, and installs what is newer still. A stop writes what is pending without a pause.
"""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import structlog

from pyconfd.errors import Problem, PyconfdError, RejectedInput
from pyconfd.model.outcome import Stored

log = structlog.get_logger(__name__)

SHARE = 0.05
"""The part of the time in which a configuration is checked and written, at most, while it keeps changing.

Check and write cost time in proportion to the whole configuration, and a part of it is taken from the interpreter's
lock: with 5,000 services a second or more, against 3 ms for a change.
"""
LONGEST_PAUSE_S = 30.0
"""How long the next write is put off, however long the last one took: an older file is what a crash loads."""

Write = Callable[[Stored], None]
"""Checks and installs a rendering and records its generation. Raises any of the error tree."""


class FileWriter:
    """The thread that writes; it calls ``write``."""

    def __init__(self, write: Write) -> None:
        self.lock = threading.Lock()
        self._write = write
        self._state = threading.Lock()
        self._pending: Stored | None = None
        self._failed: tuple[Stored, PyconfdError] | None = None
        self._work: Future[None] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._stopping = threading.Event()

    @property
    def pending(self) -> bool:
        """Whether the file is behind the process."""
        return self._pending is not None

    @property
    def rejected(self) -> bool:
        """Whether the check rejects what is pending, though the process runs it."""
        failed = self._failed
        return failed is not None and failed[0] is self._pending and isinstance(failed[1], RejectedInput)

    def write_later(self, stored: Stored) -> None:
        """Write ``stored`` soon, in place of what is pending."""
        with self._state:
            self._pending = stored
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="haproxy-file")
            if self._work is None or self._work.done():
                self._work = self._thread.submit(self._run)

    def discard(self) -> None:
        """Forget what is pending: a reload has installed something newer."""
        with self._state:
            self._pending = self._failed = None

    def problems(self) -> tuple[Problem, ...]:
        """Return why the last write failed; raises what a bug in the thread raised."""
        with self._state:
            work, failed = self._work, self._failed
        if work is not None and work.done():
            work.result()
        return failed[1].problems if failed is not None else ()

    def retry(self) -> None:
        """Try again what could not be written."""
        with self._state:
            stored = self._pending if self._work is None else None
        if stored is not None:
            self.write_later(stored)

    def settle(self) -> None:
        """Wait until nothing is left to write."""
        with self._state:
            work = self._work
        if work is not None:
            work.result()

    def close(self) -> None:
        """Write what is pending, and end the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def _run(self) -> None:
        tried: Stored | None = None
        while True:
            with self._state:
                stored = self._pending
                if stored is None or stored is tried:
                    self._work = None
                    return
            began, tried = time.monotonic(), stored
            self._write_one(stored)
            self._stopping.wait(min((time.monotonic() - began) * (1 / SHARE - 1), LONGEST_PAUSE_S))

    def _write_one(self, stored: Stored) -> None:
        failed = None
        with self.lock:
            if self._pending is None:
                return  # a reload came first
            try:
                self._write(stored)
            except PyconfdError as error:
                failed = stored, error
        with self._state:
            former, self._failed = self._failed, failed
            if failed is None and self._pending is stored:
                self._pending = None
        if failed is not None and (former is None or former[1].problems != failed[1].problems):
            first = failed[1].problems[0]
            log.error("file.write_failed", problem=first.message, place=first.place)


class UnfinishedChange:
    """The file ``unfinished`` in the state directory: the worker that is being changed, 0 for none.

    A pyconfd that is killed after a command and before the file leaves a process whose state is not known:
    half of the servers drained, a map with new entries. :meth:`end` may be called from another thread than the others.
    """

    def __init__(self, state_dir: str) -> None:
        self._path = Path(state_dir) / "unfinished"
        self._left: bytes | None = None
        with suppress(OSError):
            self._left = self._path.read_bytes().strip()
        self._file: int | None = None
        self._lock = threading.Lock()
        self._generation = 0
        self._written = 0

    def was_left(self, pid: int) -> bool:
        """Return at the first call whether a former pyconfd was changing the worker ``pid`` when it ended."""
        left, self._left = self._left, None
        # Empty: the disk was too full for the number, and the change was made all the same.
        return left is not None and left in {b"", b"%d" % pid}

    def begin(self, generation: int, pid: int) -> None:
        """Record that the worker ``pid`` is being changed to ``generation``."""
        with self._lock:
            self._generation = generation
            if self._written != pid:
                # A full disk does not stop a change: that the file cannot be written is reported elsewhere.
                try:
                    self._write(pid)
                    self._written = pid
                except OSError:
                    if self._file is not None:
                        with suppress(OSError):
                            os.ftruncate(self._file, 0)

    def end(self, generation: int) -> None:
        """Record that the file says what ``generation`` is, unless another change was begun since."""
        with self._lock:
            if generation == self._generation:
                self._forget()

    def forget(self) -> None:
        """Record that the worker has what the file says and nothing else."""
        with self._lock:
            self._forget()

    def _write(self, pid: int) -> None:
        # The file stays open and has its length: this stands between an event and the command that it leads to.
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.pwrite(self._file, b"%-10d\n" % pid, 0)

    def _forget(self) -> None:
        self._written = 0
        if self._file is not None:
            with suppress(OSError):
                self._write(0)
                return
            self._close()  # even that needs a disk that is not full
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
