"""The work queue: what is due when, by key. It owns all delays of a loop, as client-go's rate-limited work queue does.

Times are seconds of one monotonic clock, so that no clock can jump. A key is *waiting* until it is popped or removed.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pyconfd.system.backoff import Backoff

DISRUPTIVE_FACTOR = 16
"""How many times longer than usual the longest pause is where each attempt interrupts traffic."""


@dataclass(slots=True)
class _WaitingKey:
    """``first_at`` is when the key was added, ``due_at`` when it is due."""

    first_at: float
    due_at: float


class WorkQueue:
    """Keys with delays. Retries double their pause from ``retry_min_s`` to ``retry_max_s``, each key for itself."""

    def __init__(self, *, retry_min_s: float, retry_max_s: float) -> None:
        self._retry_min_s = retry_min_s
        self._retry_max_s = retry_max_s
        self._entries: dict[str, _WaitingKey] = {}
        self._backoffs: dict[tuple[str, bool], Backoff] = {}
        self._not_before: dict[str, float] = {}

    def add(self, key: str, at: float) -> None:
        """Schedule ``key`` at ``at``, or earlier where it is waiting for an earlier time."""
        entry = self._entries.setdefault(key, _WaitingKey(at, at))
        entry.due_at = min(entry.due_at, at)

    def debounce(self, key: str, now: float, *, quiet_s: float, cap_s: float) -> None:
        """Schedule ``key`` ``quiet_s`` after the last call, but never later than ``cap_s`` after the first one.

        A steady stream of changes therefore delays nothing beyond the cap.
        """
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _WaitingKey(now, min(now + quiet_s, now + cap_s))
        elif entry.due_at > now:  # what is due already stays due
            entry.due_at = min(now + quiet_s, entry.first_at + cap_s)

    def retry(self, key: str, now: float, *, disruptive: bool = False) -> None:
        """Schedule ``key`` after its next pause; a ``disruptive`` attempt is not repeated before ``retry_max_s``."""
        delay_s = self._backoff(key, disruptive=False).delay_s()
        if disruptive:
            delay_s = max(delay_s, self._backoff(key, disruptive=True).delay_s())
        self._entries[key] = _WaitingKey(now, now + delay_s)

    def retry_while(self, needed: bool, key: str, now: float) -> bool:
        """Retry ``key`` after pauses as long as it is ``needed``; return whether a pause begins now."""
        if not needed:
            self.succeeded(key)
        elif key not in self._entries:
            self.retry(key, now)
            return True
        return False

    def succeeded(self, key: str) -> None:
        """Remove ``key``, and begin with its first pause again: it went well, or its cause changed."""
        self._entries.pop(key, None)
        self._backoffs.pop((key, False), None)
        self._backoffs.pop((key, True), None)

    def remove(self, key: str) -> None:
        """Remove ``key``; its pauses go on where they are."""
        self._entries.pop(key, None)

    def pace(self, keys: Iterable[str], until: float) -> None:
        """Delay ``keys`` until ``until``, whenever they are added."""
        for key in keys:
            self._not_before[key] = max(self._not_before.get(key, 0.0), until)

    def is_waiting(self, key: str) -> bool:
        """Return whether ``key`` was added, and neither popped nor removed since."""
        return key in self._entries

    def due_at(self, key: str) -> float | None:
        """Return when ``key`` is due; None where it is not waiting."""
        entry = self._entries.get(key)
        return None if entry is None else max(entry.due_at, self._not_before.get(key, 0.0))

    def pop(self, now: float, *keys: str) -> bool:
        """Remove those of ``keys`` that are due; return whether there were any."""
        due = [key for key in keys if (at := self.due_at(key)) is not None and at <= now]
        for key in due:
            del self._entries[key]
        return bool(due)

    def next(self, *, without: Collection[str] = ()) -> tuple[float, str] | None:
        """Return the first time at which a key is due, and the key; None where nothing is waiting."""
        return min(((self.due_at(key) or 0.0, key) for key in self._entries if key not in without), default=None)

    def _backoff(self, key: str, *, disruptive: bool) -> Backoff:
        found = self._backoffs.get((key, disruptive))
        if found is None:
            first_s, last_s = self._retry_min_s, self._retry_max_s
            if disruptive:
                first_s, last_s = last_s, last_s * DISRUPTIVE_FACTOR
            found = self._backoffs[key, disruptive] = Backoff(first_s=first_s, last_s=last_s)
        return found
