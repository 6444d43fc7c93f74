"""The state directory: JSON values that survive restarts, and the lock that one pyconfd holds on it."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.system.files import as_owner_of, problem_of, replace_shared, unlink_shared

log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class StateFile(Generic[_T]):
    """A value of ``kind`` (a type that msgspec knows) in the file ``path``.

    ``effect`` is logged: what a lost value means. ``forbidden`` is the remedy where this user may not write.
    ``enc_hook`` and ``dec_hook`` are msgspec's, for types that JSON lacks.
    """

    def __init__(
        self,
        path: str | Path,
        kind: type[_T],
        *,
        effect: str = "",
        mode: int = 0o640,
        forbidden: str = "",
        enc_hook: Callable[[Any], Any] | None = None,
        dec_hook: Callable[[type, Any], Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self._kind = kind
        self._effect = effect
        self._mode = mode
        self._forbidden = forbidden
        self._enc_hook, self._dec_hook = enc_hook, dec_hook
        self.problem: Problem | None = None
        """Why the last :meth:`save` failed; None where it did not."""

    def read(self) -> _T | None:
        """Return the value, None where there is no file.

        Raises:
            TransientError: the file cannot be read, or is damaged.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TransientError(Problem(str(self.path), f"cannot be read: {error.strerror}")) from error
        try:
            return msgspec.json.decode(content, type=self._kind, dec_hook=self._dec_hook)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TransientError(Problem(str(self.path), f"is damaged: {error}")) from error

    def load(self) -> _T | None:
        """Return the value; a file that cannot be used is logged and counts as none."""
        try:
            return self.read()
        except TransientError as error:
            problem = error.problems[0]
            log.warning("state_file.unreadable", path=problem.place, problem=problem.message, effect=self._effect)
            return None

    def write(self, value: _T) -> None:
        """Replace the value.

        Raises:
            TransientError: it cannot be written; the former value is still there.
        """
        content = msgspec.json.encode(value, enc_hook=self._enc_hook) + b"\n"
        replace_shared(str(self.path), content, forbidden=self._forbidden, mode=self._mode)

    def save(self, value: _T) -> bool:
        """Replace the value and return whether that worked; a failure is logged once until the next success."""
        try:
            self.write(value)
        except TransientError as error:
            first = error.problems[0]
            if self.problem is None:
                log.warning("state_file.unwritable", path=first.place, problem=first.message, effect=self._effect)
            remedy = "; ".join(filter(None, (first.remedy, self._effect)))
            self.problem = Problem(first.place, first.message, remedy)
            return False
        self.problem = None
        return True

    def remove(self) -> None:
        """Remove the file, if it is there.

        Raises:
            TransientError: it cannot be removed.
        """
        try:
            unlink_shared(self.path)
        except OSError as error:
            problem = problem_of(str(self.path), error)
            raise TransientError(Problem(problem.place, problem.message, self._forbidden or problem.remedy)) from error


class StateLock:
    """An advisory lock that the kernel releases when its holder ends, however it ends.

    ``name`` is that of its file; ``does`` says what its holder does, ``unit`` which systemd unit that usually is.
    """

    def __init__(
        self, state_dir: str, name: str = "lock", does: str = "writes the configuration", unit: str = "pyconfd"
    ) -> None:
        self._path = Path(state_dir) / name
        self._does, self._unit = does, unit
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Acquire the lock, unless this object holds it already; again where its file was removed.

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
                f"stop it (`systemctl stop {self._unit}`, or `kill {holder}`), or set another state_dir for this one",
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
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
