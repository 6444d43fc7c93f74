"""The objects of a hold as they were before the loss, and Snapshots that still have them [pure]."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from pyconfd.model.kubernetes import SERVICE_NAME_LABEL, AnyObject, Endpoint, Endpoints, EndpointSlice, Node, Pod
from pyconfd.model.listener import canonical
from pyconfd.model.snapshot import ROUTING_RESOURCES, Key, Snapshot
from pyconfd.model.versioned import differing

ENDPOINT_FIELDS = ("endpointslices", "pods", "nodes")
"""Fields of a Snapshot whose objects are, or list, what traffic is sent to."""

CLAIM_FIELDS = ("services", "endpoints", "config_maps", "namespaces", *(each.field for each in ROUTING_RESOURCES))
"""Fields of a Snapshot whose objects ask for something to be served, or allow it."""

_Identity = tuple[str, str, str]
"""Namespace, kind and name of a pod; of an endpoint without a target just the namespace is known."""


class KeptObjects:
    """The objects that one hold keeps.

    Of an EndpointSlice the lost endpoints are kept, and served beside those that the cluster shows. A pod or node is
    kept as a whole, a pod until its name has another address. What asks for traffic, as a Service does, is kept as a
    whole; an edit or a new object during a hold is intended, so then the new version is kept.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[Key, AnyObject]] = {field: {} for field in (*ENDPOINT_FIELDS, *CLAIM_FIELDS)}
        self.changed = True
        """Whether :attr:`objects` changed since the caller reset it."""
        self._newest: dict[tuple[str, Key], AnyObject | None] = {}
        """The version of an object of ``CLAIM_FIELDS`` that the cluster showed when it was kept."""
        self._identities: dict[str, _Identity] = {}
        """The pod behind each kept address."""
        self._overlay: dict[str, dict[Key, AnyObject]] = {field: {} for field in self.objects}
        self._dirty: set[tuple[str, Key]] = set()
        """The objects to merge again with what the cluster shows."""
        self._last: tuple[Snapshot, Snapshot] | None = None
        """The last Snapshot, and the merged one that was served for it."""

    def restore(self, objects: Mapping[str, Iterable[AnyObject]], shown: Snapshot) -> None:
        """Load the objects of a former run; ``shown`` is what the cluster shows now."""
        for field, records in objects.items():
            for each in records:
                key = Key(each.metadata.namespace, each.metadata.name)
                self._put(field, key, each, getattr(shown, field).get(key))

    def keep_lost(self, old: Snapshot, new: Snapshot, missing: Collection[str], *, name_vanished: bool) -> None:
        """Add what the objects that differ had of the addresses ``missing``, and vanished ones that claim something.

        With ``name_vanished`` also those that changed: one of them withdrew a name.
        """
        for field in ENDPOINT_FIELDS:
            former = getattr(old, field)
            for key in differing(former, getattr(new, field)):
                if key in self.objects[field]:
                    self._dirty.add((field, key))
                self._keep_addresses(field, key, old, new, missing)
        for field in CLAIM_FIELDS:
            former, latter = getattr(old, field), getattr(new, field)
            for key in differing(former, latter):
                before, after, is_kept = former.get(key), latter.get(key), key in self.objects[field]
                if is_kept and after is not None and after is not self._newest[field, key]:
                    self._put(field, key, after, after)
                elif is_kept:
                    self._dirty.add((field, key))
                elif before is not None and (after is None or name_vanished or _has_one(before, missing)):
                    self._put(field, key, before, after)

    def _keep_addresses(self, field: str, key: Key, old: Snapshot, new: Snapshot, missing: Collection[str]) -> None:
        before, known = getattr(old, field).get(key), self.objects[field].get(key)
        has = {address for address, _ in addresses_of(known)}
        went = [each for each in addresses_of(before) if each[0] in missing and each[0] not in has]
        if not went:
            return
        if isinstance(before, EndpointSlice):
            service = _service_of(key, before)
            if service in old.services and service not in self.objects["services"]:
                # The Service may be deleted next, between two looks.
                self._put("services", service, old.services[service], new.services.get(service))
            endpoints = tuple(each for _, each in (*addresses_of(known), *went) if each is not None)
            before = msgspec.structs.replace(before, endpoints=endpoints)
        self._put(field, key, before)

    def forget(self, deleted: Iterable[tuple[str, Key]]) -> tuple[set[str], set[str]]:
        """Drop objects that were deleted by name, and with a Service its lost endpoints.

        Return the addresses of these endpoints, and those of them that no other kept object has.
        """
        dropped: set[str] = set()
        for field, key in deleted:
            self.objects[field].pop(key, None)
            self._dirty.add((field, key))
            slices = self.objects["endpointslices"] if field == "services" else {}
            for each in [each for each, record in slices.items() if _service_of(each, record) == key]:
                dropped.update(address for address, _ in addresses_of(slices.pop(each)))
                self._dirty.add(("endpointslices", each))
        kept = (record for field in ENDPOINT_FIELDS for record in self.objects[field].values()) if dropped else ()
        self.changed = True
        return dropped, dropped - {address for record in kept for address, _ in addresses_of(record)}

    def reused_addresses(self, old: Snapshot, new: Snapshot) -> set[str]:
        """Return the kept addresses that another pod has now, in an object that differs.

        Pods in the network of their node share its address; they do not count.
        """
        found: set[str] = set()
        for field in ("endpointslices", "pods"):
            latter = getattr(new, field)
            for key in differing(getattr(old, field), latter):
                for address, endpoint in addresses_of(latter.get(key)):
                    if self._identities.get(address, ()) not in {(), _identity(latter[key], endpoint)}:
                        found.add(address)
        return found - {each for node in new.nodes.values() for each, _ in addresses_of(node)} if found else found

    def merge_all_again(self) -> None:
        """Merge every kept object again at the next :meth:`merged`."""
        self._dirty.update((field, key) for field, kept in self.objects.items() for key in kept)

    def addresses_to_merge(self) -> set[str]:
        """Return the addresses of the objects that are to be merged again."""
        records = [self.objects[field].get(key) for field, key in self._dirty]
        return {address for record in records for address, _ in addresses_of(record)}

    def merged(self, shown: Snapshot, missing: Collection[str]) -> Snapshot:
        """Return ``shown`` with what is kept of the addresses ``missing``; the same one as long as nothing changes."""
        if self._last is not None and self._last[0] is shown and not self._dirty:
            return self._last[1]
        renewed = {field for field, _ in self._dirty}
        for field, key in self._dirty:
            present, overlay = getattr(shown, field).get(key), self._overlay[field]
            made = with_missing(self.objects[field].get(key), present, missing)
            if made is None or made == present:
                overlay.pop(key, None)
            elif overlay.get(key) != made:
                overlay[key] = made
        self._dirty.clear()
        parts: dict[str, Any] = {}
        for field, overlay in self._overlay.items():
            objects = getattr(shown, field)
            if self._last is not None and field not in renewed and getattr(self._last[0], field) is objects:
                parts[field] = getattr(self._last[1], field)
            elif overlay:
                parts[field] = {**objects, **overlay}
        self._last = (shown, replace(shown, **parts))
        return self._last[1]

    def _put(self, field: str, key: Key, record: AnyObject, newest: AnyObject | None = None) -> None:
        self.objects[field][key] = record
        self._dirty.add((field, key))
        self.changed = True
        if field in CLAIM_FIELDS:
            self._newest[field, key] = newest
        elif field != "nodes":
            self._identities |= {address: _identity(record, endpoint) for address, endpoint in addresses_of(record)}


def with_missing(kept: AnyObject | None, present: AnyObject | None, missing: Collection[str]) -> AnyObject | None:
    """Return an object as the cluster shows it now, with what ``kept`` has of the addresses ``missing``."""
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


def _service_of(key: Key, record: AnyObject) -> Key:
    return Key(key.namespace, (record.metadata.labels or {}).get(SERVICE_NAME_LABEL, ""))


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
