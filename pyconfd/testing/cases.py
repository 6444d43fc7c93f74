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
from pyconfd.model.inputs import merged_documents
from pyconfd.model.plan import ReloadReason

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
    expectations: tuple[Expectation, ...] = ()
    way: ExpectedPlan | None = None
    reasons: tuple[ReloadReason, ...] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One test: ``steps`` one after the other under ``settings``, a document shaped like pyconfd.toml.

    ``fails`` is a part of the message with which the rendering of the first step is to fail, "" where it is not to.
    """

    name: str
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
    """Parse a test file; ``path`` is for the problems.

    Raises:
        ConfigurationError: with the first problem of each test, each with where it is, like ``test[2].expect[0]``.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        remedy = "texts need quotes, and each key stands once"
        raise ConfigurationError(Problem(path, f"is not TOML: {error}", remedy)) from None
    file = _table(document, _File, f"{path}: file")
    cases: dict[str, Case] = {}
    problems: list[Problem] = []
    for number, table in enumerate(file.test):
        place = f"{path}: test[{number}]"
        try:
            case = _case(table, file.settings, place)
            if case.name in cases:
                _refuse(place, f"there is a test {case.name!r} already")
        except ConfigurationError as error:
            problems += error.problems
        else:
            cases[case.name] = case
    if not file.test:
        _refuse(path, "there is no test in it", "begin one with [[test]]")
    if problems:
        raise ConfigurationError(*problems)
    return tuple(cases.values())


_WHERE = re.compile(r"(?P<message>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`")
_KEYS = {"expect": _Expect, "then": _Then}


def _refuse(place: str, message: str, remedy: str = "") -> NoReturn:
    raise ConfigurationError(Problem(place, message, remedy))


def _table(value: Any, kind: type[_Table], place: str) -> _Table:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        found = _WHERE.fullmatch(str(error))
        message, path = (found["message"], found["path"] or "") if found else (str(error), "")
        remedy = ""
        if unknown := _UNKNOWN.fullmatch(message):
            message = f"{unknown['key']!r} is not known here"
            # ``.then[0].expect[1]``: the keys that are known are those of the last table on the way.
            last = re.findall(r"\w+(?=\[\d+\]$)", path)
            keys = _KEYS.get(last[0], kind) if last else kind
            close = difflib.get_close_matches(unknown["key"], keys.__struct_encode_fields__, n=1)
            remedy = f"did you mean {close[0]}?" if close else ""
        _refuse(f"{place}{path}", message, remedy)


def _case(table: Mapping[str, Any], shared: Mapping[str, Any], place: str) -> Case:
    test = _table(table, _Test, place)
    if not test.name:
        _refuse(place, "a test needs a name")
    if test.fails and (test.then or test.expect):
        _refuse(f"{place}.fails", "what fails has no text to expect anything of", "leave out expect and then")
    settings = merged_documents(shared, test.settings)
    return Case(
        test.name,
        (_step(test, place), *(_then(then, f"{place}.then[{number}]") for number, then in enumerate(test.then))),
        merged_documents(settings, {"templates": {"vars": test.vars}} if test.vars else {}),
        valid=test.valid,
        deterministic=test.deterministic,
        fails=test.fails,
        abilities=test.can,
    )


def _then(then: _Then, place: str) -> CaseStep:
    if then.reasons is not None and then.plan not in (None, ExpectedPlan.RELOAD):
        _refuse(f"{place}.reasons", "only a reload has reasons", 'plan = "reload"')
    way = then.plan or (ExpectedPlan.RELOAD if then.reasons else None)
    return replace(_step(then, place), way=way, reasons=then.reasons)


def _step(step: _Step, place: str) -> CaseStep:
    files = (step.snapshot,) if isinstance(step.snapshot, str) else step.snapshot
    found = tuple(_expectation(each, f"{place}.expect[{number}]") for number, each in enumerate(step.expect))
    return CaseStep(files, step.objects, found)


def _expectation(expect: _Expect, place: str) -> Expectation:
    kinds = [kind for kind in Kind if getattr(expect, kind) is not None]
    if len(kinds) != 1:
        what = f"{kinds[0]} and {kinds[1]} exclude each other" if kinds else "nothing is expected"
        _refuse(place, what, f"give one of {', '.join(Kind)}")
    value = getattr(expect, kinds[0])
    if expect.times is not None and expect.matches is None:
        _refuse(place, "times counts what matches, nothing else")
    if expect.matches is not None:
        try:
            re.compile(expect.matches, re.MULTILINE)
        except re.error as error:
            _refuse(place, f"{expect.matches!r} is no regular expression: {error}")
    texts = (value,) if isinstance(value, str) else value
    return Expectation(kinds[0], texts, expect.within, expect.times)
