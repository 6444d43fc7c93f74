"""The words of a line of haproxy.cfg, each with the way it was written.

Source: HAProxy configuration manual, section 2.2.
"""

import re
from typing import NamedTuple

_PART = re.compile(
    r"""'(?P<strong>[^']*)'|"(?P<weak>(?:[^"\\]|\\.)*)"|(?P<escaped>\\(?:x[0-9A-Fa-f]{2}|.))|(?P<plain>[^'"\\# \t]+)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPED = {" ": " ", "\\": "\\", "#": "#", '"': '"', "'": "'", "n": "\n", "r": "\r", "t": "\t"}


class Word(NamedTuple):
    """``value`` is what HAProxy reads (variables unexpanded), ``written`` is what stands in the file."""

    value: str
    written: str


def _unescaped(text: str, *, weak: bool = False) -> str:
    def replace(found: re.Match[str]) -> str:
        char = found[1]
        if len(char) > 1:
            return chr(int(char[1:], 16))
        # HAProxy keeps what it does not know: "\." and "\1" reach the regular expression as they are.
        return "$" if weak and char == "$" else _ESCAPED.get(char, found[0])

    return _ESCAPE.sub(replace, text)


def split_words(line: str) -> list[Word]:
    """Split a line without its newline; a comment ends it, an unmatched quote is taken as it stands."""
    words: list[Word] = []
    value, start, index = "", -1, 0
    while index < len(line) and line[index] != "#":
        if line[index] in " \t":
            if start >= 0:
                words.append(Word(value, line[start:index]))
            value, start, index = "", -1, index + 1
            continue
        if start < 0:
            start = index
        part = _PART.match(line, index)
        if part is None:
            value, index = value + line[index], index + 1
            continue
        strong, weak, escaped, plain = part.group("strong", "weak", "escaped", "plain")
        if weak is not None:
            value += _unescaped(weak, weak=True)
        elif escaped is not None:
            value += _unescaped(escaped)
        else:
            value += strong or plain or ""
        index = part.end()
    if start >= 0:
        words.append(Word(value, line[start:index]))
    return words
