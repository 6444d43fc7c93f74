"""The traffic of the last hour, all backends together, and what each backend did in the last minutes."""

from collections.abc import Mapping
from typing import NamedTuple

from pyconfd.model.route_figures import Counts, RouteFigures


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
