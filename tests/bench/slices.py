"""Makes EndpointSlices as a real cluster has them: managedFields, owner references and all. Seeded: always the same."""

import random
import uuid
from typing import Any

import orjson

PAGE_SIZE = 500


def endpointslices(services: int, endpoints: int) -> list[dict[str, Any]]:
    """Return one slice for each service, with ``endpoints`` endpoints each."""
    rng = random.Random(20260101)
    return [_slice(rng, number, endpoints) for number in range(services)]


def whole_list(items: list[dict[str, Any]]) -> bytes:
    """Return an EndpointSliceList as the API server would answer it."""
    return orjson.dumps(
        {
            "kind": "EndpointSliceList",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"resourceVersion": "9"},
            "items": items,
        }
    )


def pages(items: list[dict[str, Any]]) -> list[bytes]:
    """Return the same list in pages of 500, as it is read."""
    return [whole_list(items[start : start + PAGE_SIZE]) for start in range(0, len(items), PAGE_SIZE)]


def watch_lines(items: list[dict[str, Any]]) -> list[bytes]:
    """Return a MODIFIED event for each slice, each with an endpoint turned unready."""
    lines = []
    for number, item in enumerate(items):
        changed = orjson.loads(orjson.dumps(item))
        changed["metadata"]["resourceVersion"] = str(500_000 + number)
        changed["endpoints"][0]["conditions"]["ready"] = False
        lines.append(orjson.dumps({"type": "MODIFIED", "object": changed}) + b"\n")
    return lines


def _uid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128)))


def _slice(rng: random.Random, number: int, count: int) -> dict[str, Any]:
    name, namespace = f"service-{number:05d}", f"team-{number % 200:03d}"
    replica_set = f"{rng.getrandbits(36):09x}"
    labels = {
        "app": name,
        "app.kubernetes.io/managed-by": "Helm",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        "kubernetes.io/service-name": name,
    }
    owner = {"apiVersion": "v1", "blockOwnerDeletion": True, "controller": True, "kind": "Service", "name": name}
    fields: dict[str, Any] = {
        "f:addressType": {},
        "f:endpoints": {},
        "f:metadata": {
            "f:annotations": {".": {}, "f:endpoints.kubernetes.io/last-change-trigger-time": {}},
            "f:generateName": {},
            "f:labels": {".": {}} | {f"f:{label}": {} for label in labels},
            "f:ownerReferences": {".": {}, f'k:{{"uid":"{_uid(rng)}"}}': {}},
        },
        "f:ports": {},
    }
    return {
        "metadata": {
            "name": f"{name}-{rng.getrandbits(20):05x}",
            "generateName": f"{name}-",
            "namespace": namespace,
            "uid": _uid(rng),
            "resourceVersion": str(100_000 + number),
            "generation": 7,
            "creationTimestamp": "2026-01-01T09:00:00Z",
            "labels": labels,
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T10:00:00Z"},
            "ownerReferences": [owner | {"uid": _uid(rng)}],
            "managedFields": [
                {
                    "manager": "kube-controller-manager",
                    "operation": "Update",
                    "apiVersion": "discovery.k8s.io/v1",
                    "time": "2026-01-01T10:00:01Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": fields,
                }
            ],
        },
        "addressType": "IPv4",
        "endpoints": [
            _endpoint(rng, number * count + index, f"{name}-{replica_set}", namespace) for index in range(count)
        ],
        "ports": [{"name": "web", "protocol": "TCP", "port": 8080}],
    }


def _endpoint(rng: random.Random, number: int, prefix: str, namespace: str) -> dict[str, Any]:
    pod = {"kind": "Pod", "namespace": namespace, "name": f"{prefix}-{rng.getrandbits(20):05x}", "uid": _uid(rng)}
    return {
        "addresses": [f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": pod,
        "nodeName": f"node-{number % 500:03d}.example.internal",
        "zone": f"eu-1{'abc'[number % 3]}",
    }
