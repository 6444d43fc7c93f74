"""What differs between two readings, told by the identity of records: a record that did not change is the same object.

So a translation costs what changed, and not what there is.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import compress, filterfalse
from operator import is_, is_not
from typing import TypeVar

from pyconfd.model.layered import Layered, flat, with_values
from pyconfd.model.snapshot import Key

_K = TypeVar("_K")
_V = TypeVar("_V")
_T = TypeVar("_T")


def differing(old: Mapping[_K, _V], new: Mapping[_K, _V]) -> Collection[_K]:
    """Give the keys whose value is not the same object in both, those that only one of them has included."""
    if old is new:
        return ()
    if isinstance(new, Layered) and (known := new.changed_since(old)) is not None:
        return [key for key in known if old[key] is not new[key]]
    old, new = flat(old), flat(new)
    if len(old) == len(new) and all(map(is_, old, new)):
        # The usual case: a copy with some values replaced. Loops in C take a fraction of 1 ms for 10,000 records.
        return list(compress(new, map(is_not, old.values(), new.values())))
    changed = list(compress(new, map(is_not, map(old.get, new), new.values())))
    return changed + list(filterfalse(new.__contains__, old))


def updated(former: Mapping[Key, _T], changed: Iterable[Key], make: Callable[[Key], _T | None]) -> Mapping[Key, _T]:
    """Give ``former`` with the entries of ``changed`` made anew, sorted by key; None leaves an entry out.

    An entry that comes out equal stays the object that it was; where all do, ``former`` is given.
    """
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
    """Give ``old`` where it has the very members of ``new``, so that it is known again by its identity."""
    return old if len(old) == len(new) and all(map(is_, old, new)) else new


def kept_members(old: Sequence[_T], new: Iterable[_T]) -> tuple[_T, ...]:
    """Give ``new`` with the members of ``old`` where there is an equal one at the same place."""
    return tuple(old[number] if number < len(old) and old[number] == each else each for number, each in enumerate(new))
