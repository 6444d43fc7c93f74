"""Remembers on disk that a worker is being changed live, until the file says what was changed.

A pyconfd that is killed in between leaves a process of which nobody knows how far it got: half of the servers
drained, a map with new entries. That must not pass for something that an operator did by hand.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

from pyconfd.errors import Problem
from pyconfd.model.plan import Plan, Reload

CUT_SHORT = "a former pyconfd ended in the middle of a change"
_GOES_ON = Problem(
    "haproxy",
    f"{CUT_SHORT}, and the file does not say what it changed: what runs goes on until something newer is loaded",
    "see in the other problems why nothing newer could be; until then a restart of haproxy brings up the older file",
)


def is_cut_short(plan: Plan) -> bool:
    """Return whether nothing but :data:`CUT_SHORT` is the matter."""
    return isinstance(plan, Reload) and plan.details == (CUT_SHORT,)


def problems_of(suspicion: str) -> tuple[Problem, ...]:
    """Return what it means for the operator that a process is suspect for this reason."""
    return (_GOES_ON,) if suspicion == CUT_SHORT else ()


class Unfinished:
    """The file ``unfinished`` in the state directory; it holds the number of the process that is being changed, or 0.

    :meth:`end` may be called from another thread than the others.
    """

    def __init__(self, state_dir: str) -> None:
        self._path = Path(state_dir) / "unfinished"
        self._file: int | None = None
        self._lock = threading.Lock()
        self._begun = 0
        self._written = 0
        self._looked = False

    def was_left(self, pid: int) -> bool:
        """Say, at the first call, whether a former pyconfd was changing the worker ``pid`` when it ended."""
        if self._looked:
            return False
        self._looked = True
        try:
            text = self._path.read_text(encoding="ascii")
            # Zero: nothing. Empty: the disk was too full for the number, and the change went live all the same.
            return not text or int(text) == pid
        except (OSError, ValueError):
            return False

    def begin(self, number: int, pid: int) -> None:
        """Note that generation ``number`` is being made of the worker ``pid``."""
        with self._lock:
            self._begun = number
            if self._written != pid:
                # A disk that is full does not stop what goes live: the file that cannot follow is told elsewhere.
                try:
                    self._write(pid)
                    self._written = pid
                except OSError:
                    if self._file is not None:
                        with suppress(OSError):
                            os.ftruncate(self._file, 0)

    def end(self, number: int) -> None:
        """Note that the file says what generation ``number`` is, unless another one was begun since."""
        with self._lock:
            if number == self._begun:
                self._forget()

    def forget(self) -> None:
        """Note that a worker serves which has what the file says and nothing else."""
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
        """Let go of the file."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
