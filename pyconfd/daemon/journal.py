"""Says each thing once: a problem when it appears and when it is gone, an object when it is refused and taken again."""

import structlog

from pyconfd.errors import Problem
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.outcome import Applied, Deferred, Failed, Generation, Held, Outcome, Rejected, Unchanged
from pyconfd.model.plan import Reload, RuntimeUpdate

log = structlog.get_logger(__name__)


class Journal:
    """Remembers what was said, so that retries stay silent."""

    def __init__(self) -> None:
        self._problems: dict[str, tuple[Problem, ...]] = {}
        self._refused: frozenset[Refusal] = frozenset()
        self._deferred: Reload | None = None

    def outcome(self, outcome: Outcome, *, duration_s: float, endpoints: int, topic: str = "generation") -> None:
        """Log one canonical line for a generation, and a failure when it is not the same as before.

        Problems of different topics do not clear each other.
        """
        match outcome:
            case Applied(generation, plan, verified):
                log.info(
                    "generation.applied",
                    number=generation.number,
                    digest=generation.digest[:12],
                    action="reload" if isinstance(plan, Reload) else "live",
                    reasons=[reason.value for reason in plan.reasons] if isinstance(plan, Reload) else [],
                    changes=list(plan.details[:8]),
                    more_changes=max(0, len(plan.details) - 8),
                    verified=verified,
                    endpoints=endpoints,
                    duration_s=round(duration_s, 4),
                )
                self._deferred = None
                self.problems(topic, "generation.applied", ())
            case Deferred(plan, generation, live):
                self._say_deferred(plan, generation, live)
            case Unchanged():
                self.problems(topic, "generation.unchanged", ())
            case Held(_, problem):
                self.problems(topic, "generation.held", (problem,))
            case Rejected(step, problems):
                self.problems(topic, "generation.rejected", problems, step=step.value)
            case Failed(step, problems):
                self.problems(topic, "generation.failed", problems, step=step.value)

    def restored(self, outcome: Outcome) -> None:
        """Log that the last good generation was put back, and what for; nothing where it was in place."""
        if isinstance(outcome, Applied) and isinstance(outcome.plan, Reload):
            log.info(
                "generation.restored",
                number=outcome.generation.number,
                reasons=[reason.value for reason in outcome.plan.reasons],
                changes=list(outcome.plan.details[:8]),
                verified=outcome.verified,
            )

    def _say_deferred(self, plan: Reload, generation: Generation | None, live: RuntimeUpdate | None) -> None:
        if live is not None and generation is not None:
            log.info("generation.changed_live", number=generation.number, changes=len(live.commands))
        if plan != self._deferred:
            self._deferred = plan
            reasons = [reason.value for reason in plan.reasons]
            log.info("reload.deferred", reasons=reasons, changes=list(plan.details[:8]), advice=list(plan.advice))

    def problems(self, topic: str, event: str, problems: tuple[Problem, ...], **fields: str) -> None:
        """Log the problems of ``topic`` as ``event`` if they are others than before, and that they are gone."""
        former = self._problems.get(topic, ())
        if problems == former:
            return
        if not problems:
            log.info("problem.cleared", problem=former[0].message)
        known = {problem for other, each in self._problems.items() if other != topic for problem in each}
        self._problems[topic] = problems
        for problem in problems:
            if problem in known:  # it was said already: one cause, one line
                continue
            log.error(event, place=problem.place, problem=problem.message, remedy=problem.remedy, **fields)

    def refused(self, refused: tuple[Refusal, ...]) -> None:
        """Log objects that were refused or taken since the last call; the quarantine tells of its own."""
        current = frozenset(each for each in refused if each.reason is not RefusalReason.QUARANTINED)
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
