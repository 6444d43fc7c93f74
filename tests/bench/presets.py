"""How long each preset needs for 10,000 Services, and for one that changed: translation alone, as one CPU counts it."""

import gc
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from pyconfd.model.host import HostFacts
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.reading import PresetOptions
from pyconfd.sources.file import read_snapshot
from tests.bench.figures import Figure, median
from tests.world import objects
from tests.world.objects import PortSpec

SERVICES, ENDPOINTS, NODES, ROUNDS = 10_000, 10, 50, 5

Annotate = Callable[[int], Mapping[str, Any]]

_GIVEN: Mapping[str, Annotate] = MappingProxyType(
    {
        "domains": lambda number: {"annotations": {"domain": f"s{number}.example.com", "proto": "http"}},
        "kubefigurator": lambda number: {
            "labels": {"haproxy-kubefigurator.enabled": "yes"},
            "annotations": {"haproxy-kubefigurator.web.hostname": f"s{number}.example.com"},
        },
    }
)
"""What makes a Service one that a preset serves; a preset that is not listed reads Services without annotations."""


def _snapshot(given: Annotate) -> Snapshot:
    items = []
    for number in range(SERVICES):
        name, namespace = f"service-{number:05d}", f"team-{number % 200:03d}"
        made = objects.service(namespace, name, [PortSpec("web", 80, 8080)], type="NodePort", **given(number))
        made["metadata"]["creationTimestamp"] = f"2026-01-01T{number % 24:02d}:{number % 60:02d}:00Z"
        items.append({"apiVersion": "v1", "kind": "Service", **objects.with_service_defaults(made)})
        addresses = [f"10.{number >> 8}.{number & 255}.{index + 1}" for index in range(ENDPOINTS)]
        items.append(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": f"{name}-a", "namespace": namespace, "labels": {objects.SERVICE_NAME: name}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [each], "conditions": {"ready": True}} for each in addresses],
                "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}],
            }
        )
    for number in range(NODES):
        node = objects.node(f"node-{number}", {"InternalIP": f"192.0.2.{number + 1}"})
        items.append({"apiVersion": "v1", "kind": "Node", **node})
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"apiVersion": "v1", "kind": "List", "items": items}, file)
        file.flush()
        snapshot, refused = read_snapshot(Path(file.name))
    assert not refused
    return snapshot


def _changed(snapshot: Snapshot) -> Snapshot:
    """Give the same with one Service labelled anew, as a watch event would leave it."""
    key = Key("team-000", "service-00000")
    service = snapshot.services[key]
    meta = msgspec.structs.replace(service.metadata, labels={**(service.metadata.labels or {}), "changed": "yes"})
    services = {**snapshot.services, key: msgspec.structs.replace(service, metadata=meta)}
    return Snapshot(
        snapshot.cluster, services, snapshot.endpointslices, snapshot.endpoints, snapshot.nodes, snapshot.secrets
    )


def preset_translation() -> Iterator[Figure]:
    """Time every registered preset by itself, the rich view of the cluster included."""
    for preset in registry.PRESETS:
        snapshot = _snapshot(_GIVEN.get(preset, lambda _: {}))
        assert snapshot.host == HostFacts()
        changed, times, again = _changed(snapshot), [], []
        gc.collect()
        for _ in range(ROUNDS):
            began = time.process_time()
            registry.translate(snapshot, (preset,), PresetOptions())
            middle = time.process_time()
            registry.translate(changed, (preset,), PresetOptions())
            times.append(middle - began)
            again.append(time.process_time() - middle)
        yield Figure(f"preset_{preset}_10000_services_cpu", median(times) * 1000, "ms", 1000)
        yield Figure(f"preset_{preset}_one_changed_service_cpu", median(again) * 1000, "ms")
