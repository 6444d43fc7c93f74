"""The metrics of ``/metrics``, computed from one Status when they are asked for; docs/metrics.md lists them."""

from collections import defaultdict
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pyconfd.model.context import RefusalReason
from pyconfd.model.hold import HoldStep
from pyconfd.model.outcome import Step
from pyconfd.model.plan import ReloadReason
from pyconfd.model.status import Phase, Status, TargetPhase
from pyconfd.status.applying import applying
from pyconfd.status.health import age_s
from pyconfd.status.past import past
from pyconfd.status.redaction import public_status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Source: https://prometheus.io/docs/instrumenting/exposition_formats/"""


class StatusCollector(Collector):
    """Gives every pyconfd metric from what ``status`` returns at the moment of the scrape.

    Never is +Inf for an age, so that an alert on an age fires for what never happened; a credential whose expiry
    cannot be told has no expiry sample.
    """

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families, all from one Status."""
        status = public_status(self._status())
        yield from _daemon(status)
        yield from _configuration(status)
        yield from _api_servers(status)
        yield from _credentials(status)
        yield from _resources(status)
        yield from _counted(status)
        yield from _targets(status)
        yield from applying(status)
        yield from _live(status)
        yield from past(status)

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


def _daemon(status: Status) -> Iterator[Metric]:
    info = GaugeMetricFamily("pyconfd_build_info", "Always 1; the version is a label.", labels=["version"])
    info.add_metric([status.version], 1)
    yield info
    phase = GaugeMetricFamily("pyconfd_phase", "1 for the phase that the daemon is in, else 0.", labels=["phase"])
    for candidate in Phase:
        phase.add_metric([candidate.value], float(candidate is status.phase))
    yield phase
    yield _gauge(
        "pyconfd_heartbeat_age_seconds",
        "Seconds since the loop last made progress.",
        age_s(max(status.heartbeat_at, status.started_at), status.now),
    )
    yield _gauge("pyconfd_problems", "Problems that the status page shows now.", len(status.problems))


def _configuration(status: Status) -> Iterator[Metric]:
    generation = status.generation
    pending = age_s(status.pending_since, status.now) if status.pending_since else 0.0
    yield _gauge(
        "pyconfd_last_sync_age_seconds",
        "Seconds since an API server last confirmed the data; +Inf for never.",
        age_s(status.source.last_sync_at, status.now),
    )
    yield _gauge(
        "pyconfd_last_apply_age_seconds",
        "Seconds since a generation was last applied; +Inf for never.",
        age_s(generation.applied_at if generation else 0.0, status.now),
    )
    yield _gauge("pyconfd_pending_seconds", "Seconds that a change has waited to be applied; 0 for none.", pending)
    yield _gauge("pyconfd_synced", "1 once every resource has been listed.", status.source.synced)
    yield _gauge("pyconfd_generation", "Number of the generation that serves; 0 for none.", _number(status))
    hosts = status.hosts_total or 0
    yield _gauge("pyconfd_hosts", "Names that clients ask for by, in what serves; 0 before the first.", hosts)
    yield _gauge("pyconfd_verified", "1 if HAProxy was seen to run the text of the generation.", status.verified)
    yield from _holds(status)


def _holds(status: Status) -> Iterator[Metric]:
    yield _gauge("pyconfd_held", "1 while the guard keeps back a change.", float(bool(status.hold_id)))
    lost = status.hold.lost if status.hold else 0
    yield _gauge("pyconfd_held_endpoints", "Endpoints that are gone from the cluster and kept by the guard.", lost)
    steps = CounterMetricFamily(
        "pyconfd_holds",
        "Holds of the guard that began, were confirmed by a second full list, or ended, and by what.",
        labels=["step"],
    )
    for step in HoldStep:
        steps.add_metric([step.value], status.holds_by_step.get(step.value, 0))
    yield steps


def _number(status: Status) -> float:
    return float(status.generation.number) if status.generation else 0.0


def _api_servers(status: Status) -> Iterator[Metric]:
    up = GaugeMetricFamily("pyconfd_api_server_up", "1 if the API server answered when last asked.", labels=["server"])
    in_use = GaugeMetricFamily(
        "pyconfd_api_server_in_use", "1 for the API server that the data comes from.", labels=["server"]
    )
    last_ok = GaugeMetricFamily(
        "pyconfd_api_server_last_ok_timestamp_seconds",
        "When the API server last answered, in seconds since the epoch; 0 for never.",
        labels=["server"],
    )
    for server in status.source.api_servers:
        up.add_metric([server.url], float(server.healthy))
        in_use.add_metric([server.url], float(server.in_use))
        last_ok.add_metric([server.url], server.last_ok_at)
    yield from (up, in_use, last_ok)
    etcd = GaugeMetricFamily(
        "pyconfd_etcd_up", "1 if the endpoint of etcd answered when last asked.", labels=["server"]
    )
    for server in status.source.etcd:
        etcd.add_metric([server.url], float(server.healthy))
    yield etcd


def _credentials(status: Status) -> Iterator[Metric]:
    expiry = GaugeMetricFamily(
        "pyconfd_credential_expiry_timestamp_seconds",
        "When the credential stops being valid, in seconds since the epoch; absent where that cannot be told.",
        labels=["credential"],
    )
    problem = GaugeMetricFamily(
        "pyconfd_credential_problem", "1 if the credential cannot be used as it is.", labels=["credential"]
    )
    renewal = GaugeMetricFamily(
        "pyconfd_credential_renewal",
        "0: the credential is good for long; 1: renew it soon; 2: now. Judged by its lifetime where that is known.",
        labels=["credential"],
    )
    for credential in status.source.credentials:
        renewal.add_metric([credential.name], float(credential.renewal(status.now)))
        if credential.expires_at:
            expiry.add_metric([credential.name], credential.expires_at)
        problem.add_metric([credential.name], float(bool(credential.problem)))
    yield from (expiry, renewal, problem)


def _resources(status: Status) -> Iterator[Metric]:
    synced = GaugeMetricFamily("pyconfd_resource_synced", "1 once the resource has been listed.", labels=["resource"])
    objects = GaugeMetricFamily("pyconfd_resource_objects", "Objects in the cache.", labels=["resource"])
    age = GaugeMetricFamily(
        "pyconfd_resource_sync_age_seconds",
        "Seconds since the API server last confirmed this resource; +Inf for never.",
        labels=["resource"],
    )
    for resource in status.source.resources:
        label = [resource.resource.value]
        synced.add_metric(label, float(resource.synced))
        objects.add_metric(label, resource.objects)
        age.add_metric(label, age_s(resource.last_sync_at, status.now))
    yield from (synced, objects, age)


def _counted(status: Status) -> Iterator[Metric]:
    objects = defaultdict(set)
    for refusal in status.refused:
        objects[refusal.reason].add(refusal.ref)
    refused = GaugeMetricFamily(
        "pyconfd_refused_objects", "Objects that are left out now, wholly or in part.", labels=["reason"]
    )
    for reason in RefusalReason:
        refused.add_metric([reason.value], len(objects[reason]))
    yield refused
    yield _gauge(
        "pyconfd_quarantined_objects",
        "Objects that are left out now so that everything else goes on.",
        len(status.quarantine.now),
    )
    quarantined = CounterMetricFamily(
        "pyconfd_quarantined", "Objects put into quarantine, by the step that turned them away.", labels=["step"]
    )
    for step in (Step.RENDER, Step.CHECK):
        quarantined.add_metric([step.value], status.quarantine.total_by_step.get(step.value, 0))
    yield quarantined
    reloads = CounterMetricFamily(
        "pyconfd_reloads", "Reloads by reason; a reload with two reasons counts for both.", labels=["reason"]
    )
    for label in sorted({reason.value for reason in ReloadReason} | set(status.reloads_by_reason)):
        reloads.add_metric([label], status.reloads_by_reason.get(label, 0))
    yield reloads
    failures = CounterMetricFamily(
        "pyconfd_failures", "Reconciliations that failed, by the step that failed.", labels=["step"]
    )
    for label in sorted({step.value for step in Step} | set(status.failures_by_step)):
        failures.add_metric([label], status.failures_by_step.get(label, 0))
    yield failures
    told = CounterMetricFamily(
        "pyconfd_object_events", "Kubernetes Events on refused objects, where these are on.", labels=["result"]
    )
    told.add_metric(["written"], status.object_events.written_total)
    told.add_metric(["failed"], status.object_events.failures_total)
    yield told
    yield CounterMetricFamily("pyconfd_events", "Changes seen in the cluster.", value=status.events_total)
    yield CounterMetricFamily(
        "pyconfd_reconciliations", "Times that a configuration was rendered.", value=status.reconciliations_total
    )


def _targets(status: Status) -> Iterator[Metric]:
    serving = GaugeMetricFamily(
        "pyconfd_target_serving", "1 if the target serves what was rendered.", labels=["target"]
    )
    last = GaugeMetricFamily(
        "pyconfd_target_last_apply_timestamp_seconds",
        "When the target was last told to load, in seconds since the epoch; 0 for never.",
        labels=["target"],
    )
    applied = CounterMetricFamily(
        "pyconfd_target_applied", "Times that the target was told to load.", labels=["target"]
    )
    failures = CounterMetricFamily("pyconfd_target_failures", "Tries that failed.", labels=["target"])
    for target in status.targets:
        label = [target.name]
        serving.add_metric(label, float(target.phase is TargetPhase.SERVING))
        last.add_metric(label, target.applied_at)
        applied.add_metric(label, target.applied_total)
        failures.add_metric(label, target.failures_total)
    yield from (serving, last, applied, failures)


def _live(status: Status) -> Iterator[Metric]:
    live = status.live
    paused = age_s(live.paused.since, status.now) if live.paused is not None else 0.0
    yield _gauge("pyconfd_paused", "1 while an operator has frozen all applying.", float(live.paused is not None))
    yield _gauge("pyconfd_paused_seconds", "Seconds since all applying was frozen; 0 if it is not.", paused)
    overrides = GaugeMetricFamily(
        "pyconfd_overrides", "States and weights of servers that were set by hand, by how.", labels=["source"]
    )
    for source in ("command", "socket"):
        overrides.add_metric([source], sum(one.source == source for one in live.overrides))
    yield overrides
    yield _gauge("pyconfd_backends_down", "Backends without a server that is up.", live.down_total)
    oldest = min((one.since for one in live.leaving), default=status.now)
    yield _gauge(
        "pyconfd_leaving_servers",
        "Servers that get nothing new and wait for their last session to go.",
        live.leaving_total,
    )
    yield _gauge(
        "pyconfd_leaving_oldest_seconds",
        "How long the oldest of them has waited.",
        age_s(oldest, status.now) if live.leaving else 0.0,
    )
    yield CounterMetricFamily(
        "pyconfd_drift_repaired", "Servers put right that somebody else changed.", value=live.repaired_total
    )
    yield _gauge(
        "pyconfd_drift_beyond_repair",
        "Differences from the rendering that only a reload repairs.",
        len(live.beyond_repair),
    )
