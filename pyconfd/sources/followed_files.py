"""Snapshots from files that somebody edits: what ``kubectl get`` printed, read again whenever it changes."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from pyconfd.errors import ConfigurationError, Problem
from pyconfd.model.context import Refusal
from pyconfd.model.snapshot import Snapshot
from pyconfd.model.status import SourceHealth
from pyconfd.sources.file import STDIN, read_snapshot

log = structlog.get_logger(__name__)

EVERY_S = 0.3
_SETTLING_S = 0.05
_FRESH_NS = 50_000_000
_PATIENCE_S = 10.0

_Marks = tuple[tuple[int, int, int] | None, ...]


class FollowedFiles:
    """A source for the loop. What cannot be read after an edit changes nothing, and is told by :meth:`problems`.

    Raises:
        ConfigurationError: the files cannot be read at the start.
    """

    def __init__(self, paths: tuple[str, ...], *, every_s: float = EVERY_S) -> None:
        self._paths = paths
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._problems: tuple[Problem, ...] = ()
        self._marks = self._look()
        self._seen = read_snapshot(paths)
        if any(mark is not None and time.time_ns() - mark[1] < _FRESH_NS for mark in self._marks):
            # It may be written once more within the same tick of its file system's clock: that is looked at anew.
            self._marks = ()

    def start(self, notify: Callable[[], None]) -> None:
        """Begin to look; ``notify`` is called whenever the files say something else."""
        notify()
        self._thread = threading.Thread(target=self._follow, args=(notify,), name="followed-files", daemon=True)
        self._thread.start()

    def _follow(self, notify: Callable[[], None]) -> None:
        while not self._stopping.wait(self._every_s):
            marks = self._look()
            if marks == self._marks:
                continue
            time.sleep(_SETTLING_S)
            if self._look() != marks:
                continue  # it is being written
            self._marks = marks
            try:
                seen = read_snapshot(self._paths)
            except ConfigurationError as error:
                self._problems = error.problems
                log.warning("snapshot.refused", problem=str(error))
                continue
            self._problems = ()
            if seen != self._seen:
                self._seen = seen
                notify()

    def _look(self) -> _Marks:
        return tuple(_mark(path) for path in self._paths)

    def snapshot(self) -> Snapshot:
        """Return what the files said last; the same object until they say something else."""
        return self._seen[0]

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the objects that could not be decoded."""
        return self._seen[1]

    def problems(self) -> tuple[Problem, ...]:
        """Return why the files as they are now are not used."""
        return self._problems

    def health(self) -> SourceHealth:
        """Say that all is read."""
        return SourceHealth(synced=True, last_sync_at=time.time(), note=f"reads {', '.join(self._paths)}")

    def relist(self) -> None:
        """Do nothing: the files are looked at all the time."""

    def relisted(self) -> bool:
        """Say that nothing is awaited."""
        return True

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)


def _mark(path: str) -> tuple[int, int, int] | None:
    if path == STDIN:
        return None
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
