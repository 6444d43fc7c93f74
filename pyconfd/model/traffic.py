"""The traffic of the last hour, of all backends together and of each, and what each did in the last minutes."""

from collections.abc import Mapping
from typing import NamedTuple

from pyconfd.model.route_figures import Counts, RouteFigures, quantile_s


class TrafficSample(NamedTuple):
    """What all backends together have counted up to ``at`` (seconds since the epoch).

    ``clock_s`` is of a clock that never jumps. ``requests`` and ``steps`` are as in RouteFigures; only differences
    between two samples mean something.
    """

    at: float
    clock_s: float
    requests: Counts
    steps: Counts


class RecentFigures(NamedTuple):
    """What each backend has counted in the last ``seconds``; 0 while that is not known."""

    seconds: float
    figures: Mapping[str, RouteFigures]


class TrafficRates(NamedTuple):
    """Requests and answers of 5xx for a second, median and 99th percentile of the latency in seconds."""

    requests: float
    errors: float
    p50: float | None
    p99: float | None


def rates_of(requests: Counts, steps: Counts, seconds: float) -> TrafficRates:
    """Return the rates of what was counted within so many seconds; 0 of them make none."""
    each_s = 1.0 / seconds if seconds else 0.0
    errors = requests[-1] if requests else 0
    latencies = (quantile_s(steps, share) for share in (0.5, 0.99))
    p50, p99 = (None if found is None else rounded(found) for found in latencies)
    return TrafficRates(rounded(sum(requests) * each_s), rounded(errors * each_s), p50, p99)


def rounded(value: float) -> float:
    """Return a figure with as many digits as mean something."""
    return float(f"{value:.4g}")
