"""What a rendering keeps for the next one: the text and the map entries of each element of each remembered loop.

An element whose values are the same objects as last time gives the same string object again; its body does not run.
So values are never changed in place, only replaced.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, count
from typing import Any

from jinja2 import Undefined

from pyconfd.model.rendering import Piece
from pyconfd.render.elements import Changes, Elements, Sources, same
from pyconfd.render.entries import Entries, EntryGroup, Recorded

Fresh = dict[int, tuple[str, EntryGroup]]
"""What the elements gave for which the body ran, by their place: text, and map entries."""


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

    ``starts`` says at which block each loop begins, ``ending`` is the last block as it was rendered and as the piece
    has it. ``given`` are the values of all that the fragment can read, None where that is not known, and ``recorded``
    is what it declared.
    """

    loops: dict[int, LoopMemory] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    between: list[str] = field(default_factory=list)
    ending: tuple[str, str] = ("", "")
    piece: Piece | None = None
    given: tuple[Any, ...] | None = None
    recorded: tuple[Recorded, ...] = ()
    suspect: bool = False


class Memo:
    """Collects what one fragment gives in one rendering.

    ``former`` is what it gave before, ``refused`` finds characters that no text may have; a text with one is never
    remembered, and :attr:`FragmentMemory.suspect` is set.
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
        self._segments: list[Sequence[str]] = []
        self._size = 0
        self._replaced: dict[int, str] | None = None if former.piece is None else {}
        """The blocks that differ from the former ones, by place; None where there are others around them."""
        self.memory = FragmentMemory()

    def consume(self, parts: Iterable[str]) -> Piece:
        """Take everything that the compiled template gives; :meth:`turns` is called meanwhile."""
        add: Callable[[str], None] = self._parts.append
        for part in parts:
            add(part)
        self._between()
        self.memory.piece = piece = self._derived() or self._whole()
        return piece

    def _derived(self) -> Piece | None:
        """Give the former piece with other blocks in some places; None where more than that changed."""
        former, replaced = self._former, self._replaced
        if former.piece is None or replaced is None or len(self.memory.between) != len(former.between):
            return None
        if self._size < len(former.piece.blocks):
            return None
        self.memory.ending = former.ending
        return with_blocks(former.piece, replaced)

    def _whole(self) -> Piece:
        blocks = list(chain.from_iterable(self._segments))
        self._end(blocks)
        former, piece = self._former.piece, Piece(self._fragment, *blocks)
        return former if former is not None and former.blocks == piece.blocks else piece

    def _add(self, blocks: Sequence[str], replaced: Mapping[int, str] | None) -> None:
        """Take on blocks; ``replaced`` are those that differ from the former ones there, None where that is not so."""
        start = self._size
        self._segments.append(blocks)
        self._size += len(blocks)
        if self._replaced is not None and replaced is not None:
            self._replaced.update((start + place, block) for place, block in replaced.items())
        else:
            self._replaced = None

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
        fresh: Fresh = {}
        yield from turned(elements, changes.stale, self._parts, self._entries, fresh)
        suspect = any(self._refused.search(text) for text, _ in fresh.values())
        finished, replaced = finished_loop(LoopMemory(elements, outer), former, changes, fresh)
        number_of_loop = len(self.memory.starts)
        known = self._former.starts[number_of_loop : number_of_loop + 1] == [self._size]
        self.memory.starts.append(self._size)
        self._add(finished.shown, replaced if known else None)
        self._entries.add_loop(finished.recorded)
        self.memory.suspect = self.memory.suspect or suspect
        if not suspect:
            self.memory.loops[number] = finished

    def _between(self) -> None:
        """Close the text that stands before a loop or after the last one."""
        text = "".join(self._parts)
        self._parts.clear()
        number = len(self.memory.between)
        known = number < len(self._former.between) and self._former.between[number] == text
        if known:
            text = self._former.between[number]
        elif self._refused.search(text):
            self.memory.suspect = True
        self.memory.between.append(text)
        self._add((text,) if text else (), {} if known else None)

    def _end(self, blocks: list[str]) -> None:
        """Have the piece end with exactly one newline, or be empty."""
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


def with_blocks(piece: Piece, replaced: Mapping[int, str]) -> Piece | None:
    """Give ``piece`` with other blocks in some places; None where that is not all that changes."""
    # The last block may have lost newlines, and empty ones after it are left out.
    if any(place + 1 >= len(piece.blocks) for place in replaced):
        return None
    return piece.with_blocks(replaced) if replaced else piece


def _all_same(former: tuple[Any, ...], outer: tuple[Any, ...]) -> bool:
    """Compare what a loop reads from outside; an undefined name is as undefined as it was."""
    return all(
        same(one, other) or (isinstance(one, Undefined) and isinstance(other, Undefined))
        for one, other in zip(former, outer, strict=True)
    )


def turned(
    elements: Elements, stale: Iterable[int], parts: list[str], entries: Entries, fresh: Fresh
) -> Iterator[tuple[Any, ...]]:
    """Give the ``stale`` elements to a loop's body; what it adds to ``parts`` and ``entries`` goes to ``fresh``."""
    for index in stale:
        mark = entries.mark()
        yield elements.at(index)
        text = "".join(parts)
        parts.clear()
        fresh[index] = text, entries.taken_since(mark)


def finished_loop(
    new: LoopMemory, former: LoopMemory | None, changes: Changes, fresh: Fresh
) -> tuple[LoopMemory, Mapping[int, str] | None]:
    """Put together what every element gave; of lists in which nothing differs, the former ones are kept.

    With it comes what was replaced among the shown blocks, None where there may be more or fewer of them.
    """
    if former is None or not changes.in_place:
        return _counted(new, former, changes, fresh), None
    texts = {place: text for place, (text, _) in fresh.items() if text != former.blocks[place]}
    if any(not text or not former.blocks[place] for place, text in texts.items()) or any(
        entries != former.entries[place] for place, (_, entries) in fresh.items()
    ):
        return _counted(new, former, changes, fresh), None
    blocks, shown = former.blocks, former.shown
    replaced: dict[int, str] = {}
    if texts:
        whole = len(shown) == len(blocks)
        blocks = blocks.copy()
        shown = blocks if whole else shown.copy()
        for place, text in texts.items():
            at = place if whole else bisect_left(former.places, place)
            blocks[place] = shown[at] = replaced[at] = text
    # Not dataclasses.replace(): each change of the cluster comes through here once for each loop.
    finished = LoopMemory(new.elements, new.outer, blocks, former.entries, shown, former.places, former.recorded)
    return finished, replaced


def _counted(new: LoopMemory, former: LoopMemory | None, changes: Changes, fresh: Fresh) -> LoopMemory:
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
    return LoopMemory(new.elements, new.outer, blocks, entries, shown, places, recorded)
