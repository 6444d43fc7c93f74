"""Short ways to write pods, ConfigMaps and what goes with them."""

import base64
import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pyconfd.model.context import Context
from pyconfd.model.kubernetes import ConfigMap, Deployment, Pod, Secret, Service
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.sources.kubernetes.decode import with_whole

Record = ConfigMap | Secret | Pod | Deployment | Service


def pod_json(
    name: str,
    address: str | None,
    labels: Mapping[str, str] | None = None,
    *,
    namespace: str = "demo",
    annotations: Mapping[str, str] | None = None,
    ready: bool = True,
    containers: tuple[bool, ...] | None = None,
    deleted: bool = False,
    phase: str = "Running",
    created: str = "2026-01-01T00:00:00Z",
    gates: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod as the API gives it."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "creationTimestamp": created}
    metadata |= {"labels": dict(labels or {}), "annotations": dict(annotations or {}), "resourceVersion": "7"}
    metadata["managedFields"] = [{"manager": "kubelet"}]
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    conditions += [{"type": kind, "status": status} for kind, status in (gates or {}).items() if status]
    statuses = [{"name": "c", "ready": each} for each in (containers if containers is not None else (ready,))]
    return {
        "metadata": metadata,
        "spec": {"nodeName": "node-1", "readinessGates": [{"conditionType": kind} for kind in gates or {}], **spec},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": statuses}
        | ({"podIP": address} if address else {}),
    }


def pod(name: str, address: str | None, labels: Mapping[str, str] | None = None, **fields: Any) -> Pod:
    given = pod_json(name, address, labels, **fields)
    return with_whole(msgspec.convert(given, Pod), json.dumps(given).encode())


def config_map(name: str, data: Mapping[str, str], namespace: str = "lb") -> ConfigMap:
    return ConfigMap(ObjectMeta(name, namespace), dict(data))


def secret(name: str, data: Mapping[str, str], namespace: str = "lb") -> Secret:
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return Secret(ObjectMeta(name, namespace), "Opaque", encoded)


@cache
def certificate(name: str) -> tuple[str, str]:
    """Return a key and its certificate in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private.decode(), made.public_bytes(serialization.Encoding.PEM).decode()


def snapshot(*records: Record) -> Snapshot:
    def of(kind: type) -> dict[Key, Any]:
        return {Key(r.metadata.namespace, r.metadata.name): r for r in records if isinstance(r, kind)}

    return Snapshot(
        services=of(Service),
        secrets=of(Secret),
        config_maps=of(ConfigMap),
        pods=of(Pod),
        deployments=of(Deployment),
    )


def read(preset: str, *records: Record, options: PresetOptions | None = None) -> Context:
    asked = replace(options or PresetOptions(), cluster_templates=True)
    return registry.translate(snapshot(*records), (preset,), asked)


def refusals(context: Context) -> dict[str, str]:
    """Return what was refused: the object and its field, and why."""
    return {f"{r.ref.kind} {r.ref.name} {r.field}".strip(): r.detail for r in context.refused}
