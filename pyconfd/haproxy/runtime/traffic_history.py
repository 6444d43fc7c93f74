"""The last hour of traffic as a bounded ring of samples, and each backend's figures of the last minutes."""

from collections import deque
from collections.abc import Mapping
from operator import add, le, sub
from typing import NamedTuple

from pyconfd.model.route_figures import BOUNDS_S, CLASSES, Counts, RouteFigures
from pyconfd.model.traffic import RecentFigures, TrafficSample

SAMPLES = 121
"""An hour at one in 30 s, and the one that it begins with."""
SAMPLE_S = 20.0
"""A reload has all read at once: what comes sooner than this after a sample is none, or the ring would be shorter."""
RECENT_S = 300.0
"""What is recent covers this to twice as much: two readings are kept, and the older one is dropped at this age."""


class Reading(NamedTuple):
    """All sums when they were read: ``sums`` and ``steps`` by backend.

    ``sessions`` has those backends that the process has, with the sessions of now; ``of_http`` are those of mode http.
    """

    clock_s: float
    sums: Mapping[str, Counts]
    steps: Mapping[str, Counts]
    sessions: Mapping[str, int]
    of_http: frozenset[str]

    def figures(self, since: "Reading | None" = None) -> dict[str, RouteFigures]:
        """Return the figures by backend, or how much they grew ``since`` another reading."""
        return {
            backend: _figures(
                self._grown(self.sums, since and since.sums, backend),
                self._grown(self.steps, since and since.steps, backend),
                sessions,
                is_http=backend in self.of_http,
            )
            for backend, sessions in self.sessions.items()
        }

    @staticmethod
    def _grown(now: Mapping[str, Counts], since: Mapping[str, Counts] | None, backend: str) -> Counts:
        counts = now.get(backend, ())
        before = since.get(backend) if since else None
        # Sums never shrink: those of a backend that was dropped and came again begin at 0.
        return tuple(map(sub, counts, before)) if before and all(map(le, before, counts)) else counts


class TrafficHistory:
    """:meth:`count` and :meth:`note` are called under one lock, the others at any time: what they return is whole."""

    def __init__(self) -> None:
        self._requests: Counts = (0,) * len(CLASSES)
        self._steps: Counts = (0,) * (len(BOUNDS_S) + 1)
        self._samples: deque[TrafficSample] = deque(maxlen=SAMPLES)
        self._kept: deque[Reading] = deque(maxlen=2)
        self._compared: tuple[Reading, Reading] | None = None
        self._recent: tuple[object, RecentFigures] = (None, RecentFigures(0.0, {}))
        self._published: tuple[TrafficSample, ...] = ()

    def count(self, sums: Mapping[str, Counts], steps: Mapping[str, Counts]) -> None:
        """Add what was counted since the last call, by backend."""
        for counts in sums.values():
            self._requests = tuple(map(add, self._requests, counts))  # the classes are the first of the sums
        for counts in steps.values():
            self._steps = tuple(map(add, self._steps, counts))

    def note(self, at: float, reading: Reading) -> None:
        """Put what was counted by now into the ring; ``at`` is in seconds since the epoch."""
        if not self._samples or reading.clock_s - self._samples[-1].clock_s >= SAMPLE_S:
            self._samples.append(TrafficSample(at, reading.clock_s, self._requests, self._steps))
            self._published = tuple(self._samples)
        if not self._kept or reading.clock_s - self._kept[-1].clock_s >= RECENT_S:
            self._kept.append(reading)
        self._compared = self._kept[0], reading

    def samples(self) -> tuple[TrafficSample, ...]:
        """Return the samples of the last hour, oldest first."""
        return self._published

    def recent(self) -> RecentFigures:
        """Return what each backend has counted in the last minutes: the same object until the next reading."""
        compared = self._compared
        if compared is not None and compared is not self._recent[0]:
            before, now = compared
            figures = now.figures(before)
            self._recent = compared, RecentFigures(now.clock_s - before.clock_s, figures)
        return self._recent[1]


def _figures(sums: Counts, steps: Counts, sessions: int, *, is_http: bool) -> RouteFigures:
    classes = len(CLASSES)
    connections, bytes_in, bytes_out, retries, connect_errors, response_errors = sums[classes:]
    requests = sums[:classes] if is_http or any(sums[:classes]) else ()
    return RouteFigures(
        requests, steps, connections, bytes_in, bytes_out, retries, connect_errors, response_errors, sessions
    )
