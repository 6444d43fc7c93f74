"""The main job, once: translate, render, compare, check, apply. Read this first.

::

    Snapshot --presets--> Context --fragments--> Rendering --diff--> Plan --balancer--> Outcome
       |                     |                      |
       left out:             ports that cannot be   a rejected template of the cluster
       quarantined objects   had are left out       keeps its last good text

Whatever fails, the running configuration stays.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from pyconfd.daemon.offending import Search, SearchResult, SearchTrials
from pyconfd.daemon.quarantine import LeftOut
from pyconfd.daemon.translation import NOTHING_TAKEN, Translator, render_without_conflicts
from pyconfd.errors import (
    AdoptionNeeded,
    ApplyError,
    Problem,
    PyconfdError,
    RejectedInput,
    TransientError,
)
from pyconfd.model.context import Context, EndpointTotals, in_order
from pyconfd.model.hold import ADOPTION
from pyconfd.model.listener import Listener, asked_for
from pyconfd.model.outcome import (
    Applied,
    Deferred,
    Failed,
    Generation,
    Held,
    Outcome,
    Rejected,
    Step,
    Stored,
    Unchanged,
)
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.origins import owners_among
from pyconfd.render.cluster_templates import (
    ClusterText,
    Fallback,
    RejectedTemplates,
    last_good_texts,
    rejected_texts,
)
from pyconfd.render.engine import Rendered, Renderer

SOME_DATE = "2000-01-01 00:00:00.000000"
"""Stands in for the date in comparisons while nothing serves: a failure is known again by its rendering."""


class BalancerPort(Protocol):
    """The load balancer: what it runs, and how to change that."""

    def last_good(self) -> Stored | None:
        """Return the last applied generation, with its rendering."""
        ...

    def plan(self, rendering: Rendering) -> Plan:
        """Compare a rendering with what was applied, what is installed and what runs."""
        ...

    def check(self, rendering: Rendering) -> None:
        """Validate ``rendering``, and install nothing; raises RejectedInput or TransientError."""
        ...

    def listener_conflicts(self, rendering: Rendering) -> Mapping[Listener, str]:
        """Return the new binds that cannot be had, and why: another process or bind has them, or this host cannot."""
        ...

    def change(
        self,
        rendering: Rendering,
        plan: RuntimeUpdate,
        *,
        curdate: str,
        totals: EndpointTotals,
        now: float,
        in_slices: bool = False,
    ) -> Applied | Deferred | Reload:
        """Change what runs, or the first slice of it; where that failed, return the reload that it takes instead."""
        ...

    def defer(self, plan: Reload, *, now: float, in_slices: bool = False) -> Deferred:
        """Delay a reload, and apply what needs none at once: all of that, or the first slice."""
        ...

    def apply(self, rendering: Rendering, plan: Reload, *, curdate: str, totals: EndpointTotals, now: float) -> Applied:
        """Check and make it serve.

        Raises RejectedInput or ApplyError after it put the former state back; AdoptionNeeded before it did anything.
        """
        ...


Judge = Callable[[Stored, Context, Callable[[], str]], Held | None]
"""Holds a whole change, by the running configuration, what is asked for, and what gives the rendering's digest."""


def let_through(before: Stored, context: Context, digest: Callable[[], str]) -> Held | None:
    """Hold nothing."""
    del before, context, digest
    return None


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failure; ``rendering`` is what failed, None if there was none."""

    rendering: Rendering | None
    outcome: Outcome

    def is_about(self, rendering: Rendering) -> bool:
        """Return whether it was this that failed."""
        return self.rendering is not None and self.rendering.same_as(rendering)


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that decides what a reconciliation does; ``now`` is seconds since the epoch, ``curdate`` its text.

    ``context`` is what the presets make of the Snapshot, None where that is not known yet. ``failed`` is a failure that
    it is too early to repeat. ``judge`` may hold a whole change. Where it is too early for a reload (``may_reload``),
    only what needs none is done; ``in_part``: the same where one failed; ``in_slices``: of many servers to change only
    the first, so that newer events need not wait for the rest. ``left_out`` are the quarantined objects, None where no
    object is left out or searched. ``rejected_templates`` are those whose text HAProxy rejected.
    """

    snapshot: Snapshot
    renderer: Renderer
    translator: Translator
    now: float
    curdate: str
    judge: Judge = let_through
    failed: FailedAttempt | None = None
    may_reload: bool = True
    in_part: bool = True
    in_slices: bool = False
    left_out: LeftOut | None = None
    rejected_templates: RejectedTemplates = field(default_factory=dict)
    monotonic: Callable[[], float] = lambda: 0.0
    progress: Callable[[], None] = lambda: None
    context: Context | None = None


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What became of it; ``repeated`` where it is an earlier failure that still stands and nothing was tried.

    ``rendering`` is the desired configuration, None where there was none; ``port_conflict`` where an object did not get
    what it asked for because another process of this host listens there. ``cluster_texts`` says of each template of the
    cluster what it came to, ``rejected_templates`` which of them HAProxy rejected. ``search`` says which objects had to
    be left out beside those of ``left_out``, where that was looked for.
    """

    outcome: Outcome
    context: Context
    rendering: Rendering | None = None
    repeated: bool = False
    port_conflict: bool = False
    cluster_texts: tuple[ClusterText, ...] = ()
    rejected_templates: RejectedTemplates = field(default_factory=dict)
    search: SearchResult | None = None
    left_out: LeftOut | None = None

    @property
    def pending(self) -> bool:
        """Return whether a template of the cluster is being rendered, and its former text is used meanwhile."""
        return any(each.pending for each in self.cluster_texts)

    @property
    def template_problems(self) -> tuple[Problem, ...]:
        """Return which templates of the cluster are rejected, and what is served in their place.

        Where all is rejected the outcome says it.
        """
        if isinstance(self.outcome, Rejected):
            return ()
        return tuple(problem for each in self.cluster_texts for problem in each.explained())


def reconcile(inputs: Inputs, balancer: BalancerPort) -> Reconciled:
    """Bring the balancer to what the Snapshot and the fragments ask for, or say why that cannot be.

    What is rejected is tried without what is behind it: a template of the cluster, or offending objects.

    Raises:
        PendingRendering: nothing can be said before a template of the cluster is rendered.
    """
    done = _attempt(inputs, balancer)
    if isinstance(done.outcome, Rejected) and not done.repeated:
        rejected = rejected_texts(done.cluster_texts, done.outcome.problems)
        if rejected:
            inputs = replace(inputs, rejected_templates={**inputs.rejected_templates, **rejected})
            done = _attempt(inputs, balancer)
    left_out = inputs.left_out
    may_search = left_out is not None and left_out.may_search and not done.repeated
    if left_out is None or not may_search or not isinstance(done.outcome, Rejected):
        return done
    if done.outcome.step not in _SEARCHED:
        return done
    search = _search(inputs, left_out, done, done.outcome, balancer)
    if not search.offending:
        return replace(done, search=search)
    again = _attempt(replace(inputs, left_out=left_out.with_more(search.offending)), balancer)
    if isinstance(again.outcome, Rejected):
        why = "without the objects that seemed to be behind it something else fails"
        return replace(done, search=SearchResult(why=why))
    return replace(again, search=search, left_out=left_out)


_SEARCHED = frozenset({Step.RENDER, Step.CHECK, Step.BINDS})
"""The steps whose rejections can be an object's fault."""


def _search(
    inputs: Inputs, left_out: LeftOut, done: Reconciled, outcome: Rejected, balancer: BalancerPort
) -> SearchResult:
    """Find the offending objects behind a rejection."""
    running = balancer.last_good()
    claimed = _translate(inputs, left_out.rest()).listeners

    def check(rendering: Rendering) -> None:
        balancer.check(rendering)
        # A claim to a listener is left out by itself; what is left is a bind of a fragment, for some object.
        problems = [
            Problem(str(listener), why)
            for listener, why in balancer.listener_conflicts(rendering).items()
            if not asked_for({listener: why}, claimed)
        ]
        if problems:
            raise RejectedInput(*problems, step=Step.BINDS)

    trials = SearchTrials(
        snapshot=left_out.rest(),
        translate=lambda snapshot: _translate(inputs, snapshot),
        renderer=inputs.renderer,
        fallback=replace(_fallback(inputs, done.context, running), frozen=True),
        curdate=running.generation.curdate if running else SOME_DATE,
        check=check,
        monotonic=inputs.monotonic,
        progress=inputs.progress,
    )
    found = Search(trials).run(outcome.problems, done.rendering, left_out.suspects(), outcome.step)
    rest = replace(left_out, snapshot=trials.snapshot, problems={}).with_more(found.offending).rest()
    before, after = done.context.totals, trials.translate(rest).totals
    is_nothing_left = bool((before.claimed and not after.claimed) or (before.total and not after.total))
    if is_nothing_left and (running is not None or len(found.offending) > 1):
        return SearchResult(why="it is so for every object: the fault is in a fragment")
    return found


def _fallback(inputs: Inputs, context: Context, running: Stored | None) -> Fallback:
    texts = last_good_texts(context.templates, running.rendering if running else None) if context.templates else {}
    return Fallback(texts, inputs.rejected_templates, running=running is not None)


def _translate(inputs: Inputs, snapshot: Snapshot, taken: Mapping[Listener, str] = NOTHING_TAKEN) -> Context:
    """Return what the presets make of the rest; what the objects had that are left out stays theirs."""
    held_back = owners_among(inputs.snapshot, inputs.left_out.problems) if inputs.left_out else frozenset()
    translator = inputs.translator
    if held_back:
        translator = replace(translator, names=replace(translator.names, held_back=held_back))
    return translator.translate(snapshot, taken)


def _attempt(inputs: Inputs, balancer: BalancerPort) -> Reconciled:
    """Do it once, without looking for what is behind a rejection."""
    left_out = inputs.left_out or LeftOut(inputs.snapshot)
    rest = left_out.rest()

    def translate(taken: Mapping[Listener, str] = NOTHING_TAKEN) -> Context:
        return left_out.explained(_translate(inputs, rest, taken))

    context = inputs.context if inputs.context is not None and rest is inputs.snapshot else translate()
    last = balancer.last_good()
    running = last.generation if last else None
    fallback = _fallback(inputs, context, last)
    curdate = running.curdate if running else SOME_DATE
    try:
        # With the date of the running configuration, so that the date alone never makes a difference.
        found = render_without_conflicts(
            context,
            translate,
            render=lambda each: inputs.renderer.render(each, curdate=curdate, fallback=fallback),
            conflicts_of=balancer.listener_conflicts,
            is_applied=lambda each: last is not None and last.gives(each),
            rounds=len(inputs.translator.presets),
        )
    except RejectedInput as error:
        return Reconciled(
            Rejected(Step.RENDER, error.problems),
            context,
            rejected_templates=inputs.rejected_templates,
            left_out=inputs.left_out,
        )
    context, rendered = found.context, found.rendered
    desired = rendered.rendering
    done = _Done(rendered, context, found.port_conflict, inputs)
    is_new = last is None or not last.gives(desired)
    failed = inputs.failed
    if failed and failed.is_about(desired):
        return done.repeated(failed)
    # What could not be applied may be anything's fault: other changes wait as well where they need a reload.
    waits = failed if failed and is_new and isinstance(failed.outcome, Failed) else None
    if waits and running is None:
        return done.repeated(waits)
    if last and is_new and (held := inputs.judge(last, context, lambda: desired.digest)):
        return done.with_outcome(held)
    if is_new:
        curdate = inputs.curdate
        if rendered.used_curdate:
            try:
                desired = inputs.renderer.render(context, curdate=curdate, fallback=fallback).rendering
            except RejectedInput as error:
                return done.with_outcome(Rejected(Step.RENDER, error.problems))
    outcome = serve(
        desired,
        running,
        balancer,
        curdate=curdate,
        totals=context.totals,
        now=inputs.now,
        may_reload=inputs.may_reload and waits is None,
        in_part=inputs.in_part,
        in_slices=inputs.in_slices,
        monotonic=inputs.monotonic,
    )
    return done.repeated(waits) if waits and isinstance(outcome, Deferred) else done.with_outcome(outcome)


@dataclass(frozen=True, slots=True)
class _Done:
    """What is returned of an attempt whatever its outcome is."""

    rendered: Rendered
    context: Context
    port_conflict: bool
    inputs: Inputs

    def repeated(self, failed: FailedAttempt) -> Reconciled:
        """Return an earlier failure that still stands."""
        return replace(self.with_outcome(failed.outcome), repeated=True)

    def with_outcome(self, outcome: Outcome) -> Reconciled:
        """Return the result; templates of the cluster that are rejected are among the refused objects."""
        texts, context = self.rendered.cluster_texts, self.context
        refused = [each.refusal() for each in texts if each.problems]
        if refused:
            context = replace(context, refused=in_order(context.refused, refused))
        problems = [problem for each in texts for problem in each.problems]
        if problems and isinstance(outcome, Rejected):
            # What is missing because of a template that was left out would be a riddle without its problem.
            outcome = replace(outcome, problems=tuple(dict.fromkeys((*problems, *outcome.problems))))
        return Reconciled(
            outcome,
            context,
            self.rendered.rendering,
            port_conflict=self.port_conflict,
            cluster_texts=texts,
            rejected_templates=self.inputs.rejected_templates,
            left_out=self.inputs.left_out,
        )


def serve(
    rendering: Rendering,
    serving: Generation | None,
    balancer: BalancerPort,
    *,
    curdate: str,
    totals: EndpointTotals,
    now: float,
    may_reload: bool = True,
    in_part: bool = False,
    in_slices: bool = False,
    monotonic: Callable[[], float] = lambda: 0.0,
) -> Outcome:
    """Apply what differs; on an error the running configuration is unchanged. See Inputs for what may be done."""
    try:
        plan = balancer.plan(rendering)
        if serving and isinstance(plan, Noop):
            return Unchanged(serving, plan.verified)
        if isinstance(plan, RuntimeUpdate):
            done = balancer.change(rendering, plan, curdate=curdate, totals=totals, now=now, in_slices=in_slices)
            if not isinstance(done, Reload):
                return done
            plan = done
        wanted = Reload((ReloadReason.FIRST_CONFIGURATION,)) if isinstance(plan, Noop) else plan
        if serving and not may_reload:
            return balancer.defer(wanted, now=now, in_slices=in_slices)
        began = monotonic()
        applied = balancer.apply(rendering, wanted, curdate=curdate, totals=totals, now=now)
        return replace(applied, took_s=monotonic() - began)
    except RejectedInput as error:
        return Rejected(Step(error.step or Step.CHECK), error.problems)
    except (AdoptionNeeded, ApplyError, TransientError) as error:
        if serving and may_reload and in_part:
            _apply_in_part(rendering, balancer, now)
        return _failed(error)


def _apply_in_part(rendering: Rendering, balancer: BalancerPort, now: float) -> None:
    """Do what needs no reload after one that failed: no event may come for hours, nor the reload that brings it."""
    with suppress(PyconfdError):  # the failure is reported, and the next attempt reports what is wrong then
        if isinstance(plan := balancer.plan(rendering), Reload):
            balancer.defer(plan, now=now)


def _failed(error: AdoptionNeeded | ApplyError | TransientError) -> Failed | Held:
    if isinstance(error, AdoptionNeeded):
        return Held(ADOPTION, error.problems[0])
    if isinstance(error, ApplyError):
        return Failed(Step(error.step), error.problems, error.disruptive)
    return Failed(Step.CHECK, error.problems)
