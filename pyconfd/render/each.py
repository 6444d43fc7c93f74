"""The tag ``{% each %}``: a loop whose turns become blocks of their own.

::

    {% each domain, items in domains if items.proto == 'http' %}
    backend {{ domain }}
    {% endeach %}

The body is compiled as a function of the loop's variables. Its text is cached by the element and by the values of the
other names that it reads, so that after a change of the cluster only the changed elements are rendered; a line that
HAProxy rejects leads to the element that gave it. A name that is another object in each rendering (``extra``, a macro
of the fragment) makes all elements render each time: the text is right, and it costs time.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from operator import is_, is_not
from typing import Any, NamedTuple

from jinja2 import Undefined, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from pyconfd.model.versioned import VersionedDict, VersionedItems
from pyconfd.render.declared import Declared, Entry, EntryGroup, Recorded
from pyconfd.render.invalid import InvalidValueError

EACH = "_each"
"""The name by which compiled templates know :meth:`EachLoops.render`."""

DECLARING = frozenset({"map_entry", "map_file", "certificate_file"})
"""Functions that are other objects in each rendering and do the same."""

_MARK = re.compile("\0([0-9]+)\0")
"""Stands in a fragment's text for the blocks of a loop. No rendered text may contain NUL, so no value can forge it."""

_ITEMS: Any = (type({}.items()), VersionedItems)
_BY_VALUE = frozenset({str, int, bool, type(None)})
"""Types whose equal values also print the same."""


class EachTag(Extension):
    """Compiles ``{% each TARGETS in ELEMENTS if CONDITION %} BODY {% endeach %}``."""

    tags = {"each"}  # noqa: RUF012 - Jinja declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        """Return a call of :meth:`EachLoops.render` whose ``caller`` is the body."""
        line = next(parser.stream).lineno
        target = parser.parse_assign_target(extra_end_rules=("name:in",))
        parser.stream.expect("name:in")
        elements = parser.parse_tuple(with_condexpr=False)
        condition = parser.parse_expression() if parser.stream.skip_if("name:if") else None
        body = parser.parse_statements(("name:endeach",), drop_needle=True)
        names = target.items if isinstance(target, nodes.Tuple) else [target]
        if len(names) > 2 or not all(isinstance(name, nodes.Name) for name in names):
            parser.fail("{% each %} has one variable, or two for the keys and values of a mapping", line)
        self._refuse(nodes.Template(body), parser)
        if condition is not None:
            body = [nodes.If(condition, body, [], [], lineno=line)]
        outer = [nodes.Name(name, "load", lineno=line) for name in self._read_from_outside(names, body)]
        arguments = [
            nodes.Const(f"{parser.name} line {line}"),
            nodes.Const(len(names)),
            elements,
            nodes.Tuple(outer, "load"),
        ]
        call = nodes.Call(nodes.Name(EACH, "load"), arguments, [], None, None, lineno=line)
        parameters = [nodes.Name(name.name, "param", lineno=line) for name in names if isinstance(name, nodes.Name)]
        return nodes.CallBlock(call, parameters, [], body, lineno=line).set_lineno(line)

    @staticmethod
    def _refuse(body: nodes.Template, parser: Parser) -> None:
        for taken in body.find_all((nodes.Include, nodes.Import, nodes.FromImport)):
            # What such a file reads is not known here, so it could not be told when to render again.
            parser.fail("include and import files outside of {% each %}", taken.lineno)
        for call in body.find_all(nodes.Call):
            name = call.node.name if isinstance(call.node, nodes.Name) else ""
            with_entries = len(call.args) > 1 or any(each.key == "entries" for each in call.kwargs)
            if name == "certificate_file" or (name == "map_file" and with_entries):
                parser.fail(f"{name}() declares a whole file: call it outside of {{% each %}}", call.lineno)

    def _read_from_outside(self, names: Sequence[nodes.Node], body: list[nodes.Node]) -> list[str]:
        empty = nodes.List([])
        target = nodes.Tuple(
            [nodes.Name(name.name, "store") for name in names if isinstance(name, nodes.Name)], "store"
        )
        alone = nodes.Template([nodes.For(target, empty, body, [], None, False)], lineno=1)
        alone.set_environment(self.environment)
        return sorted(meta.find_undeclared_variables(alone) - DECLARING - self.environment.globals.keys())


class _Turn(NamedTuple):
    """What one element gave: its ``text`` ("" where the condition is false), and its map entries."""

    key: Hashable
    item: Any
    text: str
    entries: EntryGroup


class _Places:
    """Where the texts and the entries of turns stand, by the keys of these: looked for when somebody asks first.

    That is for a turn that is replaced. Where elements come and go, one after the other, nobody asks.
    """

    def __init__(self) -> None:
        self._shown: dict[Hashable, int] = {}
        self._recorded: dict[Hashable, int] = {}

    def shown(self, turns: Mapping[Hashable, _Turn]) -> Mapping[Hashable, int]:
        """Return the places of the texts that are not empty."""
        if not self._shown:
            self._shown = dict(zip((key for key, turn in turns.items() if turn.text), count()))
        return self._shown

    def recorded(self, turns: Mapping[Hashable, _Turn]) -> Mapping[Hashable, int]:
        """Return the places of the entries of those that have some."""
        if not self._recorded:
            self._recorded = dict(zip((key for key, turn in turns.items() if turn.entries), count()))
        return self._recorded


@dataclass(slots=True)
class RenderedLoop:
    """One loop of the last rendering. ``turns`` are in the order of the elements, ``shown`` those with a text.

    Its successor takes both over and changes them in place, since a copy of 5,000 turns costs as much as to render
    one: so it does only once the fragment is rendered (:meth:`EachLoops.commit`), and a rendering that fails changes
    nothing.
    """

    elements: Any
    outer: tuple[Any, ...]
    turns: dict[Hashable, _Turn]
    shown: list[str] = field(default_factory=list)
    recorded: tuple[EntryGroup, ...] = ()
    places: _Places = field(default_factory=_Places)
    fresh: Mapping[Hashable, _Turn] = field(default_factory=dict)
    """Turns that are not in ``turns`` yet."""
    replaced: Mapping[int, str] | None = None
    """Which of ``shown`` differ from the former rendering, by place; None where there are more or fewer of them."""

    @classmethod
    def of(cls, elements: Any, outer: tuple[Any, ...], turns: dict[Hashable, _Turn]) -> "RenderedLoop":
        """Return a loop that is put together from its turns."""
        # All of it is done again when one element comes or goes, so it is loops in C as far as possible.
        texts = [turn.text for turn in turns.values() if turn.text]
        entries = [turn.entries for turn in turns.values() if turn.entries]
        return cls(elements, outer, turns, texts, tuple(entries))

    def with_turns(self, elements: Any, fresh: Mapping[Hashable, _Turn]) -> "RenderedLoop":
        """Return the loop after some of its elements were rendered again."""
        replaced: dict[int, str] = {}
        entries: dict[int, EntryGroup] = {}
        for key, turn in fresh.items():
            old = self.turns[key]
            if bool(old.text) != bool(turn.text) or bool(old.entries) != bool(turn.entries):
                return RenderedLoop.of(elements, self.outer, {**self.turns, **fresh})
            if old.text != turn.text:
                replaced[self.places.shown(self.turns)[key]] = turn.text
            if old.entries != turn.entries:
                entries[self.places.recorded(self.turns)[key]] = turn.entries
        recorded = self.recorded
        if entries:
            changed = list(recorded)
            for place, group in entries.items():
                changed[place] = group
            recorded = tuple(changed)
        return RenderedLoop(elements, self.outer, self.turns, self.shown, recorded, self.places, fresh, replaced)

    def commit(self) -> None:
        """Update ``turns`` and ``shown`` to this rendering."""
        self.turns.update(self.fresh)
        for place, text in (self.replaced or {}).items():
            self.shown[place] = text
        self.fresh = {}

    def element(self, place: int) -> tuple[Hashable, Any]:
        """Return key and value of the element that gave the text at ``place``."""
        turn = next(self.turns[key] for key, at in self.places.shown(self.turns).items() if at == place)
        return turn.key, turn.item


class EachLoops:
    """The loops of one fragment in one rendering; ``previous`` are those of its last one, by place and turn."""

    def __init__(
        self, previous: Mapping[tuple[str, int], RenderedLoop], recorded: list[Recorded], refused: re.Pattern[str]
    ) -> None:
        self._previous = previous
        self._recorded = recorded
        self._refused = refused
        self._in_order: list[RenderedLoop] = []
        self.loops: dict[tuple[str, int], RenderedLoop] = {}
        self.suspect = False
        """Whether some text has a character that no configuration may have."""

    def render(self, place: str, width: int, elements: Any, outer: tuple[Any, ...], caller: Callable[..., str]) -> str:
        """Render the elements that changed since the former rendering; return the mark that stands for all."""
        number = sum(known == place for known, _ in self.loops)
        previous = self._previous.get((place, number))
        if previous is not None and not _all_same(previous.outer, outer):
            previous = None
        elements = elements.mapping if isinstance(elements, _ITEMS) else elements
        changed = _changed_keys(previous.elements, elements) if previous is not None and width == 2 else None

        def turn(key: Hashable, item: Any, *values: Any) -> _Turn:
            before = len(self._recorded)
            text = caller(*values)
            self.suspect = self.suspect or self._refused.search(text) is not None
            entries = tuple(each for each in self._recorded[before:] if isinstance(each, Entry | Declared))
            del self._recorded[before:]
            return _Turn(key, item, text, entries)

        if previous is not None and changed is not None:
            fresh = {key: turn(key, elements[key], key, elements[key]) for key in changed}
            loop = previous.with_turns(elements, fresh)
        elif (
            previous is not None and width == 2 and (touched := _touched_keys(previous.elements, elements)) is not None
        ):
            turns = dict(zip(elements, map(previous.turns.get, elements), strict=True))
            turns |= {key: turn(key, elements[key], key, elements[key]) for key in touched}
            loop = RenderedLoop.of(elements, outer, turns)
        elif isinstance(elements, Mapping) and width == 2:
            known = previous.turns if previous else {}
            turns = {}
            for key, item in elements.items():
                one = known.get(key)
                # Keys that are equal may print differently: 1 and True.
                same = one is not None and one.item is item and type(one.key) is type(key)
                turns[key] = one if one is not None and same else turn(key, item, key, item)
            loop = RenderedLoop.of(elements, outer, turns)
        else:
            loop = RenderedLoop.of(elements, outer, dict(self._of_sequence(elements, width, previous, turn)))
        self.loops[place, number] = loop
        self._in_order.append(loop)
        if loop.recorded:
            self._recorded.append(loop.recorded)
        return f"\0{len(self._in_order) - 1}\0"

    @staticmethod
    def _of_sequence(
        elements: Any, width: int, previous: RenderedLoop | None, turn: Callable[..., _Turn]
    ) -> Iterator[tuple[Hashable, _Turn]]:
        """Elements of a sequence have no keys: one that is the very object of a former rendering is known again."""
        known = {id(one.item): one for one in previous.turns.values()} if previous else {}
        for place, item in enumerate(elements):
            one = known.get(id(item))
            if one is not None and (one.item is item or (type(item) in _BY_VALUE and one.item == item)):
                yield place, one
                continue
            values = (item,) if width == 1 else tuple(item)
            if len(values) != width:
                raise InvalidValueError(
                    f"an element has {len(values)} values, {{% each %}} {width} variables", "name as many variables"
                )
            yield place, turn(place, item, *values)

    def commit(self) -> None:
        """Build the next rendering on this one; the former one is of no use after that."""
        for loop in self._in_order:
            loop.commit()

    def parts(self, text: str) -> list[str | RenderedLoop] | None:
        """Split a fragment's text into what stands between its loops, and these; None where a mark is forged."""
        between = _MARK.split(text)
        if between[1::2] != [str(number) for number in range(len(self._in_order))]:
            return None
        parts: list[str | RenderedLoop] = [between[0]]
        for loop, after in zip(self._in_order, between[2::2], strict=True):
            parts += [loop, after]
        return parts


def _changed_keys(previous: Any, elements: Any) -> Iterable[Hashable] | None:
    """Return the keys whose values are other objects; None where other keys came, went or moved."""
    if not isinstance(previous, Mapping) or not isinstance(elements, Mapping):
        return None
    if isinstance(elements, VersionedDict):
        if elements is previous:
            return ()
        if (changed := elements.changed_since(previous)) is not None:
            return [key for key in changed if previous[key] is not elements[key]]
    # Loops in C: with 10,000 elements, looking at each in Python would take longer than all the rest.
    if len(previous) != len(elements) or not all(map(is_, previous, elements)):
        return None
    return list(compress(elements, map(is_not, previous.values(), elements.values())))


def _touched_keys(previous: Any, elements: Any) -> Iterable[Hashable] | None:
    """Return the keys that came, or whose values are other objects; None where that is not known."""
    touched = elements.touched_since(previous) if isinstance(elements, VersionedDict) else None
    return None if touched is None else [key for key in touched if key in elements]


def _all_same(previous: tuple[Any, ...], outer: tuple[Any, ...]) -> bool:
    """Compare what a body reads from outside; an undefined name is as undefined as it was."""
    return len(previous) == len(outer) and all(map(_same, previous, outer))


def _same(one: Any, other: Any) -> bool:
    if one is other or (isinstance(one, Undefined) and isinstance(other, Undefined)):
        return True
    return type(one) is type(other) and type(one) in _BY_VALUE and bool(one == other)
