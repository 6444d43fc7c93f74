"""Who owns which field of an object: server-side apply and its managedFields. Pure.

Source: "Server-Side Apply" in the documentation of Kubernetes, and the form of fieldsV1 in structured-merge-diff.
Sets and atomic maps of a spec are not told apart from atomic lists and granular maps: no status has any.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from tests.world.patches import clone
from tests.world.statuses import ApiError

Obj = dict[str, Any]
Path = tuple[str, ...]
"""Steps as in fieldsV1: ``f:name`` of a map, ``k:{"type":"Ready"}`` of a list with keys; an item is a field too."""
ListKeys = Mapping[str, tuple[str, ...]]
"""The lists that are merged by key, by path ("status.conditions"); every other list is one value."""
BEFORE = "before-first-apply"
"""Who owns the fields of an object that has no managedFields when it is applied first, as the API server calls it."""
IDENTITY = frozenset({"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"})


@dataclass(frozen=True, slots=True)
class Manager:
    """Who writes, how, and through which subresource: each has an entry of its own in managedFields."""

    name: str
    api_version: str
    apply: bool = False
    subresource: str = ""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """The manager of an entry of managedFields."""
        applies = entry["operation"] == "Apply"
        return cls(entry["manager"], entry["apiVersion"], applies, entry.get("subresource", ""))


@dataclass(slots=True)
class Owners:
    """The managedFields of one object; ``since`` is the time of each entry."""

    fields: dict[Manager, set[Path]] = field(default_factory=dict)
    since: dict[Manager, str] = field(default_factory=dict)

    @classmethod
    def of(cls, obj: Obj) -> Self:
        """Read them from an object."""
        entries = obj["metadata"].get("managedFields") or []
        return cls(
            {Manager.of(entry): set(_decoded(entry["fieldsV1"])) for entry in entries},
            {Manager.of(entry): entry.get("time", "") for entry in entries},
        )

    def take_over(self, manager: Manager, paths: Iterable[Path], *, now: str) -> None:
        """Add fields to those of ``manager``, and take them away from all others."""
        self._put(manager, self.fields.get(manager, set()) | set(paths), now)
        self.release(paths, but=manager, now=now)

    def replace(self, manager: Manager, paths: Iterable[Path], *, now: str) -> None:
        """Set the fields of ``manager``: what it applies now, and nothing that it applied before."""
        self._put(manager, set(paths), now)

    def release(self, paths: Iterable[Path], *, but: Manager | None = None, now: str) -> None:
        """Take fields away from all managers but one."""
        gone = set(paths)
        for other, theirs in list(self.fields.items()):
            if other != but and theirs & gone:
                self._put(other, theirs - gone, now)

    def _put(self, manager: Manager, paths: set[Path], now: str) -> None:
        if not paths:
            self.fields.pop(manager, None)
            return
        if self.fields.get(manager) != paths:
            self.since[manager] = now
        self.fields[manager] = paths

    def entries(self) -> list[Obj]:
        """Return the managedFields."""
        found = []
        for manager in sorted(self.fields, key=lambda each: (not each.apply, self.since[each], each.name)):
            entry: Obj = {"manager": manager.name, "operation": "Apply" if manager.apply else "Update"}
            entry |= {"apiVersion": manager.api_version, "time": self.since[manager], "fieldsType": "FieldsV1"}
            entry |= {"fieldsV1": _encoded(self.fields[manager])}
            found.append(entry | ({"subresource": manager.subresource} if manager.subresource else {}))
        return found


def paths(obj: Obj, lists: ListKeys) -> set[Path]:
    """Return every field of an object.

    Raises:
        ApiError: 400 for a list with keys whose items lack one, or that has two items of one key.
    """
    return {path for path in _paths(obj, lists, "") if path}


def _paths(value: Any, lists: ListKeys, at: str) -> Iterator[Path]:
    if isinstance(value, dict) and value:
        for name, each in value.items():
            below = f"{at}.{name}" if at else name
            yield from ((f"f:{name}", *rest) for rest in _paths(each, lists, below))
    elif isinstance(value, list) and at in lists:
        for step, item in _items(value, lists[at], at).items():
            yield (step,)
            yield from ((step, *rest) for rest in _paths(item, lists, at))
    else:
        yield ()


def merged(live: Any, config: Any, lists: ListKeys, at: str = "") -> Any:
    """Return ``live`` with every field of ``config``; items of lists with keys keep their order, new ones come last."""
    if isinstance(config, dict) and isinstance(live, dict):
        result = dict(live)
        for name, each in config.items():
            below = f"{at}.{name}" if at else name
            result[name] = merged(live[name], each, lists, below) if name in live else clone(each)
        return result
    if isinstance(config, list) and isinstance(live, list) and at in lists:
        ours = _items(config, lists[at], at)
        theirs = _items(live, lists[at], at)
        both = {step: merged(item, ours[step], lists, at) if step in ours else item for step, item in theirs.items()}
        return [*both.values(), *(clone(item) for step, item in ours.items() if step not in theirs)]
    return clone(config)


def value_at(value: Any, path: Sequence[str]) -> Any:
    """Return the value of a field, None where it is absent."""
    for step in path:
        value = _stepped(value, step)
    return value


def without(obj: Obj, gone: Iterable[Path]) -> Obj:
    """Return an object without some fields; maps and lists that have nothing else go with them."""
    result = clone(obj)
    for path in sorted(gone, key=len):  # an item of a list before its key, by which it is found
        _remove(result, path)
    return result


def apply(live: Obj, config: Obj, owners: Owners, manager: Manager, lists: ListKeys, *, force: bool, now: str) -> Obj:
    """Return ``live`` with ``config`` applied, and change ``owners``.

    Raises:
        ApiError: 409 where another manager owns a field that would change, without ``force``.
    """
    ours = paths(config, lists)
    former = owners.fields.get(manager, set())
    conflicts = {
        (other, path)
        for other, theirs in owners.fields.items()
        if other != manager
        for path in theirs & ours
        if not path[-1].startswith("k:") and value_at(live, path) != value_at(config, path)
    }
    if conflicts and not force:
        raise _conflict(conflicts, owners.since)
    owners.replace(manager, ours, now=now)
    owners.release({path for _, path in conflicts}, but=manager, now=now)
    kept = {path for theirs in owners.fields.values() for path in theirs}
    kept |= {path[:length] for path in kept for length in range(1, len(path))}
    # Where an item stays for the sake of a field of another owner, so do the fields that are its key.
    kept |= {
        (*path, f"f:{key}") for path in kept if path[-1].startswith("k:") for key in msgspec.json.decode(path[-1][2:])
    }
    return without(merged(live, config, lists), former - kept)


def track(old: Obj, new: Obj, owners: Owners, manager: Manager, lists: ListKeys, *, now: str) -> None:
    """Change ``owners`` as for a write that is no apply: who changes a field owns it."""
    before, after = paths(old, lists), paths(new, lists)
    changed = {path for path in after if path not in before or value_at(old, path) != value_at(new, path)}
    # An item is changed by who adds it, not by who changes a field of it.
    changed -= {path for path in changed & before if path[-1].startswith("k:")}
    owners.release(before - after, now=now)
    owners.take_over(manager, changed, now=now)


def _items(value: list[Any], keys: tuple[str, ...], at: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, item in enumerate(value):
        if any(key not in item for key in keys):
            raise ApiError(400, f".{at}: element {number}: associative list with keys has an element that omits {keys}")
        step = "k:" + msgspec.json.encode({key: item[key] for key in sorted(keys)}).decode()
        if step in found:
            raise ApiError(400, f".{at}: duplicate entries for key {step[2:]}")
        found[step] = item
    return found


def _stepped(value: Any, step: str) -> Any:
    if step.startswith("f:"):
        return value.get(step[2:]) if isinstance(value, dict) else None
    at = _index(value, step)
    return None if at is None else value[at]


def _index(value: Any, step: str) -> int | None:
    key = msgspec.json.decode(step[2:])
    if not isinstance(value, list):
        return None
    return next((at for at, item in enumerate(value) if all(item.get(name) == key[name] for name in key)), None)


def _remove(value: Any, path: Path) -> bool:
    """Return whether anything else is left in ``value``."""
    step, rest = path[0], path[1:]
    place = step[2:] if step.startswith("f:") else _index(value, step)
    inner = _stepped(value, step)
    if inner is None or (rest and _remove(inner, rest)):
        return True
    del value[place]
    return bool(value)


def _encoded(fields: Iterable[Path]) -> Obj:
    root: Obj = {}
    for path in sorted(fields):
        node = root
        for step in path:
            node = node.setdefault(step, {})
        if path and path[-1].startswith("k:"):
            node["."] = {}
    return root


def _decoded(node: Obj, prefix: Path = ()) -> Iterator[Path]:
    if not node:
        yield prefix
    for step, below in node.items():
        if step == ".":
            yield prefix
        else:
            yield from _decoded(below, (*prefix, step))


def _conflict(conflicts: Iterable[tuple[Manager, Path]], since: Mapping[Manager, str]) -> ApiError:
    fields: dict[str, list[str]] = {}
    for other, path in sorted(conflicts, key=lambda each: (each[0].name, each[1])):
        name = "".join(f".{step[2:]}" if step.startswith("f:") else f"[{_in_words(step)}]" for step in path)
        fields.setdefault(_shown(other, since), []).append(name)
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {owner}", "field": name}
        for owner, names in fields.items()
        for name in names
    ]
    listed = "\n".join("\n- ".join((f"conflicts with {owner}:", *names)) for owner, names in fields.items())
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        text = f"Apply failed with {len(causes)} conflicts: {listed}"
    return ApiError(409, text, details={"causes": causes})


def _shown(manager: Manager, since: Mapping[Manager, str]) -> str:
    through = f' with subresource "{manager.subresource}"' if manager.subresource else ""
    using = "" if manager.apply else f" using {manager.api_version} at {since[manager]}"
    return f'"{manager.name}"{through}{using}'


def _in_words(step: str) -> str:
    return ",".join(
        f"{name}={msgspec.json.encode(each).decode()}" for name, each in msgspec.json.decode(step[2:]).items()
    )
