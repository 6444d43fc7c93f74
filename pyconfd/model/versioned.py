"""Dicts that are replaced and never changed, and values that templates are given to read."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, ItemsView, Iterator, Mapping, ValuesView
from itertools import chain, compress, filterfalse
from operator import is_, is_not
from typing import Any, NamedTuple, NoReturn, TypeVar


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise TypeError(
        "a given value cannot be changed; make one of your own, as in dict(items, port=80) or [*ips, other]"
    )


class GivenDict(dict[str, Any]):
    """A dict that cannot be changed."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = setdefault = clear = _refuse


class GivenList(list[Any]):
    """A list that cannot be changed."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = reverse = sort = clear = _refuse


_K = TypeVar("_K")
_V = TypeVar("_V")


_FEW = 8
"""So many times as many keys as are added, and their places are looked for one by one."""
_SHARDS = 64
"""A power of two; a shard of 5,000 items has about 80."""
_STEPS = 8
"""So many successors back it is known what differs: other threads ask a source for its Snapshot, too."""
_ONE_SHARD = 256
"""Up to so many items one shard is copied as fast as it is found."""


_MISSING = object()


class _Succession(NamedTuple):
    """What one successor differs in from its former: the keys that were replaced, came or went."""

    former: object
    touched: Collection[Any]
    same_keys: bool


class VersionedItems(ItemsView[_K, _V]):
    """Items in the order of the keys, faster than the view of ``collections.abc`` asks for them one by one."""

    __slots__ = ()
    _mapping: "VersionedDict[_K, _V]"

    @property
    def mapping(self) -> "VersionedDict[_K, _V]":
        """What these are the items of, as those of a dict have it."""
        return self._mapping

    def __iter__(self) -> Iterator[tuple[_K, _V]]:
        return zip(self._mapping, self._mapping.in_order(), strict=True)


class _Values(ValuesView[_V]):
    """Values in the order of the keys."""

    __slots__ = ()
    _mapping: "VersionedDict[Any, _V]"

    def __iter__(self) -> Iterator[_V]:
        return iter(self._mapping.in_order())


class VersionedDict(Mapping[_K, _V]):
    """A mapping that is replaced and never changed.

    A successor copies what differs: items lie in shards by the hash of their key, and those in which nothing differs
    are shared, as is the list of keys while these are the same. For one of 20,000 values that is 10 µs; a copy of all
    took 1 ms where other processes use the processor's caches, most of it for counting references, and as much again
    when it was freed. The successor knows the keys that differ, so that what is made of it need not look at each value.
    """

    __slots__ = ("_keys", "_places", "_shards", "_steps", "mark")
    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = setdefault = clear = _refuse

    def __init__(self, values: Mapping[_K, _V]) -> None:
        self._keys = list(values)
        self._shards = _sharded(values)
        self.mark = object()
        """Stands for this mapping where that itself would be kept alive."""
        self._steps: tuple[_Succession, ...] = ()
        self._places: dict[_K, int] = {}

    def __getitem__(self, key: _K) -> _V:
        shards = self._shards
        return shards[hash(key) & (len(shards) - 1)][key]

    def get(self, key: _K, default: Any = None) -> Any:
        """Return the value of ``key``, or ``default``."""
        shards = self._shards
        return shards[hash(key) & (len(shards) - 1)].get(key, default)

    def __contains__(self, key: object) -> bool:
        shards = self._shards
        return key in shards[hash(key) & (len(shards) - 1)]

    def __iter__(self) -> Iterator[_K]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return repr(self.copy())

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Mapping) or len(self) != len(other):
            return False
        touched = self.touched_since(other)
        if touched is None:
            return self.copy() == dict(other.items())
        return all(self.get(key, _MISSING) == other.get(key, _MISSING) for key in touched)

    __hash__ = None  # type: ignore[assignment]

    def items(self) -> ItemsView[_K, _V]:
        """Return the items in their order."""
        return VersionedItems(self)

    def values(self) -> ValuesView[_V]:
        """Return the values in the order of their keys."""
        return _Values(self)

    def copy(self) -> dict[_K, _V]:
        """Return a dict of its own, as a template may want."""
        return dict(self.items())

    def in_order(self) -> list[_V]:
        """Return the values in the order of their keys, as a list."""
        shards, last = self._shards, len(self._shards) - 1
        return [shards[hash(key) & last][key] for key in self._keys]

    def in_any_order(self) -> Iterator[_V]:
        """Return the values in no order: no key is looked up, and many have a costly hash."""
        return chain.from_iterable(shard.values() for shard in self._shards)

    def with_values(self, replaced: Mapping[_K, _V]) -> "VersionedDict[_K, _V]":
        """Return the same with other values for keys that are there; itself where there are none."""
        if not replaced:
            return self
        made = VersionedDict[_K, _V]({})
        made._keys, made._shards = self._keys, self._shards_with(replaced, ())
        made._steps = (*self._steps[1 - _STEPS :], _Succession(self.mark, tuple(replaced), same_keys=True))
        made._places = self._places
        return made

    def with_changes(
        self, replaced: Mapping[_K, _V], gone: Collection[_K], rank: Callable[[_K], Any] | None = None
    ) -> "VersionedDict[_K, _V]":
        """Return the same with other or more values, and without other keys; with ``rank``, in its order as before."""
        gone = {key for key in gone if key in self}
        added = [key for key in replaced if key not in self]
        if not gone and not added:
            return self.with_values(replaced)
        made = VersionedDict[_K, _V]({})
        made._keys, made._shards = _merged(self._keys, added, gone, rank), self._shards_with(replaced, gone)
        made._steps = (*self._steps[1 - _STEPS :], _Succession(self.mark, (*replaced, *gone), same_keys=False))
        if (len(made._keys) > _ONE_SHARD) != (len(made._shards) > 1):
            made._shards = _sharded(made)
        return made

    def _shards_with(self, replaced: Mapping[_K, _V], gone: Collection[_K]) -> list[dict[_K, _V]]:
        """Return the shards, with a copy in place of each in which something differs."""
        shards, last = list(self._shards), len(self._shards) - 1
        copied: set[int] = set()
        for key, at in [(key, hash(key) & last) for key in chain(replaced, gone)]:
            if at not in copied:
                copied.add(at)
                shards[at] = dict(shards[at])
            if key in gone:
                shards[at].pop(key, None)
            else:
                shards[at][key] = replaced[key]
        return shards

    def replaced(
        self, values: Mapping[_K, _V | None], rank: Callable[[_K], Any] | None = None
    ) -> "VersionedDict[_K, _V]":
        """Return the same with other values, None for none; itself where all are equal. With ``rank`` in its order."""
        changed = {key: value for key, value in values.items() if value is not None and self.get(key) != value}
        gone = [key for key, value in values.items() if value is None and key in self]
        return self.with_changes(changed, gone, rank) if changed or gone else self

    def changed_since(self, previous: Mapping[_K, _V]) -> Collection[_K] | None:
        """Return the keys with other values; None where this was not made of ``previous``, or has other keys."""
        steps = self._steps_since(previous)
        return _touched(steps) if steps is not None and all(step.same_keys for step in steps) else None

    def touched_since(self, previous: Mapping[_K, _V]) -> Collection[_K] | None:
        """Return the keys that were replaced, came or went; None where this was not made of ``previous``."""
        steps = self._steps_since(previous)
        return None if steps is None else _touched(steps)

    def _steps_since(self, previous: Mapping[_K, _V]) -> "tuple[_Succession, ...] | None":
        if not isinstance(previous, VersionedDict):
            return None
        if previous.mark is self.mark:
            return ()
        marks = [step.former for step in self._steps]
        return self._steps[marks.index(previous.mark) :] if previous.mark in marks else None

    def place(self, key: _K) -> int:
        """Return where ``key`` stands; found once for all that are made of one another."""
        if not self._places:
            self._places.update({each: place for place, each in enumerate(self)})
        return self._places[key]


def _touched(steps: "tuple[_Succession, ...]") -> Collection[Any]:
    if len(steps) == 1:
        return steps[0].touched
    return dict.fromkeys(chain.from_iterable(step.touched for step in steps))


def _sharded(values: Mapping[_K, _V]) -> list[dict[_K, _V]]:
    if len(values) <= _ONE_SHARD:
        return [dict(values.items())]
    shards: list[dict[_K, _V]] = [{} for _ in range(_SHARDS)]
    for key, value in values.items():
        shards[hash(key) & (_SHARDS - 1)][key] = value
    return shards


def _merged(keys: list[_K], added: list[_K], gone: Collection[_K], rank: Callable[[_K], Any] | None) -> list[_K]:
    """Return the keys without those that are gone, and with those that are added at their places or at the end."""
    merged = list(keys)
    if len(keys) <= _FEW * len(gone):
        merged = list(filterfalse(frozenset(gone).__contains__, keys))
    elif rank is None:
        for key in gone:
            merged.remove(key)
    else:
        for key in gone:
            del merged[merged.index(key, bisect_left(merged, rank(key), key=rank))]
    if rank is None:
        return [*merged, *added]
    if len(merged) <= _FEW * len(added):
        return sorted([*merged, *added], key=rank)
    for key in added:
        merged.insert(bisect_right(merged, rank(key), key=rank), key)
    return merged


def versioned(values: Mapping[_K, _V]) -> VersionedDict[_K, _V]:
    """Return ``values`` itself if its successors know what differs, else a copy that does."""
    return values if isinstance(values, VersionedDict) else VersionedDict(values)


def differing(old: Mapping[_K, _V], new: Mapping[_K, _V]) -> Collection[_K]:
    """Return the keys whose value is not the same object in both, those that only one of them has included."""
    if old is new:
        return ()
    if isinstance(new, VersionedDict) and (known := new.touched_since(old)) is not None:
        return [key for key in known if old.get(key) is not new.get(key)]
    if not (old or new):
        return ()
    if len(old) == len(new) and all(map(is_, old, new)):
        # The usual case: a copy with some values replaced. Loops in C take a fraction of 1 ms for 10,000 records.
        return list(compress(new, map(is_not, old.values(), new.values())))
    changed = list(compress(new, map(is_not, map(old.get, new), new.values())))
    return changed + list(filterfalse(new.__contains__, old))
