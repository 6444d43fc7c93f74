"""Test results as lines for people, JSON for programs, JUnit's XML for a CI. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:  # the model of Kubernetes is behind it, and would be loaded for --version
    from collections.abc import Iterator, Sequence

    from pyconfd.testing.judge import CaseFailure


@dataclass(frozen=True, slots=True)
class Result:
    """One test: the file it is in, and what did not hold.

    ``texts`` are the configurations of its steps, to show what an edit changed; ``updated`` are expected files that
    were written again.
    """

    file: str
    name: str
    failures: tuple[CaseFailure, ...] = ()
    texts: tuple[str, ...] = field(default=(), repr=False)
    updated: tuple[str, ...] = ()
    duration_s: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether all held."""
        return not self.failures


def as_lines(result: Result) -> Iterator[tuple[str, str]]:
    """Return the lines for people, each with what it is: ``ok``, ``failed``, ``place``, ``detail`` or ``note``."""
    yield ("ok" if result.passed else "failed"), f"{result.file}: {result.name}"
    for failure in result.failures:
        yield "place", failure.message
        for line in failure.lines:
            yield "detail", line
    for name in result.updated:
        yield "note", f"written again: {name}"


def summary(results: Sequence[Result]) -> str:
    """Return one sentence about all of them."""
    failed = sum(not result.passed for result in results)
    count = "1 test" if len(results) == 1 else f"{len(results)} tests"
    return f"{count}, {failed} failed" if failed else f"{count}, all passed"


def as_values(results: Sequence[Result]) -> dict[str, Any]:
    """Return the results ready for JSON."""
    return {
        "tests": len(results),
        "failed": sum(not result.passed for result in results),
        "results": [
            {
                "file": result.file,
                "name": result.name,
                "passed": result.passed,
                "duration_s": round(result.duration_s, 6),
                "failures": [{"message": each.message, "lines": list(each.lines)} for each in result.failures],
            }
            for result in results
        ],
    }


def as_junit(results: Sequence[Result]) -> str:
    """Return the XML that CI systems read; a control character, which XML cannot hold, becomes a question mark."""
    files = dict.fromkeys(result.file for result in results)
    suites = [_suite(file, [result for result in results if result.file == file]) for file in files]
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>", *suites, "</testsuites>", ""])


def _suite(file: str, results: Sequence[Result]) -> str:
    failed = sum(not result.passed for result in results)
    head = f'  <testsuite name={quoteattr(_clean(file))} tests="{len(results)}" failures="{failed}">'
    return "\n".join([head, *(_case(result) for result in results), "  </testsuite>"])


def _case(result: Result) -> str:
    head = (
        f"    <testcase classname={quoteattr(_clean(result.file))} name={quoteattr(_clean(result.name))}"
        f' time="{result.duration_s:.3f}"'
    )
    if result.passed:
        return f"{head}/>"
    failures = [
        f"      <failure message={quoteattr(_clean(each.message))}>{escape(_clean(chr(10).join(each.lines)))}</failure>"
        for each in result.failures
    ]
    return "\n".join([f"{head}>", *failures, "    </testcase>"])


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)
