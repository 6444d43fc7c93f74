"""The store behind the fake API server: objects, one global resourceVersion, and a log of events."""

import threading
import uuid
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from tests.world import patches
from tests.world.resources import RESOURCES, Resource
from tests.world.selectors import Match
from tests.world.statuses import ApiError, not_found, too_old

Obj = dict[str, Any]
Key = tuple[str, str]
_MOST_EVENTS = 20_000


class EventType(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class PatchType(StrEnum):
    """The Content-Type of a PATCH."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class Stored:
    """One version of one object, never changed; its JSON is made once.

    ``obj`` has neither kind nor apiVersion, as the items of a list.
    """

    __slots__ = ("_full", "_item", "obj", "resource", "rv")

    def __init__(self, resource: Resource, obj: Obj) -> None:
        self.resource = resource
        self.obj = obj
        self.rv = int(obj["metadata"]["resourceVersion"])
        self._item = b""
        self._full = b""

    @property
    def item(self) -> bytes:
        """The JSON as it stands in a list."""
        if not self._item:
            self._item = msgspec.json.encode(self.obj)
        return self._item

    @property
    def full(self) -> bytes:
        """The JSON as it stands alone and in watch events, with kind and apiVersion."""
        if not self._full:
            head = f'{{"kind":"{self.resource.kind}","apiVersion":"{self.resource.api_version}",'
            self._full = head.encode() + self.item[1:]
        return self._full


@dataclass(frozen=True, slots=True)
class Event:
    """``before`` is None for ADDED; a DELETED event carries the last state under the deletion's resourceVersion."""

    rv: int
    type: EventType
    key: Key
    stored: Stored
    before: Stored | None


@dataclass(frozen=True, slots=True)
class Page:
    """``next_start`` is "" on the last page; else the key of its last item."""

    items: list[Stored]
    rv: int
    remaining: int
    next_start: str


class _Shelf:
    """All objects of one resource and what happened to them."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.objects: dict[Key, Stored] = {}
        self.log: list[Event] = []
        self.floor = 0
        self.order: list[Key] | None = []

    def state(self, rv: int | None) -> tuple[Mapping[Key, Stored], list[Key]]:
        if rv is None or not self.log or self.log[-1].rv <= rv:
            if self.order is None:
                self.order = sorted(self.objects, key="/".join)
            return self.objects, self.order
        objects = dict(self.objects)
        for event in reversed(self.log):
            if event.rv <= rv:
                break
            if event.before is None:
                objects.pop(event.key, None)
            else:
                objects[event.key] = event.before
        return objects, sorted(objects, key="/".join)

    def compact(self, rv: int) -> None:
        self.floor = max(self.floor, rv)
        del self.log[: bisect_right(self.log, rv, key=lambda event: event.rv)]


class Store:
    """Thread-safe. Several API servers may share one, as those of one cluster share etcd.

    Objects go in and come out as plain dicts that the caller may keep and change.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self._rv = 100
        self._shelves = {plural: _Shelf(resource) for plural, resource in RESOURCES.items()}

    @property
    def rv(self) -> int:
        """The resourceVersion of the last change."""
        return self._rv

    def now(self) -> str:
        """RFC 3339, as the API writes times."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def advance(self, by: int = 1) -> int:
        """Increase the resourceVersion as if something that is not listed had changed."""
        with self.changed:
            self._rv += by
            self.changed.notify_all()
            return self._rv

    def compact(self, rv: int | None = None) -> None:
        """Forget events up to ``rv`` (default: all): older watches and continue tokens get 410."""
        with self.changed:
            for shelf in self._shelves.values():
                shelf.compact(self._rv if rv is None else rv)

    # Reading

    def stored(self, resource: str, namespace: str, name: str) -> Stored:
        """Raises: ApiError: 404."""
        found = self._shelves[resource].objects.get((namespace, name))
        if found is None:
            raise not_found(resource, name, RESOURCES[resource].group)
        return found

    def get(self, resource: str, namespace: str, name: str) -> Obj:
        """A copy with kind and apiVersion. Raises: ApiError: 404."""
        found = self.stored(resource, namespace, name)
        head = {"kind": found.resource.kind, "apiVersion": found.resource.api_version}
        return head | patches.clone(found.obj)

    def named(self, resource: str, namespace: str, prefix: str) -> list[Stored]:
        """The objects of one namespace whose names begin with ``prefix``, by name."""
        with self.changed:
            found = self._shelves[resource].objects
            keys = sorted(key for key in found if key[0] == namespace and key[1].startswith(prefix))
            return [found[key] for key in keys]

    def objects(self, resource: str, namespace: str = "", match: Match | None = None) -> list[Obj]:
        """Copies of all that match, by namespace and name."""
        items = self.page(resource, namespace=namespace, match=match).items
        return [patches.clone(stored.obj) for stored in items]

    def page(
        self,
        resource: str,
        *,
        namespace: str = "",
        match: Match | None = None,
        limit: int = 0,
        start: str = "",
        at: int | None = None,
    ) -> Page:
        """The objects after the key ``start``, as they were at resourceVersion ``at``.

        Raises:
            ApiError: 410 where the state at ``at`` was compacted.
        """
        with self.changed:
            shelf = self._shelves[resource]
            if at is not None and at < shelf.floor:
                raise too_old(at, shelf.floor)
            objects, order = shelf.state(at)
            first = bisect_right(order, start, key="/".join) if start else 0
            items = [objects[key] for key in order[first:] if not namespace or key[0] == namespace]
            rv = self._rv if at is None else at
        if match:
            items = [stored for stored in items if match(stored.obj)]
        if not limit or len(items) <= limit:
            return Page(items, rv, 0, "")
        last = items[limit - 1].obj["metadata"]
        return Page(items[:limit], rv, len(items) - limit, f"{last.get('namespace', '')}/{last['name']}")

    def events_after(self, resource: str, rv: int) -> list[Event]:
        """Events newer than ``rv``, oldest first.

        Raises:
            ApiError: 410 where some of them were compacted.
        """
        with self.changed:
            shelf = self._shelves[resource]
            if rv < shelf.floor:
                raise too_old(rv, shelf.floor)
            return shelf.log[bisect_right(shelf.log, rv, key=lambda event: event.rv) :]

    # Writing

    def _commit(self, shelf: _Shelf, key: Key, obj: Obj | None) -> Stored:
        """Store ``obj`` (None: delete) under the next resourceVersion and log the event."""
        before = shelf.objects.get(key)
        self._rv += 1
        if obj is None:
            assert before is not None
            obj = before.obj | {"metadata": before.obj["metadata"] | {"resourceVersion": str(self._rv)}}
            event_type, stored = EventType.DELETED, Stored(shelf.resource, obj)
            del shelf.objects[key]
        else:
            obj["metadata"]["resourceVersion"] = str(self._rv)
            event_type = EventType.MODIFIED if before else EventType.ADDED
            stored = Stored(shelf.resource, obj)
            shelf.objects[key] = stored
        if event_type is not EventType.MODIFIED:
            shelf.order = None
        shelf.log.append(Event(self._rv, event_type, key, stored, before))
        if len(shelf.log) > _MOST_EVENTS:
            shelf.compact(shelf.log[len(shelf.log) // 2].rv)
        self.changed.notify_all()
        return stored

    def _prepared(self, resource: str, obj: Mapping[str, Any]) -> tuple[Key, Obj]:
        """A copy of ``obj`` without kind and apiVersion, its metadata first and in the usual order."""
        kind = RESOURCES[resource]
        source = patches.clone(dict(obj))
        metadata = source.pop("metadata", None) or {}
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + suffix(f"{self._rv}")
        if not metadata.get("name"):
            raise ApiError(
                422, f"{kind.kind} is invalid: metadata.name: Required value: name or generateName is required"
            )
        head: Obj = {"name": metadata.pop("name")}
        namespace = metadata.pop("namespace", "") if kind.namespaced else ""
        if kind.namespaced:
            namespace = namespace or "default"
            if "generateName" in metadata:
                head["generateName"] = metadata.pop("generateName")
            head["namespace"] = namespace
        rest = {name: value for name, value in source.items() if name not in {"kind", "apiVersion"}}
        return (namespace, head["name"]), {"metadata": head | metadata} | rest

    def create(self, resource: str, obj: Mapping[str, Any]) -> Obj:
        """Raises: ApiError: 409 where it exists, 422 without a name."""
        with self.changed:
            shelf = self._shelves[resource]
            key, new = self._prepared(resource, obj)
            if key in shelf.objects:
                message = f'{shelf.resource.qualified} "{key[1]}" already exists'
                raise ApiError(409, message, reason="AlreadyExists", details={"name": key[1], "kind": resource})
            metadata = new["metadata"]
            metadata.setdefault("uid", str(uuid.uuid5(uuid.NAMESPACE_URL, f"{resource}/{key}/{self._rv}")))
            metadata["resourceVersion"] = ""
            metadata.setdefault("creationTimestamp", self.now())
            self._commit(shelf, key, new)
            return self.get(resource, *key)

    def update(self, resource: str, obj: Mapping[str, Any]) -> Obj:
        """Replace an object; nothing happens where nothing differs.

        Raises:
            ApiError: 404, or 409 where ``obj`` names an older resourceVersion.
        """
        with self.changed:
            key, new = self._prepared(resource, obj)
            old = self.stored(resource, *key)
            metadata, former = new["metadata"], old.obj["metadata"]
            if metadata.get("resourceVersion", former["resourceVersion"]) != former["resourceVersion"]:
                message = (
                    f'Operation cannot be fulfilled on {resource} "{key[1]}": the object has been modified; '
                    "please apply your changes to the latest version and try again"
                )
                raise ApiError(409, message, details={"name": key[1], "kind": resource})
            for name in ("uid", "resourceVersion", "creationTimestamp", "generateName"):
                if name in former:
                    metadata[name] = former[name]
            if new != old.obj:
                self._commit(self._shelves[resource], key, new)
            return self.get(resource, *key)

    def put(self, resource: str, obj: Mapping[str, Any]) -> Obj:
        """Create or replace."""
        with self.changed:
            key, _ = self._prepared(resource, obj)
            exists = key in self._shelves[resource].objects
            return self.update(resource, obj) if exists else self.create(resource, obj)

    def patch(
        self, resource: str, namespace: str, name: str, patch: Any, patch_type: PatchType = PatchType.MERGE
    ) -> Obj:
        """Raises: ApiError: 404 or 409."""
        with self.changed:
            old = patches.clone(self.stored(resource, namespace, name).obj)
            if patch_type is PatchType.STRATEGIC:
                new = patches.strategic(old, patch, dict(RESOURCES[resource].merge_keys))
            else:
                new = patches.merge(old, patch)
            for empty in ("annotations", "labels"):
                if new["metadata"].get(empty) == {}:
                    del new["metadata"][empty]
            return self.update(resource, new)

    def delete(self, resource: str, namespace: str, name: str) -> Obj:
        """The last state. Raises: ApiError: 404."""
        with self.changed:
            last = self.get(resource, namespace, name)
            self._commit(self._shelves[resource], (namespace, name), None)
            return last


def suffix(seed: str) -> str:
    """Five letters as the API server appends to generateName, but always the same for one seed."""
    letters = "bcdfghjklmnpqrstvwxz2456789"
    number = uuid.uuid5(uuid.NAMESPACE_URL, seed).int
    return "".join(letters[number // 27**i % 27] for i in range(5))
