"""The elements that loops go through, and which of them are new since the rendering before.

Nothing here compares elements one by one in Python where they are the same: with 10,000 of them that alone would take
longer than all the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_not, ne
from typing import Any

from pyconfd.model.layered import Copied, Layered

_MAPPING_ITEMS: Any = type({}.items())
_BY_VALUE = frozenset({str, int, bool, bytes, type(None)})
"""Types whose equal values also print the same (0.0 and -0.0 do not)."""

_MANY = 64


class Elements:
    """The elements of one loop, as columns: one for each of its targets, all of the same length.

    ``given`` tells that a preset made them: then a key that equals a text is that text. Those of an ``origin`` are
    taken apart only where it does not tell itself what it changed.
    """

    __slots__ = ("_changes", "_columns", "_former", "_texts", "given", "origin", "size")

    def __init__(
        self, columns: Sequence[Sequence[Any]], *, given: bool, origin: Layered[Any, Any] | None = None
    ) -> None:
        self._columns = columns
        self.origin = origin
        self.size = len(columns[0]) if origin is None else len(origin)
        self.given = given
        self._former: Elements | None = None
        self._changes: Changes | None = None
        self._texts: bool | None = None

    @property
    def columns(self) -> Sequence[Sequence[Any]]:
        """One sequence for each target."""
        if not self._columns and self.origin is not None:
            self._columns = list(self.origin), list(self.origin.values())
        return self._columns

    def at(self, place: int) -> Any:
        """Give one element: a value, or a tuple where there are several targets."""
        if self.origin is not None:
            return self.origin.item(place)
        if len(self._columns) == 1:
            return self._columns[0][place]
        return tuple(column[place] for column in self._columns)

    def replaced_since(self, former: "Elements") -> list[int] | None:
        """Give the places whose value is another object; None where the origin does not tell."""
        new, old = self.origin, former.origin
        keys = None if new is None or old is None else new.changed_since(old)
        if keys is None or new is None or old is None:
            return None
        return sorted(new.place(key) for key in keys if new[key] is not old[key])

    @property
    def keys_are_texts(self) -> bool:
        """True if the first column holds nothing but str."""
        if self._texts is None:
            self._texts = set(map(type, self.columns[0])) <= {str}
        return self._texts

    def has_keys_of(self, former: "Elements") -> bool:
        """Tell whether all keys are known to be the same; False where that would take time to find out."""
        if self.given and former.keys_are_texts and self.columns[0] == former.columns[0]:
            self._texts = True
            return True
        return False

    def since(self, former: "Elements") -> "Changes":
        """Give what is new; asked again for the same ``former``, it is not compared again."""
        if self._changes is None or self._former is not former:
            self._former, self._changes = former, _changes(self, former)
        return self._changes

    def forget_former(self) -> None:
        """Let go of what it was compared with."""
        self._former = self._changes = None


@dataclass(frozen=True, slots=True)
class Changes:
    """``stale`` elements, by their place, are new; the others are among the former ones.

    The first ``before`` and the last ``after`` stand where they stood, ``moved`` says for each in between where it was;
    ``in_place`` if there are as many as before, each at its place.
    """

    stale: list[int]
    before: int
    moved: list[int] = field(default_factory=list)
    after: int = 0
    in_place: bool = False

    def carried(self, former: list[Any]) -> list[Any]:
        """Give the results of the former elements in their new places; those of stale ones mean nothing."""
        end = former[len(former) - self.after :] if self.after else []
        return [*former[: self.before], *[former[index] for index in self.moved], *end]


def _changes(new: Elements, old: Elements) -> Changes:
    if (replaced := new.replaced_since(old)) is not None:
        return Changes(replaced, new.size, in_place=True)
    if new.size == old.size:
        stale = _differing(new, old, range(new.size), range(new.size))
        if len(stale) < _MANY:
            return Changes(stale, new.size, in_place=True)
    keys, former = new.columns[0], old.columns[0]
    shorter = min(new.size, old.size)
    unlike = ne if new.keys_are_texts and old.keys_are_texts else is_not
    before = _first_true(list(map(unlike, keys, former)), shorter)
    after = min(_first_true(list(map(unlike, reversed(keys), reversed(former))), shorter), shorter - before)
    middle = range(before, new.size - after)
    places = {_identity(former[place]): place for place in range(before, old.size - after)}
    found = [places.get(_identity(keys[place]), -1) for place in middle]
    stale = _differing(new, old, range(before), range(before))
    for place, was in zip(middle, found, strict=True):
        if was < 0 or not all(same(mine[place], his[was]) for mine, his in zip(new.columns, old.columns, strict=True)):
            stale.append(place)
    stale += _differing(new, old, range(new.size - after, new.size), range(old.size - after, old.size))
    return Changes(stale, before, [max(was, 0) for was in found], after)


def _differing(new: Elements, old: Elements, places: range, former: range) -> list[int]:
    """Give those of ``places`` whose element differs from the one that was at the same point of ``former``."""
    found: set[int] = set()
    whole = len(places) == new.size == old.size
    for number, (column, other) in enumerate(zip(new.columns, old.columns, strict=True)):
        if column is other or (whole and not number and new.has_keys_of(old)):
            continue
        mine, his = _part(column, places), _part(other, former)
        differing = _true_places(list(map(is_not, mine, his)))
        if len(differing) > _MANY and set(map(type, mine)) == set(map(type, his)) == {str}:
            differing = _true_places(list(map(ne, mine, his)))
        found.update(place for place in differing if not same(mine[place], his[place]))
    return [places.start + place for place in sorted(found)]


def _first_true(flags: list[bool], otherwise: int) -> int:
    return flags.index(True) if True in flags else otherwise


def _true_places(flags: list[bool]) -> list[int]:
    """Give the places of True; asking the list where the next one is takes a tenth of the time of looking at each."""
    places: list[int] = []
    for _ in range(flags.count(True)):
        places.append(flags.index(True, places[-1] + 1 if places else 0))
    return places


def _part(column: Sequence[Any], places: range) -> Sequence[Any]:
    return column if len(places) == len(column) else column[places.start : places.stop]


def same(one: Any, other: Any) -> bool:
    """Tell whether two values print the same: one object, or equal values of a type that prints as it compares."""
    return one is other or (type(one) is type(other) and type(one) in _BY_VALUE and bool(one == other))


def _identity(value: Any) -> Any:
    return (type(value), value) if type(value) in _BY_VALUE else id(value)


class Sources:
    """The elements that the loops of one rendering went through: those of the same object are taken apart once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, type], tuple[Any, Elements]] = {}
        self._all: list[Elements] = []

    def elements(self, given: Any, source: Any, width: int) -> Elements | None:
        """Give the elements of ``given``, None where they do not go into ``width`` columns.

        ``source`` is the object that they belong to, None where it may change within a rendering.
        """
        key = (id(source), width, type(given))
        if source is not None and key in self._known:
            return self._known[key][1]
        if width == 2 and isinstance(source, Copied) and type(given) is _MAPPING_ITEMS:
            found = Elements((), given=True, origin=source.origin)
        elif (columns := _columns(given, width)) is not None:
            found = Elements(columns, given=source is not None)
        else:
            return None
        self._all.append(found)
        if source is not None:
            self._known[key] = source, found
        return found

    def close(self) -> None:
        """Keep nothing of the rendering before."""
        for elements in self._all:
            elements.forget_former()


def _columns(given: Any, width: int) -> Sequence[Sequence[Any]] | None:
    if width == 1:
        return (given if type(given) is tuple else list(given),)
    if width == 2 and isinstance(given, _MAPPING_ITEMS):
        mapping: Mapping[Any, Any] = given.mapping
        return list(mapping), list(mapping.values())
    rows = given if isinstance(given, list | tuple) else list(given)
    if not rows:
        return ((),) * width
    if all(issubclass(kind, tuple | list) for kind in set(map(type, rows))) and set(map(len, rows)) == {width}:
        return list(zip(*rows, strict=True))
    return None
