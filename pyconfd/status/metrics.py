"""The metrics of ``/metrics``, computed from one Status when they are asked for; docs/metrics.md lists them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pyconfd.model.changes import BUCKETS_S, Action, Times
from pyconfd.model.context import RefusalReason
from pyconfd.model.hold import HoldStep
from pyconfd.model.outcome import Step
from pyconfd.model.plan import ReloadReason
from pyconfd.model.status import Phase, Status, WriterRole
from pyconfd.status.document import age_s
from pyconfd.status.redaction import redacted

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Source: https://prometheus.io/docs/instrumenting/exposition_formats/"""


class StatusCollector(Collector):
    """Returns every pyconfd metric from what ``status`` returns at the moment of the scrape.

    Never is +Inf for an age, so that an alert on an age fires for what never happened; a credential whose expiry
    is not known has no expiry sample.
    """

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families, all from one Status."""
        status = self._status()
        for families in (
            _daemon,
            _generation,
            _applying,
            _removal_protection,
            _source,
            _refused,
            _certificates,
            _live,
            _pinned,
        ):
            yield from families(status)
        yield from _targets(status)

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering asks for no Status."""
        return []


def registry_of(status: Callable[[], Status]) -> CollectorRegistry:
    """Return a registry of its own with pyconfd's metrics and those of this process (``process_*``)."""
    registry = CollectorRegistry()
    registry.register(StatusCollector(status))
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    """Return the registry's metrics in the text format named by :data:`CONTENT_TYPE`."""
    return generate_latest(registry)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _since(name: str, text: str, since: float, now: float) -> Metric:
    """Return a gauge of the seconds since a moment, 0 where there is none."""
    return GaugeMetricFamily(name, text, value=age_s(since, now) if since else 0.0)


def _gauges(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values:
        family.add_metric([redacted(key)], value)
    return family


def _counters(name: str, text: str, label: str, values: Mapping[str, int], known: Iterable[str] = ()) -> Metric:
    """Return a counter for each value of a label: those that are known from the start, and those that were counted."""
    family = CounterMetricFamily(name, text, labels=[label])
    for key in sorted({*known, *values}):
        family.add_metric([key], values.get(key, 0))
    return family


def _daemon(status: Status) -> Iterator[Metric]:
    yield _gauges("pyconfd_build_info", "Always 1; the version is a label.", "version", [(status.version, 1)])
    phases = [(phase.value, float(phase is status.phase)) for phase in Phase]
    yield _gauges("pyconfd_phase", "1 for the phase that the daemon is in, else 0.", "phase", phases)
    if status.haproxy.up is not None:
        yield _gauge("pyconfd_haproxy_up", "1 while HAProxy runs, 0 while it does not.", status.haproxy.up)
    beat = age_s(max(status.heartbeat_at, status.started_at), status.now)
    yield _gauge("pyconfd_heartbeat_age_seconds", "Seconds since the loop last made progress.", beat)
    yield _gauge("pyconfd_problems", "Problems that the status page shows now.", len(status.problems))
    yield CounterMetricFamily("pyconfd_events", "Changes seen in the cluster.", value=status.events_total)
    yield CounterMetricFamily(
        "pyconfd_reconciliations", "Times that a configuration was rendered.", value=status.reconciliations_total
    )
    counts = {"written": status.object_events.written_total, "failed": status.object_events.failures_total}
    text = "Kubernetes Events on refused objects, where these are on."
    yield _counters("pyconfd_object_events", text, "result", counts)
    writer = status.status_writer
    text = "1 while this process holds the Lease and writes the status of objects of the cluster."
    yield _gauge("pyconfd_status_writer", text, writer.role is WriterRole.WRITER)
    nodes = {"heard": 0, "silent": 0, "differs": 0}
    for node in status.nodes:
        nodes["silent" if node.is_silent else "differs" if node.differences else "heard"] += 1
    text = "Balancers of this cluster that say what they serve, this one included, by what is known of them."
    yield _gauges("pyconfd_nodes", text, "state", list(nodes.items()))
    text = "Objects whose status is still to be written, and by no other process."
    yield _gauge("pyconfd_status_waiting", text, writer.waiting)
    counts = {"written": writer.written_total, "failed": writer.failures_total}
    yield _counters("pyconfd_status_writes", "Writes of the status of objects, by result.", "result", counts)


def _generation(status: Status) -> Iterator[Metric]:
    generation, now = status.generation, status.now
    yield _gauge(
        "pyconfd_last_sync_age_seconds",
        "Seconds since an API server last confirmed the data; +Inf for never.",
        age_s(status.source.last_sync_at, now),
    )
    yield _gauge(
        "pyconfd_last_apply_age_seconds",
        "Seconds since a generation was last applied; +Inf for never.",
        age_s(generation.applied_at if generation else 0.0, now),
    )
    text = "Seconds that a change has waited to be applied; 0 for none."
    yield _since("pyconfd_pending_seconds", text, status.pending_since, now)
    yield _gauge("pyconfd_synced", "1 once every resource has been listed.", status.source.synced)
    number = generation.number if generation else 0
    yield _gauge("pyconfd_generation", "Number of the running generation; 0 for none.", number)
    text = "Names that clients ask for by, in the running configuration; 0 before the first."
    yield _gauge("pyconfd_hosts", text, status.hosts_total or 0)
    yield _gauge("pyconfd_verified", "1 if HAProxy was seen to run the text of the generation.", status.verified)


def _applying(status: Status) -> Iterator[Metric]:
    known, now = status.applying, status.now
    actions = [action.value for action in Action]
    text = "What became of each rendering, by what was done."
    yield _counters("pyconfd_plans", text, "action", known.plans_by_action, actions)
    seconds = HistogramMetricFamily(
        "pyconfd_change_seconds", "From when a change was noticed until it was applied.", labels=["action"]
    )
    for action in (Action.LIVE, Action.RELOAD):
        times = known.times_by_action.get(action.value, Times())
        bounds = [*map(str, BUCKETS_S), "+Inf"]
        buckets = list(zip(bounds, map(float, times.cumulative()), strict=True))
        seconds.add_metric([action.value], buckets=buckets, sum_value=times.sum_s)
    yield seconds
    text = "Reloads by reason; a reload with two reasons counts for both."
    yield _counters("pyconfd_reloads", text, "reason", status.reloads_by_reason, [each.value for each in ReloadReason])
    text = "Reconciliations that failed, by the step that failed."
    yield _counters("pyconfd_failures", text, "step", status.failures_by_step, [step.value for step in Step])
    yield _gauge("pyconfd_old_workers", "Former workers that still end their sessions.", known.former.count)
    yield _gauge("pyconfd_old_worker_connections", "Connections that they have.", known.former.connections)
    text = "Seconds since the oldest of them was started; 0 without any."
    yield _since("pyconfd_oldest_worker_age_seconds", text, known.former.oldest_since, now)
    text = "Former workers that were ended with their sessions to make room for a reload."
    yield CounterMetricFamily("pyconfd_workers_ended", text, value=known.workers_ended_total)
    behind = known.file_behind_since
    text = "1 while the file does not have yet what was changed at run time."
    yield _gauge("pyconfd_file_behind", text, bool(behind))
    yield _since("pyconfd_file_behind_seconds", "Seconds since the file is behind; 0 where it is not.", behind, now)


def _removal_protection(status: Status) -> Iterator[Metric]:
    yield _gauge("pyconfd_held", "1 while removal protection holds a change.", bool(status.hold_id))
    lost = status.hold.lost if status.hold else 0
    yield _gauge("pyconfd_held_endpoints", "Endpoints that are gone from the cluster and kept by it.", lost)
    text = "Holds that began, were confirmed by a second full list, or ended, and by what."
    yield _counters("pyconfd_holds", text, "step", status.holds_by_step, [step.value for step in HoldStep])


def _source(status: Status) -> Iterator[Metric]:
    servers = status.source.api_servers
    text = "1 if the API server answered when last asked."
    yield _gauges("pyconfd_api_server_up", text, "server", [(each.url, each.healthy) for each in servers])
    text = "1 for the API server that the data comes from."
    yield _gauges("pyconfd_api_server_in_use", text, "server", [(each.url, each.in_use) for each in servers])
    text = "When the API server last answered, in seconds since the epoch; 0 for never."
    answered = [(each.url, each.last_ok_at) for each in servers]
    yield _gauges("pyconfd_api_server_last_ok_timestamp_seconds", text, "server", answered)
    text = "1 if the endpoint of etcd answered when last asked."
    yield _gauges("pyconfd_etcd_up", text, "server", [(each.url, each.healthy) for each in status.source.etcd])
    credentials = status.source.credentials
    text = "When the credential stops being valid, in seconds since the epoch; absent where that cannot be told."
    expiry = [(each.name, each.expires_at) for each in credentials if each.expires_at]
    yield _gauges("pyconfd_credential_expiry_timestamp_seconds", text, "credential", expiry)
    text = "0: the credential is good for long; 1: renew it soon; 2: now. Judged by its lifetime where that is known."
    renewal = [(each.name, float(each.renewal(status.now))) for each in credentials]
    yield _gauges("pyconfd_credential_renewal", text, "credential", renewal)
    unusable = [(each.name, bool(each.problem)) for each in credentials]
    text = "1 if the credential cannot be used as it is."
    yield _gauges("pyconfd_credential_problem", text, "credential", unusable)
    resources = [(each.resource.value, each) for each in status.source.resources if each.served]
    text = "1 once the resource has been listed."
    yield _gauges("pyconfd_resource_synced", text, "resource", [(name, each.synced) for name, each in resources])
    counts = [(name, each.objects) for name, each in resources]
    yield _gauges("pyconfd_resource_objects", "Objects in the cache.", "resource", counts)
    ages = [(name, age_s(each.last_sync_at, status.now)) for name, each in resources]
    text = "Seconds since the API server last confirmed this resource; +Inf for never."
    yield _gauges("pyconfd_resource_sync_age_seconds", text, "resource", ages)


def _refused(status: Status) -> Iterator[Metric]:
    objects = defaultdict(set)
    for refusal in status.refused:
        objects[refusal.reason].add(refusal.ref)
    counts = [(reason.value, len(objects[reason])) for reason in RefusalReason if not reason.is_note]
    yield _gauges("pyconfd_refused_objects", "Objects that are left out now, wholly or in part.", "reason", counts)
    noted = defaultdict(set)
    for note in status.notes:
        noted[note.reason].add(note.ref)
    counts = [(reason.value, len(noted[reason])) for reason in RefusalReason if reason.is_note]
    text = "Objects that are served, and of which something should be known."
    yield _gauges("pyconfd_noted_objects", text, "reason", counts)
    text = "Objects that are left out now so that everything else goes on."
    yield _gauge("pyconfd_quarantined_objects", text, len(status.quarantine.now))
    text = "Objects put into quarantine, by the step that rejected them."
    steps = [Step.RENDER.value, Step.CHECK.value]
    yield _counters("pyconfd_quarantined", text, "step", status.quarantine.total_by_step, steps)


def _certificates(status: Status) -> Iterator[Metric]:
    text = "When the certificate that is presented for a host expires, in seconds since the epoch."
    name, labels = "pyconfd_certificate_expiry_timestamp_seconds", ["namespace", "secret", "host"]
    family = GaugeMetricFamily(name, text, labels=labels)
    for each in status.certificates:
        family.add_metric([each.namespace, each.secret, each.host], each.not_after)
    yield family


def _live(status: Status) -> Iterator[Metric]:
    live, now = status.live, status.now
    since = live.paused.since if live.paused is not None else 0.0
    yield _gauge("pyconfd_paused", "1 while an operator has frozen all applying.", live.paused is not None)
    yield _since("pyconfd_paused_seconds", "Seconds since all applying was frozen; 0 if it is not.", since, now)
    by_source = [(each, sum(one.source == each for one in live.overrides)) for each in ("command", "socket")]
    text = "States and weights of servers that were set by hand, by how."
    yield _gauges("pyconfd_overrides", text, "source", by_source)
    yield _gauge("pyconfd_backends_down", "Backends without a server that is up.", live.down_total)
    text = "Servers that get nothing new and wait for their last session to go."
    yield _gauge("pyconfd_leaving_servers", text, live.leaving_total)
    oldest = min((one.since for one in live.leaving), default=0.0)
    yield _since("pyconfd_leaving_oldest_seconds", "How long the oldest of them has waited.", oldest, now)
    text = "Spare backends, which serve new ones without a reload, by whether they do."
    by_state = [("serving", live.spares.serving), ("free", live.spares.free)]
    yield _gauges("pyconfd_spare_backends", text, "state", by_state)
    text = "Servers repaired that somebody else changed."
    yield CounterMetricFamily("pyconfd_drift_repaired", text, value=live.repaired_total)
    text = "Differences from the rendering that only a reload repairs."
    yield _gauge("pyconfd_drift_beyond_repair", text, len(live.beyond_repair))


def _pinned(status: Status) -> Iterator[Metric]:
    pin, rollout = status.pin, status.rollout
    yield _gauge("pyconfd_pinned", "1 while fragments and settings of a former generation are pinned.", pin is not None)
    yield _gauge("pyconfd_pinned_generation", "That generation; 0 for none.", pin.pin.generation if pin else 0)
    text = "Changes of fragments and settings on disk that wait for an unpin."
    yield _gauge("pyconfd_edits_waiting", text, len(pin.waiting) if pin else 0)
    yield _gauge("pyconfd_rollout_monitored", "1 while error rates after a change are monitored.", bool(rollout.until))
    yield _gauge("pyconfd_rollout_alarm", "1 while error rates are much worse than before.", rollout.alarm is not None)
    yield CounterMetricFamily(
        "pyconfd_rollout_alarms", "Alarms of the rollout monitor.", value=float(rollout.alarms_total)
    )


def _targets(status: Status) -> Iterator[Metric]:
    targets = status.targets
    running = [(each.name, each.phase is Phase.SERVING) for each in targets]
    yield _gauges("pyconfd_target_serving", "1 if the target runs what was rendered.", "target", running)
    text = "When the target was last told to load, in seconds since the epoch; 0 for never."
    loaded = [(each.name, each.applied_at) for each in targets]
    yield _gauges("pyconfd_target_last_apply_timestamp_seconds", text, "target", loaded)
    text = "Times that the target was told to load."
    yield _counters("pyconfd_target_applied", text, "target", {each.name: each.applied_total for each in targets})
    failures = {each.name: each.failures_total for each in targets}
    yield _counters("pyconfd_target_failures", "Tries that failed.", "target", failures)
