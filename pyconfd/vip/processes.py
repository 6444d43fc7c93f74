"""Whether a process lives, by its file descriptor."""

import os
import selectors
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

LOOK_S = 0.05
"""How soon a process that is started anew is found."""
FOLLOW_S = 1.0
"""How soon a pid file that names another process is seen while the former one lives."""


class ProcessWatch:
    """The process whose number is in ``path``; ``name`` is what the kernel calls it, against a number used again."""

    def __init__(
        self, path: str, name: str, selector: selectors.BaseSelector, died: Callable[[], None] = lambda: None
    ) -> None:
        self._path, self._name, self._selector, self._died = Path(path), name, selector, died
        self._descriptor = -1
        self._pid = 0
        self._due = 0.0

    @property
    def alive(self) -> bool:
        """Return whether it lives."""
        return self._descriptor >= 0

    @property
    def pid(self) -> int:
        """Return its number; 0 for none."""
        return self._pid

    def look(self, now: float) -> None:
        """Read the pid file where it is time to."""
        if now < self._due:
            return
        self._due = now + (FOLLOW_S if self.alive else LOOK_S)
        try:
            pid = int(self._path.read_text(encoding="ascii").split()[0])
        except (OSError, ValueError, IndexError):
            return
        if pid == self._pid and self.alive:
            return
        try:
            descriptor = os.pidfd_open(pid)
        except (OSError, OverflowError):
            return
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.name() == self._name and process.status() != psutil.STATUS_ZOMBIE:
                self._forget()
                self._descriptor, self._pid = descriptor, pid
                self._selector.register(descriptor, selectors.EVENT_READ, self._ended)
                return
        os.close(descriptor)

    def _ended(self) -> None:
        self._forget()
        self._due = 0.0
        # A reload without a master process leaves a pid file with the next one's number behind: no death.
        self.look(0.0)
        if not self.alive:
            self._died()

    def _forget(self) -> None:
        if self.alive:
            self._selector.unregister(self._descriptor)
            os.close(self._descriptor)
            self._descriptor, self._pid = -1, 0

    def kill(self) -> None:
        """Kill this very process, whoever may have its number by now."""
        if self.alive:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
