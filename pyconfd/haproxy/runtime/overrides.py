"""States that operators set with ``pyconfd server``: ``overrides.json``, shared by the daemon and the commands."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.model.operations import AddServer, Command, ServerState, SetState
from pyconfd.system.files import as_owner_of, problem_of
from pyconfd.system.state_file import StateFile

log = structlog.get_logger(__name__)

FILE_NAME = "overrides.json"
GONE_AFTER_S = 3600.0
"""How long an override waits for its server to come back: a node that boots again must still be in maintenance."""
LOCK_WAIT_S = 2.0
_POLL_S = 0.01


class OverrideKey(NamedTuple):
    """What there is at most one override for."""

    backend: str
    server: str


@dataclass(frozen=True, slots=True)
class Override:
    """The state that an operator set for a server.

    ``since`` and ``until`` are seconds since the epoch; ``until`` 0.0: until an operator ends it. ``missing_since`` is
    when its server vanished, or 0.0.
    """

    backend: str
    server: str
    state: ServerState
    since: float
    until: float = 0.0
    missing_since: float = 0.0

    @property
    def key(self) -> OverrideKey:
        """What it is for."""
        return OverrideKey(self.backend, self.server)

    @property
    def name(self) -> str:
        """``backend/server``."""
        return f"{self.backend}/{self.server}"

    @property
    def command(self) -> Command:
        """What brings it into force."""
        return SetState(self.backend, self.server, self.state)

    def expired(self, now: float) -> bool:
        """Return whether its time is over."""
        return bool(self.until) and now >= self.until


KnownOverrides = Mapping[OverrideKey, Override]


def with_overrides(commands: Sequence[Command], known: KnownOverrides, now: float) -> tuple[Command, ...]:
    """Return the ``commands`` of an update so that they leave the overrides in force."""
    if not known:
        return tuple(commands)
    found: list[Command] = []
    for command in commands:
        override = None
        if isinstance(command, SetState | AddServer):
            override = known.get(OverrideKey(command.backend, command.server))
        if override is None or override.expired(now):
            found.append(command)
        else:
            found += [override.command] if isinstance(command, SetState) else [command, override.command]
    return tuple(found)


class OverrideStore:
    """``overrides.json`` below ``state_dir``, as it was read last; ``clock`` returns seconds since the epoch."""

    def __init__(self, state_dir: str, *, clock: Callable[[], float] = time.time) -> None:
        self._file = StateFile(
            Path(state_dir) / FILE_NAME, list[Override], effect="no server is kept drained or in maintenance"
        )
        self._lock = Path(state_dir) / f"{FILE_NAME}.lock"
        self._clock = clock
        self._known: dict[OverrideKey, Override] = {}
        self._signature: tuple[int, ...] | None = None
        self._failing = False

    @property
    def known(self) -> KnownOverrides:
        """All that are in force, or wait for their server or their end; replaced, never changed."""
        return self._known

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock()

    def refresh(self) -> KnownOverrides:
        """Read what a command wrote since the last time; costs one look at the time of the file."""
        signature = self._signature_now()
        if signature != self._signature:
            self._signature = signature
            self._known = {override.key: override for override in self._file.load() or ()}
        return self._known

    @contextmanager
    def edited(self, *, wait_s: float = LOCK_WAIT_S) -> Iterator[dict[OverrideKey, Override]]:
        """Yield what is stored, and store what became of it, under a lock.

        Raises:
            TransientError: another process holds the file for longer than ``wait_s``, or it cannot be written.
        """
        with self._locked(wait_s):
            found = dict(self.refresh())
            yield found
            if found != self._known:
                self._file.write(sorted(found.values(), key=lambda override: override.key))
                self._known, self._signature = found, self._signature_now()

    def update(self, changes: Mapping[OverrideKey, Override | None]) -> None:
        """Store what the daemon found out, None to end one; what a command wrote meanwhile counts for more."""
        if not changes:
            return
        before = self._known
        try:
            with self.edited(wait_s=0.05) as stored:
                _apply(changes, stored, before)
            self._failing = False
        except TransientError as error:
            self._known = dict(before)
            _apply(changes, self._known, before)
            if not self._failing:
                log.warning("overrides.store_failed", error=str(error))
            self._failing = True

    @contextmanager
    def _locked(self, wait_s: float) -> Iterator[None]:
        try:
            with as_owner_of(self._lock):
                self._lock.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
                descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        except OSError as error:
            raise TransientError(problem_of(str(self._lock), error)) from error
        try:
            deadline = time.monotonic() + wait_s
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() >= deadline:
                        problem = Problem(str(self._file.path), "another pyconfd is writing it", "try again")
                        raise TransientError(problem) from error
                    time.sleep(_POLL_S)
            yield
        finally:
            os.close(descriptor)

    def _signature_now(self) -> tuple[int, ...]:
        try:
            status = self._file.path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino


def _apply(
    changes: Mapping[OverrideKey, Override | None], stored: dict[OverrideKey, Override], before: KnownOverrides
) -> None:
    for key, override in changes.items():
        if stored.get(key) == before.get(key):
            stored.pop(key, None)
            if override is not None:
                stored[key] = override
