"""The objects of a hold as they were before the loss, and Snapshots that still have them [pure]."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from pyconfd.model.kubernetes import SERVICE_NAME_LABEL, AnyObject, Endpoint, Endpoints, EndpointSlice, Node, Pod
from pyconfd.model.listener import canonical
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.model.versioned import differing

HOLDERS = ("endpointslices", "pods", "nodes")
"""The fields of a Snapshot whose objects are, or list, what traffic is sent to."""

CLAIMANTS = ("services", "endpoints", "config_maps")
"""The fields whose objects ask for something to be served."""

_Identity = tuple[str, str, str]
"""Namespace, kind and name of a pod; of an endpoint without a target just the namespace is known."""


class KeptObjects:
    """What stays served of what went; belongs to one hold.

    Of an EndpointSlice the endpoints that went are kept, and served beside those that the cluster shows. A pod or node
    is kept as a whole, a pod until its name has another address. A Service, Endpoints object or ConfigMap is kept as a
    whole; who edits or creates it during a hold means it, so then the new version is.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[Key, AnyObject]] = {field: {} for field in (*HOLDERS, *CLAIMANTS)}
        self.changed = True
        """Whether :attr:`objects` changed since somebody said False."""
        self._became: dict[tuple[str, Key], AnyObject | None] = {}
        """What a claimant had become when it was kept."""
        self._identities: dict[str, _Identity] = {}
        """Whose each kept address is."""
        self._overlay: dict[str, dict[Key, AnyObject]] = {field: {} for field in self.objects}
        self._dirty: set[tuple[str, Key]] = set()
        """What has to be merged again."""
        self._given: tuple[Snapshot, Snapshot] | None = None
        """The last Snapshot, and the one that was served for it."""

    def restore(self, objects: Mapping[str, Iterable[AnyObject]], shown: Snapshot) -> None:
        """Keep the objects of a former run; ``shown`` is what the cluster shows now."""
        for field, records in objects.items():
            for each in records:
                key = Key(each.metadata.namespace, each.metadata.name)
                self._put(field, key, each, getattr(shown, field).get(key))

    def follow(self, old: Snapshot, new: Snapshot, missing: Collection[str], *, claim_went: bool) -> None:
        """Keep what the objects that differ had of the addresses ``missing``, and the claimants that vanished.

        With ``claim_went`` also those that changed: one of them took a name back.
        """
        for field in HOLDERS:
            former = getattr(old, field)
            for key in differing(former, getattr(new, field)):
                if key in self.objects[field]:
                    self._dirty.add((field, key))
                self._keep_addresses(field, key, old, new, missing)
        for field in CLAIMANTS:
            former, latter = getattr(old, field), getattr(new, field)
            for key in differing(former, latter):
                before, after, is_kept = former.get(key), latter.get(key), key in self.objects[field]
                if is_kept and after is not None and after is not self._became[field, key]:
                    self._put(field, key, after, after)
                elif is_kept:
                    self._dirty.add((field, key))
                elif before is not None and (after is None or claim_went or _has_one(before, missing)):
                    self._put(field, key, before, after)

    def _keep_addresses(self, field: str, key: Key, old: Snapshot, new: Snapshot, missing: Collection[str]) -> None:
        before, known = getattr(old, field).get(key), self.objects[field].get(key)
        has = {address for address, _ in addresses_of(known)}
        went = [each for each in addresses_of(before) if each[0] in missing and each[0] not in has]
        if not went:
            return
        if isinstance(before, EndpointSlice):
            service = Key(key.namespace, (before.metadata.labels or {}).get(SERVICE_NAME_LABEL, ""))
            if service in old.services and service not in self.objects["services"]:
                # It may be deleted next, and while nobody looks.
                self._put("services", service, old.services[service], new.services.get(service))
            endpoints = tuple(each for _, each in (*addresses_of(known), *went) if each is not None)
            before = msgspec.structs.replace(before, endpoints=endpoints)
        self._put(field, key, before)

    def taken(self, old: Snapshot, new: Snapshot) -> set[str]:
        """Return the kept addresses that another pod shows in an object that differs.

        Pods in the network of their node share its address, and take it from nobody.
        """
        found: set[str] = set()
        for field in ("endpointslices", "pods"):
            latter = getattr(new, field)
            for key in differing(getattr(old, field), latter):
                for address, endpoint in addresses_of(latter.get(key)):
                    if self._identities.get(address, ()) not in {(), _identity(latter[key], endpoint)}:
                        found.add(address)
        return found - {each for node in new.nodes.values() for each, _ in addresses_of(node)} if found else found

    def touch_all(self) -> None:
        """Have everything merged again."""
        self._dirty.update((field, key) for field, kept in self.objects.items() for key in kept)

    def touched(self) -> set[str]:
        """Return the addresses of all that is to be merged again."""
        records = [self.objects[field].get(key) for field, key in self._dirty]
        return {address for record in records for address, _ in addresses_of(record)}

    def merged(self, shown: Snapshot, missing: Collection[str]) -> Snapshot:
        """Return ``shown`` with what is kept of the addresses ``missing``; the same one as long as nothing changes."""
        if self._given is not None and self._given[0] is shown and not self._dirty:
            return self._given[1]
        renewed = {field for field, _ in self._dirty}
        for field, key in self._dirty:
            present, overlay = getattr(shown, field).get(key), self._overlay[field]
            made = _merged(self.objects[field].get(key), present, missing)
            if made is None or made == present:
                overlay.pop(key, None)
            elif overlay.get(key) != made:
                overlay[key] = made
        self._dirty.clear()
        parts: dict[str, Any] = {}
        for field, overlay in self._overlay.items():
            objects = getattr(shown, field)
            if self._given is not None and field not in renewed and getattr(self._given[0], field) is objects:
                parts[field] = getattr(self._given[1], field)
            elif overlay:
                parts[field] = {**objects, **overlay}
        self._given = (shown, replace(shown, **parts))
        return self._given[1]

    def _put(self, field: str, key: Key, record: AnyObject, became: AnyObject | None = None) -> None:
        self.objects[field][key] = record
        self._dirty.add((field, key))
        self.changed = True
        if field in CLAIMANTS:
            self._became[field, key] = became
        elif field != "nodes":
            self._identities |= {address: _identity(record, endpoint) for address, endpoint in addresses_of(record)}


def _merged(kept: AnyObject | None, present: AnyObject | None, missing: Collection[str]) -> AnyObject | None:
    """Return an object as it is to be served."""
    if isinstance(kept, EndpointSlice):
        now = present if isinstance(present, EndpointSlice) else msgspec.structs.replace(kept, endpoints=())
        # Two pods in the network of one node may be shown with one address, one of them ready.
        ready = {address for address, each in addresses_of(now) if each is not None and _is_ready(each)}
        back = {address: each for address, each in addresses_of(kept) if address in missing and address not in ready}
        there = (each for address, each in addresses_of(now) if address not in back)
        endpoints = tuple(each for each in (*there, *back.values()) if each is not None)
        return msgspec.structs.replace(now, endpoints=endpoints, ports=now.ports or kept.ports)
    if isinstance(kept, Pod | Node) and not _has_one(kept, missing):
        return present
    if isinstance(kept, Pod) and isinstance(present, Pod) and present.status.pod_ip != kept.status.pod_ip:
        return present  # a pod of the same name, and another one
    return kept or present


def _has_one(record: AnyObject, addresses: Collection[str]) -> bool:
    return any(address in addresses for address, _ in addresses_of(record))


def _identity(record: AnyObject, endpoint: Endpoint | None) -> _Identity:
    if isinstance(record, Pod):
        return record.metadata.namespace, "Pod", record.metadata.name
    target = endpoint.target_ref if endpoint is not None else None
    return record.metadata.namespace, target.kind if target else "", target.name if target else ""


def addresses_of(record: AnyObject | None) -> list[tuple[str, Endpoint | None]]:
    """Return the addresses of an object that traffic is sent to."""
    if isinstance(record, EndpointSlice):
        return [(canonical(each.addresses[0]), each) for each in record.endpoints or () if each.addresses]
    if isinstance(record, Endpoints):
        return [(canonical(each.ip), None) for subset in record.subsets or () for each in subset.addresses or ()]
    if isinstance(record, Pod):
        return [(canonical(record.status.pod_ip), None)] if record.status.pod_ip else []
    if isinstance(record, Node):
        return [(canonical(each.address), None) for each in record.status.addresses or ()]
    return []


def _is_ready(endpoint: Endpoint) -> bool:
    conditions = endpoint.conditions
    return conditions is None or (conditions.ready is not False and not conditions.terminating)
