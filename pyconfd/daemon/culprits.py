"""Finds the objects for which a configuration is refused: by the map of its lines, by names, by bisection last.

Nothing is believed that was not tried: what is found is left out, and the rest is rendered and checked again.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import structlog

from pyconfd.errors import Problem, RejectedInput, first_line
from pyconfd.model.context import Context
from pyconfd.model.outcome import Step
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets.origins import Filter, Origin, Origins, everything

log = structlog.get_logger(__name__)

MOST_CHECKS = 60
"""Checks by HAProxy for one search; two objects that no message names are found among 10,000 with as many."""

LONGEST_S = 30.0
"""Seconds for one search: nothing is applied meanwhile."""

_ROUNDS = 256
"""A template that fails names one object in each."""

_SAMPLED_AT = 8
"""After so many rounds a few objects tell whether the others would take thousands more."""

EVERY_OBJECT = "it is so for every object: the fault is in a fragment"

_TRIED_SINGLY = 32
_NAMED = 4
_MOST_NAMED = 64
_DOUBTED = 8
Place = tuple[str, int]
"""A fragment and a line of its rendered text, from 1."""

_SECTION = re.compile(r"(?:global|defaults|frontend|backend|listen|peers|resolvers|userlist|cache|program|ring)\b")
_LINE_NUMBER = re.compile(r"\bline \d+")


@dataclass(frozen=True, slots=True)
class Workshop:
    """How a Snapshot is made into a text that HAProxy judges.

    ``render`` and ``check`` raise RejectedInput; ``element_at`` is :meth:`pyconfd.render.engine.Renderer.element_at`.
    ``monotonic`` gives seconds, ``progress`` says that work goes on. ``services`` is the ConfigMap whose entries
    are services, None where there is none. ``serves`` says whether something serves already.
    """

    translate: Callable[[Snapshot], Context]
    render: Callable[[Context], Rendering]
    check: Callable[[Rendering], None]
    element_at: Callable[[str, int, str], Any]
    monotonic: Callable[[], float]
    progress: Callable[[], None] = lambda: None
    services: Key | None = None
    serves: bool = False


class Blame(NamedTuple):
    """What was wrong with an object, and the step that found it."""

    problem: Problem
    step: Step


@dataclass(frozen=True, slots=True)
class Verdict:
    """The culprits, each with what it is blamed for: the rest is good. Or none, and ``why``.

    ``about`` is what stays the same in the problems where other objects change.
    """

    culprits: Mapping[Origin, Blame] = field(default_factory=dict)
    why: str = ""
    about: frozenset[str] = frozenset()


def signature(problems: Iterable[Problem]) -> frozenset[str]:
    """Return what stays the same in problems where other objects change."""
    return frozenset(map(_message, problems))


class _ExhaustedError(Exception):
    """The search costs too much."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """What became of the Snapshot without what is ``left_out``; no problems: it is good."""

    left_out: frozenset[Origin]
    snapshot: Snapshot
    context: Context
    rendering: Rendering | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def step(self) -> Step:
        """How far it got."""
        return Step.RENDER if self.rendering is None else Step.CHECK


class Search:
    """One search in one Snapshot."""

    def __init__(self, workshop: Workshop, snapshot: Snapshot) -> None:
        self._workshop = workshop
        self._snapshot = snapshot
        self._filter = Filter()
        self._checks = 0
        self._named_left = _MOST_NAMED
        self._sharing: set[Origin] = set()
        """Those of several who have a part in what was refused: it may be the part of another one."""
        self._began = workshop.monotonic()

    def run(self, problems: Sequence[Problem], rendering: Rendering | None, suspects: Collection[Origin]) -> Verdict:
        """Find who is behind ``problems`` of ``rendering`` (None: it could not be rendered).

        ``suspects`` are likelier than others.
        """
        trial = _Trial(
            frozenset(), self._snapshot, self._workshop.translate(self._snapshot), rendering, tuple(problems)
        )
        try:
            return self._by_clues(trial) or self._by_bisection(trial, suspects)
        except _ExhaustedError:
            took_s = round(self._workshop.monotonic() - self._began, 1)
            log.warning("culprit.not_found", checks=self._checks, duration_s=took_s)
            return Verdict(why=f"the object behind it was not found with {self._checks} checks in {took_s:g} s")

    def _by_clues(self, trial: _Trial) -> Verdict | None:
        blamed: dict[Origin, Blame] = {}
        doubtful: set[Origin] = set()
        for number in range(_ROUNDS):
            new = self._traced(trial)
            if not new:
                return None
            if number == _SAMPLED_AT and self._fails_with_any(frozenset(blamed)):
                return Verdict(why=EVERY_OBJECT)
            blamed |= new
            before, trial = trial, self._tried(frozenset(blamed))
            if not trial.problems:
                for origin in sorted(doubtful | self._sharing)[:_DOUBTED]:
                    if origin in blamed and len(blamed) > 1 and not self._tried(frozenset(blamed) - {origin}).problems:
                        del blamed[origin]
                return Verdict(blamed)
            former, left = (Counter(map(_message, each.problems)) for each in (before, trial))
            doubtful |= {origin for origin, (one, _) in new.items() if left[_message(one)] >= former[_message(one)]}
        return None

    def _fails_with_any(self, blamed: frozenset[Origin]) -> bool:
        """Return whether it cannot be rendered with any single object out of some that were not blamed yet."""
        everybody = everything(self._snapshot, self._workshop.services)
        kinds = {origin.resource for origin in blamed}
        others = sorted(origin for origin in everybody - blamed if origin.resource in kinds)
        samples = {others[at] for at in (0, len(others) // 2, -1)} if others else set()
        return bool(samples) and all(self._tried(everybody - {one}, checked=False).problems for one in samples)

    def _tried(self, left_out: frozenset[Origin], *, checked: bool = True) -> _Trial:
        """Render without ``left_out``, and check; raises _ExhaustedError where that was done too often."""
        workshop = self._workshop
        workshop.progress()
        if self._checks >= MOST_CHECKS or workshop.monotonic() - self._began > LONGEST_S:
            raise _ExhaustedError
        snapshot = self._filter.without(self._snapshot, left_out)
        context = workshop.translate(snapshot)
        rendering = None
        try:
            rendering = workshop.render(context)
            if checked:
                self._checks += 1
                workshop.check(rendering)
        except RejectedInput as error:
            return _Trial(left_out, snapshot, context, rendering, error.problems)
        return _Trial(left_out, snapshot, context, rendering)

    def _traced(self, trial: _Trial) -> dict[Origin, Blame]:
        """Return who is behind the problems, as far as values, lines and names tell."""
        origins = Origins(trial.snapshot, trial.context, self._workshop.services)
        elements: dict[Place, Any] = {}
        texts = {each.fragment: each.text for each in trial.rendering.pieces} if trial.rendering is not None else {}
        for fragment, line in {place for problem in trial.problems for place in problem.clues.lines}:
            element = self._workshop.element_at(fragment, line, texts.get(fragment, ""))
            if element is not None:
                elements[fragment, line] = element
        found: dict[Origin, Blame] = {}
        for problem in trial.problems:
            for candidates, place in _candidates(problem, origins, elements):
                culprits = candidates & found.keys()
                if not culprits:
                    culprits = candidates if len(candidates) == 1 else self._narrowed(candidates, trial, problem, place)
                if len(candidates) > 1:
                    self._sharing |= culprits
                if culprits:
                    found |= {culprit: Blame(problem, trial.step) for culprit in culprits if culprit not in found}
                    break
            else:
                named = self._named(problem, origins, trial)
                if named is not None:
                    found.setdefault(named, Blame(problem, trial.step))
        return found

    def _named(self, problem: Problem, origins: Origins, trial: _Trial) -> Origin | None:
        """Return whose name stands in the line or the header of its section, if the line is not there without that."""
        if trial.rendering is None:
            return None
        for place in problem.clues.lines:
            header, line = _occurrence(trial.rendering, place)
            for origin in origins.mentioned(f"{header}\n{line}")[:_NAMED]:
                self._named_left -= 1
                if self._named_left < 0:
                    return None
                if self._is_behind(origin, trial, problem, place):
                    return origin
        return None

    def _narrowed(
        self, candidates: frozenset[Origin], trial: _Trial, problem: Problem, place: Place | None
    ) -> frozenset[Origin]:
        """Return those without which the line, or the failure, is not there; none where none alone is behind it."""
        line = _occurrence(trial.rendering, place)[1] if trial.rendering is not None and place else ""
        named = frozenset(origin for origin in candidates if (origin.entry or origin.key.name) in line)
        for group in (named, candidates):
            if len(group) <= _TRIED_SINGLY:
                behind = [origin for origin in sorted(group) if self._is_behind(origin, trial, problem, place)]
                if behind:
                    return frozenset(behind)
        return frozenset()

    def _is_behind(self, origin: Origin, trial: _Trial, problem: Problem, place: Place | None) -> bool:
        other = self._tried(trial.left_out | {origin}, checked=False)
        if trial.rendering is None or place is None:
            return _message(problem) not in map(_message, other.problems)
        if other.rendering is None:
            return False
        line = _occurrence(trial.rendering, place)
        return _count(other.rendering, place[0], line) < _count(trial.rendering, place[0], line)

    def _by_bisection(self, trial: _Trial, suspects: Collection[Origin]) -> Verdict:
        everybody = everything(self._snapshot, self._workshop.services)
        alone = self._tried(everybody).problems if everybody else trial.problems
        if alone:
            # Not always the same fault: that of an object may hide it.
            fault = f" ({first_line(alone)})" if _message(alone[0]) not in map(_message, trial.problems) else ""
            why = f"it is refused without any object of the cluster too: the fault is in a fragment or template{fault}"
            return Verdict(why=why)
        group = everybody & frozenset(suspects)
        if not group or self._tried(group).problems:
            group = everybody
        log.info("culprit.bisected", objects=len(group), problem=first_line(trial.problems))
        found = self._bad_of(sorted(group), group, known=True)
        log.info("culprit.found", objects=len(found), checks=self._checks)
        return Verdict(found)

    def _bad_of(self, part: Sequence[Origin], left_out: frozenset[Origin], *, known: bool) -> dict[Origin, Blame]:
        """Return those of ``part`` that cannot be put back; without ``left_out`` all is good.

        ``known`` says that some cannot.
        """
        if not part:
            return {}
        if not known or len(part) == 1:
            trial = self._tried(left_out - frozenset(part))
            if not trial.problems:
                return {}
            if len(part) == 1:
                return {part[0]: Blame(trial.problems[0], trial.step)}
        middle = len(part) // 2
        bad = self._bad_of(part[:middle], left_out, known=False)
        left_out = left_out - frozenset(part[:middle]) | bad.keys()
        return bad | self._bad_of(part[middle:], left_out, known=not bad)


def _candidates(
    problem: Problem, origins: Origins, elements: Mapping[Place, Any]
) -> Iterator[tuple[frozenset[Origin], Place | None]]:
    """Return who may be behind a problem, the likeliest first."""
    for value in problem.clues.values:
        if found := origins.of(value):
            yield found, None
    for place in problem.clues.lines:
        if place in elements and (found := origins.of_element(elements[place])):
            yield found, place


def _message(problem: Problem) -> str:
    """Return what stays the same where lines before it went."""
    return _LINE_NUMBER.sub("line", problem.message)


def _occurrence(rendering: Rendering, place: Place) -> tuple[str, str]:
    """Return the header of the section that a line stands in, and the line."""
    lines = _lines(rendering, place[0])[: place[1]]
    header = next((line for line in reversed(lines) if _SECTION.match(line)), "")
    return header, lines[-1] if lines else ""


def _count(rendering: Rendering, piece: str, wanted: tuple[str, str]) -> int:
    """Count a line in the sections of that header."""
    header, found = "", 0
    for line in _lines(rendering, piece):
        if _SECTION.match(line):
            header = line
        found += (header, line) == wanted
    return found


def _lines(rendering: Rendering, piece: str) -> list[str]:
    return next((each.text for each in rendering.pieces if each.fragment == piece), "").split("\n")
