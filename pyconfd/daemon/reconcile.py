"""The main job, once: translate, render, guard, plan, check, apply. Read this first."""

from dataclasses import dataclass, replace
from typing import Protocol

from pyconfd import guard
from pyconfd.errors import ApplyError, RejectedInput, TransientError
from pyconfd.model.context import Census, Context
from pyconfd.model.outcome import Applied, Failed, Generation, Outcome, Rejected, Step, Stored, Unchanged
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import registry
from pyconfd.presets.reading import PresetOptions
from pyconfd.render.engine import Renderer

SOME_DATE = "2000-01-01 00:00:00.000000"
"""Stands in for the date in comparisons while nothing serves: a failure is known again by its rendering."""


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
    """A failure; ``rendering`` is what failed, None if there was none."""

    rendering: Rendering | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that decides what a reconciliation does; ``now`` is seconds since the epoch, ``curdate`` its text.

    ``last`` is a failure that it is too early to repeat.
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


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What became of it; ``repeated`` where it is an earlier failure that still stands and nothing was tried.

    ``rendering`` is what was to serve, None where there was none. ``contested`` where an object did not get its port
    because somebody else on this host has it at present.
    """

    outcome: Outcome
    context: Context
    rendering: Rendering | None = None
    repeated: bool = False
    contested: bool = False


def reconcile(inputs: Inputs, balancer: Balancer) -> Reconciled:
    """Bring the balancer to what the Snapshot and the fragments ask for, or say why that cannot be."""
    context = registry.translate(inputs.snapshot, inputs.presets, inputs.options)
    last = balancer.last_good()
    serving = last.generation if last else None
    try:
        # With the date of what serves, so that the date alone never makes a difference.
        comparable = serving.curdate if serving else SOME_DATE
        rendered = inputs.renderer.render(context, curdate=comparable)
        differs = last is None or not last.gives(rendered.rendering)
        contested = _contested_ports(rendered.rendering, context, balancer) if differs else frozenset()
        if contested:
            # Whoever asks for such a port goes without it, so that it stops nobody else.
            options = replace(inputs.options, contested_ports=contested)
            context = registry.translate(inputs.snapshot, inputs.presets, options)
            rendered = inputs.renderer.render(context, curdate=comparable)
            differs = last is None or not last.gives(rendered.rendering)
        rendering = rendered.rendering
        if inputs.last and _stands(inputs.last, rendering, differs=differs):
            return Reconciled(inputs.last.outcome, context, rendering, repeated=True, contested=bool(contested))
        if serving and differs and inputs.guarded:
            held = guard.judge(serving.census, context.census, digest=lambda: rendering.digest, allowed=inputs.allowed)
            if held:
                return Reconciled(held, context, rendering, contested=bool(contested))
        curdate = inputs.curdate if serving is None or differs else serving.curdate
        if differs and rendered.used_curdate:
            rendered = inputs.renderer.render(context, curdate=curdate)
    except RejectedInput as error:
        return Reconciled(Rejected(Step.RENDER, error.problems), context)
    outcome = _apply(rendered.rendering, serving, balancer, curdate=curdate, census=context.census, now=inputs.now)
    return Reconciled(outcome, context, rendering, contested=bool(contested))


def _contested_ports(rendering: Rendering, context: Context, balancer: Balancer) -> frozenset[int]:
    """Give the ports that objects ask for and cannot have at present."""
    return balancer.contested_ports(rendering) & context.listen_ports if context.listen_ports else frozenset()


def _stands(last: Attempt, rendering: Rendering, *, differs: bool) -> bool:
    """Say whether a failure that is too early to repeat also answers for this rendering.

    A rejection is about one rendering. What could not be made to serve may be anything's fault, and trying costs a
    reload: so no other rendering is tried either, unless it is the one that serves.
    """
    if differs and isinstance(last.outcome, Failed):
        return True
    return last.rendering is not None and last.rendering.same_as(rendering)


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
