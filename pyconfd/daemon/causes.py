"""Which objects of the cluster changed since something was applied: what a change is said to come from [pure]."""

from collections.abc import Collection, Iterator

from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.snapshot import KIND_OF, Key, Resource, Snapshot
from pyconfd.model.versioned import differing

MOST = 20
"""So many are named; a restored cluster changes thousands."""

_LAST = (Resource.ENDPOINTSLICES, Resource.ENDPOINTS, Resource.PODS, Resource.NODES, Resource.NAMESPACES)
"""They change all the time: what somebody wrote comes first."""
_IN_ORDER = (*(each for each in Resource if each not in _LAST), *_LAST)


class Causes:
    """The objects that differ from those of what was applied last; belongs to one loop."""

    def __init__(self) -> None:
        self._last: Snapshot | None = None
        self._found: dict[str, None] = {}

    def of(self, snapshot: Snapshot, *, applied: bool) -> tuple[str, ...]:
        """Return the objects that changed up to this Snapshot since one was applied, as this one is or is not.

        Of the first Snapshot none: all of it is new.
        """
        former, self._last = self._last, snapshot
        if former is not None:
            for each in _changed(former, snapshot):
                if len(self._found) >= MOST:
                    break
                self._found[each] = None
        causes = tuple(self._found)
        if applied:
            self._found = {}
        return causes


def namespaces_that_changed(old: Snapshot, new: Snapshot) -> frozenset[str]:
    """Return the namespaces with an object that somebody wrote and that is another one; "" for objects of the cluster.

    Endpoints, pods and nodes change by themselves, and need no reload.
    """
    return frozenset(key.namespace for _, key in _written(old, new))


def changed_objects(old: Snapshot, new: Snapshot, namespaces: Collection[str]) -> tuple[ObjectRef, ...]:
    """Return the objects of some namespaces that somebody wrote since ``old``, of each namespace the first ones.

    A Secret is no cause of a reload.
    """
    found: dict[str, list[ObjectRef]] = {each: [] for each in namespaces}
    for resource, key in _written(old, new):
        mine = found.get(key.namespace)
        is_gone = key not in getattr(new, resource.field)
        if mine is not None and len(mine) < MOST and not is_gone and resource is not Resource.SECRETS:
            mine.append(ObjectRef(KIND_OF[resource], key.namespace, key.name, new.cluster))
    return tuple(ref for namespace in sorted(found) for ref in found[namespace])


def _written(old: Snapshot, new: Snapshot) -> Iterator[tuple[Resource, Key]]:
    for resource in (each for each in _IN_ORDER if each not in _LAST):
        before, after = getattr(old, resource.field), getattr(new, resource.field)
        yield from ((resource, key) for key in differing(before, after) if before.get(key) != after.get(key))


def _changed(old: Snapshot, new: Snapshot) -> Iterator[str]:
    for resource in _IN_ORDER:
        before, after = getattr(old, resource.field), getattr(new, resource.field)
        keys = differing(before, after)
        if resource is Resource.ENDPOINTS and new.endpointslices is not old.endpointslices:
            continue  # the same change once more, in the form of former times
        yield from (_name(resource, key) for key in sorted(keys))


def _name(resource: Resource, key: Key) -> str:
    return f"{KIND_OF[resource]} {key.namespace}/{key.name}" if key.namespace else f"{KIND_OF[resource]} {key.name}"
