"""Decides when collected changes are applied; time is an argument, in seconds of one monotonic clock."""


class Debounce:
    """Waits for ``quiet_s`` without a change, but never longer than ``cap_s`` after the first one.

    A steady stream of changes therefore delays nothing beyond the cap, or beyond ``interval_s`` after what was applied
    last.
    """

    def __init__(self, *, quiet_s: float, cap_s: float, interval_s: float = 0.0) -> None:
        self._interval_s = interval_s
        self._not_before = 0.0
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
        """Return the time at which to apply, or None where nothing has changed."""
        if self._first is None:
            return None
        due_at = self._first if self._at_once else min(self._last + self._quiet_s, self._first + self._cap_s)
        return self.earliest(due_at)

    def earliest(self, at: float) -> float:
        """Return when something that is wanted at ``at`` may be done that is not to be done too often."""
        return max(at, self._not_before)

    def allows(self, now: float) -> bool:
        """Return whether it is long enough ago that something was applied."""
        return now >= self._not_before

    def applied(self, now: float) -> None:
        """Note that something was applied that is not to be done too often."""
        self._not_before = now + self._interval_s

    def postpone(self, until: float) -> None:
        """Let nothing be due before ``until``."""
        self._not_before = max(self._not_before, until)

    def forget(self) -> None:
        """Begin anew: what was noted is done."""
        self._first = None
        self._at_once = False

    def take(self, now: float) -> bool:
        """Return whether it is time, and if so begin anew."""
        due_at = self.due_at()
        if due_at is None or now < due_at:
            return False
        self.forget()
        return True


class LiveClock:
    """Decides when changes that need no reload are sent: at once, and never more than half of the time.

    What comes while a send is under way is collected, and the pause after it is as long as it took.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._not_before = 0.0

    def changed(self, now: float) -> None:
        """Note a change."""
        if self._since is None:
            self._since = now

    def due_at(self) -> float | None:
        """Return the time at which to send, or None where nothing has changed."""
        return None if self._since is None else max(self._since, self._not_before)

    def take(self, now: float) -> bool:
        """Return whether it is time, and if so begin anew."""
        due_at = self.due_at()
        if due_at is None or now < due_at:
            return False
        self._since = None
        return True

    def ended(self, began: float, now: float) -> None:
        """Note a send."""
        self._not_before = now + (now - began)

    def forget(self) -> None:
        """Begin anew: everything is being applied."""
        self._since = None
