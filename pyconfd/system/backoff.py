"""The one back-off: pauses between attempts at something that fails."""

from random import Random


class Backoff:
    """Pauses that grow by ``factor`` from ``first_s`` to ``last_s``; :meth:`reset` after a success.

    With ``jitter`` each is drawn from the upper half of the pause, or those that failed together would meet again.
    """

    def __init__(self, *, first_s: float, last_s: float, factor: float = 2.0, jitter: Random | None = None) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._factor = factor
        self._jitter = jitter
        self._next_s = first_s

    def delay_s(self) -> float:
        """Return the pause before the next attempt, in seconds; the one after it is longer."""
        delay_s, self._next_s = self._next_s, min(self._next_s * self._factor, self._last_s)
        return delay_s if self._jitter is None else self._jitter.uniform(delay_s / 2, delay_s)

    def reset(self) -> None:
        """Start with the first pause again."""
        self._next_s = self._first_s
