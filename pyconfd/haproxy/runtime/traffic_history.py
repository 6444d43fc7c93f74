"""The last hour of traffic as bounded rings, of all backends and of each, and their figures of the last minutes."""

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from math import isnan, nan
from operator import add, le, sub
from typing import NamedTuple

from pyconfd.model.route_figures import BOUNDS_S, CLASSES, Counts, RouteFigures
from pyconfd.model.traffic import RecentFigures, TrafficRates, TrafficSample, rates_of

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

    def figures(self, since: "Reading | None" = None, backends: Iterable[str] | None = None) -> dict[str, RouteFigures]:
        """Return the figures by backend (all, or some), or how much they grew ``since`` another reading."""
        return {
            backend: _figures(
                self._grown(self.sums, since and since.sums, backend),
                self._grown(self.steps, since and since.steps, backend),
                sessions,
                is_http=backend in self.of_http,
            )
            for backend in (self.sessions if backends is None else backends)
            if (sessions := self.sessions.get(backend)) is not None
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
        self._of_each = BackendTraffic()

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
            self._of_each.note(at, reading)
        if not self._kept or reading.clock_s - self._kept[-1].clock_s >= RECENT_S:
            self._kept.append(reading)
        self._compared = self._kept[0], reading

    def samples(self) -> tuple[TrafficSample, ...]:
        """Return the samples of the last hour, oldest first."""
        return self._published

    def of_backend(self, backend: str) -> "Sequence[tuple[float, TrafficRates]]":
        """Return the rates of one backend in the last hour, each with its time in seconds since the epoch."""
        return self._of_each.rates(backend)

    def recent(self) -> RecentFigures:
        """Return what each backend has counted in the last minutes: the same object until the next reading."""
        compared = self._compared
        if compared is not None and compared is not self._recent[0]:
            before, now = compared
            figures = now.figures(before)
            self._recent = compared, RecentFigures(now.clock_s - before.clock_s, figures)
        return self._recent[1]


_FIELDS = 1 + len(TrafficRates._fields)


class BackendTraffic:
    """The rates of each backend in the last hour: 20 bytes for each sample in which it had requests, else none."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=SAMPLES - 1)
        self._number = 0
        """Of the newest sample; the ring of a backend has these numbers with its rates."""
        self._rings: dict[str, array[float]] = {}
        self._last: Reading | None = None

    def note(self, at: float, reading: Reading) -> None:
        """Add what came since the last sample."""
        last, self._last = self._last, reading
        if last is None:
            return
        rings = {backend: ring for backend, ring in self._rings.items() if backend in reading.sums}
        self._number, between_s = self._number + 1, reading.clock_s - last.clock_s
        for backend, counts in reading.sums.items():
            if counts == last.sums.get(backend):
                continue
            grown = reading.figures(last, (backend,))
            rates = rates_of(grown[backend].requests, grown[backend].steps, between_s) if backend in grown else None
            if rates is not None and rates.requests:
                former = rings.get(backend, array("f"))
                kept = former[_FIELDS:] if len(former) >= (SAMPLES - 1) * _FIELDS else former
                values = (nan if each is None else each for each in rates)
                rings[backend] = kept + array("f", (self._number, *values))
        self._times.append(at)
        self._rings = rings  # whole for who reads it meanwhile

    def rates(self, backend: str) -> Sequence[tuple[float, TrafficRates]]:
        """Return the rates at each sample of the last hour, zero where it had no requests."""
        times, number = tuple(self._times), self._number
        ring = self._rings.get(backend, array("f"))
        found = {int(ring[at]): ring[at + 1 : at + _FIELDS] for at in range(0, len(ring), _FIELDS)}
        first = number - len(times) + 1
        return [
            (time, _rates_in(found[first + place]) if first + place in found else _NO_TRAFFIC)
            for place, time in enumerate(times)
        ]


_NO_TRAFFIC = TrafficRates(0.0, 0.0, None, None)


def _rates_in(values: "array[float]") -> TrafficRates:
    requests, errors, p50, p99 = (float(f"{each:.4g}") for each in values)
    return TrafficRates(requests, errors, None if isnan(p50) else p50, None if isnan(p99) else p99)


def _figures(sums: Counts, steps: Counts, sessions: int, *, is_http: bool) -> RouteFigures:
    classes = len(CLASSES)
    connections, bytes_in, bytes_out, retries, connect_errors, response_errors = sums[classes:]
    requests = sums[:classes] if is_http or any(sums[:classes]) else ()
    return RouteFigures(
        requests, steps, connections, bytes_in, bytes_out, retries, connect_errors, response_errors, sessions
    )
