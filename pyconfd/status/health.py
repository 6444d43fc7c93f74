"""Alive, ready, stale: the judgements behind ``/healthz``, ``/readyz`` and the exit code of ``pyconfd status``."""

from dataclasses import dataclass
from typing import assert_never

from pyconfd.model.status import Phase, Status
from pyconfd.status import durations

HEARTBEAT_LIMIT_S = 150.0
"""The loop beats after each turn; the longest honest turn is a check (60 s), a reload (30 s) and the one that takes it
back, so this many seconds without a beat mean that it hangs. The unit's WatchdogSec comes after it.
"""

STALE_AFTER_S = 180.0
"""An API server confirms a quiet watch by a bookmark about each minute; three missed ones mean old data."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``good`` decides the status code, ``reason`` is for the reader; it is never empty."""

    good: bool
    reason: str


def liveness(status: Status, limit_s: float = HEARTBEAT_LIMIT_S) -> Verdict:
    """Return whether the loop makes progress: its last heartbeat is younger than ``limit_s`` seconds."""
    age = status.now - max(status.heartbeat_at, status.started_at)
    if age >= limit_s:
        return Verdict(
            good=False, reason=f"no progress for {durations.short(age)}: the loop hangs (limit {limit_s:.0f} s)"
        )
    return Verdict(good=True, reason=f"alive: the loop moved {durations.short(age)} ago")


def readiness(status: Status) -> Verdict:
    """Return whether a configuration made from the cluster serves: just applied, or the last good one."""
    trouble = next((line for problem in status.problems for line in problem.splitlines() if line.strip()), "")
    because = f": {trouble.strip()}" if trouble else ""
    match status.phase:
        case Phase.STARTING:
            return Verdict(good=False, reason=f"starting: nothing was decided yet{because}")
        case Phase.WAITING:
            return Verdict(good=False, reason=f"waiting: there is nothing to serve yet{because}")
        case Phase.SERVING | Phase.SERVING_LAST_GOOD | Phase.HELD | Phase.REJECTED | Phase.FAILED:
            return _serving(status, because)
        case _ as never:
            assert_never(never)


def _serving(status: Status, because: str) -> Verdict:
    if status.generation is None:
        return Verdict(good=False, reason=f"{status.phase}: no configuration was applied yet{because}")
    number = status.generation.number
    if status.phase is Phase.SERVING:
        if not status.source.synced:
            return Verdict(good=False, reason=f"serving generation {number}, but the cluster was not read yet{because}")
        return Verdict(good=True, reason=f"ready: serving generation {number}")
    return Verdict(good=True, reason=f"{status.phase}: generation {number} goes on serving{because}")


def sync_age_s(status: Status, now: float) -> float:
    """Return the seconds since an API server last confirmed the data; infinite for never."""
    return age_s(status.source.last_sync_at, now)


def age_s(at: float, now: float) -> float:
    """Return the seconds from ``at`` to ``now``, never negative; infinite where ``at`` is 0.0 (never)."""
    return max(0.0, now - at) if at else float("inf")
