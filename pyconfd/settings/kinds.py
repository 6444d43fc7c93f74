"""The kinds of values that settings have: how each is read from text or TOML, and how it is shown.

A value comes as text (a flag, the environment) or as what TOML gives. ``parse`` takes both and gives the value of the
tree, or raises :class:`NotAcceptedError` with words that say what was expected and what was given.
"""

import math
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from enum import StrEnum
from types import MappingProxyType
from typing import Any
from urllib.parse import SplitResult, urlsplit

TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
FALSE_WORDS = frozenset({"false", "no", "off", "0"})

_LONGEST_SHOWN = 60
_YEAR_S = 365 * 86400
_UNITS_S = MappingProxyType({"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0})
_AMOUNT = re.compile(r"([-+]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18}))\s*([a-z]*)", re.ASCII)
_INT64 = 2**63


class NotAcceptedError(ValueError):
    """A value is not of its kind; the text says what was expected and what was given."""

    def __init__(self, expected: str, given: object = None, *, words: str = "") -> None:
        """``words`` describes a given value that must not be repeated, since it may hold a secret."""
        super().__init__(f"expected {expected}, got {words or shown(given)}")


def shown(value: object) -> str:
    """Return a value in a few words for a message; text over several lines may be a key, so it is never repeated."""
    if isinstance(value, str):
        return _shown_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= _INT64:
        return "a very large number"
    if isinstance(value, Mapping | Sequence):
        return "a table" if isinstance(value, Mapping) else "an array"
    return str(value)


def _shown_text(text: str) -> str:
    if "\n" in text or "PRIVATE KEY" in text:
        return f"text of {len(text)} characters over several lines"
    short = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."
    return ascii(short) if unprintable(short) else f'"{short}"'


def unprintable(text: str) -> bool:
    """Return whether text has a control character or a half of a surrogate pair (bytes that were not UTF-8)."""
    return any(ord(char) < 32 or ord(char) == 127 or 0xD800 <= ord(char) <= 0xDFFF for char in text)


class Kind(ABC):
    """How the values of a setting are read and shown."""

    metavar: str = "TEXT"
    repeatable: bool = False
    """Whether its flag may be given several times; the values then belong together."""
    joiner: str = " "  # between the values of a flag that is given several times
    words: tuple[str, ...] = ()
    """The accepted words, where they can be listed: for completion and suggestions."""
    empty_variable: bool = False
    """Whether an empty variable of the environment is a value; else it counts as not set."""

    @abstractmethod
    def parse(self, value: object) -> Any:
        """Return the value for the tree.

        Raises:
            NotAcceptedError: the value is not of this kind.
        """

    def text(self, value: Any) -> str:
        """Return a value of the tree as a person would type it; "" for an empty one."""
        return str(value)


@dataclass(frozen=True)
class Text(Kind):
    """One line of text. ``pattern`` (with ``what`` as its description) is matched in full; "" only if ``optional``."""

    what: str = "text on one line"
    pattern: str = ""
    optional: bool = True
    metavar: str = "TEXT"

    def parse(self, value: object) -> str:
        """Return the text as it is."""
        if not isinstance(value, str) or unprintable(value) or not (value or self.optional):
            raise NotAcceptedError(self.what, value)
        if value and self.pattern and not re.fullmatch(self.pattern, value):
            raise NotAcceptedError(self.what, value)
        return value


@dataclass(frozen=True)
class PathText(Text):
    """The path of a file or a directory; a leading ``~/`` is expanded when settings are resolved."""

    what: str = "a path"
    metavar: str = "PATH"
    directory: bool = False


@dataclass(frozen=True)
class Boolean(Kind):
    """A real boolean: true/false in TOML, and yes/no, on/off, 1/0 as text."""

    metavar: str = "BOOL"
    words: tuple[str, ...] = ("true", "false")

    def parse(self, value: object) -> bool:
        """Return the boolean; "False" is False."""
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in TRUE_WORDS | FALSE_WORDS:
            return value.lower() in TRUE_WORDS
        raise NotAcceptedError("true or false (yes/no, on/off, 1/0)", value)

    def text(self, value: Any) -> str:
        """Return ``true`` or ``false``."""
        return "true" if value else "false"


@dataclass(frozen=True)
class Choice(Kind):
    """One of a few words, in any case; ``aliases`` are further spellings."""

    words: tuple[str, ...]
    make: Callable[[str], str] = str
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def metavar(self) -> str:  # type: ignore[override]
        """Return the words as a command line's help shows them."""
        return "|".join(self.words)

    def parse(self, value: object) -> str:
        """Return the word in its own spelling."""
        if isinstance(value, str):
            folded = value.casefold()
            for word in self.words:
                if word.casefold() in (folded, self.aliases.get(folded, "").casefold()):
                    return self.make(word)
        raise NotAcceptedError(f"one of {', '.join(self.words)}", value)


def choice_of(kind: type[StrEnum]) -> Choice:
    """Return the choice among the members of an enumeration."""
    return Choice(words=tuple(member.value for member in kind), make=kind)


@dataclass(frozen=True)
class Seconds(Kind):
    """A duration as a float in seconds: a number, or text with a unit (``500ms``, ``30s``, ``5m``, ``1h``)."""

    least: float = 0.0
    above: bool = True
    most: float = _YEAR_S
    metavar: str = "SECONDS"

    def parse(self, value: object) -> float:
        """Return the seconds."""
        seconds = _seconds(value)
        low = seconds > self.least if self.above else seconds >= self.least
        if not (low and seconds <= self.most):
            raise NotAcceptedError(self._expected(), value)
        return seconds

    def _expected(self) -> str:
        bound = f"above {self.least:g}" if self.above else f"of at least {self.least:g}"
        most = "a year" if self.most == _YEAR_S else f"{self.most:g}"
        return f"seconds {bound} and at most {most} (30, 0.5, or with a unit: 500ms, 30s, 5m)"

    def text(self, value: Any) -> str:
        """Return the number of seconds."""
        return f"{value:.15g}"


def _seconds(value: object) -> float:
    """Return a duration in seconds, NaN for what is none."""
    if isinstance(value, str) and (match := _AMOUNT.fullmatch(value.strip().lower())):
        return float(match[1]) * _UNITS_S.get(match[2], math.nan)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _INT64:
        return float(value)
    return math.nan


@dataclass(frozen=True)
class Count(Kind):
    """A whole number between two bounds."""

    least: int
    most: int
    metavar: str = "NUMBER"

    def parse(self, value: object) -> int:
        """Return the number."""
        number = value
        if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]{1,18}", value):
            number = int(value)
        if isinstance(number, int) and not isinstance(number, bool) and self.least <= number <= self.most:
            return number
        raise NotAcceptedError(f"a whole number from {self.least} to {self.most}", value)


@dataclass(frozen=True)
class Listing(Kind):
    """Several texts: an array in TOML; in text they are parted by ``separators`` (a pattern). Doubles are dropped."""

    item: Callable[[str], str] = str
    metavar: str = "LIST"
    repeatable: bool = True
    separators: str = r"[,\s]+"
    joiner: str = " "

    def parse(self, value: object) -> tuple[str, ...]:
        """Return the items in order."""
        parts = re.split(self.separators, value) if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            raise NotAcceptedError("an array of texts", value)
        items = []
        for part in parts:
            if not isinstance(part, str) or unprintable(part):
                raise NotAcceptedError("an array of texts", part)
            if part.strip():
                items.append(self.item(part.strip()))
        return tuple(dict.fromkeys(items))

    def text(self, value: Any) -> str:
        """Return the items as they can be read again."""
        return ("; " if ";" in self.joiner else ", ").join(value)


@dataclass(frozen=True)
class Command(Kind):
    """A command as a list of arguments: text is split as a shell would quote it, and no shell ever runs."""

    metavar: str = "COMMAND"

    def parse(self, value: object) -> tuple[str, ...]:
        """Return the arguments."""
        if isinstance(value, str):
            try:
                parts: Sequence[object] = shlex.split(value)
            except ValueError as error:
                raise NotAcceptedError(f"a command with its quotes closed ({error})", value) from error
        elif isinstance(value, list | tuple):
            parts = value
        else:
            raise NotAcceptedError("a command as one text, or an array of its arguments", value)
        if any(not isinstance(part, str) or unprintable(part) for part in parts) or (parts and not parts[0]):
            raise NotAcceptedError("a command whose arguments are texts on one line", value)
        return tuple(str(part) for part in parts)

    def text(self, value: Any) -> str:
        """Return the command quoted for a shell."""
        return shlex.join(value)


@dataclass(frozen=True)
class CaFile(PathText):
    """A file of trusted authorities, or False (also ``no``, ``off``, ``0``) for no verification at all."""

    what: str = "the path of a file, or false for no verification"
    metavar: str = "PATH|false"

    def parse(self, value: object) -> Any:
        """Return the path, or False."""
        if value is False or (isinstance(value, str) and value.lower() in FALSE_WORDS):
            return False
        if isinstance(value, str) and value.lower() in TRUE_WORDS:
            raise NotAcceptedError(self.what, value)
        return super().parse(value)

    def text(self, value: Any) -> str:
        """Return the path or ``false``."""
        return "false" if value is False else str(value)


@dataclass(frozen=True)
class Listen(Kind):
    """``host:port`` to listen on, or "" for nothing; IPv6 in brackets; port 0 takes any free one."""

    metavar: str = "HOST:PORT"
    empty_variable: bool = True

    def parse(self, value: object) -> str:
        """Return the text as it is."""
        expected = 'HOST:PORT, like 127.0.0.1:9101 or [::1]:9101 ("" for none)'
        if value == "":
            return ""
        if not isinstance(value, str) or unprintable(value):
            raise NotAcceptedError(expected, value)
        match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9._-]+):([0-9]{1,5})", value)
        if not match or int(match[2]) > 65535:
            raise NotAcceptedError(expected, value)
        return value


@dataclass(frozen=True)
class Variables(Kind):
    """The operator's own values: a table in TOML, ``NAME=VALUE`` in text (several parted by spaces, quoted)."""

    metavar: str = "NAME=VALUE"
    repeatable: bool = True

    def parse(self, value: object) -> Mapping[str, Any]:
        """Return the names and their values; from text all values are text."""
        if isinstance(value, Mapping):
            _check_value(value)
            return MappingProxyType(dict(value))
        if not isinstance(value, str):
            raise NotAcceptedError("a table", value)
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise NotAcceptedError(
                f"NAME=VALUE with its quotes closed ({error})", words="a value that is not"
            ) from error
        pairs = [word.partition("=") for word in words]
        for name, sign, text in pairs:
            if not (name.isidentifier() and sign) or unprintable(text):
                raise NotAcceptedError("NAME=VALUE, the name of letters, digits and _", name)
        return MappingProxyType({name: text for name, _, text in pairs})

    def text(self, value: Any) -> str:
        """Return the names alone: a value may be a secret."""
        return ", ".join(sorted(value))


def _check_value(value: object) -> None:
    """Refuse what templates and JSON cannot take: numbers beyond 64 bits and unknown types."""
    match value:
        case bool() | float() | str() | date() | time():
            return
        case int() if -_INT64 <= value < _INT64:
            return
        case Mapping():
            for item in value.values():
                _check_value(item)
        case list() | tuple():
            for item in value:
                _check_value(item)
        case _:
            raise NotAcceptedError("texts, numbers of up to 64 bits, booleans, dates, arrays and tables", value)


def api_server(text: str) -> str:
    """Return the URL of an API server without its trailing slash.

    Raises:
        NotAcceptedError: it is no http(s) URL, or it carries a password (which is not repeated), query or fragment.
    """
    expected = "the URL of an API server, like https://10.31.12.49:6443"
    try:
        parts: SplitResult = urlsplit(text)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_valid = urlsplit(""), False
    if "@" in text:
        raise NotAcceptedError(f"{expected}, without a user name or password", words="one that has them")
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port_is_valid:
        raise NotAcceptedError(expected, text)
    if parts.query or parts.fragment:
        raise NotAcceptedError(f"{expected}, without ? and #", words="one that has them")
    return text.rstrip("/")


def one_of(*words: str) -> Callable[[str], str]:
    """Return the check of an item of a list against a few words, in any case."""
    return Choice(words).parse


def matching(pattern: str, what: str) -> Callable[[str], str]:
    """Return the check of an item of a list against a pattern, described by ``what``."""
    return Text(what=what, pattern=pattern).parse


def port_range(text: str) -> str:
    """Return an inclusive range of ports, ``FIRST-LAST``; a single port is a range of itself.

    Raises:
        NotAcceptedError: it is none.
    """
    first, _, last = text.partition("-")
    last = last or first
    if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        raise NotAcceptedError("a range of ports, like 1024-32767", text)
    if not 1 <= int(first) <= int(last) <= 65535:
        raise NotAcceptedError("a range of ports from 1 to 65535, the smaller one first", text)
    return f"{int(first)}-{int(last)}"
