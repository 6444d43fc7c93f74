"""Regular expressions of tenants: only those that take no long time, whatever they are compared with.

HAProxy's library tries all ways in which an expression could match, and nothing else happens in the thread meanwhile.
So HAProxy compares no value of more than ``LONGEST_VALUE`` characters, and :func:`steps_of` counts the characters that
may have to be looked at for one: it bounds each expression here, and what a namespace has at one listener in
:mod:`pyconfd.presets.gateway.work`.

Measured with HAProxy 2.6 (PCRE2 10.42 with JIT) on the worst values: 0.1 to 2.4 ns for a step. Before values and steps
had bounds, 512 expressions and a path of 14 KB took 3.7 to 7.7 s.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from pyconfd.presets import values

LONGEST_VALUE = 1024
"""In characters; a longer path, header or query parameter matches no expression."""
MOST_STEPS = 250_000
"""Of one expression."""
_MOST_REPETITIONS = 128
"""As the digits of the longest digest."""

ANY_CASE = "(?i)"
"""What an expression may begin with: then letters stand for both of their cases."""

_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(|\)|\||[*+?]|\{[0-9]*,?[0-9]*\}|.", re.DOTALL)
_OTHERWISE = re.compile(r"\[\[|--|&&|~~|\|\||[*+?}][+?]|\{,|\{\}")
"""What Python and PCRE read in different ways, or what is not needed to say it."""
_ANYTHING = "."


class _Atom(NamedTuple):
    """One character of a pattern, or a bracket or ``|``, and how often it is there."""

    text: str
    times: str = ""

    @property
    def fixed(self) -> bool:
        return not self.times or self.times[1:-1].isdigit()

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the most times that it may be there in a value."""
        if self.times in {"", "*", "+", "?"}:
            return {"": (1, 1), "*": (0, LONGEST_VALUE), "+": (1, LONGEST_VALUE), "?": (0, 1)}[self.times]
        least, comma, most = self.times[1:-1].partition(",")
        return int(least), int(most) if most else LONGEST_VALUE if comma else int(least)


class _Group(NamedTuple):
    """Alternatives, each a sequence, and how often the group is there: ``atom`` is its closing bracket."""

    alternatives: "tuple[tuple[_Item, ...], ...]"
    atom: _Atom


_Item = _Atom | _Group

_Characters = frozenset[str]
_END: _Characters = frozenset()
"""What comes behind the last part: no character."""


def fault_of(value: str, *, lines: bool = False) -> str:
    """Return why a regular expression is not taken, "" where it is; ``lines``: it is compared with several lines."""
    bare = value.removeprefix(ANY_CASE)
    if _OTHERWISE.search(bare):
        return "not taken in a regular expression: [[, --, &&, ~~, ||, {,N}, and + or ? after a repetition"
    try:
        values.pattern(bare)
    except ValueError as error:
        return str(error)
    atoms = list(_atoms(bare))
    if any(number.isdigit() and int(number) > _MOST_REPETITIONS for atom in atoms for number in _numbers(atom)):
        return f"a repetition counts up to {_MOST_REPETITIONS} at most"
    if wrong := _varying_group(atoms):
        return wrong
    if steps_of(value, lines=lines) > MOST_STEPS:
        return "takes too long: write [^/]+ in place of .*, and fewer alternatives and optional parts"
    return ""


@lru_cache(maxsize=4096)
def steps_of(value: str, *, lines: bool = False) -> int:
    """Return at how many characters the library looks at most, for any value that is not too long.

    ``value`` is one that :func:`fault_of` otherwise takes.
    """
    atoms = list(_atoms(value.removeprefix(ANY_CASE)))
    count = _Count(fold=value.startswith(ANY_CASE), lines=lines)
    count.alternatives(_alternatives(atoms), 1, _END)
    return count.steps


def _atoms(value: str) -> Iterator[_Atom]:
    parts = _PART.findall(value.removeprefix("^"))
    if parts[-1:] == ["$"]:
        parts.pop()
    for place, part in enumerate(parts):
        if not _is_times(part):
            following = parts[place + 1] if place + 1 < len(parts) else ""
            yield _Atom(part, following if _is_times(following) else "")


def _is_times(part: str) -> bool:
    return part in {"*", "+", "?"} or (len(part) > 1 and part[0] == "{")


def _numbers(atom: _Atom) -> list[str]:
    return atom.times[1:-1].split(",")


def _varying_group(atoms: Sequence[_Atom]) -> str:
    """Refuse a group that is there several times, and that can match in several ways."""
    varies = [False]
    for atom in atoms:
        if atom.text == "(":
            varies.append(False)
            continue
        own = varies.pop() if atom.text == ")" and len(varies) > 1 else False
        if atom.text == ")" and atom.times not in {"", "?"} and (own or not atom.fixed):
            return "repeat a single character or [...] only, or a group of one length as often as {N} says"
        varies[-1] = varies[-1] or own or atom.text == "|" or not atom.fixed
    return ""


def _alternatives(atoms: Sequence[_Atom]) -> tuple[tuple[_Item, ...], ...]:
    """Parse atoms, whose brackets fit together."""
    stack: list[list[list[_Item]]] = [[[]]]
    for atom in atoms:
        if atom.text == "(":
            stack.append([[]])
        elif atom.text == ")":
            inside = stack.pop()
            stack[-1][-1].append(_Group(tuple(map(tuple, inside)), atom))
        elif atom.text == "|":
            stack[-1].append([])
        else:
            stack[-1][-1].append(atom)
    return tuple(map(tuple, stack[0]))


class _Count:
    """Counts steps: each part is looked at once for each way in which what is before it may have matched."""

    def __init__(self, *, fold: bool, lines: bool) -> None:
        self.steps = 0
        self._fold, self._lines = fold, lines

    def alternatives(self, found: Sequence[Sequence[_Item]], ways: int, following: _Characters) -> int:
        """Count what is tried one after the other, each for all ``ways``; return in how many ways they match."""
        return sum(self._sequence(each, ways, following) for each in found)

    def _sequence(self, items: Sequence[_Item], ways: int, following: _Characters) -> int:
        for place, item in enumerate(items):
            after = self._first(items[place + 1 :], following)
            ways = self._group(item, ways, after) if isinstance(item, _Group) else self._atom(item, ways, after)
        return ways

    def _group(self, group: _Group, ways: int, following: _Characters) -> int:
        least, most = group.atom.bounds
        before = self.steps
        matched = self.alternatives(group.alternatives, ways, following)
        self.steps += (self.steps - before) * (most - 1)  # a group that is there several times has one way to match
        return matched + (ways if not least else 0)

    def _atom(self, atom: _Atom, ways: int, following: _Characters) -> int:
        least, most = atom.bounds
        if least == most:
            self.steps += ways * most
            return ways
        if atom.text == _ANYTHING and following is _END and most == LONGEST_VALUE and not self._lines:
            self.steps += most  # it matches all that is left, and nothing has to be tried again
            return ways
        self.steps += 2 * ways * most
        # Where what is repeated cannot be what follows it, a shorter match fails at its next character.
        return ways if not self._characters(atom) & following else ways * (most - least + 1)

    def _first(self, items: Sequence[_Item], following: _Characters) -> _Characters:
        """Return the characters that items may begin with, and where they may be nothing what follows them."""
        found: _Characters = frozenset()
        for place, item in enumerate(items):
            if isinstance(item, _Group):
                after = self._first(items[place + 1 :], following)
                inside = [self._first(each, after) for each in item.alternatives]
                return found.union(*inside, after if not item.atom.bounds[0] else ())
            found |= self._characters(item)
            if item.bounds[0]:
                return found
        return found | following if items else following

    def _characters(self, atom: _Atom) -> _Characters:
        return _characters(atom.text, self._fold)


@lru_cache(maxsize=1024)
def _characters(text: str, fold: bool) -> _Characters:
    """Return the characters that one character of a pattern stands for; anchors and borders are like all of them."""
    known = frozenset(map(chr, range(256)))
    if text in {"^", "$"} or (text[0] == "\\" and text[1:] in {"b", "B"}):
        return known
    compiled = re.compile(text, re.ASCII | (re.IGNORECASE if fold else re.NOFLAG))
    return frozenset(each for each in known if compiled.fullmatch(each))
