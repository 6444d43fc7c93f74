"""How long each preset needs for 10,000 Services, and for one that changed: translation alone, as one CPU counts it."""

import gc
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from pyconfd.sources.file import read_snapshot
from tests.bench.figures import Figure, median
from tests.world import objects
from tests.world.objects import PortSpec

SERVICES, ENDPOINTS, NODES, ROUNDS = 10_000, 10, 50, 5
GOAL = 1 / 20
"""The share of a whole translation that one changed service may cost."""

Change = Callable[[Snapshot, int], Snapshot]
"""Gives a Snapshot with one thing changed; the number makes each change another one."""

Annotate = Callable[[int], Mapping[str, Any]]

_GIVEN: Mapping[str, Annotate] = MappingProxyType(
    {
        "domains": lambda number: {"annotations": {"domain": f"s{number}.example.com", "proto": "http"}},
        "kubefigurator": lambda number: {
            "labels": {"haproxy-kubefigurator.enabled": "yes"},
            "annotations": {"haproxy-kubefigurator.web.hostname": f"s{number}.example.com"},
        },
        "kube2lb": lambda number: {"annotations": {"kube2lb/external-domains": f"s{number}.example.com"}},
    }
)
"""What makes a Service one that a preset serves, for each preset that reads Services."""


def snapshot_of(services: int, preset: str = "domains") -> Snapshot:
    """Return so many Services as ``preset`` serves them, each with its EndpointSlice and Endpoints."""
    given = _GIVEN[preset]
    items = []
    for number in range(services):
        name, namespace = f"service-{number:05d}", f"team-{number % 200:03d}"
        made = objects.service(namespace, name, [PortSpec("web", 80, 8080)], type="NodePort", **given(number))
        made["metadata"]["creationTimestamp"] = f"2026-01-01T{number % 24:02d}:{number % 60:02d}:00Z"
        items.append({"apiVersion": "v1", "kind": "Service", **objects.with_service_defaults(made)})
        addresses = [f"10.{number >> 8}.{number & 255}.{index + 1}" for index in range(ENDPOINTS)]
        item = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{name}-a", "namespace": namespace, "labels": {objects.SERVICE_NAME: name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [each], "conditions": {"ready": True}} for each in addresses],
            "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}],
        }
        items += [item, endpoints_of(item)]
    for number in range(NODES):
        node = objects.node(f"node-{number}", {"InternalIP": f"192.0.2.{number + 1}"})
        items.append({"apiVersion": "v1", "kind": "Node", **node})
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"apiVersion": "v1", "kind": "List", "items": items}, file)
        file.flush()
        snapshot, refused = read_snapshot(Path(file.name))
    assert not refused
    return snapshot


def endpoints_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Endpoints that a controller manager writes beside the EndpointSlice ``item`` of a Service."""
    found: dict[bool, list[dict[str, str]]] = {True: [], False: []}
    for endpoint in item["endpoints"]:
        found[endpoint["conditions"]["ready"]] += [{"ip": address} for address in endpoint["addresses"]]
    namespace, service = item["metadata"]["namespace"], item["metadata"]["labels"][objects.SERVICE_NAME]
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": service, "namespace": namespace},
        "subsets": [{"addresses": found[True], "notReadyAddresses": found[False], "ports": item["ports"]}],
    }


def _relabelled(snapshot: Snapshot, version: int) -> Snapshot:
    """Return the same with other labels of one Service, as a watch event would leave it."""
    key = Key("team-000", "service-00000")
    service = snapshot.services[key]
    meta = msgspec.structs.replace(
        service.metadata, labels={**(service.metadata.labels or {}), "changed": f"v{version}"}
    )
    return replace(snapshot, services={**snapshot.services, key: msgspec.structs.replace(service, metadata=meta)})


def slice_key(number: int) -> Key:
    """Return the key of the EndpointSlice of one service."""
    return Key(f"team-{number % 200:03d}", f"service-{number:05d}-a")


def readdressed(snapshot: Snapshot, version: int, number: int = 0) -> Snapshot:
    """Return the same with another address in one EndpointSlice, that of the service ``number``."""
    key = slice_key(number)
    item = snapshot.endpointslices[key]
    first, *others = item.endpoints or ()
    endpoints = (msgspec.structs.replace(first, addresses=(f"10.255.0.{version}",)), *others)
    again = msgspec.structs.replace(item, endpoints=endpoints)
    return replace(snapshot, endpointslices={**snapshot.endpointslices, key: again})


def _deleted(snapshot: Snapshot, version: int) -> Snapshot:
    """Return the same without one Service."""
    key = Key(f"team-{version:03d}", f"service-{version:05d}")
    return replace(snapshot, services={k: service for k, service in snapshot.services.items() if k != key})


CHANGES: Mapping[str, Change] = MappingProxyType(
    {"relabelled_service": _relabelled, "changed_endpoint": readdressed, "deleted_service": _deleted}
)


def figures(preset: str, whole: Snapshot, changes: Mapping[str, Change], options: PresetOptions) -> Iterator[Figure]:
    """Return the time of a translation from nothing, and that of one after each kind of change, also as a share."""
    memo, times = Memo(), []
    for _ in range(ROUNDS):
        memo = Memo()
        gc.collect()
        times.append(_cpu_s(whole, preset, options, memo))
    fresh = median(times)
    yield Figure(f"preset_{preset}_10000_services_cpu", fresh * 1000, "ms", 1000)
    snapshot = whole
    for change, apply in changes.items():
        times = []
        for version in range(1, 2 * ROUNDS):
            snapshot = apply(snapshot, version)
            times.append(_cpu_s(snapshot, preset, options, memo))
        # Another object may get what was let go, so that all claims are judged again.
        goal = None if change.startswith(("deleted", "rewritten")) else GOAL
        yield Figure(f"preset_{preset}_one_{change}_cpu", median(times) * 1000, "ms")
        yield Figure(f"preset_{preset}_one_{change}_ratio", median(times) / fresh, "of all services", goal)


def _cpu_s(snapshot: Snapshot, preset: str, options: PresetOptions, memo: Memo) -> float:
    began = time.process_time()
    context = registry.translate(snapshot, (preset,), options, memo)
    spent = time.process_time() - began
    assert context.totals.claimed >= SERVICES - 2 * ROUNDS
    return spent


def preset_services() -> Iterator[Figure]:
    """Time each preset that reads Services by itself, the rich view of the cluster included."""
    for preset in _GIVEN:
        yield from figures(preset, snapshot_of(SERVICES, preset), CHANGES, PresetOptions())
