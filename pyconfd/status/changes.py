"""The recent changes as lines of JSON in the runtime directory: written by the daemon, followed by a person.

A file that grows and is rotated, not a part of the status: a reader that follows it sees every change, however
many there are in a second, and the daemon writes each once.
"""

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import BinaryIO, Self, assert_never

import msgspec
import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.model.changes import Action, Change
from pyconfd.printable import clean
from pyconfd.status.redaction import redacted

log = structlog.get_logger(__name__)

FILE_NAME = "changes.jsonl"
FORMER = ".1"
MAX_BYTES = 1024 * 1024
"""At this size the file is put aside, and the one that was aside goes: both stay below 2 MiB, some 10,000 changes."""
MAX_WAITING = 10_000
MAX_TEXT = 1_000
MAX_DETAILS = 20
POLL_S = 0.1

_decoder = msgspec.json.Decoder(Change)


class ChangeLog:
    """Where the daemon writes. :meth:`record` only remembers; :meth:`flush` writes, and belongs off the hot path."""

    def __init__(self, runtime_dir: str | Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._path = Path(runtime_dir) / FILE_NAME
        self._max_bytes = max_bytes
        self._waiting: deque[Change] = deque(maxlen=MAX_WAITING)
        self._failing = False

    def record(self, change: Change) -> None:
        """Remember ``change`` for the next :meth:`flush`; of too many the oldest are forgotten."""
        self._waiting.append(change)

    def flush(self) -> bool:
        """Write what was recorded; False where that failed: it is kept for the next time and logged once."""
        waiting = list(self._waiting)
        if not waiting:
            return True
        try:
            self._append(b"".join(map(_encoded, waiting)))
        except OSError as error:
            if not self._failing:
                log.warning("changes_file.write_failed", path=str(self._path), error=error.strerror)
            self._failing = True
            return False
        for _ in waiting:
            self._waiting.popleft()
        self._failing = False
        return True

    def _append(self, lines: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with os.fdopen(os.open(self._path, flags, 0o640), "wb") as file:
            file.write(lines)
            file.flush()
            size = os.fstat(file.fileno()).st_size
        if size >= self._max_bytes:
            self._path.replace(self._path.with_name(FILE_NAME + FORMER))


def _encoded(change: Change) -> bytes:
    details = tuple(_shortened(detail) for detail in change.details[:MAX_DETAILS])
    return msgspec.json.encode(replace(change, summary=_shortened(change.summary), details=details)) + b"\n"


def _shortened(text: str) -> str:
    text = redacted(text)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


class ChangeReader:
    """Follows what a :class:`ChangeLog` writes; it may begin before the daemon, and outlives its restarts."""

    def __init__(self, runtime_dir: str | Path) -> None:
        self._path = Path(runtime_dir) / FILE_NAME
        self._file: BinaryIO | None = None
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._file, self._rest = None, b""

    def known(self) -> tuple[Change, ...]:
        """Return the changes that are in the files now, oldest first; :meth:`following` goes on after them.

        Raises:
            TransientError: a file is there and cannot be read.
        """
        self.close()
        former: list[Change] = []
        if (file := _opened(self._path.with_name(FILE_NAME + FORMER))) is not None:
            with file:
                former = list(self._decoded(file.read()))
        self._rest = b""
        return (*former, *self.newer())

    def following(self) -> Iterator[Change]:
        """Return each change that comes, for ever.

        Raises:
            TransientError: the file is there and cannot be read.
        """
        while True:
            found = self.newer()
            yield from found
            if not found:
                sleep(POLL_S)

    def newer(self) -> list[Change]:
        """Return what was written since the last call; a file that was put aside is read to its end first.

        Raises:
            TransientError: the file is there and cannot be read.
        """
        found: list[Change] = []
        if self._file is not None:
            # Asked before reading: what is written between the two is in the file that is read.
            is_current = self._is_current(self._file)
            found += self._decoded(self._file.read())
            if is_current:
                return found
            self.close()
        self._file = _opened(self._path)
        return found + list(self._decoded(self._file.read())) if self._file else found

    def _is_current(self, file: BinaryIO) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self._path))  # noqa: PTH116 - as samestat takes it
        except FileNotFoundError:
            return False

    def _decoded(self, data: bytes) -> Iterator[Change]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            # A line of another version, or one that a full disk cut off, is no reason to stop.
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                yield _decoder.decode(line)


def _opened(path: Path) -> BinaryIO | None:
    """Open a file; None where there is none."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        remedy = "use sudo, or join the group pyconfd" if isinstance(error, PermissionError) else ""
        raise TransientError(Problem(str(path), f"cannot be read: {error.strerror}", remedy)) from error


DETAILS_SHOWN = 3
CAUSES_SHOWN = 2


def line_of(change: Change) -> str:
    """Return one line: when, what changed, how and how fast, the running generation, and which object caused it."""
    return f"{time.strftime('%H:%M:%S', time.localtime(change.at))} {words_of(change)}"


def words_of(change: Change) -> str:
    """Return the same without when."""
    by = f", by {named(change.causes)}" if change.causes else ""
    return clean(f"{_sentence(change)}{by}")


def named(causes: Sequence[str]) -> str:
    """Return the first of several objects, and how many more there are."""
    more = len(causes) - CAUSES_SHOWN
    return ", ".join(causes[:CAUSES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _sentence(change: Change) -> str:  # noqa: C901, PLR0911 - one sentence for each action
    number = f"generation {change.generation}" if change.generation else "no configuration is applied yet"
    took = duration(change.duration_s)
    match change.action:
        case Action.NOOP:
            return f"nothing to do, {number}"
        case Action.LIVE:
            return f"{change.summary}, runtime update {took}, {number}"
        case Action.FILE:
            return f"only the file{_about(change)} {took}, {number}"
        case Action.RELOAD:
            return f"reload{_about(change)} {took}, {number}"
        case Action.DEFERRED:
            meanwhile = f"; {change.summary}, runtime update {took}" if change.summary else ""
            return f"reload waits for its turn{_about(change)}{meanwhile}, {number}"
        case Action.HELD:
            return f"held{_problem(change)}; {_running(change)}"
        case Action.RELEASED:
            return f"hold ended after {took}: {'; '.join(change.details)} ({change.summary}); {_running(change)}"
        case Action.ENDED:
            return f"{change.summary}; {_running(change)}"
        case Action.REJECTED:
            return f"rejected{_at_step(change)}{_problem(change)}; {_running(change)}"
        case Action.FAILED:
            return f"failed{_at_step(change)}{_problem(change)}; {_running(change)}"
    assert_never(change.action)


def _running(change: Change) -> str:
    return f"generation {change.generation} runs on" if change.generation else "no configuration is applied yet"


def duration(seconds: float) -> str:
    """Return a short duration with two or three digits: ``0.9 ms``, ``214 ms``, ``3.4 s``."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.1f} ms"


def _about(change: Change) -> str:
    details = "; ".join(change.details[:DETAILS_SHOWN])
    more = len(change.details) - DETAILS_SHOWN
    details += f"; and {more} more" if more > 0 else ""
    about = ": ".join(part for part in (", ".join(change.reasons), details) if part)
    return f" ({about})" if about else ""


def _at_step(change: Change) -> str:
    return f" at {change.reasons[0]}" if change.reasons else ""


def _problem(change: Change) -> str:
    if not change.details:
        return ""
    first = change.details[0].replace("\n    -> ", " -> ").splitlines()[0]
    more = len(change.details) - 1
    return f": {first}" + (f" (and {more} more)" if more else "")
