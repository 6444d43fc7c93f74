"""Jinja expressions as values, with the precedence and type that say how they can be put together."""

import re
from dataclasses import dataclass
from enum import IntEnum

from pyconfd.migrate.gotemplate.types import Scalar, Type, prints_alike


class Level(IntEnum):
    """How tightly an expression binds."""

    OR = 0
    AND = 1
    NOT = 2
    COMPARE = 3
    CONCAT = 4
    FILTER = 5
    ATOM = 6


@dataclass(frozen=True, slots=True)
class Expression:
    """Jinja ``code`` and the type of what it gives; ``constant`` is its value if that is a text that never changes."""

    code: str
    kind: Type = Scalar.ANY
    level: Level = Level.ATOM
    constant: str | None = None

    @property
    def is_literal(self) -> bool:
        """Whether the code itself is a text in quotes."""
        return self.code.startswith("'") and self.constant is not None

    def at(self, level: Level) -> str:
        """Return the code for a place where only expressions of ``level`` or tighter can stand."""
        return self.code if self.level >= level else f"({self.code})"


class UntranslatableError(Exception):
    """What has no counterpart: ``message`` says why, ``at`` is the offset in the source."""

    def __init__(self, message: str, at: int) -> None:
        self.message, self.at = message, at
        super().__init__(message)


_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNSAFE = re.compile(r"[\\'\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff]|\{(?=[{%#])|(?<=[%#}-])\}")


def text_literal(value: str) -> str:
    """Write a text as a Jinja literal that holds no delimiter of Jinja."""

    def escape(found: re.Match[str]) -> str:
        char = found[0]
        code = ord(char)
        return _ESCAPES.get(char) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")

    return f"'{_UNSAFE.sub(escape, value)}'"


def text(value: str) -> Expression:
    """Return the expression of a text."""
    return Expression(text_literal(value), Scalar.STRING, Level.ATOM, value)


def as_text(value: Expression) -> str:
    """Return code that prints as Go prints the value."""
    return value.code if prints_alike(value.kind) else f"go.text({value.code})"
