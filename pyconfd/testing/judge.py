"""Whether a rendering is what a test expects, and what to show where it is not. Pure."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from pyconfd.errors import Problem
from pyconfd.model.context import Refusal
from pyconfd.model.plan import Noop, Plan, Reload, RuntimeUpdate
from pyconfd.testing.cases import CaseStep, Expectation, ExpectedPlan, Kind

WHOLE = ""
"""The name of the whole configuration among the texts."""

_SHOWN = 5
_CLOSE = 0.6


@dataclass(frozen=True, slots=True)
class CaseFailure:
    """What does not hold, in one sentence, and lines that show it."""

    message: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """What a step gave: texts by name (:data:`WHOLE` is the whole configuration), and what was left out.

    ``files`` holds the fixtures that expectations compare with, by the names in the test file.
    """

    texts: Mapping[str, str]
    refused: Sequence[Refusal] = ()
    files: Mapping[str, str] = field(default_factory=dict)


def judge(expectation: Expectation, seen: CaseOutcome) -> CaseFailure | None:
    """Return what is wrong, None where it holds."""
    if expectation.kind is Kind.REFUSED:
        return _refused(expectation, seen.refused)
    name = expectation.within
    if name not in seen.texts:
        close = difflib.get_close_matches(name, seen.texts, n=1)
        names = ", ".join(each for each in seen.texts if each)
        return CaseFailure(f"there is no {name!r}", (f"did you mean {close[0]}?" if close else names,))
    text = seen.texts[name]
    found = _lines_against(expectation, text, seen.files)
    if found is None:
        return None
    message, lines = found
    return CaseFailure(f"{message} in {name}" if name else message, lines)


def _lines_against(  # noqa: PLR0911 - one answer for each kind
    expectation: Expectation, text: str, files: Mapping[str, str]
) -> tuple[str, tuple[str, ...]] | None:
    first = expectation.texts[0]
    match expectation.kind:
        case Kind.CONTAINS:
            return None if first in text else (f"does not contain {first!r}", _nearest(first, text))
        case Kind.LACKS:
            return (f"contains {first!r}", _lines_with(first, text)) if first in text else None
        case Kind.MATCHES:
            return _matches(expectation, text)
        case Kind.IN_ORDER:
            return _in_order(expectation.texts, text)
        case Kind.EQUALS:
            return _equal(first, text, "expected")
        case Kind.EQUALS_FILE:
            return _equal(files.get(first, ""), text, first)
        case Kind.REFUSED:  # not about a text
            return None
    assert_never(expectation.kind)


def _matches(expectation: Expectation, text: str) -> tuple[str, tuple[str, ...]] | None:
    pattern, times = expectation.texts[0], expectation.times
    found = list(re.finditer(pattern, text, re.MULTILINE))
    if len(found) == times or (times is None and found):
        return None
    expected = "at least once" if times is None else f"{times} times"
    all_lines = text.splitlines() or [""]
    numbers = [min(text.count("\n", 0, each.start()), len(all_lines) - 1) for each in found]
    lines = [f"line {number + 1}: {all_lines[number].strip()}" for number in numbers]
    return f"matches {pattern!r} {len(found)} times, expected {expected}", _limited(lines)


def _in_order(texts: Sequence[str], text: str) -> tuple[str, tuple[str, ...]] | None:
    position, former = 0, ""
    for each in texts:
        at = text.find(each, position)
        if at < 0:
            behind = f" behind {former!r}" if former else ""
            return f"{each!r} does not come{behind}", _lines_with(each, text) or _nearest(each, text)
        position, former = at + len(each), each
    return None


def _equal(expected: str, text: str, name: str) -> tuple[str, tuple[str, ...]] | None:
    return None if text == expected else (f"is not what {name} says", difference(expected, text, name, "rendered"))


def _refused(expectation: Expectation, refused: Sequence[Refusal]) -> CaseFailure | None:
    wanted = expectation.texts[0]
    sentences = [f"{each.ref} {each.field}: {each.detail} [{each.reason.value}]" for each in refused]
    if any(wanted in each for each in sentences):
        return None
    return CaseFailure(f"nothing was refused with {wanted!r}", _limited(sentences) or ("nothing was refused",))


def judge_plan(step: CaseStep, plan: Plan) -> CaseFailure | None:
    """Return what is wrong with how the balancer gets to a step, None where that is as expected, or does not matter."""
    way, shown = _sentences(plan)
    if step.way is None or (
        way is step.way
        and (step.reasons is None or (isinstance(plan, Reload) and set(plan.reasons) == set(step.reasons)))
    ):
        return None
    wanted = step.way.value + (f" ({', '.join(step.reasons)})" if step.reasons else "")
    reasons = f" ({', '.join(plan.reasons)})" if isinstance(plan, Reload) else ""
    return CaseFailure(f"the plan is {way.value}{reasons}, expected {wanted}", _limited(shown))


def _sentences(plan: Plan) -> tuple[ExpectedPlan, Sequence[str]]:
    match plan:
        case Noop():
            return ExpectedPlan.NOTHING, ()
        case RuntimeUpdate():
            return ExpectedPlan.LIVE, plan.details
        case Reload():
            return ExpectedPlan.RELOAD, (*plan.details, *(f"to avoid it: {each}" for each in plan.advice))
    assert_never(plan)


def judge_failure(wanted: str, problems: Sequence[Problem]) -> CaseFailure | None:
    """Return what is wrong where a test expects that its step fails with ``wanted`` in a message."""
    sentences = [str(problem) for problem in problems]
    if any(wanted in each for each in sentences):
        return None
    what = f"failed, but not with {wanted!r}" if sentences else f"is fine, expected a problem with {wanted!r}"
    return CaseFailure(what, tuple(line for each in sentences for line in each.splitlines()))


def difference(one: str, other: str, name: str, other_name: str) -> tuple[str, ...]:
    """Return a unified diff."""
    return tuple(difflib.unified_diff(one.splitlines(), other.splitlines(), name, other_name, lineterm=""))


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    return enumerate(text.splitlines(), start=1)


def _lines_with(wanted: str, text: str) -> tuple[str, ...]:
    first = wanted.strip("\n").split("\n", 1)[0]
    return _limited([f"line {number}: {line.strip()}" for number, line in _numbered(text) if first in line])


def _nearest(wanted: str, text: str) -> tuple[str, ...]:
    """Return the lines that are most like the first of ``wanted``."""
    first = wanted.strip("\n").split("\n", 1)[0].strip()
    close = set(difflib.get_close_matches(first, {line.strip() for line in text.splitlines()}, n=3, cutoff=_CLOSE))
    lines = [f"line {number}: {line.strip()}" for number, line in _numbered(text) if line.strip() in close]
    return ("nearest:", *_limited(lines)) if lines else ()


def _limited(lines: Sequence[str]) -> tuple[str, ...]:
    more = len(lines) - _SHOWN
    return (*lines[:_SHOWN], f"and {more} more") if more > 0 else tuple(lines)
