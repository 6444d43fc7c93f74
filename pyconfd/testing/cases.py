"""What a test file says: cases with their fixtures and expectations. Pure."""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from pyconfd.errors import ConfigurationError, Problem
from pyconfd.model.plan import ReloadReason
from pyconfd.testing.places import Places, places

TEST_SUFFIX = ".test.toml"
FOLDER = "tests"
"""Beside the fragments: what is in it is for tests alone, where it holds a test file."""

ABILITIES = ("backends", "cookies")
"""What not every HAProxy can do while it runs: the fields of :class:`pyconfd.haproxy.live.Abilities`."""


class Kind(StrEnum):
    """What an expectation is about; the key by which it is written."""

    CONTAINS = "contains"
    LACKS = "lacks"
    MATCHES = "matches"
    IN_ORDER = "in_order"
    EQUALS = "equals"
    EQUALS_FILE = "equals_file"
    REFUSED = "refused"


class Way(StrEnum):
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
class Step:
    """A Snapshot, from ``files`` and from ``objects`` (text), and what holds once it is rendered.

    ``way`` is how the balancer gets there from the step before it, None where that does not matter; ``reasons`` are
    those of the reload, None where they do not matter.
    """

    files: tuple[str, ...]
    objects: str
    line: int
    expectations: tuple[Expectation, ...] = ()
    way: Way | None = None
    reasons: tuple[ReloadReason, ...] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One test: ``steps`` one after the other under ``settings``, a document shaped like pyconfd.toml.

    ``fails`` is a part of the message with which the first step is to be turned away, "" where it is not to be.
    """

    name: str
    line: int
    steps: tuple[Step, ...]
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    valid: bool = True
    deterministic: bool = True
    fails: str = ""
    abilities: tuple[str, ...] = ()


def read_cases(path: str, text: str) -> tuple[Case, ...]:
    """Read a test file; ``path`` is for the problems.

    Raises:
        ConfigurationError: with every problem, each with its line.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        where = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        place = f"{path} line {where[1]}" if where else path
        what = str(error).removesuffix(where[0]) if where else str(error)
        remedy = "texts need quotes, and each key stands once"
        raise ConfigurationError(Problem(place, f"is not TOML: {what}", remedy)) from None
    reader = _Reader(path, places(text))
    cases = reader.cases(document)
    if reader.problems:
        raise ConfigurationError(*reader.problems)
    return cases


_FILE_KEYS = ("settings", "test")
_STEP_KEYS = ("snapshot", "objects", "expect")
_CASE_KEYS = ("name", *_STEP_KEYS, "then", "settings", "vars", "valid", "deterministic", "fails", "can")
_THEN_KEYS = (*_STEP_KEYS, "plan", "reasons")
_EXPECT_KEYS = (*(kind.value for kind in Kind), "in", "times")


@dataclass(slots=True)
class _Reader:
    path: str
    places: Places
    problems: list[Problem] = field(default_factory=list)

    def cases(self, document: Mapping[str, Any]) -> tuple[Case, ...]:
        self._known(document, _FILE_KEYS)
        shared = self._table(document, "settings")
        found = [self._case(item, ("test", number), shared) for number, item in self._tables(document, "test")]
        if not found and not self.problems:
            self._problem((), "there is no test in it", "begin one with [[test]]")
        names: set[str] = set()
        for case in found:
            if case.name in names:
                self.problems.append(Problem(f"{self.path} line {case.line}", f"there is a test {case.name!r} already"))
            names.add(case.name)
        return tuple(found)

    def _case(self, item: Mapping[str, Any], at: tuple[str | int, ...], shared: Mapping[str, Any]) -> Case:
        self._known(item, _CASE_KEYS, *at)
        name = self._text(item, "name", *at)
        if not name:
            self._problem(at, "a test needs a name")
        first = self._step(item, at)
        then = []
        for number, each in self._tables(item, "then", *at):
            here = (*at, "then", number)
            self._known(each, _THEN_KEYS, *here)
            then.append(self._then(each, here))
        fails = self._text(item, "fails", *at)
        if fails and (then or first.expectations):
            self._problem((*at, "fails"), "what fails has no text to expect anything of", "leave out expect and then")
        variables = self._table(item, "vars", *at)
        settings = merged(shared, self._table(item, "settings", *at))
        return Case(
            name,
            self.places.line(*at),
            (first, *then),
            merged(settings, {"templates": {"vars": variables}} if variables else {}),
            valid=self._truth(item, "valid", *at),
            deterministic=self._truth(item, "deterministic", *at),
            fails=fails,
            abilities=self._words(item, "can", ABILITIES, *at),
        )

    def _then(self, item: Mapping[str, Any], at: tuple[str | int, ...]) -> Step:
        step = self._step(item, at)
        plan = self._words(item, "plan", tuple(Way), *at)
        if len(plan) > 1:
            self._problem((*at, "plan"), "there is one way to apply a change", "name one")
        reasons = None
        if "reasons" in item:
            reasons = tuple(map(ReloadReason, self._words(item, "reasons", tuple(ReloadReason), *at)))
            if plan and plan != (Way.RELOAD,):
                self._problem((*at, "reasons"), "only a reload has reasons", 'plan = "reload"')
        way = Way(plan[0]) if plan else (Way.RELOAD if reasons else None)
        return Step(step.files, step.objects, step.line, step.expectations, way, reasons)

    def _step(self, item: Mapping[str, Any], at: tuple[str | int, ...]) -> Step:
        given = item.get("snapshot", ())
        files = (given,) if isinstance(given, str) else given
        if not isinstance(files, Sequence) or not all(isinstance(each, str) for each in files):
            self._problem((*at, "snapshot"), "expected the name of a file, or a list of names")
            files = ()
        listed = item.get("expect", ())
        if not isinstance(listed, Sequence) or not all(isinstance(each, Mapping) for each in listed):
            self._problem((*at, "expect"), "expected a list of tables", 'expect = [{ contains = "backend be-shop" }]')
            listed = ()
        expectations = [
            found
            for number, each in enumerate(listed)
            if (found := self._expectation(each, (*at, "expect", number))) is not None
        ]
        return Step(tuple(files), self._text(item, "objects", *at), self.places.line(*at), tuple(expectations))

    def _expectation(self, item: Mapping[str, Any], at: tuple[str | int, ...]) -> Expectation | None:
        self._known(item, _EXPECT_KEYS, *at)
        kinds = [kind for kind in Kind if kind.value in item]
        if len(kinds) != 1:
            what = f"{kinds[0]} and {kinds[1]} exclude each other" if kinds else "nothing is expected"
            self._problem(at, what, f"give one of {', '.join(Kind)}")
            return None
        kind, value, times = kinds[0], item[kinds[0].value], item.get("times")
        texts = (value,) if isinstance(value, str) else value
        if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str) for text in texts):
            self._problem(at, f"{kind}: expected a text", "quote it")
            return None
        if kind is not Kind.IN_ORDER and not isinstance(value, str):
            self._problem(at, f"{kind}: expected one text", "write one table for each")
            return None
        if times is not None and (not isinstance(times, int) or isinstance(times, bool) or kind is not Kind.MATCHES):
            self._problem(at, "times is a number, and counts what matches")
            return None
        if kind is Kind.MATCHES:
            try:
                re.compile(value, re.MULTILINE)
            except re.error as error:
                self._problem(at, f"{value!r} is no regular expression: {error}")
                return None
        return Expectation(kind, tuple(texts), self.places.line(*at), self._text(item, "in", *at), times)

    def _known(self, table: Mapping[str, Any], keys: Sequence[str], *at: str | int) -> None:
        for key in table:
            if key not in keys:
                close = difflib.get_close_matches(key, keys, n=1)
                remedy = f"did you mean {close[0]}?" if close else f"there are: {', '.join(keys)}"
                self._problem((*at, key), f"{key!r} is not known here", remedy)

    def _tables(self, table: Mapping[str, Any], key: str, *at: str | int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        listed = table.get(key, ())
        if not isinstance(listed, Sequence) or not all(isinstance(each, Mapping) for each in listed):
            self._problem((*at, key), f"{key} is a list of tables", f"begin each with [[{'.'.join(_keys(*at, key))}]]")
            return
        yield from enumerate(listed)

    def _table(self, table: Mapping[str, Any], key: str, *at: str | int) -> Mapping[str, Any]:
        value = table.get(key, {})
        if isinstance(value, Mapping):
            return value
        self._problem((*at, key), f"{key} is a table", f"begin it with [{'.'.join(_keys(*at, key))}]")
        return {}

    def _text(self, table: Mapping[str, Any], key: str, *at: str | int) -> str:
        value = table.get(key, "")
        if isinstance(value, str):
            return value
        self._problem((*at, key), f"{key}: expected a text", "quote it")
        return ""

    def _truth(self, table: Mapping[str, Any], key: str, *at: str | int) -> bool:
        value = table.get(key, True)
        if isinstance(value, bool):
            return value
        self._problem((*at, key), f"{key} is true or false")
        return True

    def _words(self, table: Mapping[str, Any], key: str, allowed: Sequence[str], *at: str | int) -> tuple[str, ...]:
        value = table.get(key, ())
        words = (value,) if isinstance(value, str) else value
        if not isinstance(words, Sequence) or any(word not in allowed for word in words):
            self._problem((*at, key), f"{key}: {value!r} is not known", f"there are: {', '.join(allowed)}")
            return ()
        return tuple(words)

    def _problem(self, at: tuple[str | int, ...], message: str, remedy: str = "") -> None:
        self.problems.append(Problem(f"{self.path} line {self.places.line(*at)}", message, remedy))


def _keys(*at: str | int) -> list[str]:
    return [each for each in at if isinstance(each, str)]


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return two documents as one, table by table; ``other`` wins."""
    both = dict(one)
    for key, value in other.items():
        former = both.get(key)
        both[key] = merged(former, value) if isinstance(former, Mapping) and isinstance(value, Mapping) else value
    return both
