"""The tree of a Go template. ``at`` is an offset in the source."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text: ``value`` after trimming, ``raw`` before; the tags beside it trim it or not."""

    value: str
    raw: str
    trim_left: bool
    trim_right: bool


@dataclass(frozen=True, slots=True)
class Comment:
    """``{{/* ... */}}``."""

    value: str
    at: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; ``value`` is a str, int, float, bool or None. A character is the int of its code point."""

    value: str | float | bool | None
    at: int


@dataclass(frozen=True, slots=True)
class Dot:
    """``.``."""

    at: int


@dataclass(frozen=True, slots=True)
class Variable:
    """``$name``, or ``$`` with an empty ``name``."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Function:
    """The name of a function."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Chain:
    """``names`` looked up one after the other in ``base``."""

    base: Any
    names: tuple[str, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Command:
    """Operands; the first may be a function or a method that takes the others."""

    operands: tuple[Any, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Pipeline:
    """``declared`` variables (names and offsets) := or = ``commands``; each result is the next one's last argument."""

    commands: tuple[Command, ...]
    at: int
    end: int
    declared: tuple[Variable, ...] = ()
    assigns: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """``{{ pipeline }}``."""

    pipeline: Pipeline


@dataclass(frozen=True, slots=True)
class Branch:
    """``if``, ``with`` or ``range``; ``chained`` when ``otherwise`` holds only what ``{{else if}}`` began."""

    keyword: str
    pipeline: Pipeline
    body: tuple[Any, ...]
    otherwise: tuple[Any, ...] | None
    at: int
    chained: bool = False


@dataclass(frozen=True, slots=True)
class Jump:
    """``break`` or ``continue``."""

    keyword: str
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    """``{{template "name" pipeline}}``."""

    name: str
    pipeline: Pipeline | None
    at: int


@dataclass(frozen=True, slots=True)
class Define:
    """Where ``{{define "name"}}`` stood; its body is in the template's ``defined``."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Template:
    """A whole text: its nodes, and the bodies of what it defines."""

    nodes: tuple[Any, ...]
    defined: dict[str, tuple[Any, ...]]
