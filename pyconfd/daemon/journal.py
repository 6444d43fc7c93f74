"""Says each thing once: a problem when it appears and when it is gone, an object when it is refused and taken again."""

from enum import Enum, auto

import structlog

from pyconfd.errors import Problem
from pyconfd.model.context import Refusal
from pyconfd.model.outcome import Applied, Failed, Held, Outcome, Rejected, Unchanged

log = structlog.get_logger(__name__)


class _Topic(Enum):
    """What problems are about: those of one topic replace each other."""

    FRAGMENTS = auto()
    GENERATION = auto()
    MEANWHILE = auto()


class Journal:
    """Remembers what was said, so that retries stay silent."""

    def __init__(self) -> None:
        self._problems: dict[_Topic, tuple[Problem, ...]] = {}
        self._refused: frozenset[Refusal] = frozenset()

    def fragments(self, problems: tuple[Problem, ...]) -> None:
        """Log why the template directory cannot be used as it is; none means that it can."""
        self._say(_Topic.FRAGMENTS, "fragments.rejected", problems)

    def outcome(self, outcome: Outcome, *, duration_s: float, endpoints: int) -> None:
        """Log one canonical line for a generation, and a failure when it is not the same as before."""
        self._outcome(_Topic.GENERATION, outcome, duration_s, endpoints)

    def meanwhile(self, outcome: Outcome | None, *, duration_s: float, endpoints: int) -> None:
        """Log what became of the former fragments, used while the newest are refused; None where they are not."""
        if outcome is None:
            self._problems.pop(_Topic.MEANWHILE, None)
        else:
            self._outcome(_Topic.MEANWHILE, outcome, duration_s, endpoints)

    def _outcome(self, topic: _Topic, outcome: Outcome, duration_s: float, endpoints: int) -> None:
        match outcome:
            case Applied(generation, plan, verified):
                log.info(
                    "generation.applied",
                    number=generation.number,
                    digest=generation.digest[:12],
                    reasons=[reason.value for reason in plan.reasons],
                    changes=list(plan.details[:8]),
                    more_changes=max(0, len(plan.details) - 8),
                    verified=verified,
                    endpoints=endpoints,
                    duration_s=round(duration_s, 3),
                )
                self._say(topic, "generation", ())
            case Unchanged():
                self._say(topic, "generation", ())
            case Held(_, problem):
                self._say(topic, "generation.held", (problem,))
            case Rejected(step, problems):
                self._say(topic, "generation.rejected", problems, step=step.value)
            case Failed(step, problems):
                self._say(topic, "generation.failed", problems, step=step.value)

    def _say(self, topic: _Topic, event: str, problems: tuple[Problem, ...], **fields: str) -> None:
        said = self._problems.get(topic, ())
        if problems == said:
            return
        if said and not problems:
            log.info("problem.cleared", problem=said[0].message)
        self._problems[topic] = problems
        for problem in problems:
            log.error(event, place=problem.place, problem=problem.message, remedy=problem.remedy, **fields)

    def refused(self, refused: tuple[Refusal, ...]) -> None:
        """Log objects that were refused or taken since the last call."""
        current = frozenset(refused)
        for item in sorted(current - self._refused):
            log.warning(
                "object.refused",
                object=str(item.ref),
                field=item.field,
                value=item.value,
                reason=item.reason.value,
                detail=item.detail,
            )
        for item in sorted(self._refused - current):
            log.info("refusal.cleared", object=str(item.ref), field=item.field)
        self._refused = current
