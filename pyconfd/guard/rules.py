"""What the guard obeys."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """When a loss is held.

    ``total``: whether the loss of everything is. ``share``: a loss above this part of what served is (1.0: never), if
    it is of at least ``least`` endpoints and happened within ``window_s``. It is believed ``persist_s`` after it began,
    and not before a second full list confirmed it.
    """

    total: bool = True
    share: float = 0.5
    least: int = 5
    window_s: float = 60.0
    persist_s: float = 60.0

    def is_too_much(self, lost: int, of: int) -> bool:
        """Return whether the loss of so many of so many endpoints is one to hold."""
        return self.share < 1.0 and lost >= self.least and lost > self.share * of
