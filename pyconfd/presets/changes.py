"""Brings up to date what former readings gave, told by the identity of records: what did not change is the same object.

So a translation costs what changed, and not what there is.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import is_
from typing import TypeVar

from pyconfd.model.layered import Layered, flat, with_values
from pyconfd.model.snapshot import Key

_T = TypeVar("_T")


def updated(former: Mapping[Key, _T], changed: Collection[Key], make: Callable[[Key], _T | None]) -> Mapping[Key, _T]:
    """Return ``former`` with the entries of ``changed`` made anew, sorted by key; None leaves an entry out.

    An entry that comes out equal stays the object that it was; where all do, ``former`` is given.
    """
    if not changed:
        return former
    replaced: dict[Key, _T] = {}
    added: dict[Key, _T] = {}
    gone: list[Key] = []
    # In order, so that records are read as they lie in memory.
    for key in sorted(changed):
        old, made = former.get(key), make(key)
        if made is None:
            if old is not None:
                gone.append(key)
        elif old is None:
            added[key] = made
        elif made != old:
            replaced[key] = made
    if not added and not gone:
        return with_values(former, replaced)
    result = {**flat(former), **replaced, **added}
    for key in gone:
        del result[key]
    return Layered({key: result[key] for key in sorted(result)} if added and former else result)


def same_members(old: tuple[_T, ...], new: tuple[_T, ...]) -> tuple[_T, ...]:
    """Return ``old`` where it has the very members of ``new``, so that it is known again by its identity."""
    return old if len(old) == len(new) and all(map(is_, old, new)) else new


def kept_members(old: Sequence[_T], new: Iterable[_T]) -> tuple[_T, ...]:
    """Return ``new`` with the members of ``old`` where there is an equal one at the same place."""
    return tuple(old[number] if number < len(old) and old[number] == each else each for number, each in enumerate(new))
