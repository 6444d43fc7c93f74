"""Remembers on disk that a worker is being changed live, until the file says what was changed.

A pyconfd that is killed in between leaves a process of which nobody knows how far it got: half of the servers
drained, a map with new entries. That must not pass for something that an operator did by hand.
"""

import threading
from contextlib import suppress
from pathlib import Path


class Unfinished:
    """The file ``unfinished`` in the state directory; it holds the number of the process that is being changed.

    :meth:`end` may be called from another thread than the others.
    """

    def __init__(self, state_dir: str) -> None:
        self._path = Path(state_dir) / "unfinished"
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
            return int(self._path.read_text(encoding="ascii")) == pid
        except (OSError, ValueError):
            return False

    def begin(self, number: int, pid: int) -> None:
        """Note that generation ``number`` is being made of the worker ``pid``."""
        with self._lock:
            self._begun = number
            if self._written != pid:
                # A disk that is full does not stop what goes live: the file that cannot follow is told elsewhere.
                with suppress(OSError):
                    self._path.write_text(f"{pid}\n", encoding="ascii")
                    self._written = pid

    def end(self, number: int) -> None:
        """Note that the file says what generation ``number`` is, unless another one was begun since."""
        with self._lock:
            if number == self._begun:
                self._forget()

    def forget(self) -> None:
        """Note that a worker serves which has what the file says and nothing else."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._written = 0
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
