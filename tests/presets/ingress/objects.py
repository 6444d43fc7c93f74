"""Short ways to write Ingresses and what stands behind them, and to read them."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from pyconfd.model.context import Context
from pyconfd.model.snapshot import KIND_OF, RECORD_OF, Key, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from tests.world.pki import KeyPair

Obj = dict[str, Any]
ADDRESSES = AddressOptions(shared=("192.0.2.10", "2001:db8::10"))
PRESETS = ("domains", "ingress")


def ingress_class(name: str = "pyconfd", controller: str = "pyconfd.io/ingress", *, default: bool = False) -> Obj:
    annotations = {"ingressclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"controller": controller},
    }


def backend(reference: str) -> Obj:
    name, _, port = reference.partition(":")
    return {"service": {"name": name, "port": {"number": int(port)} if port.isdigit() else {"name": port}}}


def path(text: str, reference: str = "web:80", kind: str = "Prefix") -> Obj:
    return {"path": text, "pathType": kind, "backend": backend(reference)}


def ingress(
    name: str = "web",
    rules: Mapping[str, Sequence[Obj]] | None = None,
    *,
    default: str = "",
    tls: Sequence[Obj] = (),
    class_name: str | None = "pyconfd",
    namespace: str = "demo",
    day: int = 1,
    annotations: Mapping[str, str] | None = None,
) -> Obj:
    spec: Obj = {"rules": [{"host": host, "http": {"paths": list(paths)}} for host, paths in (rules or {}).items()]}
    if default:
        spec["defaultBackend"] = backend(default)
    if tls:
        spec["tls"] = list(tls)
    if class_name is not None:
        spec["ingressClassName"] = class_name
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}/{name}",
        "generation": 7,
        "creationTimestamp": f"2026-01-{day:02}T00:00:00Z",
        "annotations": dict(annotations or {}),
    }
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


def service(
    name: str = "web",
    *addresses: str,
    namespace: str = "demo",
    annotations: Mapping[str, str] | None = None,
    day: int = 1,
    **spec: Any,
) -> list[Obj]:
    """Return a Service with the ports http (80) and admin (81), and its endpoints on 8080 and 8081."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "creationTimestamp": f"2026-01-{day:02}T00:00:00Z",
        "annotations": dict(annotations or {}),
    }
    ports = [{"name": "http", "port": 80, "targetPort": 8080}, {"name": "admin", "port": 81, "targetPort": 8081}]
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{name}-a", "namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]} for address in addresses],
        "ports": [{"name": "http", "port": 8080}, {"name": "admin", "port": 8081}],
    }
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports} | spec},
        *([slice_] if addresses else []),
    ]


def secret(name: str, pair: KeyPair, *, namespace: str = "demo") -> Obj:
    data = {"tls.key": pair.key, "tls.crt": pair.cert}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace},
        "data": {field: base64.b64encode(path.read_bytes()).decode() for field, path in data.items()},
    }


_RESOURCES = {kind: resource for resource, kind in KIND_OF.items()}


def snapshot(*objects: Obj) -> Snapshot:
    parts: dict[str, Any] = {}
    for each in objects:
        resource = _RESOURCES[each["kind"]]
        key = Key(each["metadata"].get("namespace", ""), each["metadata"]["name"])
        parts.setdefault(resource.field, {})[key] = msgspec.convert(each, RECORD_OF[resource])
    return replace(Snapshot(), **parts)


def read(*objects: Obj, options: PresetOptions | None = None, memo: Memo | None = None) -> Context:
    return registry.translate(snapshot(*objects), PRESETS, options or PresetOptions(addresses=ADDRESSES), memo)


def paths_of(context: Context) -> dict[str, str]:
    """Return the backend of each key of a map; exact paths have a ``=`` before them."""
    return {
        ("=" if entry.map == "exact-paths" else "") + entry.key: name
        for name, made in context.names["ingress"]["backends"].items()
        for entry in made.entries
    }


def refusals(context: Context) -> list[tuple[str, str, str]]:
    """Return the object, field and reason of each refusal."""
    return [(f"{each.ref.namespace}/{each.ref.name}", each.field, each.reason.value) for each in context.refused]
