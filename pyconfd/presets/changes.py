"""What differs between two readings, told by the identity of records: a record that did not change is the same object.

So a translation costs what changed, and not what there is.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import compress
from operator import is_, is_not
from typing import Any, TypeVar

from pyconfd.model.snapshot import Key

_K = TypeVar("_K")
_V = TypeVar("_V")
_T = TypeVar("_T")


def differing(old: Mapping[_K, _V], new: Mapping[_K, _V]) -> Collection[_K]:
    """Give the keys whose value is not the same object in both, those that only one of them has included."""
    if old is new:
        return ()
    if len(old) == len(new) and all(map(is_, old, new)):
        # The usual case: a copy with some values replaced. Compared in C, 10,000 records take a fraction of 1 ms.
        return list(compress(new, map(is_not, old.values(), new.values())))
    changed = [key for key, value in new.items() if old.get(key) is not value]
    return changed + [key for key in old if key not in new]


def updated(former: Mapping[Key, _T], changed: Iterable[Key], make: Callable[[Key], _T | None]) -> dict[Key, _T]:
    """Give ``former`` with the entries of ``changed`` made anew, sorted by key; None leaves an entry out.

    An entry that comes out equal stays the object that it was.
    """
    result = dict(former)
    unsorted = False
    for key in changed:
        old, made = result.get(key), make(key)
        if made is None:
            result.pop(key, None)
        elif old is None:
            result[key] = made
            unsorted = True
        elif made != old:
            result[key] = made
    return {key: result[key] for key in sorted(result)} if unsorted else result


def same_members(old: tuple[_T, ...], new: tuple[_T, ...]) -> tuple[_T, ...]:
    """Give ``old`` where it has the very members of ``new``, so that it is known again by its identity."""
    return old if len(old) == len(new) and all(map(is_, old, new)) else new


Place = tuple[tuple[Any, ...], Key, int]
"""A claim's rank, and where it is found: its key, and its number among the claims of that key."""


def ranked(
    former: Sequence[Place], changed: Collection[Key], ranks: Callable[[Key], Iterable[tuple[Any, ...]]]
) -> list[Place]:
    """Give the places of all claims, the best first; ``ranks`` gives those of a key that changed."""
    anew = frozenset(changed)
    kept = [place for place in former if place[1] not in anew]
    # Nearly sorted already, so that this costs little more than to read it.
    return sorted(kept + [(rank, key, number) for key in anew for number, rank in enumerate(ranks(key))])
