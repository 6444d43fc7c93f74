"""Decides when collected changes are applied; time is an argument, in seconds of one monotonic clock."""


class Debounce:
    """Waits for ``quiet_s`` without a change, but never longer than ``cap_s`` after the first one.

    A steady stream of changes therefore delays nothing beyond the cap.
    """

    def __init__(self, *, quiet_s: float, cap_s: float) -> None:
        self._quiet_s = quiet_s
        self._cap_s = cap_s
        self._first: float | None = None
        self._last = 0.0
        self._at_once = False

    def changed(self, now: float, *, at_once: bool = False) -> None:
        """Note a change; ``at_once`` makes everything noted so far due now."""
        if self._first is None:
            self._first = now
        self._last = now
        self._at_once = self._at_once or at_once

    def due_at(self) -> float | None:
        """Give the time at which to apply, or None where nothing has changed."""
        if self._first is None:
            return None
        return self._first if self._at_once else min(self._last + self._quiet_s, self._first + self._cap_s)

    def take(self, now: float) -> bool:
        """Say whether it is time, and if so begin anew."""
        due_at = self.due_at()
        if due_at is None or now < due_at:
            return False
        self._first = None
        self._at_once = False
        return True


class Backoff:
    """Doubling delays from ``first_s`` to ``last_s``, begun anew by :meth:`reset`."""

    def __init__(self, *, first_s: float, last_s: float) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._next_s = first_s

    def next(self) -> float:
        """Give the delay before the next attempt, in seconds."""
        delay_s, self._next_s = self._next_s, min(self._next_s * 2, self._last_s)
        return delay_s

    def reset(self) -> None:
        """Start with the first delay again."""
        self._next_s = self._first_s
