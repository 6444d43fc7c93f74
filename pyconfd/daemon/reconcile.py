"""The main job, once: translate, render, guard, plan, check, apply. Read this first."""

from dataclasses import dataclass
from typing import Protocol

from pyconfd import guard
from pyconfd.errors import ApplyError, RejectedInput, TransientError
from pyconfd.haproxy import diff
from pyconfd.haproxy.observation import Observation
from pyconfd.model.context import Census, Context
from pyconfd.model.outcome import Applied, Failed, Generation, Outcome, Rejected, Step, Unchanged
from pyconfd.model.plan import Noop, Plan
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import registry
from pyconfd.presets.reading import PresetOptions
from pyconfd.render.engine import Renderer


class Balancer(Protocol):
    """The load balancer: what it runs, and how to change that."""

    def applied(self) -> tuple[Generation, Rendering] | None:
        """Give the generation last proven good."""
        ...

    def observe(self) -> Observation:
        """Say what is on disk and what the process runs."""
        ...

    def check(self, rendering: Rendering) -> None:
        """Validate; raises RejectedInput or TransientError."""
        ...

    def apply(self, rendering: Rendering, plan: Plan, *, curdate: str, census: Census, now: float) -> Applied:
        """Make it serve; raises RejectedInput or ApplyError after it put the former state back."""
        ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """An outcome that is not repeated for the same rendering before ``retry_at`` (seconds since the epoch)."""

    digest: str
    outcome: Outcome
    retry_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that decides what a reconciliation does; ``now`` is seconds since the epoch, ``curdate`` its text."""

    snapshot: Snapshot
    renderer: Renderer
    presets: tuple[str, ...]
    options: PresetOptions
    now: float
    curdate: str
    guarded: bool = True
    allowed: frozenset[str] = frozenset()
    last: Attempt | None = None


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What became of it; ``digest`` is that of the rendering ("" if there was none)."""

    outcome: Outcome
    context: Context
    digest: str = ""


def reconcile(inputs: Inputs, balancer: Balancer) -> Reconciled:
    """Bring the balancer to what the Snapshot and the fragments ask for, or say why that cannot be."""
    context = registry.translate(inputs.snapshot, inputs.presets, inputs.options)
    applied = balancer.applied()
    generation = applied[0] if applied else None
    try:
        # With the date of what serves, so that the date alone never makes a difference.
        rendered = inputs.renderer.render(context, curdate=generation.curdate if generation else inputs.curdate)
    except RejectedInput as error:
        return Reconciled(Rejected(Step.RENDER, error.problems), context)
    digest = rendered.rendering.digest
    if inputs.last and inputs.last.digest == digest and inputs.now < inputs.last.retry_at:
        return Reconciled(inputs.last.outcome, context, digest)
    before = generation.census if generation and inputs.guarded else None
    held = guard.judge(before, context.census, digest=digest, allowed=inputs.allowed)
    if held:
        return Reconciled(held, context, digest)
    plan = diff.plan(rendered.rendering, applied[1] if applied else None, balancer.observe())
    if isinstance(plan, Noop) and generation:
        return Reconciled(Unchanged(generation), context, digest)
    curdate = inputs.curdate
    if generation and generation.digest == digest:
        curdate = generation.curdate
    elif rendered.used_curdate:
        rendered = inputs.renderer.render(context, curdate=curdate)
    outcome = _apply(rendered.rendering, plan, balancer, curdate=curdate, census=context.census, now=inputs.now)
    return Reconciled(outcome, context, digest)


def _apply(
    rendering: Rendering, plan: Plan, balancer: Balancer, *, curdate: str, census: Census, now: float
) -> Outcome:
    """Check, then apply; an error means that what served before serves still."""
    step = Step.CHECK
    try:
        balancer.check(rendering)
        step = Step.BINDS
        return balancer.apply(rendering, plan, curdate=curdate, census=census, now=now)
    except RejectedInput as error:
        return Rejected(step, error.problems)
    except ApplyError as error:
        return Failed(Step(error.step), error.problems)
    except TransientError as error:
        return Failed(step, error.problems)
