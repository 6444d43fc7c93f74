"""Sample expressions and log formats, read where and how HAProxy's own parsers read them. Pure.

Source: ``sample_parse_expr()`` (sample.c), ``make_arg_list()`` (arg.c) and ``parse_logformat_string()`` (log.c) of
HAProxy 2.6 to 3.2. tests/haproxy/test_allowed_fuzz.py compares them with the haproxy that is installed.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_NAME = re.compile(r"[A-Za-z0-9._+:-]*")
_ESCAPED_IN_ARGUMENT = frozenset("\\ \"'rnt")
_PERCENTS = re.compile(r"%+")
_BEFORE_EXPRESSION = re.compile(r"(?:\([^)]*\))?(?:\{[^}]*\})?\[")
"""What stands between ``%`` and an expression: a name since 3.0, flags. Each ends at the first closing sign."""


class Expression(NamedTuple):
    """``names`` are the fetch and its converters; ``end`` is where HAProxy stops reading, -1 where it gives up."""

    names: tuple[str, ...]
    end: int


def read_expression(text: str, at: int = 0) -> Expression:
    """Read a fetch with its converters that begins at ``at``."""
    names: list[str] = []
    while True:
        found = _NAME.match(text, at)
        at = found.end() if found else at
        names.append(found[0] if found else "")
        if text[at : at + 1] == "(":
            at = _end_of_arguments(text, at + 1)
        if at < 0 or text[at : at + 1] != ",":
            break
        while text[at : at + 1] == ",":  # HAProxy takes several for one
            at += 1
        if at == len(text):
            break
    return Expression(tuple(names), at)


def _end_of_arguments(text: str, at: int) -> int:
    """Return where the first ``)`` outside quotes ends: HAProxy does not nest."""
    quote = ""
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            # Of what it does not know, "\)" among them, it keeps the backslash and reads on behind it.
            at += 2 if text[at + 1 : at + 2] in _ESCAPED_IN_ARGUMENT else 1
            continue
        if char in "\"'" and quote in ("", char):
            quote = "" if quote else char
        elif char == ")" and not quote:
            return at + 1
        at += 1
    return -1


def expressions_in_format(text: str) -> Iterator[Expression]:
    """Yield each ``%[...]`` of a log format; its end is -1 where HAProxy would not find the ``]``.

    Every ``%`` that no other one escapes is taken for a beginning: ``%(`` begins a name in 3.0 and is text before.
    """
    for percents in _PERCENTS.finditer(text):
        start = _BEFORE_EXPRESSION.match(text, percents.end()) if len(percents[0]) % 2 else None
        if start is not None:
            found = read_expression(text, start.end())
            yield found if text[found.end : found.end + 1] == "]" else found._replace(end=-1)
