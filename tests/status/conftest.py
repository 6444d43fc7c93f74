from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.outcome import Generation
from pyconfd.model.snapshot import Resource
from pyconfd.model.status import (
    ApiServerState,
    CredentialState,
    HaproxyState,
    Phase,
    ResourceState,
    SourceHealth,
    Status,
    TargetState,
)

NOW = 1_700_000_000.0
DAY = 86400.0


def refusal(index: int, reason: RefusalReason = RefusalReason.INVALID_VALUE) -> Refusal:
    return Refusal(
        ObjectRef("Service", "demo", f"shop-{index:02}"), "domain", "a b", reason, "a host name has no blank"
    )


SAMPLE = Status(
    now=NOW,
    version="0.1.0",
    pid=4711,
    started_at=NOW - 7500,
    heartbeat_at=NOW - 1,
    phase=Phase.SERVING,
    haproxy=HaproxyState(up=True, since=NOW - 7500),
    source=SourceHealth(
        synced=True,
        last_sync_at=NOW - 5,
        api_servers=(
            ApiServerState("https://10.0.0.1:6443", in_use=True, healthy=True, last_ok_at=NOW - 5),
            ApiServerState("https://10.0.0.2:6443", last_error="connection refused", last_error_at=NOW - 40),
        ),
        resources=(
            ResourceState(Resource.SERVICES, synced=True, objects=1204, last_sync_at=NOW - 5),
            ResourceState(Resource.NODES, synced=False, problem="403 Forbidden"),
        ),
        credentials=(
            CredentialState("client certificate", expires_at=NOW + 200 * DAY),
            CredentialState("token"),
        ),
        etcd=(
            ApiServerState("https://10.0.1.1:2379", in_use=True, healthy=True, last_ok_at=NOW - 5),
            ApiServerState("https://10.0.1.2:2379", last_error="no answer in time", last_error_at=NOW - 40),
        ),
        note="stands by: lb-1/77 publishes",
    ),
    generation=Generation(12, "ab" * 32, NOW - 200, reasons=("servers_changed",)),
    verified=True,
    refused=(refusal(1), refusal(2), refusal(3, RefusalReason.NAME_TAKEN)),
    reloads_by_reason={"servers_changed": 9, "first_configuration": 1},
    failures_by_step={"check": 2},
    events_total=345,
    reconciliations_total=30,
    targets=(
        TargetState("caddy", "/etc/caddy/Caddyfile", Phase.SERVING, "cd" * 32, NOW - 200, (), 4, 1),
        TargetState("nginx", "/etc/nginx/nginx.conf", Phase.FAILED, problems=("target nginx: it is down",)),
    ),
)


@pytest.fixture
def make_status() -> Callable[..., Status]:
    def make(**changes: Any) -> Status:
        return replace(SAMPLE, **changes)

    return make
