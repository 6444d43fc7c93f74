"""The words of a line of haproxy.cfg, each with the way it was written: one reader for all of pyconfd.

Source: HAProxy's ``parse_line()`` (tools.c, 2.6 to 3.2), and section 2.2 of its configuration manual.
"""

import re
from typing import NamedTuple

_PLAIN = re.compile(r"[^'\"\\# \t]+")
_STRONG = re.compile(r"'([^']*)'")
_WEAK = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
# HAProxy keeps the backslash of an escape that it does not know, and reads the character after it as any other:
# "\." and "\1" reach a regular expression as they are, and a tab after a backslash ends the word.
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|[ \\#\"'ntr])")
_WEAK_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|[ \\#\"'ntr$])")
_VARIABLE = re.compile(r"(?:[^\\$]|\\.)*\$", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


class Word(NamedTuple):
    """``value`` is what HAProxy reads (variables unexpanded), ``written`` is what stands in the file."""

    value: str
    written: str


def split_words(line: str) -> list[Word]:
    """Split a line without its newline; a comment ends it, an unmatched quote is taken as it stands."""
    return scan(line)[0]


def scan(line: str) -> tuple[list[Word], str]:
    """Return the words, and what makes them depend on more than the line ("" for nothing).

    That is an unmatched quote, an environment variable, an escaped byte, or a backslash at the end.
    """
    words: list[Word] = []
    value, start, index, doubt = "", -1, 0, ""
    while index < len(line) and line[index] != "#":
        char = line[index]
        if char in " \t":
            if start >= 0:
                words.append(Word(value, line[start:index]))
            value, start, index = "", -1, index + 1
            continue
        if start < 0:
            start = index
        if found := _PLAIN.match(line, index):
            value += found[0]
        elif found := _STRONG.match(line, index):
            value += found[1]
        elif found := _WEAK.match(line, index):
            doubt = doubt or _doubt_of(found[1])
            value += _WEAK_ESCAPE.sub(_unescaped, found[1])
        elif found := _ESCAPE.match(line, index):
            doubt = doubt or ("an escaped byte (\\x)" if found[1][0] == "x" else "")
            value += _unescaped(found)
        else:
            doubt = doubt or _doubt_of_char(line, index)
            value, index = value + char, index + 1
            continue
        index = found.end()
    if start >= 0:
        words.append(Word(value, line[start:index]))
    return words, doubt


def _unescaped(found: re.Match[str]) -> str:
    char = found[1]
    return chr(int(char[1:], 16)) if len(char) > 1 else _ESCAPED.get(char, char)


def _doubt_of(weak: str) -> str:
    """Return what in a text in double quotes HAProxy would fill in."""
    if "\\x" in weak:
        return "an escaped byte (\\x)"
    return "an environment variable (a $ in double quotes)" if _VARIABLE.match(weak) else ""


def _doubt_of_char(line: str, index: int) -> str:
    if line[index] in "'\"":
        return "a quote that is not closed"
    following = line[index + 1 : index + 2]
    return "" if following not in ("", "x") else "a backslash at the end of the line" if not following else "a \\x"
