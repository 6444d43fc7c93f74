"""A Status as JSON, where it is left and asked for, and how healthy it is.

A dead daemon's values are never given as fresh: :attr:`StatusReport.freshness` says what they are worth.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import Any, assert_never

import msgspec
import psutil
import structlog

from pyconfd.errors import Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.model.context import Refusal
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.last_round import LastRound
from pyconfd.model.status import Phase, Quarantined, Status
from pyconfd.printable import long_duration, short_duration
from pyconfd.settings import Settings
from pyconfd.status.page_client import get
from pyconfd.status.redaction import HIDDEN, public_value
from pyconfd.system.files import problem_of, temporary_beside, write_new
from pyconfd.system.secrecy import known_secrets

log = structlog.get_logger(__name__)


def encode(status: Status) -> bytes:
    """Return ``status`` as indented UTF-8 JSON, without secrets; times stay seconds since the epoch.

    Of certificates, of which there are as many as hosts, those that are due are among the notes.
    """
    quarantine = replace(status.quarantine, now=())
    others = replace(status, certificates=(), refused=(), notes=(), quarantine=quarantine)
    document = public_value(msgspec.to_builtins(others, enc_hook=_plain))
    hidden = known_secrets()
    listed: tuple[Sequence[Refusal | Quarantined], ...] = (status.refused, status.notes, status.quarantine.now)
    made = iter(_OBJECTS.of((each, hidden) for each in chain.from_iterable(listed)))
    document["refused"], document["notes"], document["quarantine"]["now"] = (
        list(islice(made, len(each))) for each in listed
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _of_object(of: tuple[Refusal | Quarantined, tuple[str, ...]]) -> msgspec.Raw:
    """Return what is said of an object as JSON, without secrets, which are known now and stand behind the object."""
    item, _ = of
    document = public_value(msgspec.to_builtins(item))
    document["ref"] = dict(zip(ObjectRef._fields, document["ref"], strict=True))
    if document["ref"]["kind"] == "Secret" and document.get("value"):
        document["value"] = HIDDEN
    return msgspec.Raw(msgspec.json.encode(document))


_OBJECTS = LastRound(_of_object)
"""There may be thousands, of which one is new since the last time."""


def decode(data: bytes) -> Status:
    """Return the Status that :func:`encode` wrote; fields of a newer version are ignored.

    Raises:
        RejectedInput: this is no status of pyconfd.
    """
    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
        listed = (document.get("refused", ()), document.get("notes", ()), document.get("quarantine", {}).get("now", ()))
        for item in chain.from_iterable(listed):
            item["ref"] = [item["ref"][field] for field in ObjectRef._fields]
        return msgspec.convert(document, Status)
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise RejectedInput(Problem("", f"not a status of pyconfd: {error}")) from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"no JSON for {type(value).__name__}")


HEARTBEAT_LIMIT_S = 150.0
"""The loop beats after each turn; the longest honest turn is a check (60 s), a reload (30 s) and the one that takes it
back, so this many seconds without a beat mean that it hangs. The unit's WatchdogSec comes after it.
"""

STALE_AFTER_S = 180.0
"""An API server confirms a quiet watch by a bookmark about each minute; three missed ones mean old data."""


@dataclass(frozen=True, slots=True)
class Health:
    """``good`` decides the status code, ``reason`` is for the reader; it is never empty."""

    good: bool
    reason: str


def liveness(status: Status, limit_s: float = HEARTBEAT_LIMIT_S) -> Health:
    """Return whether the loop makes progress: its last heartbeat is younger than ``limit_s`` seconds."""
    age = status.now - max(status.heartbeat_at, status.started_at)
    if age >= limit_s:
        reason = f"no progress for {short_duration(age)}: the loop hangs (limit {limit_s:.0f} s)"
        return Health(good=False, reason=reason)
    return Health(good=True, reason=f"alive: the loop moved {short_duration(age)} ago")


def readiness(status: Status) -> Health:
    """Return whether a configuration made from the cluster serves: just applied, or the last good one."""
    trouble = next((line for problem in status.problems for line in problem.splitlines() if line.strip()), "")
    because = f": {trouble.strip()}" if trouble else ""
    match status.phase:
        case Phase.STARTING:
            return Health(good=False, reason=f"starting: nothing was decided yet{because}")
        case Phase.WAITING:
            return Health(good=False, reason=f"waiting: there is nothing to serve yet{because}")
        case Phase.DOWN:
            return Health(good=False, reason=f"down: haproxy does not run: {status.haproxy.cause}")
        case Phase.SERVING | Phase.SERVING_LAST_GOOD | Phase.HELD | Phase.REJECTED | Phase.FAILED:
            return _serving(status, because)
        case _ as never:
            assert_never(never)


def _serving(status: Status, because: str) -> Health:
    if status.generation is None:
        return Health(good=False, reason=f"{status.phase}: no configuration was applied yet{because}")
    number = status.generation.number
    if status.phase is Phase.SERVING:
        if not status.source.synced:
            return Health(good=False, reason=f"serving generation {number}, but the cluster was not read yet{because}")
        return Health(good=True, reason=f"ready: serving generation {number}")
    return Health(good=True, reason=f"{status.phase}: generation {number} goes on serving{because}")


def sync_age_s(status: Status, now: float) -> float:
    """Return the seconds since an API server last confirmed the data; infinite for never."""
    return age_s(status.source.last_sync_at, now)


def age_s(at: float, now: float) -> float:
    """Return the seconds from ``at`` to ``now``, never negative; infinite where ``at`` is 0.0 (never)."""
    return max(0.0, now - at) if at else float("inf")


FILE_NAME = "status.json"
FILE_EVERY_S = 10.0
FILE_PAUSE_S = 1.0
"""Between two writings: where objects are refused one after the other, each writing has all of them."""
FILE_FRESH_S = 30.0
"""A file older than three of its periods was not written by a daemon that makes progress."""

EXIT_SERVING, EXIT_PROBLEM, EXIT_NOT_RUNNING = 0, 1, 3

_CLOCK_SLACK_S = 5.0


class Freshness(StrEnum):
    """What the values are worth."""

    LIVE = "live"
    """The daemon answered just now."""
    RECENT_FILE = "recent_file"
    """The process lives and wrote the file less than :data:`FILE_FRESH_S` ago; its page is off or does not answer."""
    LAST_KNOWN = "last_known"
    """The daemon is gone or hangs: what follows was true once."""
    UNKNOWN = "unknown"
    """There is neither a daemon nor a file."""


@dataclass(frozen=True, slots=True)
class StatusReport:
    """``status`` is None only for UNKNOWN; all ages count up to ``now`` (seconds since the epoch)."""

    freshness: Freshness
    now: float
    status: Status | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def running(self) -> bool:
        """True if a daemon was seen that makes the values current."""
        return self.freshness in {Freshness.LIVE, Freshness.RECENT_FILE}

    @property
    def exit_code(self) -> int:
        """0 serving and fresh; 1 there is a problem (held, rejected, failed, waiting, stale); 3 no daemon runs."""
        if self.status is None or not self.running:
            return EXIT_NOT_RUNNING
        fresh = sync_age_s(self.status, self.now) < STALE_AFTER_S and liveness(replace(self.status, now=self.now)).good
        good = self.status.phase is Phase.SERVING and not (self.status.problems or self.problems)
        return EXIT_SERVING if good and fresh else EXIT_PROBLEM


class StatusFile:
    """``status.json`` in the runtime directory, mode 0640: what is left to read when the daemon is dead."""

    def __init__(self, runtime_dir: str | Path, every_s: float = FILE_EVERY_S) -> None:
        self._path = Path(runtime_dir) / FILE_NAME
        self._every_s = every_s
        self._written: Status | None = None
        self._waiting: Status | None = None
        """The newest one, where it was not written."""
        self._failing = False

    def update(self, status: Status) -> bool:
        """Write if the last writing is ``every_s`` old, or a second, and the headline changed; True if it wrote.

        Never raises: a full disk must not stop the balancer; it is logged once.
        """
        if not self._due(status):
            self._waiting = status
            return False
        return self._try_to_write(status)

    def close(self) -> None:
        """Write what waits for its time: it is the last that is known."""
        if self._waiting is not None:
            self._try_to_write(self._waiting)

    def _try_to_write(self, status: Status) -> bool:
        try:
            self.write(status)
        except TransientError as error:
            if not self._failing:
                log.warning("status_file.write_failed", path=str(self._path), error=str(error))
            self._failing = True
            return False
        self._failing = False
        return True

    def write(self, status: Status) -> None:
        """Replace the file atomically.

        Raises:
            TransientError: it cannot be written.
        """
        beside = temporary_beside(str(self._path))
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            # Not flushed to the disk: the loop writes it, and a runtime update must not wait for that.
            write_new(beside, encode(status), mode=0o640, flush=False)
            Path(beside).replace(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                Path(beside).unlink()
            raise TransientError(problem_of(str(self._path), error)) from error
        self._written, self._waiting = status, None

    def _due(self, status: Status) -> bool:
        if self._written is None:
            return True
        age_s = abs(status.now - self._written.now)
        return age_s >= self._every_s or (age_s >= FILE_PAUSE_S and _headline(status) != _headline(self._written))


def _headline(status: Status) -> tuple[object, ...]:
    """Return what is written at once where it changes; the rest may wait for the next period."""
    generation = status.generation.number if status.generation else 0
    up = tuple(server.healthy for server in status.source.api_servers)
    applied = (generation, status.verified, status.pin, status.live.paused)
    left_out = (len(status.refused), len(status.notes), len(status.quarantine.now))
    targets = tuple(target.phase for target in status.targets)
    return status.phase, status.problems, status.hold_id, applied, left_out, targets, up, status.status_writer.role


def read_report(settings: Settings, *, clock: Callable[[], float] = time.time, timeout_s: float = 2.0) -> StatusReport:
    """Ask the daemon over HTTP; if it does not answer, read its file and say how old that is."""
    problems: list[Problem] = []
    if settings.status.listen:
        try:
            status = decode(get(settings.status, "/status.json", timeout_s))
        except (TransientError, RejectedInput) as error:
            problems.extend(_problems(error))
        else:
            return StatusReport(Freshness.LIVE, status.now, status)
    path = Path(settings.runtime_dir) / FILE_NAME
    try:
        status = decode(path.read_bytes())
    except OSError as error:
        return StatusReport(Freshness.UNKNOWN, clock(), None, (*problems, _unreadable(path, error)))
    except RejectedInput as error:
        return StatusReport(Freshness.UNKNOWN, clock(), None, (*problems, *_problems(error, str(path))))
    return _from_file(status, clock(), problems)


def _from_file(status: Status, now: float, problems: list[Problem]) -> StatusReport:
    age = now - status.now
    if not _process_lives(status):
        gone = Problem("pyconfd", f"pid {status.pid} is gone: {_last_known(age)}", "systemctl start pyconfd")
        return StatusReport(Freshness.LAST_KNOWN, now, status, (gone, *problems))
    if not -1.0 <= age < FILE_FRESH_S:
        hangs = Problem(
            "pyconfd",
            f"pid {status.pid} does not answer: {_last_known(age)}",
            "journalctl -u pyconfd; systemctl restart pyconfd (HAProxy goes on serving meanwhile)",
        )
        return StatusReport(Freshness.LAST_KNOWN, now, status, (hangs, *problems))
    return StatusReport(Freshness.RECENT_FILE, now, status, tuple(problems))


def _last_known(age: float) -> str:
    if age < -1.0:
        return "last known at a time that is still to come (the clock was set back)"
    return f"last known, {long_duration(age)} ago"


def _process_lives(status: Status) -> bool:
    """Return whether the process that wrote the status still runs, not another one that was given its number.

    Compared with the last writing, not with ``started_at``: a clock that is set at boot moves what the kernel says of
    a process's start, and the next writing moves with it.
    """
    try:
        return psutil.Process(status.pid).create_time() <= status.now + _CLOCK_SLACK_S
    except (psutil.NoSuchProcess, ValueError):
        return False
    except psutil.AccessDenied:
        return True


def _problems(error: PyconfdError, place: str = "status.listen") -> tuple[Problem, ...]:
    return tuple(replace(problem, place=problem.place or place) for problem in error.problems)


def _unreadable(path: Path, error: OSError) -> Problem:
    if isinstance(error, FileNotFoundError):
        message = "there is no such file: pyconfd has not run since the boot"
        # Without settings its unit is skipped, and says so only if it is asked; so does one that fails at each start.
        remedy = "systemctl status pyconfd says why; if not: systemctl start pyconfd, once there is "
        return Problem(str(path), message, f"{remedy}/etc/pyconfd/pyconfd.toml")
    if isinstance(error, PermissionError):
        return Problem(str(path), "this user may not read it", "use sudo, or join the group pyconfd")
    return Problem(str(path), f"cannot be read: {error.strerror}")
