"""One pyconfd for each state directory."""

import fcntl
import os
from pathlib import Path

from pyconfd.errors import Problem, TransientError
from pyconfd.system.files import problem_of
from pyconfd.system.ownership import as_owner_of


class StateLock:
    """An advisory lock that the kernel gives back when its holder ends, however it ends.

    ``name`` is that of its file; ``does`` says what its holder does, ``unit`` which systemd unit that usually is.
    """

    def __init__(
        self, state_dir: str, name: str = "lock", does: str = "writes the configuration", unit: str = "pyconfd"
    ) -> None:
        self._path = Path(state_dir) / name
        self._does, self._unit = does, unit
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, unless this object holds it already; anew where somebody removed its file.

        Raises:
            TransientError: another process holds it (the message names it), or the directory cannot be written.
        """
        if self._descriptor is not None:
            if self._is_in_place(self._descriptor):
                return
            self.release()
        try:
            with as_owner_of(self._path):
                self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        except OSError as error:
            raise TransientError(problem_of(str(self._path), error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            problem = Problem(
                str(self._path.parent),
                f"another pyconfd (pid {holder}) {self._does} with this state directory",
                f"stop it (`systemctl stop {self._unit}`, or `kill {holder}`), or give this one another state_dir",
            )
            raise TransientError(problem) from error
        except OSError as error:
            os.close(descriptor)
            raise TransientError(problem_of(str(self._path), error)) from error
        self._descriptor = descriptor

    def _is_in_place(self, descriptor: int) -> bool:
        """Return whether others would meet this lock: it is on the file, and not on its name."""
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.lstat())
        except OSError:
            return False

    def release(self) -> None:
        """Give the lock back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
