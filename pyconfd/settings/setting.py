"""How a setting is declared, and how a value of one is read and shown.

A setting is a field of a section, which is a frozen dataclass::

    page_size: Annotated[int, Meta(ge=1, le=100_000)] = setting(500, "objects asked for in one page of a list")

Everything follows from that line: its key in TOML and its type from the field, its flag, its variable and its entry in
the reference from :func:`setting`, the values that it takes from the type. The types are those of ``values.py``: plain
Python types with the bounds and patterns of msgspec (``Meta``, whose ``description`` says what is expected), and a
:class:`TextForm` where a value is written in a way that the type does not tell.
"""

import difflib
import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from datetime import date, time
from enum import StrEnum
from functools import cache, partial
from types import MappingProxyType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from pyconfd.errors import Problem
from pyconfd.printable import clean

TRUE_WORDS = frozenset({"true", "yes", "on", "1"})
FALSE_WORDS = frozenset({"false", "no", "off", "0"})
YEAR_S = 365 * 86400
ENV_PREFIX = "PYCONFD_"

_LONGEST_SHOWN = 60
_UNITS_S = MappingProxyType({"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0})
_AMOUNT = re.compile(r"([-+]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18}))\s*([a-z]*)", re.ASCII)
_INT64 = 2**63
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""Control characters, and halves of a surrogate pair: bytes that were not UTF-8."""
_Value = TypeVar("_Value")


class NotAcceptedError(ValueError):
    """A value is not one of its type; ``problems`` says what is wrong, each with its place within the value."""

    def __init__(
        self,
        expected: str,
        given: object = None,
        *,
        words: str = "",
        remedy: str = "",
        problems: Sequence[Problem] = (),
    ) -> None:
        """``words`` describes a given value that must not be repeated, since it may hold a secret."""
        self.problems = tuple(problems) or (Problem("", f"expected {expected}, got {words or shown(given)}", remedy),)
        super().__init__("; ".join(f"{each.place}: {each.message}".lstrip(", :") for each in self.problems))

    def at(self, place: str) -> Iterator[Problem]:
        """Return the problems of a value that stands at a place."""
        return (replace(each, place=place + each.place) for each in self.problems)


def collected(readers: Iterable[tuple[str, Callable[[], _Value]]]) -> list[_Value]:
    """Return what all of the readers return; each has the place of its value.

    Raises:
        NotAcceptedError: with the problems of all of them.
    """
    values: list[_Value] = []
    problems: list[Problem] = []
    for place, read in readers:
        try:
            values.append(read())
        except NotAcceptedError as error:
            problems += error.at(place)
    if problems:
        raise NotAcceptedError("", problems=problems)
    return values


def meant(given: object, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the remedy for a misspelt word; "" where none of the known ones is close."""
    words = {word.lower(): word for word in known}
    close = difflib.get_close_matches(given.lower(), words, 1, cutoff) if isinstance(given, str) else ()
    return f"did you mean {words[close[0]]}?" if close else ""


def shown(value: object) -> str:
    """Return a value in a few words for a message; text over several lines may be a key, so it is never repeated."""
    if isinstance(value, str):
        several = "\n" in value or "PRIVATE KEY" in value
        return f"text of {len(value)} characters over several lines" if several else f'"{clean(value, _LONGEST_SHOWN)}"'
    if isinstance(value, Mapping | list | tuple):
        return "a table" if isinstance(value, Mapping) else "an array"
    if isinstance(value, int) and abs(value) >= _INT64:
        return "a very large number"
    return str(value).lower() if isinstance(value, bool) else str(value)


def one_line(value: object, expected: str) -> str:
    """Return a value that is text on one line.

    Raises:
        NotAcceptedError: it is something else.
    """
    if not isinstance(value, str) or _UNPRINTABLE.search(value):
        is_number = type(value) is int and abs(value) < _INT64
        raise NotAcceptedError(expected, value, remedy=f'write it in quotes: "{value}"' if is_number else "")
    return value


def key_shown(name: str) -> str:
    """Return a key of a file for a message."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name) else shown(name)


@dataclass(frozen=True, eq=False)
class TextForm:
    """How a value is written, where its type alone does not say it; a part of the type, in ``Annotated``."""

    metavar: str
    """What stands for the value in help."""
    read: Callable[[Any], Any] | None = None
    """Returns the value for what was given (for a ``str``: the text, never empty), or raises NotAcceptedError; a
    ValueError of a text means that it is not what the ``description`` of its type says."""
    check: Callable[[str], object] | None = None
    """Raises as ``read`` of a text does, where the text itself is the value."""
    text: Callable[[Any], str] | None = None
    """Returns a value as text that ``read`` takes."""
    words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The only words, each by the spellings in lower case that stand for it."""
    separator: str = ""
    """What separates items in text; "" is a comma or a space."""
    path: str = ""
    """"file" or "dir" for a path; see :func:`below_home`."""


_PLAIN = TextForm("")


@cache
def _parts(kind: Any) -> tuple[Any, TextForm, Meta, Any]:
    """Return the bare type, its form, what msgspec checks and the type of its items; ``X | None`` counts as X."""
    base, *notes = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    if get_origin(base) in {Union, UnionType} and type(None) in get_args(base):
        return _parts(next(each for each in get_args(base) if each is not type(None)))
    form = next((note for note in reversed(notes) if isinstance(note, TextForm)), _PLAIN)
    meta = next((note for note in reversed(notes) if isinstance(note, Meta)), Meta())
    if isinstance(base, type) and issubclass(base, StrEnum):
        return StrEnum, TextForm("|".join(base), words={each.value.lower(): each for each in base}), meta, None
    return get_origin(base) or base, form, meta, get_args(base)[0] if get_origin(base) is tuple else None


def accept(kind: Any, value: object, *, may_be_empty: bool = False) -> Any:
    """Return a value of a type for text (a flag, the environment) or for what TOML gave.

    Raises:
        NotAcceptedError: the value is none of this type.
    """
    base, form, meta, _ = _parts(kind)
    if base is str and not form.words:
        text = one_line(value, meta.description or "text on one line")
        return text if not text and may_be_empty and not meta.min_length else _text(kind, text)
    if value == "" and may_be_empty and type(None) in get_args(kind):
        return None
    if form.words:
        return _word(form.words, value)
    if form.read:
        return form.read(value)
    return _READERS[base](kind, value)


def _text(kind: Any, text: str) -> str:
    _, form, meta, _ = _parts(kind)
    expected = meta.description or "text on one line"
    if not text:
        raise NotAcceptedError(expected, text)
    _checked(kind, text, text, expected)
    try:
        if form.check:
            form.check(text)
        return str(form.read(text)) if form.read else text
    except NotAcceptedError:
        raise
    except ValueError:
        raise NotAcceptedError(expected, text) from None


def _checked(kind: Any, value: object, given: object, expected: str) -> Any:
    """Return the value as msgspec takes it, within the bounds and the pattern of its type."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        raise NotAcceptedError(expected, given) from None


def _word(words: Mapping[str, str], value: object) -> str:
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    known = dict.fromkeys(words.values())
    raise NotAcceptedError(f"one of {', '.join(known)}", value, remedy=meant(value, known))


def _boolean(_kind: Any, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in TRUE_WORDS | FALSE_WORDS:
        return value.lower() in TRUE_WORDS
    raise NotAcceptedError("true or false (yes/no, on/off, 1/0)", value, remedy=meant(value, ("true", "false")))


def _number(kind: Any, value: object) -> int:
    meta = _parts(kind)[2]
    return int(_checked(kind, value, value, f"a whole number from {meta.ge} to {meta.le}"))


def _duration(kind: Any, value: object) -> float:
    """Return seconds: a number, or text with a unit."""
    seconds = math.nan
    if isinstance(value, str) and (match := _AMOUNT.fullmatch(value.strip().lower())):
        seconds = float(match[1]) * _UNITS_S.get(match[2], math.nan)
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _INT64:
        seconds = float(value)
    meta = _parts(kind)[2]
    bound = f"of at least {meta.ge}" if meta.gt is None else f"above {meta.gt}"
    most = "a year" if meta.le == YEAR_S else str(meta.le)
    expected = f"seconds {bound} and at most {most} (30, 0.5, or with a unit: 500ms, 30s, 5m)"
    _checked(kind, seconds, value, expected)
    return seconds


def _items(kind: Any, value: object) -> tuple[Any, ...]:
    _, form, _, item = _parts(kind)
    if is_dataclass(item):
        tables = enumerate(_tables(value), 1)
        return tuple(collected((f", table {number}", partial(_table, item, table)) for number, table in tables))
    parts = re.split(form.separator or r"[,\s]+", value) if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise NotAcceptedError("an array of texts", value)
    stripped = [part.strip() if isinstance(part, str) else part for part in parts]
    return tuple(dict.fromkeys(collected(("", partial(_item, item, part)) for part in stripped if part != "")))


def _item(item: Any, part: object) -> Any:
    text = str(part) if type(part) is int and abs(part) < _INT64 else one_line(part, "an array of texts")
    return accept(item, text)


def _tables(value: object) -> list[Mapping[Any, Any]]:
    """Return tables of TOML, or those of a JSON array."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise NotAcceptedError("a JSON array of tables", value) from None
    if not isinstance(value, list | tuple) or not all(isinstance(table, Mapping) for table in value):
        raise NotAcceptedError("tables, each beginning with its name in [[ ]]", value)
    return list(value)


def _table(made: Any, table: Mapping[Any, Any]) -> Any:
    """Return the dataclass of a table; a key that has no default is needed."""
    known = {each.name: each for each in fields(made)}
    needed = [name for name, each in known.items() if each.default is MISSING]

    def item(name: str) -> tuple[str, Any]:
        if name not in known:
            remedy = meant(name, known) or f"its keys are {', '.join(known)}"
            raise NotAcceptedError("", problems=[Problem("", "is not a key of this table", remedy)])
        if name in needed and not table.get(name):
            raise NotAcceptedError("", problems=[Problem("", "is needed")])
        return name, accept(known[name].type, table[name], may_be_empty=name not in needed)

    names = dict.fromkeys((*table, *needed))
    return made(**dict(collected((f", {key_shown(name)}", partial(item, name)) for name in names)))


def _variables(_kind: Any, value: object) -> Mapping[str, Any]:
    """Return the operator's own values: a table in TOML; ``a=1 b='two words'`` in text; flags, whose quotes are off."""
    if isinstance(value, Mapping):
        _check_plain(value)
        return MappingProxyType(dict(value))
    try:
        pairs = shlex.split(value) if isinstance(value, str) else value
    except ValueError as error:
        raise NotAcceptedError(f"NAME=VALUE with its quotes closed ({error})", words="a value that is not") from None
    if not isinstance(pairs, list | tuple):
        raise NotAcceptedError("a table", value)
    return MappingProxyType(dict(collected(("", partial(_variable, pair)) for pair in pairs)))


def _variable(pair: object) -> tuple[str, str]:
    name, sign, text = str(pair).partition("=")
    if not (name.isidentifier() and sign) or _UNPRINTABLE.search("".join(text.split())):
        raise NotAcceptedError("NAME=VALUE, the name of letters, digits and _", name)
    return name, text


def _check_plain(value: object) -> None:
    """Refuse what templates and JSON cannot take: numbers beyond 64 bits and unknown types."""
    if isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            _check_plain(each)
    elif not isinstance(value, str | int | float | date | time) or (type(value) is int and abs(value) >= _INT64):
        raise NotAcceptedError("texts, numbers of up to 64 bits, booleans, dates, arrays and tables", value)


def below_home(kind: Any, value: Any, home: str) -> Any:
    """Return a value with ``~/`` at the start of a path as ``home``: systemd and TOML leave it as it is."""
    _, form, _, item = _parts(kind)
    if form.path and isinstance(value, str) and value.startswith("~/"):
        return home + value[1:]
    if not is_dataclass(item):
        return value
    return tuple(
        replace(table, **{each.name: below_home(each.type, getattr(table, each.name), home) for each in fields(item)})
        for table in value
    )


_READERS: Mapping[Any, Callable[[Any, object], Any]] = MappingProxyType(
    {bool: _boolean, int: _number, float: _duration, tuple: _items, Mapping: _variables}
)
"""How a value of a type is read that has no form of its own."""


def text_of(kind: Any, value: Any) -> str:
    """Return a value as a person would write it; "" for an empty one. Of variables the names: values may be secrets."""
    form = _parts(kind)[1]
    if form.text:
        return form.text(value)
    if isinstance(value, Mapping):
        return ", ".join(sorted(value))
    if isinstance(value, tuple):
        return f"{form.separator or ','} ".join(_title(item) for item in value)
    if isinstance(value, float):
        return f"{value:.15g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _title(item: Any) -> str:
    """Return what names an item: of a table the value of its first key."""
    first = getattr(item, fields(item)[0].name) if is_dataclass(item) else item
    return " ".join(first) if isinstance(first, tuple) else str(first)


@dataclass(frozen=True, slots=True)
class Setting:
    """All that is known of one setting.

    ``path`` is ``section.key``, or ``key`` alone at the top of the file; ``flags`` has the preferred one first;
    ``old_env`` is python-confd's variable, or ""; ``empty`` says what an empty value stands for, and is "" where a
    value is needed.
    """

    path: str
    section: str
    key: str
    kind: Any
    default: Any
    about: str
    flags: tuple[str, ...]
    env: str
    old_env: str
    empty: str

    @property
    def envs(self) -> tuple[str, ...]:
        """Return the names of the environment, the stronger first."""
        return (self.env, self.old_env) if self.old_env else (self.env,)

    @property
    def unit(self) -> str:
        """Return the unit of the value: "s" for durations, else ""."""
        return "s" if self.key.endswith("_s") else ""

    @property
    def form(self) -> TextForm:
        """Return how the value is written."""
        return _parts(self.kind)[1]

    @property
    def is_boolean(self) -> bool:
        """Return whether the flag may stand without a value."""
        return _parts(self.kind)[0] is bool

    @property
    def is_repeatable(self) -> bool:
        """Return whether the flag may be given several times; the values then belong together."""
        base, form, _, item = _parts(self.kind)
        return base is Mapping or (base is tuple and not form.read and not is_dataclass(item))

    @property
    def words(self) -> tuple[str, ...]:
        """Return the values, where they are a few words."""
        return ("true", "false") if self.is_boolean else tuple(dict.fromkeys(self.form.words.values()))

    @property
    def metavar(self) -> str:
        """Return what stands for the value in help."""
        base, form, _, item = _parts(self.kind)
        if is_dataclass(item):
            return "JSON"
        if item is not None and (inner := _parts(item)[1].metavar):
            return form.metavar or f"{inner},..."
        return form.metavar or {bool: "BOOL", int: "NUMBER", float: "SECONDS", str: "TEXT", tuple: "LIST"}.get(
            base, "NAME=VALUE"
        )

    def accept(self, value: object) -> Any:
        """Return the value for text or for what TOML gave.

        Raises:
            NotAcceptedError: this setting does not take it.
        """
        return accept(self.kind, value, may_be_empty=bool(self.empty))

    def text(self, value: Any) -> str:
        """Return a value for people: with its unit, and an empty one by what it stands for."""
        text = self.plain_text(value)
        return f"{text} {self.unit}".rstrip() if text else f"({self.empty or 'empty'})"

    def plain_text(self, value: Any) -> str:
        """Return a value as a person would write it; "" for what ``empty`` describes: 0 may be a value, or none."""
        is_empty = not value if self.default else value == self.default
        return "" if self.empty and is_empty else text_of(self.kind, value)


def setting(
    default: _Value,
    about: str,
    *,
    empty: str = "",
    name: str = "",
    old_env: str = "",
    short: str = "",
    also: tuple[str, ...] = (),
) -> _Value:
    """Declare a setting: its default, and what it is for.

    ``empty`` says what an empty value stands for: none, where the default is empty; where it is not, a value is needed
    unless ``empty`` is given. ``name`` replaces SECTION_KEY in the
    flag and in ``PYCONFD_...``, for the options of python-confd; ``old_env`` is the variable that python-confd read;
    ``short`` a further flag, ``also`` those of the other predecessors.
    """
    empty = empty or ("none" if isinstance(default, Mapping) or default in ("", (), None) else "")
    known = {"about": about, "empty": empty, "name": name, "old_env": old_env, "short": short, "also": also}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: default, metadata=known)
    return field(default=default, metadata=known)


def section(made: type[_Value], about: str) -> _Value:
    """Declare a section: the dataclass of its settings, and what it is about."""
    return field(default_factory=made, metadata={"about": about})


def settings_of(owner: Any, name: str) -> Iterator[Setting]:
    """Yield the settings that the dataclass of a section declares."""
    for each in fields(owner):
        known = each.metadata
        if "empty" not in known:
            continue
        named = known["name"] or f"{name}_{each.name}".lstrip("_")
        flag = "--" + named.replace("_", "-")
        yield Setting(
            path=f"{name}.{each.name}".lstrip("."),
            section=name,
            key=each.name,
            kind=each.type,
            default=each.default if each.default_factory is MISSING else each.default_factory(),
            about=known["about"],
            flags=(*filter(None, (known["short"],)), flag, *known["also"]),
            env=ENV_PREFIX + named.upper(),
            old_env=known["old_env"],
            empty=known["empty"],
        )
