"""The metrics of how changes are applied: what share needs no reload, how fast they are, what they leave behind."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from pyconfd.model.changes import BUCKETS_S, Action, Times
from pyconfd.model.status import Status
from pyconfd.status.health import age_s

_TIMED = (Action.LIVE, Action.RELOAD)


def applying(status: Status) -> Iterator[Metric]:
    """Yield the metric families."""
    known = status.applying
    plans = CounterMetricFamily("pyconfd_plans", "What became of each rendering, by what was done.", labels=["action"])
    for action in Action:
        plans.add_metric([action.value], known.plans_by_action.get(action.value, 0))
    yield plans
    seconds = HistogramMetricFamily(
        "pyconfd_change_seconds", "From when a change was noticed until it served.", labels=["action"]
    )
    for action in _TIMED:
        times = known.times_by_action.get(action.value, Times())
        bounds = [*map(str, BUCKETS_S), "+Inf"]
        buckets = list(zip(bounds, map(float, times.cumulative()), strict=True))
        seconds.add_metric([action.value], buckets=buckets, sum_value=times.sum_s)
    yield seconds
    yield _gauge("pyconfd_old_workers", "Workers of the past that still end their sessions.", known.old_workers)
    yield _gauge(
        "pyconfd_oldest_worker_age_seconds",
        "Seconds since the oldest of them was started; 0 without any.",
        age_s(known.oldest_worker_since, status.now) if known.oldest_worker_since else 0.0,
    )
    behind = known.file_behind_since
    yield _gauge("pyconfd_file_behind", "1 while the file does not say yet what was changed live.", bool(behind))
    yield _gauge(
        "pyconfd_file_behind_seconds",
        "Seconds since the file is behind; 0 where it is level.",
        age_s(behind, status.now) if behind else 0.0,
    )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
