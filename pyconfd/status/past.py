"""What the status and the metrics say about pins and the rollout monitor."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pyconfd.model.pin import PinStatus
from pyconfd.model.status import Status
from pyconfd.status.durations import short

CHANGES_SHOWN = 5


def pin_lines(pinned: PinStatus, now: float) -> tuple[str, tuple[str, ...]]:
    """Return a headline about a pin, and lines below it: what waits on disk, and how the pin is ended."""
    pin = pinned.pin
    if pin.broken:
        return "PINNED, but nobody knows to what", (pin.broken,)
    reason = f": {pin.reason}" if pin.reason else ""
    headline = f"PINNED to generation {pin.generation} for {short(now - pin.since)}{reason}"
    serves = () if pinned.serves else ("it does not serve yet" if not pinned.refused else "it cannot be made to serve",)
    waiting = pinned.waiting[:CHANGES_SHOWN]
    more = len(pinned.waiting) - len(waiting)
    differs = (
        "fragments and settings on disk differ, and wait for `pyconfd unpin`:",
        *(f"    {change}" for change in waiting),
        *((f"    and {more} more",) if more > 0 else ()),
    )
    return headline, (*serves, *(differs if waiting else ()), "-> pyconfd unpin")


def past(status: Status) -> Iterator[Metric]:
    """Yield the metric families."""
    pin, rollout = status.pin, status.rollout
    yield _gauge("pyconfd_pinned", "1 while fragments and settings of a former generation are pinned.", pin is not None)
    yield _gauge("pyconfd_pinned_generation", "That generation; 0 for none.", pin.pin.generation if pin else 0)
    yield _gauge(
        "pyconfd_edits_waiting", "Changes of fragments and settings on disk that wait for an unpin.", _waiting(pin)
    )
    yield _gauge("pyconfd_rollout_monitored", "1 while error rates after a change are monitored.", bool(rollout.until))
    yield _gauge("pyconfd_rollout_alarm", "1 while error rates are much worse than before.", rollout.alarm is not None)
    alarms = CounterMetricFamily("pyconfd_rollout_alarms", "Alarms of the rollout monitor.")
    alarms.add_metric([], rollout.alarms_total)
    yield alarms


def _waiting(pin: PinStatus | None) -> int:
    return len(pin.waiting) if pin else 0


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
