"""What a rendering keeps for the next one: the text and the map entries of each element of each remembered loop.

An element whose values are the same objects as last time gives the same string object again; its body does not run.
So values are never changed in place, only replaced. Nothing here compares elements one by one in Python where they are
the same: with 10,000 of them that alone would take longer than all the rest.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, count
from operator import is_not, ne
from typing import Any

from jinja2 import Undefined

from pyconfd.model.rendering import Piece
from pyconfd.render.entries import Entries, EntryGroup

_MAPPING_ITEMS: Any = type({}.items())
_BY_VALUE = frozenset({str, int, bool, bytes, type(None)})
"""Types whose equal values also print the same (0.0 and -0.0 do not)."""

_MANY = 64


class Elements:
    """The elements of one loop, as columns: one for each of its targets, all of the same length.

    ``given`` tells that a preset made them: then a key that equals a text is that text.
    """

    __slots__ = ("_changes", "_former", "_texts", "columns", "given", "size")

    def __init__(self, columns: Sequence[Sequence[Any]], *, given: bool) -> None:
        self.columns = columns
        self.size = len(columns[0])
        self.given = given
        self._former: Elements | None = None
        self._changes: Changes | None = None
        self._texts: bool | None = None

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
        if was < 0 or not all(_same(mine[place], his[was]) for mine, his in zip(new.columns, old.columns, strict=True)):
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
        found.update(place for place in differing if not _same(mine[place], his[place]))
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


def _same(one: Any, other: Any) -> bool:
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
        columns = _columns(given, width)
        if columns is None:
            return None
        found = Elements(columns, given=source is not None)
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


@dataclass(frozen=True, slots=True)
class LoopMemory:
    """One remembered loop: what it went through, what it read besides, and what each element gave.

    ``shown`` are the ``blocks`` that are not empty, ``places`` which elements they belong to; ``recorded`` are the
    ``entries`` that are not empty.
    """

    elements: Elements
    outer: tuple[Any, ...]
    blocks: list[str] = field(default_factory=list)
    entries: list[EntryGroup] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    places: Sequence[int] = ()
    recorded: tuple[EntryGroup, ...] = ()


@dataclass(slots=True)
class FragmentMemory:
    """One fragment: its loops by number, the text between them, and the piece that came of it.

    ``ending`` is the last block as it was rendered and as the piece has it.
    """

    loops: dict[int, LoopMemory] = field(default_factory=dict)
    between: list[str] = field(default_factory=list)
    ending: tuple[str, str] = ("", "")
    piece: Piece | None = None


class Memo:
    """Collects what one fragment gives in one rendering.

    ``former`` is what it gave before, ``refused`` finds characters that no text may have; a text with one is never
    remembered, and :attr:`suspect` is set.
    """

    def __init__(
        self, fragment: str, former: FragmentMemory, sources: Sources, entries: Entries, refused: re.Pattern[str]
    ) -> None:
        self._fragment = fragment
        self._former = former
        self._sources = sources
        self._entries = entries
        self._refused = refused
        self._parts: list[str] = []
        self._blocks: list[str] = []
        self.memory = FragmentMemory()
        self.suspect = False

    def consume(self, parts: Iterable[str]) -> Piece:
        """Take everything that the compiled template gives; :meth:`turns` is called meanwhile."""
        add: Callable[[str], None] = self._parts.append
        for part in parts:
            add(part)
        self._between()
        self._end()
        former = self._former.piece
        piece = Piece(self._fragment, *self._blocks)
        if former is not None and former.blocks == piece.blocks:
            piece = former
        self.memory.piece = piece
        return piece

    def turns(self, number: int, width: int, given: Any, source: Any, *outer: Any) -> Iterator[Any]:
        """Give the elements of a loop whose body has to run; their text comes from the template, the rest is known."""
        elements = self._sources.elements(given, source, width)
        if elements is None:
            # As it is: unpacking it fails in the template, where the line is known.
            yield from given
            return
        self._between()
        former = self._former.loops.get(number)
        if former is not None and former.elements.size and _all_same(former.outer, outer):
            changes = elements.since(former.elements)
        else:
            former, changes = None, Changes(list(range(elements.size)), 0)
        suspect = False
        fresh: dict[int, tuple[str, EntryGroup]] = {}
        parts, recorded = self._parts, self._entries
        columns = elements.columns
        for index in changes.stale:
            mark = recorded.mark()
            yield columns[0][index] if width == 1 else tuple(column[index] for column in columns)
            text = "".join(parts)
            parts.clear()
            suspect = suspect or bool(self._refused.search(text))
            fresh[index] = text, recorded.taken_since(mark)
        finished = _finished(LoopMemory(elements, outer), former, changes, fresh)
        self._blocks += finished.shown
        self._entries.add_loop(finished.recorded)
        self.suspect = self.suspect or suspect
        if not suspect:
            self.memory.loops[number] = finished

    def _between(self) -> None:
        """Close the text that stands before a loop or after the last one."""
        text = "".join(self._parts)
        self._parts.clear()
        number = len(self.memory.between)
        if number < len(self._former.between) and self._former.between[number] == text:
            text = self._former.between[number]
        elif self._refused.search(text):
            self.suspect = True
        self.memory.between.append(text)
        if text:
            self._blocks.append(text)

    def _end(self) -> None:
        """Have the piece end with exactly one newline, or be empty."""
        blocks = self._blocks
        while blocks and not blocks[-1].rstrip("\n"):
            blocks.pop()
        if not any(map(str.strip, blocks)):
            blocks.clear()
            return
        rendered, ended = blocks[-1], f"{blocks[-1].rstrip(chr(10))}\n"
        if self._former.ending == (rendered, ended):
            ended = self._former.ending[1]
        elif rendered == ended:
            ended = rendered
        self.memory.ending = rendered, ended
        blocks[-1] = ended


def _all_same(former: tuple[Any, ...], outer: tuple[Any, ...]) -> bool:
    """Compare what a loop reads from outside; an undefined name is as undefined as it was."""
    return all(
        _same(one, other) or (isinstance(one, Undefined) and isinstance(other, Undefined))
        for one, other in zip(former, outer, strict=True)
    )


def _finished(
    new: LoopMemory, former: LoopMemory | None, changes: Changes, fresh: Mapping[int, tuple[str, EntryGroup]]
) -> LoopMemory:
    """Put together what every element gave; of lists in which nothing differs, the former ones are kept."""
    if former is None or not changes.in_place:
        return _counted(new, former, changes, fresh)
    texts = {place: text for place, (text, _) in fresh.items() if text != former.blocks[place]}
    if any(not text or not former.blocks[place] for place, text in texts.items()) or any(
        entries != former.entries[place] for place, (_, entries) in fresh.items()
    ):
        return _counted(new, former, changes, fresh)
    blocks, shown = former.blocks, former.shown
    if texts:
        whole = len(shown) == len(blocks)
        blocks = blocks.copy()
        shown = blocks if whole else shown.copy()
        for place, text in texts.items():
            blocks[place] = text
            shown[place if whole else bisect_left(former.places, place)] = text
    return replace(former, elements=new.elements, outer=new.outer, blocks=blocks, shown=shown)


def _counted(
    new: LoopMemory, former: LoopMemory | None, changes: Changes, fresh: Mapping[int, tuple[str, EntryGroup]]
) -> LoopMemory:
    size = new.elements.size
    blocks = changes.carried(former.blocks) if former else [""] * size
    entries = changes.carried(former.entries) if former else [()] * size
    for place, (text, group) in fresh.items():
        blocks[place] = blocks[place] if blocks[place] == text else text
        entries[place] = group
    recorded = tuple(filter(None, entries))
    if former is not None and recorded == former.recorded:
        recorded = former.recorded
    places = list(compress(count(), blocks))
    shown = list(filter(None, blocks))
    return replace(new, blocks=blocks, entries=entries, shown=shown, places=places, recorded=recorded)
