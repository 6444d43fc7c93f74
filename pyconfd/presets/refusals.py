"""What is refused of objects, joined from the collections that refuse it, and what could not be made of them."""

from itertools import chain
from typing import Any

from pyconfd.derived import Collection, Graph, Published, SameParts, Source
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.snapshot import KIND_OF, Key, Resource
from pyconfd.presets import values

_MOST_NAMED = 8
"""So many objects are named for one fault, where it is of what they make together."""

_RESOURCES = {each.value: each for each in Resource}


class JoinedRefusals:
    """What is refused in collections, as one tuple. An item is a refusal, or several, or has them as ``refused``."""

    def __init__(self, *collections: Collection[Any, Any]) -> None:
        self._published = [Published[Any, tuple[Refusal, ...]](each, rank=None, value=_of_item) for each in collections]
        self._joined = SameParts[tuple[Refusal, ...]]()

    def all(self) -> tuple[Refusal, ...]:
        """Return them as of the last round, in no order; the same object where nothing changed."""
        parts = tuple(each.mapping() for each in self._published)
        found = chain.from_iterable(each.in_any_order() for each in parts)
        return self._joined.made(parts, lambda: tuple(chain.from_iterable(found)))


def _of_item(item: Any) -> tuple[Refusal, ...] | None:
    if isinstance(item, Refusal):
        return (item,)
    refused: tuple[Refusal, ...] = item if type(item) is tuple else item.refused
    return refused or None


def faults(graph: Graph, cluster: str) -> tuple[Refusal, ...]:
    """Return a refusal for each object of which a function of a collection raised an exception."""
    found: dict[Refusal, None] = {}
    for (collection, key), fault in graph.faults.items():
        detail = f"{fault.error} at {fault.place}: a bug of pyconfd, so it is left out; report it with the traceback"
        detail += " (journalctl -u pyconfd | grep function.failed)"
        roots = (_object(source, of) for source, of in graph.roots(fault.of, key))
        refs = [
            ObjectRef(each[0], values.shortened(each[1]), values.shortened(each[2]), cluster) for each in roots if each
        ]
        for ref in refs[:_MOST_NAMED] or [ObjectRef(collection.name, "", values.shortened(str(key)), cluster)]:
            found[Refusal(ref, "", "", RefusalReason.INTERNAL_ERROR, detail)] = None
    return tuple(found)


def _object(source: Source[Any, Any], key: Any) -> tuple[str, str, str] | None:
    """Return kind, namespace and name of what an item of a source is; None where it is no object."""
    match key:
        case ObjectKey():
            return KIND_OF[key.resource], *key.key
        case Key():
            resource = _RESOURCES.get(source.name.lower())
            return (KIND_OF[resource], *key) if resource is not None else None
        case (Key() as of, str(kind)):
            return kind, *of
    return None
