"""Objects as the Table that ``kubectl get`` prints."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from tests.world.resources import Resource

Obj = dict[str, Any]
_Columns = tuple[tuple[str, Callable[[Obj], str]], ...]
_SHOWN = 3


def _age(obj: Obj) -> str:
    created = obj["metadata"].get("creationTimestamp")
    if not created:
        return "<unknown>"
    seconds = int((datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"


def _shortened(values: list[str]) -> str:
    more = f" + {len(values) - _SHOWN} more..." if len(values) > _SHOWN else ""
    return ",".join(values[:_SHOWN]) + more if values else "<none>"


def _service_ports(obj: Obj) -> str:
    ports = obj.get("spec", {}).get("ports") or []
    shown = (f"{p['port']}:{p['nodePort']}" if p.get("nodePort") else str(p["port"]) for p in ports)
    return ",".join(f"{text}/{p.get('protocol', 'TCP')}" for text, p in zip(shown, ports, strict=True)) or "<none>"


def _endpoints(obj: Obj) -> str:
    found = [
        f"[{address['ip']}]:{port['port']}" if ":" in address["ip"] else f"{address['ip']}:{port['port']}"
        for subset in obj.get("subsets") or []
        for port in subset.get("ports") or []
        for address in subset.get("addresses") or []
    ]
    return _shortened(found)


def _slice_ports(obj: Obj) -> str:
    return _shortened([str(port.get("port")) for port in obj.get("ports") or []]).replace("<none>", "<unset>")


def _slice_endpoints(obj: Obj) -> str:
    entries = obj.get("endpoints") or []
    return _shortened([address for entry in entries for address in entry["addresses"]]).replace("<none>", "<unset>")


def _node_status(obj: Obj) -> str:
    conditions = obj.get("status", {}).get("conditions") or []
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    cordoned = ",SchedulingDisabled" if obj.get("spec", {}).get("unschedulable") else ""
    return ("Ready" if ready else "NotReady") + cordoned


def _spec(field: str) -> Callable[[Obj], str]:
    return lambda obj: str(obj.get("spec", {}).get(field) or "<none>")


_COLUMNS: dict[str, _Columns] = {
    "services": (
        ("Type", _spec("type")),
        ("Cluster-IP", _spec("clusterIP")),
        ("External-IP", lambda _: "<none>"),
        ("Port(s)", _service_ports),
    ),
    "endpoints": (("Endpoints", _endpoints),),
    "endpointslices": (
        ("AddressType", lambda obj: str(obj.get("addressType"))),
        ("Ports", _slice_ports),
        ("Endpoints", _slice_endpoints),
    ),
    "nodes": (("Status", _node_status), ("Roles", lambda _: "<none>")),
    "pods": (("Status", lambda obj: str(obj.get("status", {}).get("phase", ""))),),
    "configmaps": (("Data", lambda obj: str(len(obj.get("data") or {}))),),
    "secrets": (("Type", lambda obj: str(obj.get("type", ""))), ("Data", lambda obj: str(len(obj.get("data") or {})))),
}


def table(resource: Resource, objects: Iterable[Obj], rv: int) -> Obj:
    """A ``meta.k8s.io/v1`` Table with a row for each object."""
    columns = _COLUMNS.get(resource.plural, ())
    names = ["Name", *(name for name, _ in columns), "Age"]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": str(rv)},
        "columnDefinitions": [
            {
                "name": name,
                "type": "string",
                "format": "name" if name == "Name" else "",
                "description": "",
                "priority": 0,
            }
            for name in names
        ],
        "rows": [
            {
                "cells": [obj["metadata"]["name"], *(cell(obj) for _, cell in columns), _age(obj)],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": obj["metadata"],
                },
            }
            for obj in objects
        ],
    }
