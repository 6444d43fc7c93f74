"""When something that failed is tried again; times are seconds of one monotonic clock, so that no clock can jump."""

from pyconfd.daemon.reconcile import Attempt
from pyconfd.model.outcome import Failed
from pyconfd.system.backoff import Backoff

DISRUPTIVE_FACTOR = 16
"""How many times longer than usual the longest pause is where each attempt interrupts traffic."""


class Retry:
    """Remembers the last failure: it stands until ``due_at``, doubling from ``first_s`` to ``last_s``.

    An attempt that interrupts traffic for a moment is not repeated before ``last_s``.
    """

    def __init__(self, *, first_s: float, last_s: float) -> None:
        self._backoff = Backoff(first_s=first_s, last_s=last_s)
        self._disruptive = Backoff(first_s=last_s, last_s=last_s * DISRUPTIVE_FACTOR)
        self.attempt: Attempt | None = None
        self.due_at: float | None = None

    def standing(self, now: float) -> Attempt | None:
        """Return the failure if it is too early to try again, else None."""
        return self.attempt if self.due_at is not None and now < self.due_at else None

    def failed(self, attempt: Attempt, now: float) -> None:
        """Note a failure that ended at ``now``."""
        delay_s = self._backoff.delay_s()
        if isinstance(attempt.outcome, Failed) and attempt.outcome.disruptive:
            delay_s = max(delay_s, self._disruptive.delay_s())
        self.attempt, self.due_at = attempt, now + delay_s

    def clear(self) -> None:
        """Forget it: it went well, or its cause was changed."""
        self._backoff.reset()
        self._disruptive.reset()
        self.attempt = self.due_at = None
