"""What HAProxy has counted of each backend: requests by class of status, how long answers took, connections, bytes."""

from itertools import accumulate
from typing import NamedTuple

CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
"""Of the status of answers."""

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the steps of the histogram, in the order of the table of client.j2; what took longer has one more."""

Counts = tuple[int, ...]


class RouteFigures(NamedTuple):
    """What was counted of one backend since the first worker that is known; () and 0 for what does not apply.

    ``requests`` are answered ones by :data:`CLASSES`. ``steps`` are those by :data:`BOUNDS_S`, and those that took
    longer, of each step alone. ``sessions`` are there now; all else are sums.
    """

    requests: Counts = ()
    steps: Counts = ()
    connections: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    retries: int = 0
    connect_errors: int = 0
    response_errors: int = 0
    sessions: int = 0

    @property
    def cumulative(self) -> Counts:
        """How many answers took at most each of :data:`BOUNDS_S`, and then all."""
        return tuple(accumulate(self.steps))


def quantile_s(steps: Counts, share: float) -> float | None:
    """Return how many seconds this share of the answers took at most, by linear interpolation within a step.

    None where nothing was timed; what took longer than the last of :data:`BOUNDS_S` counts as that. It is what
    ``histogram_quantile()`` of Prometheus returns.
    """
    total = sum(steps)
    if total <= 0:
        return None
    wanted, below, before = share * total, 0, 0.0
    for bound, count in zip(BOUNDS_S, steps, strict=False):
        if count and below + count >= wanted:
            return before + (bound - before) * (wanted - below) / count
        below, before = below + count, bound
    return BOUNDS_S[-1]
