"""The main job, once: translate, render, guard, plan, check, apply. Read this first."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from pyconfd import guard
from pyconfd.errors import ApplyError, Problem, RejectedInput, TransientError
from pyconfd.model.context import AcceptedTemplate, Census, Context
from pyconfd.model.outcome import Applied, Failed, Generation, Outcome, Rejected, Step, Stored, Unchanged
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import registry
from pyconfd.presets.reading import PresetOptions
from pyconfd.render import fallback as fallbacks
from pyconfd.render.engine import Rendered, Renderer
from pyconfd.render.fallback import Fallback, Taken, Way

SOME_DATE = "2000-01-01 00:00:00.000000"
"""Stands in for the date in comparisons while nothing serves: a failure is known again by its digest."""


class Balancer(Protocol):
    """The load balancer: what it runs, and how to change that."""

    def last_good(self) -> Stored | None:
        """Give the newest generation that was proven good, with its rendering."""
        ...

    def plan(self, rendering: Rendering) -> Plan:
        """Compare a rendering with what was applied, what is installed and what runs."""
        ...

    def contested_ports(self, rendering: Rendering) -> frozenset[int]:
        """Give the ports of new binds that somebody else on this host, or another bind of the rendering, has."""
        ...

    def apply(self, rendering: Rendering, plan: Reload, *, curdate: str, census: Census, now: float) -> Applied:
        """Check and make it serve; raises RejectedInput or ApplyError after it put the former state back."""
        ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """A failure; ``digest`` is that of the rendering ("" if there was none)."""

    digest: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that decides what a reconciliation does; ``now`` is seconds since the epoch, ``curdate`` its text.

    ``last`` is a failure that it is too early to repeat; ``refused`` is one after which templates of the cluster were
    replaced. ``accepted`` are those that came to serve last, by name.
    """

    snapshot: Snapshot
    renderer: Renderer
    presets: tuple[str, ...]
    options: PresetOptions
    now: float
    curdate: str
    guarded: bool = True
    allowed: frozenset[str] = frozenset()
    last: Attempt | None = None
    refused: Attempt | None = None
    accepted: Mapping[str, AcceptedTemplate] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What became of it; ``repeated`` where it is an earlier failure that still stands and nothing was tried.

    ``contested`` where an object did not get its port because somebody else on this host has it at present. ``taken``
    says of each template of the cluster what it came to; ``refused`` is the failure after which some were replaced.
    """

    outcome: Outcome
    context: Context
    digest: str = ""
    repeated: bool = False
    contested: bool = False
    taken: tuple[Taken, ...] = ()
    refused: Attempt | None = None

    @property
    def accepted(self) -> tuple[AcceptedTemplate, ...]:
        """Give the templates of the cluster to remember, once this serves."""
        return tuple(each.accepted for each in self.taken if each.accepted is not None)

    @property
    def template_problems(self) -> tuple[Problem, ...]:
        """Say which templates of the cluster are refused, and what serves in their place.

        Where all is refused the outcome says it.
        """
        if isinstance(self.outcome, Rejected):
            return ()
        return tuple(problem for each in self.taken for problem in each.explained())


def reconcile(inputs: Inputs, balancer: Balancer) -> Reconciled:
    """Bring the balancer to what the Snapshot and the fragments ask for, or say why that cannot be."""
    context = registry.translate(inputs.snapshot, inputs.presets, inputs.options)
    last = balancer.last_good()
    serving = last.generation if last else None
    fallback = fallbacks.known(context.templates, inputs.accepted, last.rendering if last else None)
    try:
        # With the date of what serves, so that the date alone never makes a difference.
        comparable = serving.curdate if serving else SOME_DATE
        rendered = inputs.renderer.render(context, curdate=comparable, fallback=fallback)
        differs = serving is None or serving.digest != rendered.rendering.digest
        contested = _contested_ports(rendered.rendering, context, balancer) if differs else frozenset()
        if contested:
            # Whoever asks for such a port goes without it, so that it stops nobody else.
            options = replace(inputs.options, contested_ports=contested)
            context = registry.translate(inputs.snapshot, inputs.presets, options)
            rendered = inputs.renderer.render(context, curdate=comparable, fallback=fallback)
            differs = serving is None or serving.digest != rendered.rendering.digest
        digest = rendered.rendering.digest
        if inputs.last and _stands(inputs.last, digest, differs=differs):
            return _done(inputs.last.outcome, rendered, context, digest, repeated=True, contested=bool(contested))
        if serving and differs and inputs.guarded:
            held = guard.judge(serving.census, context.census, digest=digest, allowed=inputs.allowed)
            if held:
                return _done(held, rendered, context, digest, contested=bool(contested))
        curdate = inputs.curdate if serving is None or differs else serving.curdate
        if differs and rendered.used_curdate:
            rendered = inputs.renderer.render(context, curdate=curdate, fallback=fallback)
    except RejectedInput as error:
        return Reconciled(Rejected(Step.RENDER, error.problems), context)
    known = inputs.refused if inputs.refused and inputs.refused.digest == digest else None
    outcome = (
        known.outcome
        if known
        else _apply(rendered.rendering, serving, balancer, curdate=curdate, census=context.census, now=inputs.now)
    )
    done = _done(outcome, rendered, context, digest, contested=bool(contested))
    return _without_blamed(done, fallback, serving, balancer, inputs) or done


def _without_blamed(
    done: Reconciled, fallback: Fallback, serving: Generation | None, balancer: Balancer, inputs: Inputs
) -> Reconciled | None:
    """Try once more without the templates of the cluster whose text was refused; None where that is of no use."""
    outcome, context = done.outcome, done.context
    barred = fallbacks.blamed(done.taken, outcome.problems) if isinstance(outcome, Rejected) else {}
    if not barred:
        return None
    fallback = replace(fallback, barred=barred)
    curdate = serving.curdate if serving else SOME_DATE
    try:
        rendered = inputs.renderer.render(context, curdate=curdate, fallback=fallback)
        digest = rendered.rendering.digest
        if serving is None or serving.digest != digest:
            curdate = inputs.curdate
            if rendered.used_curdate:
                rendered = inputs.renderer.render(context, curdate=curdate, fallback=fallback)
    except RejectedInput:
        return None
    second = _apply(rendered.rendering, serving, balancer, curdate=curdate, census=context.census, now=inputs.now)
    if isinstance(second, Rejected):
        return None
    attempt = Attempt(done.digest, outcome)
    return replace(_done(second, rendered, context, digest, contested=done.contested), refused=attempt)


def _done(
    outcome: Outcome,
    rendered: Rendered,
    context: Context,
    digest: str,
    *,
    repeated: bool = False,
    contested: bool = False,
) -> Reconciled:
    """Put together what is told; templates of the cluster that are refused are among the refused objects."""
    taken = rendered.taken
    refused = [each.refusal() for each in taken if each.way is not Way.OWN]
    context = replace(context, refused=tuple(sorted({*context.refused, *refused}))) if refused else context
    problems = [problem for each in taken if each.way is not Way.OWN for problem in each.problems]
    if problems and isinstance(outcome, Rejected):
        # What is missing because of a template that was left out would be a riddle without that template's problem.
        outcome = replace(outcome, problems=tuple(dict.fromkeys((*problems, *outcome.problems))))
    return Reconciled(outcome, context, digest, repeated, contested, taken)


def _contested_ports(rendering: Rendering, context: Context, balancer: Balancer) -> frozenset[int]:
    """Give the ports that objects ask for and cannot have at present."""
    return balancer.contested_ports(rendering) & context.listen_ports if context.listen_ports else frozenset()


def _stands(last: Attempt, digest: str, *, differs: bool) -> bool:
    """Say whether a failure that is too early to repeat also answers for this rendering.

    A rejection is about one rendering. What could not be made to serve may be anything's fault, and trying costs a
    reload: so no other rendering is tried either, unless it is the one that serves.
    """
    return last.digest == digest or (differs and isinstance(last.outcome, Failed))


def _apply(
    rendering: Rendering, serving: Generation | None, balancer: Balancer, *, curdate: str, census: Census, now: float
) -> Outcome:
    """Apply what differs; an error means that what served before serves still."""
    try:
        plan = balancer.plan(rendering)
        if serving and isinstance(plan, Noop):
            return Unchanged(serving, plan.verified)
        if isinstance(plan, Noop):
            plan = Reload((ReloadReason.FIRST_CONFIGURATION,))
        return balancer.apply(rendering, plan, curdate=curdate, census=census, now=now)
    except RejectedInput as error:
        return Rejected(Step(error.step or Step.CHECK), error.problems)
    except ApplyError as error:
        return Failed(Step(error.step), error.problems, error.disruptive)
    except TransientError as error:
        return Failed(Step.CHECK, error.problems)
