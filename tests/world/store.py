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

from tests.world import defaults, ownership, patches
from tests.world.ownership import Manager, Owners
from tests.world.resources import RESOURCES, Resource
from tests.world.selectors import Match
from tests.world.status_rules import validate_status
from tests.world.statuses import ApiError, conflict, no_such_path, not_found, too_old

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
    APPLY = "application/apply-patch+yaml"


class Part(StrEnum):
    """Which part of an object a write may change; the rest of what it says is ignored."""

    WHOLE = "whole"
    """As test code writes, and the API a resource without the subresource."""
    MAIN = "main"
    """All but the status."""
    STATUS = "status"
    """Only the status."""


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
            self._full = self.full_as(self.resource.api_version)
        return self._full

    def full_as(self, api_version: str) -> bytes:
        """The same for one of the versions that are served."""
        return f'{{"kind":"{self.resource.kind}","apiVersion":"{api_version}",'.encode() + self.item[1:]


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
        self.absent: frozenset[str] = frozenset()
        """The resources whose CustomResourceDefinitions are not installed."""

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

    def uninstall(self, name: str) -> None:
        """Delete CustomResourceDefinitions: one by its plural, or all of a group.

        As in a real cluster their objects are deleted first, so watches see that; then the watches end, and every
        path of theirs is unknown.
        """
        with self.changed:
            for resource in _definitions(name):
                for namespace, each in list(self._shelves[resource].objects):
                    self.delete(resource, namespace, each)
                self.absent |= {resource}
            self.changed.notify_all()

    def install(self, name: str) -> None:
        """Bring back what ``uninstall`` deleted, without its objects."""
        with self.changed:
            self.absent -= set(_definitions(name))
            self.changed.notify_all()

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

    def create(self, resource: str, obj: Mapping[str, Any], *, part: Part = Part.WHOLE, dry_run: bool = False) -> Obj:
        """Raises: ApiError: 404 where it is not installed, 409 where it exists, 422 without a name."""
        with self.changed:
            if resource in self.absent:
                raise no_such_path()
            shelf = self._shelves[resource]
            key, new = self._prepared(resource, obj)
            if key in shelf.objects:
                message = f'{shelf.resource.qualified} "{key[1]}" already exists'
                raise conflict(resource, shelf.resource.group, key[1], message, reason="AlreadyExists")
            if part is Part.MAIN:
                new.pop("status", None)
            metadata = new["metadata"]
            metadata.setdefault("uid", str(uuid.uuid5(uuid.NAMESPACE_URL, f"{resource}/{key}/{self._rv}")))
            metadata["resourceVersion"] = ""
            metadata.setdefault("creationTimestamp", self.now())
            if shelf.resource.generation:
                metadata["generation"] = 1
            defaults.fill(resource, new)
            return self._finish(shelf, key, new, dry_run=dry_run)

    def update(
        self,
        resource: str,
        obj: Mapping[str, Any],
        *,
        part: Part = Part.WHOLE,
        manager: str = "",
        dry_run: bool = False,
    ) -> Obj:
        """Replace an object, or a part of it; nothing happens where nothing differs.

        Raises:
            ApiError: 404, or 409 where ``obj`` names an older resourceVersion or another uid; 422 for a bad status.
        """
        with self.changed:
            key, new = self._prepared(resource, obj)
            old = self.stored(resource, *key).obj
            self._check_version(resource, old, new)
            kind = RESOURCES[resource]
            writer = Manager(
                manager or "unknown", kind.api_version, subresource="status" if part is Part.STATUS else ""
            )
            new = self._limited(old, new, part)
            owners = Owners.of(old)
            if owners.fields:
                lists = dict(kind.lists)
                ownership.track(_ownable(old), _ownable(new), owners, writer, lists, now=self.now())
            return self._replace(resource, key, old, new, owners, dry_run=dry_run)

    def put(self, resource: str, obj: Mapping[str, Any]) -> Obj:
        """Create or replace."""
        with self.changed:
            key, new = self._prepared(resource, obj)
            if key not in self._shelves[resource].objects:
                return self.create(resource, obj)
            new["metadata"].pop("uid", None)
            return self.update(resource, new)

    def patch(
        self,
        resource: str,
        namespace: str,
        name: str,
        patch: Any,
        patch_type: PatchType = PatchType.MERGE,
        *,
        part: Part = Part.WHOLE,
        manager: str = "",
        dry_run: bool = False,
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
            return self.update(resource, new, part=part, manager=manager, dry_run=dry_run)

    def apply(
        self,
        resource: str,
        config: Mapping[str, Any],
        *,
        manager: str,
        force: bool = False,
        part: Part = Part.MAIN,
        dry_run: bool = False,
    ) -> Obj:
        """Server-side apply: set the fields of ``config``, and drop those that this manager applied before.

        An object that does not exist is created, but not for the sake of its status.

        Raises:
            ApiError: 404, or 409 for an older resourceVersion, another uid, or fields of others without ``force``.
        """
        with self.changed:
            key, wanted = self._prepared(resource, config)
            kind, shelf = RESOURCES[resource], self._shelves[resource]
            fields = _ownable(wanted)
            if part is not Part.WHOLE:
                fields = {name: each for name, each in fields.items() if (name == "status") is (part is Part.STATUS)}
            writer = Manager(manager, kind.api_version, True, "status" if part is Part.STATUS else "")
            lists = dict(kind.lists)
            if key not in shelf.objects and part is not Part.STATUS:
                owners = Owners()
                applied = ownership.apply({}, fields, owners, writer, lists, force=force, now=self.now())
                metadata = wanted["metadata"] | {"managedFields": owners.entries()}
                return self.create(resource, applied | {"metadata": metadata}, part=part, dry_run=dry_run)
            old = self.stored(resource, *key).obj
            self._check_version(resource, old, wanted)
            owners, live = Owners.of(old), _ownable(old)
            if not owners.fields:
                before = Manager(ownership.BEFORE, kind.api_version)
                written = {
                    name: each
                    for name, each in live.items()
                    if name != "status" or not defaults.is_default_status(resource, each)
                }
                owners.take_over(before, ownership.paths(written, lists), now=self.now())
            applied = ownership.apply(live, fields, owners, writer, lists, force=force, now=self.now())
            identity = {name: each for name, each in old["metadata"].items() if name in ownership.IDENTITY}
            new = applied | {"metadata": identity | applied.get("metadata", {})}
            return self._replace(resource, key, old, new, owners, dry_run=dry_run)

    @staticmethod
    def _limited(old: Obj, new: Obj, part: Part) -> Obj:
        """Return ``new`` with what it may not change as it was."""
        if part is Part.STATUS:
            status = {"status": new["status"]} if "status" in new else {}
            return {name: each for name, each in old.items() if name != "status"} | status
        if part is Part.MAIN:
            status = {"status": old["status"]} if "status" in old else {}
            return {name: each for name, each in new.items() if name != "status"} | status
        return new

    def _check_version(self, resource: str, old: Obj, new: Obj) -> None:
        """Raises: ApiError: 409 where ``new`` was made of another version, or is about another object of that name."""
        former = old["metadata"]
        wrong = [name for name in ("uid", "resourceVersion") if new["metadata"].get(name, former[name]) != former[name]]
        if wrong:
            name = former["name"]
            why = "the object has been modified; please apply your changes to the latest version and try again"
            if wrong[0] == "uid":
                why = f"Precondition failed: UID in precondition: {new['metadata']['uid']}, UID in object meta: "
                why += former["uid"]
            kind = RESOURCES[resource]
            raise conflict(
                resource, kind.group, name, f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
            )

    def _replace(self, resource: str, key: Key, old: Obj, new: Obj, owners: Owners, *, dry_run: bool) -> Obj:
        shelf = self._shelves[resource]
        metadata, former = dict(new["metadata"]), old["metadata"]
        metadata.pop("managedFields", None)
        for name in ("uid", "resourceVersion", "creationTimestamp", "generateName"):
            if name in former:
                metadata[name] = former[name]
        if owners.fields:
            metadata["managedFields"] = owners.entries()
        new = new | {"metadata": metadata}
        defaults.fill(resource, new)
        if shelf.resource.generation:
            metadata["generation"] = former["generation"] + (_desired(new) != _desired(old))
        if shelf.resource.crd:
            validate_status(shelf.resource, new)
        if new == old:
            return self.get(resource, *key)
        return self._finish(shelf, key, new, dry_run=dry_run)

    def _finish(self, shelf: _Shelf, key: Key, new: Obj, *, dry_run: bool) -> Obj:
        if dry_run:
            return {"kind": shelf.resource.kind, "apiVersion": shelf.resource.api_version} | patches.clone(new)
        self._commit(shelf, key, new)
        return self.get(shelf.resource.plural, *key)

    def delete(self, resource: str, namespace: str, name: str) -> Obj:
        """The last state. Raises: ApiError: 404."""
        with self.changed:
            last = self.get(resource, namespace, name)
            self._commit(self._shelves[resource], (namespace, name), None)
            return last


def _definitions(name: str) -> list[str]:
    found = [each.plural for each in RESOURCES.values() if each.crd and name in {each.plural, each.group}]
    assert found, f"no CustomResourceDefinition of the fake is {name}"
    return found


def _desired(obj: Obj) -> Obj:
    """What ``metadata.generation`` counts the changes of."""
    return {name: each for name, each in obj.items() if name not in {"metadata", "status"}}


def _ownable(obj: Obj) -> Obj:
    """Return an object without the fields that no manager owns."""
    metadata = {
        name: each
        for name, each in obj["metadata"].items()
        if name not in ownership.IDENTITY | {"generateName", "managedFields"}
    }
    return {name: each for name, each in obj.items() if name != "metadata"} | (
        {"metadata": metadata} if metadata else {}
    )


def suffix(seed: str) -> str:
    """Five letters as the API server appends to generateName, but always the same for one seed."""
    letters = "bcdfghjklmnpqrstvwxz2456789"
    number = uuid.uuid5(uuid.NAMESPACE_URL, seed).int
    return "".join(letters[number // 27**i % 27] for i in range(5))
