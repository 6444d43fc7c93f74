"""Which objects of the cluster changed since something was applied: what a change is said to come from [pure]."""

from collections.abc import Iterator

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
    found: set[str] = set()
    for resource in (each for each in _IN_ORDER if each not in _LAST):
        before, after = getattr(old, resource.field), getattr(new, resource.field)
        found.update(key.namespace for key in differing(before, after) if before.get(key) != after.get(key))
    return frozenset(found)


def _changed(old: Snapshot, new: Snapshot) -> Iterator[str]:
    for resource in _IN_ORDER:
        before, after = getattr(old, resource.field), getattr(new, resource.field)
        keys = differing(before, after)
        if resource is Resource.ENDPOINTS and new.endpointslices is not old.endpointslices:
            continue  # the same change once more, in the form of former times
        yield from (_name(resource, key) for key in sorted(keys))


def _name(resource: Resource, key: Key) -> str:
    return f"{KIND_OF[resource]} {key.namespace}/{key.name}" if key.namespace else f"{KIND_OF[resource]} {key.name}"
