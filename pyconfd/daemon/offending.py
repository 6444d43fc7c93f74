"""Finds the objects because of which a configuration is rejected.

First the objects to which the rejected lines and values lead are left out, then those that changed since the last good
configuration, then all. Once the rest is accepted, bisection puts back everything that is not needed for that.
Nothing is believed that was not rendered and checked.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import structlog

from pyconfd.errors import Problem, RejectedInput, TransientError, first_line
from pyconfd.model.claim import Claim
from pyconfd.model.context import Context
from pyconfd.model.outcome import Step
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.origins import Filter, ObjectOrigin, ObjectOrigins, everything
from pyconfd.presets.registry import claims_of
from pyconfd.render.cluster_templates import Fallback
from pyconfd.render.engine import Renderer

log = structlog.get_logger(__name__)

MOST_CHECKS = 60
"""Checks by HAProxy for one search; two objects that no message names are found among 10,000 with as many."""

LONGEST_S = 30.0
"""Seconds for one search: nothing is applied meanwhile."""

_ROUNDS = 16
"""A template that fails names one object in each round; what is left then is found by bisection."""

_MENTIONED = 4
"""So many objects are tried of those whose names stand in a rejected line."""

_SECTIONS = ("global", "defaults", "frontend", "backend", "listen", "peers", "resolvers", "userlist", "cache")


class Offence(NamedTuple):
    """Why an object is left out, the step that rejected it, and what the object asks for."""

    problem: Problem
    step: Step
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The offending objects: without them the rest is accepted. Or none, and ``why``."""

    offending: Mapping[ObjectOrigin, Offence] = field(default_factory=lambda: MappingProxyType({}))
    why: str = ""


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """What became of a Snapshot without what is ``left_out``; no problems: accepted, else rejected at ``step``."""

    left_out: frozenset[ObjectOrigin]
    snapshot: Snapshot
    context: Context
    rendering: Rendering | None = None
    problems: tuple[Problem, ...] = ()
    step: Step = Step.CHECK


@dataclass(frozen=True, slots=True)
class SearchTrials:
    """Renders one Snapshot without some of its objects, and has HAProxy check it; nothing is applied.

    Templates of the cluster keep their last good texts. ``monotonic`` returns seconds, ``progress`` tells the service
    manager that work goes on.
    """

    snapshot: Snapshot
    translate: Callable[[Snapshot], Context]
    renderer: Renderer
    fallback: Fallback
    curdate: str
    check: Callable[[Rendering], None]
    monotonic: Callable[[], float]
    progress: Callable[[], None]

    def without(self, left_out: frozenset[ObjectOrigin], snapshots: Filter) -> SearchTrial:
        """Return what becomes of the rest; raises TransientError where HAProxy cannot be run."""
        self.progress()
        snapshot = snapshots.without(self.snapshot, left_out)
        context = self.translate(snapshot)
        rendering = None
        try:
            rendering = self.renderer.render(context, curdate=self.curdate, fallback=self.fallback).rendering
            self.check(rendering)
        except RejectedInput as error:
            step = Step.RENDER if rendering is None else Step(error.step or Step.CHECK)
            return SearchTrial(left_out, snapshot, context, rendering, error.problems, step)
        return SearchTrial(left_out, snapshot, context, rendering)


class _ExhaustedError(Exception):
    """The search costs too much."""


class Search:
    """One search for the objects behind ``problems`` of ``rendering`` (None: it could not be rendered)."""

    def __init__(self, trials: SearchTrials) -> None:
        self._trials = trials
        self._snapshots = Filter()
        self._checks = 0
        self._began = trials.monotonic()

    def run(
        self,
        problems: Sequence[Problem],
        rendering: Rendering | None,
        suspects: Collection[ObjectOrigin],
        step: Step = Step.CHECK,
    ) -> SearchResult:
        """Return who is offending, by what ``step`` said; ``suspects`` are likelier than others."""
        snapshot = self._trials.snapshot
        step = Step.RENDER if rendering is None else step
        first = SearchTrial(frozenset(), snapshot, self._trials.translate(snapshot), rendering, tuple(problems), step)
        try:
            found = self._by_clues(first) or self._by_bisection(first, frozenset(suspects))
        except _ExhaustedError:
            took_s = round(self._trials.monotonic() - self._began, 1)
            return SearchResult(why=f"no offending object was found with {self._checks} checks in {took_s:g} s")
        except TransientError as error:
            return SearchResult(why=first_line(error.problems))
        if isinstance(found, str):
            return SearchResult(why=found)
        log.info("quarantine.searched", offending=len(found), checks=self._checks)
        claims: defaultdict[ObjectOrigin, list[Claim]] = defaultdict(list)
        for claim in claims_of(first.context):
            claims[ObjectOrigin.at(claim.ref, claim.item)].append(claim)
        return SearchResult({origin: each._replace(claims=tuple(claims[origin])) for origin, each in found.items()})

    def _try(self, left_out: frozenset[ObjectOrigin]) -> SearchTrial:
        if self._checks >= MOST_CHECKS or self._trials.monotonic() - self._began > LONGEST_S:
            raise _ExhaustedError
        self._checks += 1
        return self._trials.without(left_out, self._snapshots)

    def _by_clues(self, trial: SearchTrial) -> dict[ObjectOrigin, Offence] | None:
        """Leave out the objects to which problems lead, round by round; None where they lead nowhere."""
        found: dict[ObjectOrigin, Offence] = {}
        ambiguous = False
        for number in range(_ROUNDS):
            new = dict[ObjectOrigin, Offence]()
            # Once for all problems: it looks at every claim.
            origins = ObjectOrigins(trial.snapshot, tuple(claims_of(trial.context)))
            for problem in trial.problems:
                candidates = self._candidates(problem, trial, origins) - found.keys()
                ambiguous = ambiguous or len(candidates) > 1
                for origin in candidates:
                    new.setdefault(origin, Offence(problem, trial.step))
            if not new:
                return None
            found |= new
            trial = self._try(frozenset(found))
            if not trial.problems:
                # Several rounds: an object may have been left out for a problem that is another's.
                return self._needed(found) if ambiguous or number else found
        return None

    def _candidates(self, problem: Problem, trial: SearchTrial, origins: ObjectOrigins) -> frozenset[ObjectOrigin]:
        """Return the objects of the first clue that leads to any."""
        for value in problem.clues.values:
            if found := origins.of(value):
                return found
        if trial.rendering is None:
            return frozenset()
        for fragment, line in problem.clues.lines:
            text = next((each.text for each in trial.rendering.pieces if each.fragment == fragment), "")
            element = self._trials.renderer.element_at(fragment, line, text)
            if element is not None and (found := origins.of_element(element)):
                return found
            if mentioned := origins.mentioned(_line_with_header(text, line)):
                return frozenset(mentioned[:_MENTIONED])
        return frozenset()

    def _by_bisection(self, trial: SearchTrial, suspects: frozenset[ObjectOrigin]) -> dict[ObjectOrigin, Offence] | str:
        all_objects = everything(trial.snapshot, claims_of(trial.context))
        for group in filter(None, (all_objects & suspects, all_objects)):
            rest = self._try(group)
            if not rest.problems:
                return self._needed({origin: Offence(trial.problems[0], trial.step) for origin in group})
            trial = rest
        fault = trial.problems[0]
        return f"it is rejected without any object too: the fault is in a fragment ({fault.place}: {fault.message})"

    def _needed(self, found: Mapping[ObjectOrigin, Offence]) -> dict[ObjectOrigin, Offence]:
        """Return those of ``found`` that cannot be put back; without all of them the rest is accepted."""
        return self._bad_of(sorted(found), frozenset(found), known=True)

    def _bad_of(
        self, part: Sequence[ObjectOrigin], left_out: frozenset[ObjectOrigin], *, known: bool
    ) -> dict[ObjectOrigin, Offence]:
        """Return those of ``part`` that cannot be put back; ``known`` says that some cannot."""
        if not part:
            return {}
        if not known or len(part) == 1:
            trial = self._try(left_out - frozenset(part))
            if not trial.problems:
                return {}
            if len(part) == 1:
                return {part[0]: Offence(trial.problems[0], trial.step)}
        middle = len(part) // 2
        bad = self._bad_of(part[:middle], left_out, known=False)
        left_out = left_out - frozenset(part[:middle]) | bad.keys()
        return bad | self._bad_of(part[middle:], left_out, known=not bad)


def _line_with_header(text: str, number: int) -> str:
    """Return a line (from 1), and the header of the section that it stands in."""
    lines = text.split("\n")[:number]
    return "\n".join((next(_headers(lines), ""), lines[-1] if lines else ""))


def _headers(lines: Sequence[str]) -> Iterator[str]:
    return (line for line in reversed(lines) if line.startswith(_SECTIONS))
