"""What was made in the last round, where each round asks for all of it again. Pure."""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LastRound(Generic[K, V]):
    """Calls ``make`` for the keys that the round before did not have.

    A cache with a bound would miss every key once there are more of them than the bound: each round walks all of them
    in the same order, so that each was dropped before it is asked for again. This one is as large as a round.
    """

    def __init__(self, make: Callable[[K], V]) -> None:
        self._make = make
        self._values: dict[K, V] = {}

    def of(self, keys: Iterable[K]) -> list[V]:
        """Return the value of each key, and keep these only; several threads may call it."""
        former, now = self._values, dict[K, V]()
        found = []
        for key in keys:
            if key not in now:
                now[key] = former[key] if key in former else self._make(key)
            found.append(now[key])
        self._values = now
        return found
