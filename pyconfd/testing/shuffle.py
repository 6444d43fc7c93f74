"""The same cluster in another order. Pure: chance is an argument."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from pyconfd.model.kubernetes import Endpoints, EndpointSlice
from pyconfd.model.snapshot import Key, Resource, Snapshot

_Item = TypeVar("_Item")
Shuffle = Callable[[list[Any]], None]
"""Puts a list in another order, in place."""


def shuffled(snapshot: Snapshot, shuffle: Shuffle) -> Snapshot:
    """Return a Snapshot that says the same: an API promises no order of objects, and none of a slice's endpoints."""
    parts: dict[str, Any] = {
        resource.field: _shuffled_part(getattr(snapshot, resource.field), shuffle) for resource in Resource
    }
    return replace(snapshot, **parts)


def _shuffled_part(part: Mapping[Key, Any], shuffle: Shuffle) -> Mapping[Key, Any]:
    return {key: _inside(record, shuffle) for key, record in _in_another_order(list(part.items()), shuffle)}


def _inside(record: Any, shuffle: Shuffle) -> Any:
    if isinstance(record, EndpointSlice) and record.endpoints:
        return msgspec.structs.replace(record, endpoints=tuple(_in_another_order(record.endpoints, shuffle)))
    if isinstance(record, Endpoints) and record.subsets:
        subsets = tuple(
            msgspec.structs.replace(subset, addresses=tuple(_in_another_order(subset.addresses or (), shuffle)))
            for subset in record.subsets
        )
        return msgspec.structs.replace(record, subsets=subsets)
    return record


def _in_another_order(items: Sequence[_Item], shuffle: Shuffle) -> list[_Item]:
    changed = list(items)
    shuffle(changed)
    return changed
