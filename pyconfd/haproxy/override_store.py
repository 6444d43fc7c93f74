"""What operators set by hand, on disk: ``overrides.json`` in the state directory, shared by daemon and commands."""

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.haproxy.overrides import Override, OverrideKey
from pyconfd.system.files import as_owner_of, problem_of, replace_shared

log = structlog.get_logger(__name__)

FILE_NAME = "overrides.json"
FORMAT = 1
LOCK_WAIT_S = 2.0
_POLL_S = 0.01
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _Document(msgspec.Struct):
    format: int
    overrides: list[Override]


def worker_of(pid: int) -> str:
    """Name a worker so that the same number after a boot is another one; "" for none."""
    if not pid:
        return ""
    boot = ""
    with suppress(OSError):
        boot = _BOOT_ID.read_text(encoding="ascii").strip()[:8]
    return f"{pid}@{boot}"


class OverrideStore:
    """``overrides.json`` below ``state_dir``: replaced atomically, mode 0640, of the directory's owner."""

    def __init__(self, state_dir: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._path = Path(state_dir) / FILE_NAME
        self._lock = Path(state_dir) / f"{FILE_NAME}.lock"
        self._sleep = sleep
        self._signature: tuple[int, ...] | None = None
        self._damaged = False

    def changed(self) -> bool:
        """Return whether somebody wrote the file since it was last read or written here."""
        return self._signature is None or self._signature_now() != self._signature

    def read(self) -> dict[OverrideKey, Override]:
        """Return what is stored; a file that is damaged, or of another format, counts as empty, which is logged once.

        Raises:
            TransientError: it is there and cannot be read.
        """
        self._signature = self._signature_now()
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            problem = Problem(str(self._path), f"cannot be read: {error.strerror}", "run it as root or as pyconfd")
            raise TransientError(problem) from error
        try:
            document = _decoded(content)
        except (msgspec.MsgspecError, ValueError) as error:
            if not self._damaged:
                log.warning("overrides.unreadable", path=str(self._path), error=str(error))
            self._damaged = True
            return {}
        return {override.key: override for override in document.overrides}

    @contextmanager
    def edited(self, *, wait_s: float = LOCK_WAIT_S) -> Iterator[dict[OverrideKey, Override]]:
        """Lend what is stored, and store what became of it; nobody else writes meanwhile.

        Raises:
            TransientError: somebody else holds the file for longer than ``wait_s``, or it cannot be written.
        """
        with self._locked(wait_s):
            found = self.read()
            before = dict(found)
            yield found
            if found != before:
                self._write(found.values())

    @contextmanager
    def _locked(self, wait_s: float) -> Iterator[None]:
        try:
            with as_owner_of(self._lock):
                self._lock.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
                descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        except OSError as error:
            raise TransientError(problem_of(str(self._lock), error)) from error
        try:
            for _ in range(max(1, round(wait_s / _POLL_S))):
                if _try_lock(descriptor):
                    break
                self._sleep(_POLL_S)
            else:
                raise TransientError(Problem(str(self._path), "another pyconfd is writing it", "try again"))
            yield
        finally:
            os.close(descriptor)

    def _write(self, overrides: Iterable[Override]) -> None:
        ordered = sorted(overrides, key=lambda override: override.key)
        content = msgspec.json.format(msgspec.json.encode(_Document(FORMAT, ordered)), indent=2) + b"\n"
        if self._damaged:
            # For the version that knows it, or for a person.
            with suppress(OSError), as_owner_of(self._path):
                self._path.rename(self._path.with_name(f"{FILE_NAME}.unreadable"))
            self._damaged = False
        replace_shared(str(self._path), content)
        self._signature = self._signature_now()

    def _signature_now(self) -> tuple[int, ...]:
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino


def _decoded(content: bytes) -> _Document:
    document = msgspec.json.decode(content, type=_Document)
    if document.format != FORMAT:
        raise ValueError(f"format {document.format} is not {FORMAT}")
    return document


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
