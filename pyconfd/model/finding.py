"""Findings of a check of everything that pyconfd needs, line by line."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pyconfd.errors import Problem
from pyconfd.printable import short_duration


class Level(StrEnum):
    """How it stands with one thing."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked; ``topic`` groups, ``what`` names it, ``remedy`` is "" where it is ok."""

    level: Level
    topic: str
    what: str
    message: str
    remedy: str = ""

    @classmethod
    def ok(cls, topic: str, what: str, message: str) -> "Finding":
        """Return a thing that is as it should be."""
        return cls(Level.OK, topic, what, message)

    @classmethod
    def of(cls, level: Level, topic: str, problem: Problem) -> "Finding":
        """Return a problem as a finding."""
        remedy = problem.remedy or "correct what the message names, then run the command again"
        return cls(level, topic, problem.place or topic, problem.message, remedy)

    @classmethod
    def of_expiry(cls, topic: str, what: str, left_s: float, *, due: bool) -> "Finding":
        """Return how long a certificate or token is still good; ``due``: it has to be renewed soon."""
        if left_s <= 0:
            return cls(Level.FAILURE, topic, what, f"expired {short_duration(-left_s)} ago", "renew it")
        if due:
            return cls(Level.WARNING, topic, what, f"expires in {short_duration(left_s)}", "renew it")
        return cls.ok(topic, what, f"is good for {short_duration(left_s)}")


def findings_of(level: Level, topic: str, problems: Iterable[Problem]) -> tuple[Finding, ...]:
    """Return problems as findings."""
    return tuple(Finding.of(level, topic, problem) for problem in problems)
