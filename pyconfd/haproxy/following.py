"""Writes the file behind a process that was changed while it runs, in a thread of its own and at a pace.

The first change after a quiet time is written at once, those that come soon after it together. The newest rendering
wins: what was overtaken is neither checked nor written. Nobody reloads in between: whoever wants to takes
:attr:`FollowingFile.lock` first, and installs what is newer still. A stop writes what is pending without a pause.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

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


class FollowingFile:
    """The file behind a process. ``write`` runs in the thread."""

    def __init__(self, write: Write) -> None:
        self.lock = threading.Lock()
        self._write = write
        self._state = threading.Lock()
        self._wanted: Stored | None = None
        self._behind: Stored | None = None
        self._problems: tuple[Problem, ...] = ()
        self._refused = False
        self._work: Future[None] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._stopping = threading.Event()

    def follow(self, stored: Stored) -> None:
        """Have ``stored`` written."""
        with self._state:
            self._wanted = self._behind = stored
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="haproxy-file")
            if self._work is None or self._work.done():
                self._work = self._thread.submit(self._run)

    def level(self) -> None:
        """Forget what was to be written: a reload has installed something newer."""
        with self._state:
            self._wanted = self._behind = None
            self._problems, self._refused = (), False

    @property
    def behind(self) -> bool:
        """Whether the process is ahead of the file."""
        return self._behind is not None

    @property
    def refused(self) -> bool:
        """Whether the process was changed to what cannot be written, since its check refuses it."""
        return self._refused

    def problems(self) -> tuple[Problem, ...]:
        """Return why the file cannot follow; raises what a bug in the thread raised."""
        with self._state:
            work, problems = self._work, self._problems
        if work is not None and work.done():
            work.result()
        return problems

    def retry(self) -> None:
        """Try again what could not be written."""
        with self._state:
            stored = self._behind if self._work is None else None
        if stored is not None:
            self.follow(stored)

    def settle(self) -> None:
        """Wait until nothing is left to write."""
        with self._state:
            work = self._work
        if work is not None:
            work.result()

    def close(self) -> None:
        """Let what is being written be finished, and end the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def _run(self) -> None:
        while True:
            with self._state:
                stored, self._wanted = self._wanted, None
                if stored is None:
                    self._work = None
                    return
            began = time.monotonic()
            self._follow(stored)
            self._stopping.wait(min((time.monotonic() - began) * (1 / SHARE - 1), LONGEST_PAUSE_S))

    def _follow(self, stored: Stored) -> None:
        problems: tuple[Problem, ...] = ()
        refused = False
        with self.lock:
            with self._state:
                if self._behind is None:
                    return
            try:
                self._write(stored)
            except PyconfdError as error:
                problems = error.problems
                refused = isinstance(error, RejectedInput)
        with self._state:
            former, self._problems = self._problems, problems
            if self._behind is stored:
                self._refused = refused
            if not problems and self._behind is stored:
                self._behind = None
        if problems and problems != former:
            log.error("file.behind", problem=problems[0].message, place=problems[0].place)
