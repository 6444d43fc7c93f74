"""Kubernetes objects as their controllers write them. Pure: specs in, plain dicts out."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.world.store import suffix

Obj = dict[str, Any]
SERVICE_NAME = "kubernetes.io/service-name"
SLICE_MANAGER = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
ENDPOINTS_MANAGER = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
SLICE_SIZE = 100


@dataclass(frozen=True, slots=True)
class PortSpec:
    """A port of a Service; ``target`` 0 means ``port``."""

    name: str = ""
    port: int = 80
    target: int | str = 0
    protocol: str = "TCP"
    node_port: int = 0


@dataclass(frozen=True, slots=True)
class SlicePort:
    """A port of an EndpointSlice or of an Endpoints subset."""

    name: str = ""
    port: int = 80
    protocol: str = "TCP"


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """One pod behind a Service.

    ``serving`` None means as ``ready``. A terminating endpoint is written with ready false, as the controllers do.
    ``ports`` empty means those given to ``set_endpoints``; others let a named targetPort differ between pods.
    """

    address: str
    ready: bool = True
    serving: bool | None = None
    terminating: bool = False
    node: str = ""
    zone: str = ""
    pod: str = ""
    ports: tuple[SlicePort, ...] = ()

    @property
    def family(self) -> str:
        """IPv4 or IPv6."""
        return "IPv6" if ":" in self.address else "IPv4"


def service(
    namespace: str,
    name: str,
    ports: Sequence[PortSpec],
    *,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    type: str = "ClusterIP",  # noqa: A002 - the API's own name
    families: Sequence[str] = ("IPv4",),
    spec: Mapping[str, Any] | None = None,
) -> Obj:
    """A Service as a user would write it; ``with_service_defaults`` adds the rest."""
    metadata: Obj = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    entries = []
    for port in ports:
        entry: Obj = {"name": port.name} if port.name else {}
        entry |= {"protocol": port.protocol, "port": port.port, "targetPort": port.target or port.port}
        entries.append(entry | ({"nodePort": port.node_port} if port.node_port else {}))
    body = {"ports": entries, "selector": {"app": name}, "type": type, "ipFamilies": list(families)}
    return {"metadata": metadata, "spec": body | dict(spec or {})}


def with_service_defaults(obj: Mapping[str, Any]) -> Obj:
    """What the API server fills in: cluster addresses, protocols, node ports (the same ones for the same name)."""
    metadata, spec = obj["metadata"], dict(obj.get("spec") or {})
    seed = uuid.uuid5(uuid.NAMESPACE_URL, f"{metadata.get('namespace')}/{metadata.get('name')}").int
    kind = spec.get("type") or "ClusterIP"
    families = spec.get("ipFamilies") or ["IPv4"]
    ports = []
    for at, port in enumerate(spec.get("ports") or []):
        entry = {"protocol": "TCP", "targetPort": port["port"]} | port
        has_node_ports = kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", 1))
        if has_node_ports and not entry.get("nodePort"):
            entry["nodePort"] = 30000 + (seed + at) % 2768
        ports.append(entry)
    addresses = {"IPv4": f"10.0.{seed % 254 + 1}.{seed // 254 % 254 + 1}", "IPv6": f"fd00::{seed % 65535 + 1:x}"}
    filled: Obj = {"ports": ports, "clusterIP": addresses[families[0]]}
    filled |= {"clusterIPs": [addresses[family] for family in families], "type": kind, "sessionAffinity": "None"}
    filled |= {"ipFamilies": families, "ipFamilyPolicy": "SingleStack" if len(families) == 1 else "PreferDualStack"}
    filled["internalTrafficPolicy"] = "Cluster"
    if kind != "ClusterIP":
        filled["externalTrafficPolicy"] = "Cluster"
    if kind == "ExternalName":
        filled = {"type": kind, "sessionAffinity": "None"}
    return {**obj, "spec": filled | spec | {"ports": ports}, "status": obj.get("status") or {"loadBalancer": {}}}


def with_namespace_defaults(obj: Mapping[str, Any]) -> Obj:
    """What the API server fills in: the label with the name, and that it is not being deleted."""
    metadata = dict(obj["metadata"])
    metadata["labels"] = {"kubernetes.io/metadata.name": metadata["name"]} | dict(metadata.get("labels") or {})
    return {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}} | dict(obj) | {"metadata": metadata}


def node(
    name: str,
    addresses: Mapping[str, str],
    *,
    ready: bool = True,
    unschedulable: bool = False,
    labels: Mapping[str, str] | None = None,
) -> Obj:
    """``addresses`` maps a type (InternalIP, ExternalIP ...) to an address; Hostname is added."""
    entries = [{"type": kind, "address": address} for kind, address in addresses.items()]
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name} | dict(labels or {})},
        "spec": {"unschedulable": True} if unschedulable else {},
        "status": {
            "conditions": conditions,
            "addresses": [*entries, {"type": "Hostname", "address": name}],
            "nodeInfo": {"kubeletVersion": "v1.36.0"},
        },
    }


def _target_ref(namespace: str, endpoint: EndpointSpec) -> Obj:
    if not endpoint.pod:
        return {}
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"pods/{namespace}/{endpoint.pod}"))
    return {"targetRef": {"kind": "Pod", "namespace": namespace, "name": endpoint.pod, "uid": uid}}


def _slice_endpoint(namespace: str, endpoint: EndpointSpec) -> Obj:
    serving = endpoint.ready if endpoint.serving is None else endpoint.serving
    ready = endpoint.ready and not endpoint.terminating
    conditions = {"ready": ready, "serving": serving, "terminating": endpoint.terminating}
    entry: Obj = {"addresses": [endpoint.address], "conditions": conditions} | _target_ref(namespace, endpoint)
    if endpoint.node:
        entry["nodeName"] = endpoint.node
    if endpoint.zone:
        entry["zone"] = endpoint.zone
    return entry


def _slice_ports(ports: Iterable[SlicePort]) -> list[Obj]:
    return [{"name": port.name, "protocol": port.protocol, "port": port.port} for port in ports]


def _packed(desired: Mapping[str, Obj], current: Sequence[Sequence[Obj]]) -> list[list[Obj]]:
    """Endpoints by slice: those that exist stay where they are, new ones fill up, then come new slices."""
    left = dict(desired)
    packed = []
    for entries in current:
        addresses = [entry["addresses"][0] for entry in entries]
        packed.append([left.pop(address) for address in addresses if address in left])
    for entry in left.values():
        room = next((entries for entries in packed if len(entries) < SLICE_SIZE), None)
        if room is None:
            packed.append(room := [])
        room.append(entry)
    return packed


def slices(
    owner: Mapping[str, Any],
    endpoints: Sequence[EndpointSpec],
    ports: Sequence[SlicePort],
    current: Sequence[Obj],
    family: str,
) -> list[Obj]:
    """The EndpointSlices of one address family as the slice controller would leave them.

    ``current`` are the slices that exist; those not in the result are to be deleted. Without endpoints one empty
    slice stays, its lists null.
    """
    metadata = owner["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    groups: dict[tuple[SlicePort, ...], dict[str, Obj]] = {}
    for endpoint in endpoints:
        entry = _slice_endpoint(namespace, endpoint)
        groups.setdefault(endpoint.ports or tuple(ports), {})[endpoint.address] = entry
    free = list(current)
    result: list[Obj] = []
    for group, desired in groups.items():
        written = _slice_ports(group)
        same = [old for old in free if old.get("ports") == written]
        free = [old for old in free if old not in same]
        for at, entries in enumerate(_packed(desired, [old.get("endpoints") or [] for old in same])):
            if entries:
                reuse = same[at] if at < len(same) else (free.pop(0) if free and not free[0].get("endpoints") else None)
                result.append(
                    _slice(metadata, family, entries, written, reuse, suffix_of(namespace, name, family, result))
                )
    if not result:
        reuse = current[0] if current else None
        result.append(_slice(metadata, family, None, None, reuse, suffix_of(namespace, name, family, result)))
    taken = {item["metadata"]["name"] for item in result}
    if len(taken) != len(result):
        raise AssertionError(f"slice names collide: {sorted(taken)}")
    return result


def suffix_of(namespace: str, name: str, family: str, before: Sequence[Obj]) -> str:
    """A slice's suffix that none of the slices ``before`` it has."""
    taken = {item["metadata"]["name"] for item in before}
    tries = (suffix(f"{namespace}/{name}/{family}/{number}") for number in range(len(before), len(before) + 100_000))
    return next(found for found in tries if f"{name}-{found}" not in taken)


def _slice(
    owner: Mapping[str, Any],
    family: str,
    entries: list[Obj] | None,
    ports: list[Obj] | None,
    old: Obj | None,
    tail: str,
) -> Obj:
    name, namespace = owner["name"], owner["namespace"]
    reference = {"apiVersion": "v1", "kind": "Service", "name": name, "uid": owner.get("uid", "")}
    metadata: Obj = {
        "name": f"{name}-{tail}",
        "generateName": f"{name}-",
        "namespace": namespace,
        "generation": 1,
        "labels": SLICE_MANAGER | {SERVICE_NAME: name},
        "ownerReferences": [reference | {"controller": True, "blockOwnerDeletion": True}],
    }
    if old:
        metadata = dict(old["metadata"])
        if (old.get("endpoints"), old.get("ports")) != (entries, ports):
            metadata["generation"] = metadata.get("generation", 0) + 1
    return {"metadata": metadata, "addressType": family, "endpoints": entries, "ports": ports}


def endpoints_object(
    owner: Mapping[str, Any], endpoints: Sequence[EndpointSpec], ports: Sequence[SlicePort], old: Obj | None
) -> Obj:
    """The v1 Endpoints object: terminating endpoints left out, annotations of ``old`` kept."""
    namespace, name = owner["metadata"]["namespace"], owner["metadata"]["name"]
    metadata: Obj = dict(old["metadata"]) if old else {"name": name, "namespace": namespace}
    metadata["labels"] = (metadata.get("labels") or dict(owner["metadata"].get("labels") or {})) | ENDPOINTS_MANAGER
    groups: dict[tuple[SlicePort, ...], list[EndpointSpec]] = {}
    living = [endpoint for endpoint in endpoints if not endpoint.terminating]
    for endpoint in living:
        groups.setdefault(endpoint.ports or tuple(ports), []).append(endpoint)
    subsets = []
    for group, members in groups.items():
        subset: Obj = {}
        for field, ready in (("addresses", True), ("notReadyAddresses", False)):
            found = sorted((member for member in members if member.ready is ready), key=lambda member: member.address)
            if found:
                subset[field] = [_subset_address(namespace, member) for member in found]
        subset["ports"] = [
            ({"name": port.name} if port.name else {}) | {"port": port.port, "protocol": port.protocol}
            for port in group
        ]
        subsets.append(subset)
    return {"metadata": metadata} | ({"subsets": subsets} if subsets else {})


def _subset_address(namespace: str, endpoint: EndpointSpec) -> Obj:
    entry: Obj = {"ip": endpoint.address}
    if endpoint.node:
        entry["nodeName"] = endpoint.node
    return entry | _target_ref(namespace, endpoint)
