"""What a test file says: cases with their fixtures and expectations. Pure."""

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, NoReturn, TypeVar

import msgspec

from pyconfd.errors import ConfigurationError, Problem
from pyconfd.model.plan import ReloadReason
from pyconfd.testing.toml_lines import Path, TomlLines

TEST_SUFFIX = ".test.toml"
FOLDER = "tests"
"""Beside the fragments: what is in it is for tests alone, where it holds a test file."""

Ability = Literal["backends", "cookies"]
"""What not every HAProxy can do while it runs: the fields of :class:`pyconfd.haproxy.config.changes.Abilities`."""


class Kind(StrEnum):
    """What an expectation is about; the key by which it is written."""

    CONTAINS = "contains"
    LACKS = "lacks"
    MATCHES = "matches"
    IN_ORDER = "in_order"
    EQUALS = "equals"
    EQUALS_FILE = "equals_file"
    REFUSED = "refused"


class ExpectedPlan(StrEnum):
    """How a change is to be applied."""

    NOTHING = "nothing"
    LIVE = "live"
    RELOAD = "reload"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that holds of a rendering.

    ``texts`` are the operands: one, but for IN_ORDER. ``within`` names a fragment, a declared file (``maps/hosts.map``)
    or a target, "" for the whole configuration. ``times`` counts matches, None for at least one.
    """

    kind: Kind
    texts: tuple[str, ...]
    line: int
    within: str = ""
    times: int | None = None


@dataclass(frozen=True, slots=True)
class CaseStep:
    """A Snapshot, from ``files`` and from ``objects`` (text), and what holds once it is rendered.

    ``way`` is how the balancer gets there from the step before it, None where that does not matter; ``reasons`` are
    those of the reload, None where they do not matter.
    """

    files: tuple[str, ...]
    objects: str
    line: int
    expectations: tuple[Expectation, ...] = ()
    way: ExpectedPlan | None = None
    reasons: tuple[ReloadReason, ...] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One test: ``steps`` one after the other under ``settings``, a document shaped like pyconfd.toml.

    ``fails`` is a part of the message with which the rendering of the first step is to fail, "" where it is not to.
    """

    name: str
    line: int
    steps: tuple[CaseStep, ...]
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    valid: bool = True
    deterministic: bool = True
    fails: str = ""
    abilities: tuple[Ability, ...] = ()


class _Expect(msgspec.Struct, forbid_unknown_fields=True, rename={"within": "in"}):
    contains: str | None = None
    lacks: str | None = None
    matches: str | None = None
    in_order: tuple[str, ...] | None = None
    equals: str | None = None
    equals_file: str | None = None
    refused: str | None = None
    within: str = ""
    times: int | None = None


class _Step(msgspec.Struct, forbid_unknown_fields=True):
    snapshot: str | tuple[str, ...] = ()
    objects: str = ""
    expect: tuple[_Expect, ...] = ()


class _Then(_Step):
    plan: ExpectedPlan | None = None
    reasons: tuple[ReloadReason, ...] | None = None


class _Test(_Step):
    name: str = ""
    then: tuple[_Then, ...] = ()
    settings: dict[str, Any] = {}
    vars: dict[str, Any] = {}
    valid: bool = True
    deterministic: bool = True
    fails: str = ""
    can: tuple[Ability, ...] = ()


class _File(msgspec.Struct, forbid_unknown_fields=True):
    settings: dict[str, Any] = {}
    test: tuple[dict[str, Any], ...] = ()


_Table = TypeVar("_Table", bound=msgspec.Struct)


def read_cases(path: str, text: str) -> tuple[Case, ...]:
    """Read a test file; ``path`` is for the problems.

    Raises:
        ConfigurationError: with the first problem of each test, each with its line.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        where = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        place = f"{path} line {where[1]}" if where else path
        what = str(error).removesuffix(where[0]) if where else str(error)
        remedy = "texts need quotes, and each key stands once"
        raise ConfigurationError(Problem(place, f"is not TOML: {what}", remedy)) from None
    reader = _Reader(path, TomlLines(text))
    file = reader.table(document, _File)
    cases: dict[str, Case] = {}
    problems: list[Problem] = []
    for number, table in enumerate(file.test):
        try:
            case = reader.case(table, file.settings, ("test", number))
            if case.name in cases:
                reader.refuse(("test", number), f"there is a test {case.name!r} already")
        except ConfigurationError as error:
            problems += error.problems
        else:
            cases[case.name] = case
    if not file.test:
        reader.refuse((), "there is no test in it", "begin one with [[test]]")
    if problems:
        raise ConfigurationError(*problems)
    return tuple(cases.values())


_WHERE = re.compile(r"(?P<message>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the tables of one file; each function raises ConfigurationError at the line of the first mistake."""

    path: str
    lines: TomlLines

    def refuse(self, at: Path, message: str, remedy: str = "") -> NoReturn:
        raise ConfigurationError(Problem(f"{self.path} line {self.lines.line(*at)}", message, remedy))

    def table(self, value: Any, kind: type[_Table], at: Path = ()) -> _Table:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            found = _WHERE.fullmatch(str(error))
            message, remedy = found["message"] if found else str(error), ""
            steps = re.findall(r"\.(\w+)|\[(\d+)\]", found["path"] or "" if found else "")
            at = (*at, *(key or int(index) for key, index in steps))
            if unknown := _UNKNOWN.fullmatch(message):
                at, message = (*at, unknown["key"]), f"{unknown['key']!r} is not known here"
                keys = {"expect": _Expect, "then": _Then, "test": _Test}.get(str(at[-3]) if len(at) > 2 else "", kind)
                close = difflib.get_close_matches(unknown["key"], keys.__struct_encode_fields__, n=1)
                remedy = f"did you mean {close[0]}?" if close else ""
            self.refuse(at, message, remedy)

    def case(self, table: Mapping[str, Any], shared: Mapping[str, Any], at: Path) -> Case:
        test = self.table(table, _Test, at)
        if not test.name:
            self.refuse(at, "a test needs a name")
        if test.fails and (test.then or test.expect):
            self.refuse((*at, "fails"), "what fails has no text to expect anything of", "leave out expect and then")
        settings = merged(shared, test.settings)
        return Case(
            test.name,
            self.lines.line(*at),
            (self._step(test, at), *(self._then(then, (*at, "then", n)) for n, then in enumerate(test.then))),
            merged(settings, {"templates": {"vars": test.vars}} if test.vars else {}),
            valid=test.valid,
            deterministic=test.deterministic,
            fails=test.fails,
            abilities=test.can,
        )

    def _then(self, then: _Then, at: Path) -> CaseStep:
        if then.reasons is not None and then.plan not in (None, ExpectedPlan.RELOAD):
            self.refuse((*at, "reasons"), "only a reload has reasons", 'plan = "reload"')
        way = then.plan or (ExpectedPlan.RELOAD if then.reasons else None)
        return replace(self._step(then, at), way=way, reasons=then.reasons)

    def _step(self, step: _Step, at: Path) -> CaseStep:
        files = (step.snapshot,) if isinstance(step.snapshot, str) else step.snapshot
        found = tuple(self._expectation(each, (*at, "expect", n)) for n, each in enumerate(step.expect))
        return CaseStep(files, step.objects, self.lines.line(*at), found)

    def _expectation(self, expect: _Expect, at: Path) -> Expectation:
        kinds = [kind for kind in Kind if getattr(expect, kind) is not None]
        if len(kinds) != 1:
            what = f"{kinds[0]} and {kinds[1]} exclude each other" if kinds else "nothing is expected"
            self.refuse(at, what, f"give one of {', '.join(Kind)}")
        value = getattr(expect, kinds[0])
        if expect.times is not None and expect.matches is None:
            self.refuse(at, "times counts what matches, nothing else")
        if expect.matches is not None:
            try:
                re.compile(expect.matches, re.MULTILINE)
            except re.error as error:
                self.refuse(at, f"{expect.matches!r} is no regular expression: {error}")
        texts = (value,) if isinstance(value, str) else value
        return Expectation(kinds[0], texts, self.lines.line(*at), expect.within, expect.times)


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return two documents as one, table by table; ``other`` wins."""
    both = dict(one)
    for key, value in other.items():
        former = both.get(key)
        both[key] = merged(former, value) if isinstance(former, Mapping) and isinstance(value, Mapping) else value
    return both
