import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.context import RefusalReason
from pyconfd.model.hold import Hold, HoldKind, HoldStep
from pyconfd.model.outcome import Step
from pyconfd.model.plan import ReloadReason
from pyconfd.model.status import ApiServerState, Phase, SourceHealth, Status
from pyconfd.status.metrics import exposition, registry_of

DOCS = Path(__file__).parents[2] / "docs"


class Samples:
    def __init__(self, status: Status) -> None:
        self.text = exposition(registry_of(lambda: status)).decode()
        self.families = list(text_string_to_metric_families(self.text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        found = [sample.value for sample in self.samples if sample.name == name and sample.labels == labels]
        assert len(found) == 1, f"{name}{labels} is there {len(found)} times"
        return float(found[0])

    def names(self) -> set[str]:
        return {sample.name for sample in self.samples}

    def labels_of(self, name: str, label: str) -> set[str]:
        return {sample.labels[label] for sample in self.samples if sample.name == name}


WEB_TLS = PresentedCertificate("web", "web-tls", "www.example.com", 1_700_000_000 + 5 * 86400)


@pytest.fixture
def sample(make_status: Callable[..., Status]) -> Samples:
    return Samples(make_status(certificates=(WEB_TLS,)))


EXPIRY = "pyconfd_credential_expiry_timestamp_seconds"
UP, DOWN = "https://10.0.0.1:6443", "https://10.0.0.2:6443"
HOLD = Hold("0123abcd", HoldKind.SHARE, 1.0, lost=6, of=10, affected=1)
HELD: dict[str, Any] = {
    "phase": Phase.REJECTED,
    "hold_id": "0123abcd",
    "hold": HOLD,
    "holds_by_step": {"begun": 2, "expired": 1},
}


@pytest.mark.parametrize(
    ("changes", "name", "labels", "value"),
    [
        ({}, "pyconfd_last_sync_age_seconds", {}, 5),
        ({}, "pyconfd_last_apply_age_seconds", {}, 200),
        ({}, "pyconfd_heartbeat_age_seconds", {}, 1),
        ({}, "pyconfd_resource_sync_age_seconds", {"resource": "services"}, 5),
        ({"now": 1_600_000_000.0}, "pyconfd_last_sync_age_seconds", {}, 0),  # the clock went back
        ({"phase": Phase.HELD}, "pyconfd_phase", {"phase": "held"}, 1),
        ({"phase": Phase.HELD}, "pyconfd_phase", {"phase": "serving"}, 0),
        ({"hold_id": "0123abcd"}, "pyconfd_held", {}, 1),
        ({"hold_id": "0123abcd"}, "pyconfd_held_endpoints", {}, 0),
        (HELD, "pyconfd_held", {}, 1),
        (HELD, "pyconfd_held_endpoints", {}, 6),
        (HELD, "pyconfd_holds_total", {"step": "begun"}, 2),
        (HELD, "pyconfd_holds_total", {"step": "confirmed"}, 0),
        ({"pending_since": 1_700_000_000.0 - 42}, "pyconfd_pending_seconds", {}, 42),
        ({}, "pyconfd_api_server_up", {"server": UP}, 1),
        ({}, "pyconfd_api_server_up", {"server": DOWN}, 0),
        ({}, "pyconfd_api_server_in_use", {"server": UP}, 1),
        ({}, "pyconfd_api_server_in_use", {"server": DOWN}, 0),
        ({}, "pyconfd_etcd_up", {"server": "https://10.0.1.1:2379"}, 1),
        ({}, "pyconfd_etcd_up", {"server": "https://10.0.1.2:2379"}, 0),
        ({}, EXPIRY, {"credential": "client certificate"}, 1_700_000_000 + 200 * 86400),
        (
            {"certificates": (WEB_TLS,)},
            "pyconfd_certificate_expiry_timestamp_seconds",
            {"namespace": "web", "secret": "web-tls", "host": "www.example.com"},
            1_700_000_000 + 5 * 86400,
        ),
        ({}, "pyconfd_refused_objects", {"reason": "invalid_value"}, 2),
        ({}, "pyconfd_refused_objects", {"reason": "unreadable"}, 0),
        ({}, "pyconfd_reloads_total", {"reason": "servers_changed"}, 9),
        ({}, "pyconfd_reloads_total", {"reason": "maps_changed"}, 0),
        ({}, "pyconfd_failures_total", {"step": "check"}, 2),
    ],
)
def test_samples(
    make_status: Callable[..., Status], changes: dict[str, Any], name: str, labels: dict[str, str], value: float
) -> None:
    assert Samples(make_status(**changes)).value(name, **labels) == value


def test_never_is_infinite_so_that_an_alert_on_an_age_fires() -> None:
    fresh = Samples(Status(now=10.0, version="1", pid=1, started_at=10.0, heartbeat_at=0.0))
    assert fresh.value("pyconfd_last_sync_age_seconds") == float("inf")
    assert fresh.value("pyconfd_last_apply_age_seconds") == float("inf")
    for name in ("pyconfd_generation", "pyconfd_pending_seconds", "pyconfd_heartbeat_age_seconds"):
        assert fresh.value(name) == 0


def test_every_scrape_reads_the_status_again(make_status: Callable[..., Status]) -> None:
    moments = iter([make_status(), make_status(now=1_700_000_060.0)])
    registry = registry_of(lambda: next(moments))
    assert b"pyconfd_last_sync_age_seconds 5.0" in exposition(registry)
    assert b"pyconfd_last_sync_age_seconds 65.0" in exposition(registry)


def test_every_label_is_there_from_the_start(sample: Samples) -> None:
    assert sample.labels_of("pyconfd_refused_objects", "reason") == {
        each.value for each in RefusalReason if not each.is_note
    }
    assert sample.labels_of("pyconfd_noted_objects", "reason") == {each.value for each in RefusalReason if each.is_note}
    assert sample.labels_of("pyconfd_reloads_total", "reason") == {reason.value for reason in ReloadReason}
    assert sample.labels_of("pyconfd_failures_total", "step") == {step.value for step in Step}
    assert sample.labels_of("pyconfd_holds_total", "step") == {step.value for step in HoldStep}
    assert sample.labels_of(EXPIRY, "credential") == {"client certificate"}, "none where it has no expiry"


def test_two_bad_fields_of_one_object_are_one_refused_object(make_status: Callable[..., Status]) -> None:
    first = make_status().refused[0]
    doubled = Samples(make_status(refused=(first, type(first)(first.ref, "port", "x", first.reason, "no number"))))
    assert doubled.value("pyconfd_refused_objects", reason="invalid_value") == 1


def test_a_password_in_a_server_url_is_no_label() -> None:
    source = SourceHealth(api_servers=(ApiServerState("https://me:hunter2@10.0.0.1:6443"),))
    text = Samples(Status(now=1.0, version="1", pid=1, started_at=1.0, heartbeat_at=1.0, source=source)).text
    assert "hunter2" not in text
    assert "10.0.0.1:6443" in text


def test_no_label_names_an_object_of_the_cluster(sample: Samples) -> None:
    assert "shop" not in sample.text


def test_the_process_is_measured(sample: Samples) -> None:
    assert sample.value("process_resident_memory_bytes") > 0


def test_counters_end_in_total_and_nothing_else_does(sample: Samples) -> None:
    for family in sample.families:
        for one in family.samples:
            assert one.name.endswith("_total") == (family.type == "counter"), one.name


def test_the_list_of_metrics_is_complete(sample: Samples) -> None:
    listed = set(re.findall(r"^\| `(pyconfd_[a-z_]+)", (DOCS / "metrics.md").read_text(), re.MULTILINE))
    # Others write their own: tests/vip/test_commands.py, tests/dns/test_reporting.py, test_route_metrics.py.
    listed = {name for name in listed if not name.startswith(("pyconfd_vip_", "pyconfd_dns_", "pyconfd_route_"))}
    assert listed == {name for name in sample.names() if name.startswith("pyconfd_")}
