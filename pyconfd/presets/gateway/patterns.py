"""Regular expressions of tenants: only those that take no long time, whatever they are compared with.

HAProxy's library tries all ways in which an expression could match, and nothing else happens in the thread meanwhile:
three repetitions and a path of 4,000 characters take seconds. So at most one repetition may have to be tried at each
place, and what follows it has a fixed length.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from pyconfd.presets import values

_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(|\)|\||[*+?]|\{[0-9]*,?[0-9]*\}|.", re.DOTALL)
_OTHERWISE = re.compile(r"\[\[|--|&&|~~|\|\||[*+?}][+?]")
"""What Python and PCRE read in different ways, or what is not needed to say it."""
_MOST_WAYS = 256
"""In how many ways optional parts and alternatives may match together."""
_ANYTHING = "."


class _Atom(NamedTuple):
    """One character of a pattern, or a bracket or ``|``, and how often it is there."""

    text: str
    times: str = ""

    @property
    def fixed(self) -> bool:
        return not self.times or self.times[1:-1].isdigit()

    @property
    def is_character(self) -> bool:
        return self.text not in {"(", ")", "|"}


def fault_of(value: str) -> str:
    """Return why a regular expression is not taken, "" where it is."""
    if _OTHERWISE.search(value):
        return "not taken in a regular expression: [[, --, &&, ~~, ||, and + or ? after a repetition"
    try:
        values.pattern(value)
    except ValueError as error:
        return str(error)
    atoms = list(_atoms(value))
    return _varying_group(atoms) or _slow(atoms)


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


def _varying_group(atoms: list[_Atom]) -> str:
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


def _slow(atoms: list[_Atom]) -> str:
    tried, ways = False, 1
    last = len(atoms) - 1
    for place, atom in enumerate(atoms):
        if atom.text == "|" or atom.times == "?":
            ways *= 2
        elif not atom.fixed:
            if tried and not (place == last and atom.text == _ANYTHING):
                return "only the last repetition may also match what follows it: write [^/]+ in place of .*"
            tried = tried or not _ends_by_itself(atoms, place)
    return f"too many alternatives and optional parts: {ways} ways to match" if ways > _MOST_WAYS else ""


def _ends_by_itself(atoms: list[_Atom], place: int) -> bool:
    """Return whether what is repeated cannot be what follows it."""
    following = next((each for each in atoms[place + 1 :] if each.text != ")" or each.times), None)
    if following is None:
        return atoms[place].text == _ANYTHING
    optional = following.times in {"?", "*"} or following.times.startswith(("{0", "{,"))
    if optional or not following.is_character:
        return False
    return not _characters(atoms[place].text) & _characters(following.text)


@lru_cache(maxsize=1024)
def _characters(text: str) -> frozenset[str]:
    """Return the characters that one character of a pattern stands for; anchors and borders are like all of them."""
    known = frozenset(map(chr, range(256)))
    if text in {"^", "$"} or (text[0] == "\\" and text[1:] in {"b", "B"}):
        return known
    compiled = re.compile(text)
    return frozenset(each for each in known if compiled.fullmatch(each))
