"""Which verbs of Go's ``printf`` print which values here as they do in Go.

``pyconfd migrate`` and a rendering ask the same table, so that what the one translated the other prints.
Source: documentation of Go's package ``fmt``.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from types import MappingProxyType, NoneType
from typing import Any

_VERB = re.compile(r"%(?P<flags>[-+# 0]*)(?P<width>\d*)(?:\.(?P<precision>\d*))?(?P<verb>[^\d.\[*])", re.DOTALL)
_LIMIT = 1000
"""Largest width and precision of a verb: a template must not fill the memory."""


class Shape(Enum):
    """What a verb makes a difference between; TEXTS is a list of texts, OTHER any other list, and a map."""

    TEXT = auto()
    INT = auto()
    FLOAT = auto()
    BOOL = auto()
    NIL = auto()
    TEXTS = auto()
    OTHER = auto()


_NUMBER, _BASE = "-+0", "-+0 #"
_FLAGS: Mapping[Shape, Mapping[str, str]] = MappingProxyType(
    {
        Shape.TEXT: MappingProxyType({"v": "-+"} | dict.fromkeys("sqxX", "-")),
        Shape.INT: MappingProxyType(
            {"v": _NUMBER, "d": "-+0 "} | dict.fromkeys("boxX", _BASE) | dict.fromkeys("cqU", "-")
        ),
        Shape.FLOAT: MappingProxyType(dict.fromkeys("veEfFgG", _NUMBER)),
        Shape.BOOL: MappingProxyType(dict.fromkeys("vt", "-")),
        Shape.NIL: MappingProxyType({"v": ""}),
        Shape.TEXTS: MappingProxyType({"v": "+"} | dict.fromkeys("sqxX", "")),
        Shape.OTHER: MappingProxyType({"v": "+"}),
    }
)
"""The verbs of each shape, with the flags that each takes: one at a time, since some pairs print otherwise in Go."""

_TYPES: Mapping[type, Shape] = MappingProxyType(
    {NoneType: Shape.NIL, bool: Shape.BOOL, int: Shape.INT, float: Shape.FLOAT, Mapping: Shape.OTHER}
)
"""In this order: a bool is an int as well."""

_WIDE = frozenset({Shape.TEXT, Shape.INT, Shape.FLOAT, Shape.BOOL})


def shape_of(value: Any) -> Shape:
    """Return the shape of a value; records print as texts, with their ``String()``."""
    if isinstance(value, list | tuple):
        return Shape.TEXTS if all(isinstance(item, str) for item in value) else Shape.OTHER
    for kind, shape in _TYPES.items():
        if isinstance(value, kind):
            return shape
    return Shape.TEXT


def pieces_of(layout: str) -> Iterator[str | re.Match[str]]:
    """Split a layout into texts and verbs, a match with flags, width, precision and verb each.

    Raises:
        ValueError: it ends in a verb that is not complete, or uses ``*`` or ``[n]``.

    """
    end = 0
    for found in _VERB.finditer(layout):
        yield _plain(layout[end : found.start()])
        end = found.end()
        yield "%" if found[0] == "%%" else found
    yield _plain(layout[end:])


def _plain(text: str) -> str:
    if "%" in text:
        raise ValueError("a verb is not complete, or uses * or [n]")
    return text


def prints_as_go(found: re.Match[str], shape: Shape) -> bool:
    """Return whether a verb prints a value of a shape as Go does."""
    verb, flags, width, precision = found["verb"], found["flags"], found["width"], found["precision"]
    allowed = _FLAGS[shape].get(verb)
    if allowed is None or len(flags) > 1 or flags not in allowed or (width and shape not in _WIDE):
        return False
    if precision is not None and shape is not Shape.FLOAT and not (shape is Shape.TEXT and verb in "sq"):
        return False
    return max(int(width or 0), int(precision or 0)) <= _LIMIT
