"""Reads the YAML of test tables as records, as a file source would."""

from typing import Any

import msgspec
import yaml

from pyconfd.model.gateway_api import Gateway, GatewaySpec
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import KIND_OF, RECORD_OF, Key, Snapshot

BY_KIND = {kind: resource for resource, kind in KIND_OF.items()}
_NO_NAMESPACE = frozenset({"GatewayClass", "Namespace", "Node"})

CLASS = """
kind: GatewayClass
metadata: {name: pyconfd, uid: class, generation: 1}
spec: {controllerName: pyconfd.io/gateway}
"""


def snapshot(*texts: str, **other: Any) -> Snapshot:
    """Return the objects of YAML documents; the namespace is ``shop`` where an object names none."""
    found: dict[str, Any] = other
    for document in (each for text in texts for each in yaml.safe_load_all(text) if each):
        kind = document["kind"]
        meta = document.setdefault("metadata", {})
        if kind not in _NO_NAMESPACE:
            meta.setdefault("namespace", "shop")
        meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        meta.setdefault("uid", f"{kind}-{meta['name']}")
        resource = BY_KIND[kind]
        record: Any = msgspec.convert(document, RECORD_OF[resource])
        found.setdefault(resource.field, {})[Key(meta.get("namespace", ""), meta["name"])] = record
    return Snapshot(**found)


def gateway(spec: str, name: str = "web", namespace: str = "shop") -> Gateway:
    return Gateway(
        ObjectMeta(name, namespace, uid="gateway", generation=3), msgspec.convert(yaml.safe_load(spec), GatewaySpec)
    )
