"""The main job, once: translate, render, plan, check, apply. Read this first."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from pyconfd.daemon import arbitration
from pyconfd.daemon.arbitration import Remembered
from pyconfd.daemon.culprits import Verdict, Workshop
from pyconfd.daemon.isolation import Isolation
from pyconfd.errors import (
    AdoptionNeeded,
    ApplyError,
    PendingRendering,
    Problem,
    PyconfdError,
    RejectedInput,
    TransientError,
)
from pyconfd.model.context import AcceptedTemplate, Census, Context
from pyconfd.model.hold import ADOPTION
from pyconfd.model.listener import Listener
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
from pyconfd.model.preset import PresetName
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets.memo import Memo
from pyconfd.presets.origins import owners_among
from pyconfd.presets.reading import PresetOptions
from pyconfd.render import fallback as fallbacks
from pyconfd.render.engine import Rendered, Renderer
from pyconfd.render.fallback import Fallback, Taken

SOME_DATE = "2000-01-01 00:00:00.000000"
"""Stands in for the date in comparisons while nothing serves: a failure is known again by its rendering."""


class Balancer(Protocol):
    """The load balancer: what it runs, and how to change that."""

    def last_good(self) -> Stored | None:
        """Return the newest generation that was proven good, with its rendering."""
        ...

    def plan(self, rendering: Rendering) -> Plan:
        """Compare a rendering with what was applied, what is installed and what runs."""
        ...

    def check(self, rendering: Rendering) -> None:
        """Have ``rendering`` judged, and install nothing; raises RejectedInput or TransientError."""
        ...

    def contested(self, rendering: Rendering) -> Mapping[Listener, str]:
        """Return the new binds that another process of this host, or another bind of the rendering, has; and which."""
        ...

    def change(
        self, rendering: Rendering, plan: RuntimeUpdate, *, curdate: str, census: Census, now: float
    ) -> Applied | Reload:
        """Change what runs; where that did not work as it should, give the reload that it takes instead."""
        ...

    def defer(self, plan: Reload, *, now: float) -> Deferred:
        """Let a reload wait, and do what needs none at once."""
        ...

    def apply(self, rendering: Rendering, plan: Reload, *, curdate: str, census: Census, now: float) -> Applied:
        """Check and make it serve.

        Raises RejectedInput or ApplyError after it put the former state back; AdoptionNeeded before it did anything.
        """
        ...


Judge = Callable[[Stored, Context, Callable[[], str]], Held | None]
"""Holds a whole change, judging by what served before, what is asked for, and what gives the rendering's digest."""


def let_through(before: Stored, context: Context, digest: Callable[[], str]) -> Held | None:
    """Hold nothing."""
    del before, context, digest
    return None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A failure; ``rendering`` is what failed, None if there was none."""

    rendering: Rendering | None
    outcome: Outcome

    def is_about(self, rendering: Rendering) -> bool:
        """Return whether it was this that failed."""
        return self.rendering is not None and self.rendering.same_as(rendering)


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that decides what a reconciliation does; ``now`` is seconds since the epoch, ``curdate`` its text.

    ``last`` is a failure that it is too early to repeat; ``refused`` is one after which templates of the cluster were
    replaced. ``judge`` may hold a whole change. ``accepted`` are those that came to serve last, by name. ``memo`` is
    that of the former translations. Where it is too early for a reload (``may_reload``), only what needs none is done,
    and so where one failed (``partly``). ``isolation`` says what is left out of the Snapshot; None leaves nothing out,
    and looks for nobody to blame. ``file_refused``: what serves went live, and the check of the file behind it refused
    it. ``remembered`` is who had which name before.
    """

    snapshot: Snapshot
    renderer: Renderer
    presets: tuple[str, ...]
    options: PresetOptions
    now: float
    curdate: str
    judge: Judge = let_through
    last: Attempt | None = None
    memo: Memo | None = None
    may_reload: bool = True
    partly: bool = True
    refused: Attempt | None = None
    accepted: Mapping[str, AcceptedTemplate] = field(default_factory=lambda: MappingProxyType({}))
    isolation: Isolation | None = None
    file_refused: bool = False
    monotonic: Callable[[], float] = lambda: 0.0
    progress: Callable[[], None] = lambda: None
    remembered: Remembered = field(default_factory=Remembered)


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What became of it; ``repeated`` where it is an earlier failure that still stands and nothing was tried.

    ``rendering`` is what was to serve, None where there was none; ``contested`` where an object did not get what it
    asked for because somebody else on this host has it at present. ``taken`` says of each template of the
    cluster what it came to; ``refused`` is the failure after which some were replaced. ``verdict`` says who had to be
    left out beside those of ``isolation``, where that was looked for.
    """

    outcome: Outcome
    context: Context
    rendering: Rendering | None = None
    repeated: bool = False
    contested: bool = False
    taken: tuple[Taken, ...] = ()
    refused: Attempt | None = None
    verdict: Verdict | None = None
    isolation: Isolation | None = None

    @property
    def accepted(self) -> tuple[AcceptedTemplate, ...]:
        """Return the templates of the cluster to remember, once this serves."""
        return tuple(each.accepted for each in self.taken if each.accepted is not None)

    @property
    def pending(self) -> bool:
        """Return whether a template of the cluster is being rendered, and its former text is used meanwhile."""
        return any(each.pending for each in self.taken)

    @property
    def template_problems(self) -> tuple[Problem, ...]:
        """Return which templates of the cluster are refused, and what serves in their place.

        Where all is refused the outcome says it.
        """
        if isinstance(self.outcome, Rejected):
            return ()
        return tuple(problem for each in self.taken for problem in each.explained())


def reconcile(inputs: Inputs, balancer: Balancer) -> Reconciled:
    """Bring the balancer to what the Snapshot and the fragments ask for, or say why that cannot be.

    Where an object is behind a refusal, it is left out and everything else goes on.

    Raises:
        PendingRendering: nothing can be said before a template of the cluster is rendered.
    """
    isolation = inputs.isolation
    done = replace(_attempt(inputs, balancer), isolation=isolation)
    spoilt = _spoilt(done, inputs.accepted)
    if isolation is None or done.repeated or not (spoilt or isinstance(done.outcome, Rejected)):
        return done
    if isinstance(done.outcome, Rejected):
        complaint, rendering = done.outcome, done.rendering
    else:
        complaint, rendering = Rejected(Step.RENDER, tuple(one for each in spoilt for one in each.problems)), None
    workshop = _workshop(inputs, balancer, frozenset(each.template.name for each in spoilt))
    try:
        verdict = isolation.searched(complaint, rendering, workshop)
    except PendingRendering:
        return _undecided(done, spoilt)  # the search is repeated when the text is there
    if not verdict.culprits:
        return replace(done, verdict=verdict)
    again = _attempt(replace(inputs, isolation=isolation.with_culprits(verdict.culprits)), balancer)
    if isinstance(again.outcome, Rejected):
        why = "without the objects that seemed to be behind it something else fails"
        return replace(done, verdict=Verdict(why=why, about=verdict.about))
    return replace(again, verdict=verdict, isolation=isolation)


def _undecided(done: Reconciled, spoilt: tuple[Taken, ...]) -> Reconciled:
    """Return the same without saying that the spoilt templates are refused: an object may be behind it."""
    told = {each.refusal() for each in spoilt}
    refused = tuple(each for each in done.context.refused if each not in told)
    taken = tuple(replace(each, problems=(), pending=True) if each in spoilt else each for each in done.taken)
    return replace(done, context=replace(done.context, refused=refused), taken=taken)


def _spoilt(done: Reconciled, accepted: Mapping[str, AcceptedTemplate]) -> tuple[Taken, ...]:
    """Return the templates of the cluster that are refused though they served as they are: objects spoil them."""
    return tuple(
        each
        for each in done.taken
        if each.refused
        and not each.pending
        and (known := accepted.get(each.template.name)) is not None
        and known.source == each.template.text
    )


def _workshop(inputs: Inputs, balancer: Balancer, spoilt: frozenset[str]) -> Workshop:
    """Return what a search needs: renderings like those that are to serve, and HAProxy's judgement of them.

    The ``spoilt`` templates have to do without what replaces them.
    """
    last = balancer.last_good()
    curdate = last.generation.curdate if last else SOME_DATE

    def render(context: Context) -> Rendering:
        fallback = fallbacks.known(context.templates, inputs.accepted, last.rendering if last else None)
        rendered = inputs.renderer.render(context, curdate=curdate, fallback=replace(fallback, trial=True))
        for each in rendered.taken:
            if each.template.name in spoilt and each.refused:
                raise RejectedInput(*each.problems)
        return rendered.rendering

    own = inputs.options.configmap
    return Workshop(
        translate=lambda snapshot: _translator(inputs, snapshot)({}),
        render=render,
        check=balancer.check,
        element_at=inputs.renderer.element_at,
        monotonic=inputs.monotonic,
        progress=inputs.progress,
        services=Key(own.namespace, own.services) if PresetName.CONFIGMAP in inputs.presets else None,
        serves=last is not None,
    )


def _translator(inputs: Inputs, snapshot: Snapshot) -> Callable[[Mapping[Listener, str]], Context]:
    left_out = inputs.isolation.left_out if inputs.isolation else ()
    held_back = owners_among(inputs.snapshot, left_out)
    remembered = replace(inputs.remembered, held_back=held_back) if held_back else inputs.remembered
    return arbitration.translator(snapshot, inputs.presets, inputs.options, inputs.memo, remembered)


def _attempt(inputs: Inputs, balancer: Balancer) -> Reconciled:
    isolation = inputs.isolation or Isolation(inputs.snapshot)
    read = _translator(inputs, isolation.rest())

    def translate(contested: Mapping[Listener, str]) -> Context:
        return isolation.explained(read(contested))

    context = translate({})
    last = balancer.last_good()
    serving = last.generation if last else None
    fallback = fallbacks.known(context.templates, inputs.accepted, last.rendering if last else None)
    try:
        # With the date of what serves, so that the date alone never makes a difference.
        comparable = serving.curdate if serving else SOME_DATE
        settled = arbitration.settle(
            context,
            translate,
            render=lambda each: inputs.renderer.render(each, curdate=comparable, fallback=fallback),
            contested=balancer.contested,
            serves=lambda each: last is not None and last.gives(each),
            presets=len(inputs.presets),
        )
        context, rendered, contested = settled.context, settled.rendered, settled.contested
        rendering = rendered.rendering
        differs = last is None or not last.gives(rendering)
        waits = inputs.last if inputs.last and differs and isinstance(inputs.last.outcome, Failed) else None
        if inputs.last and (inputs.last.is_about(rendering) or (waits and serving is None)):
            return _done(inputs.last.outcome, rendered, context, repeated=True, contested=contested)
        if last and differs:
            held = inputs.judge(last, context, lambda: rendering.digest)
            if held:
                return _done(held, rendered, context, contested=contested)
        curdate = inputs.curdate if serving is None or differs else serving.curdate
        if differs and rendered.used_curdate:
            rendered = inputs.renderer.render(context, curdate=curdate, fallback=fallback)
    except RejectedInput as error:
        return Reconciled(Rejected(Step.RENDER, error.problems), context)
    known = inputs.refused if inputs.refused and inputs.refused.is_about(rendering) else None
    outcome = (
        known.outcome
        if known
        else serve(
            rendered.rendering,
            serving,
            balancer,
            curdate=curdate,
            census=context.census,
            now=inputs.now,
            may_reload=inputs.may_reload and waits is None,
            partly=inputs.partly,
        )
    )
    if inputs.file_refused and isinstance(outcome, Unchanged):
        outcome = _loadable(rendering, balancer) or outcome
    if waits and isinstance(outcome, Deferred):
        # What could not be made to serve may be anything's fault, and trying costs a reload.
        return _done(waits.outcome, rendered, context, repeated=True, contested=contested)
    done = replace(_done(outcome, rendered, context, contested=contested), rendering=rendering)
    return _without_blamed(done, fallback, serving, balancer, inputs) or done


def _loadable(rendering: Rendering, balancer: Balancer) -> Rejected | None:
    """Return why what serves could not be loaded again; None where it could, or where that is not known."""
    try:
        balancer.check(rendering)
    except RejectedInput as error:
        return Rejected(Step.CHECK, error.problems)
    except TransientError:
        return None
    return None


def _without_blamed(
    done: Reconciled, fallback: Fallback, serving: Generation | None, balancer: Balancer, inputs: Inputs
) -> Reconciled | None:
    """Try once more without the templates of the cluster whose text was refused; None where that is of no use."""
    outcome, context, census, now = done.outcome, done.context, done.context.census, inputs.now
    barred = fallbacks.blamed(done.taken, outcome.problems) if isinstance(outcome, Rejected) else {}
    if not barred:
        return None
    fallback = replace(fallback, barred=barred)
    curdate = serving.curdate if serving else SOME_DATE
    try:
        rendered = inputs.renderer.render(context, curdate=curdate, fallback=fallback)
        last = balancer.last_good()
        if last is None or not last.gives(rendered.rendering):
            curdate = inputs.curdate
            if rendered.used_curdate:
                rendered = inputs.renderer.render(context, curdate=curdate, fallback=fallback)
    except RejectedInput:
        return None
    second = serve(rendered.rendering, serving, balancer, curdate=curdate, census=census, now=now, partly=inputs.partly)
    if isinstance(second, Rejected):
        return None
    attempt = Attempt(done.rendering, outcome)
    return replace(_done(second, rendered, context, contested=done.contested), refused=attempt)


def _done(
    outcome: Outcome,
    rendered: Rendered,
    context: Context,
    *,
    repeated: bool = False,
    contested: bool = False,
) -> Reconciled:
    """Put together what is told; templates of the cluster that are refused are among the refused objects."""
    taken = rendered.taken
    refused = [each.refusal() for each in taken if each.refused]
    context = replace(context, refused=tuple(sorted({*context.refused, *refused}))) if refused else context
    problems = [problem for each in taken for problem in each.problems]
    if problems and isinstance(outcome, Rejected):
        # What is missing because of a template that was left out would be a riddle without that template's problem.
        outcome = replace(outcome, problems=tuple(dict.fromkeys((*problems, *outcome.problems))))
    return Reconciled(outcome, context, rendered.rendering, repeated, contested, taken)


def serve(
    rendering: Rendering,
    serving: Generation | None,
    balancer: Balancer,
    *,
    curdate: str,
    census: Census,
    now: float,
    may_reload: bool = True,
    partly: bool = False,
) -> Outcome:
    """Apply what differs; an error means that what served before serves still. See Inputs for what may be done."""
    try:
        plan = balancer.plan(rendering)
        if serving and isinstance(plan, Noop):
            return Unchanged(serving, plan.verified)
        if isinstance(plan, RuntimeUpdate):
            done = balancer.change(rendering, plan, curdate=curdate, census=census, now=now)
            if isinstance(done, Applied):
                return done
            plan = done
        wanted = Reload((ReloadReason.FIRST_CONFIGURATION,)) if isinstance(plan, Noop) else plan
        if serving and not may_reload:
            return balancer.defer(wanted, now=now)
        return balancer.apply(rendering, wanted, curdate=curdate, census=census, now=now)
    except RejectedInput as error:
        return Rejected(Step(error.step or Step.CHECK), error.problems)
    except (AdoptionNeeded, ApplyError, TransientError) as error:
        if serving and may_reload and partly:
            _go_live_in_part(rendering, balancer, now)
        return _failed(error)


def _go_live_in_part(rendering: Rendering, balancer: Balancer, now: float) -> None:
    """Do what needs no reload after one that failed: no event may come for hours, nor the reload that brings it."""
    with suppress(PyconfdError):  # what failed before is told, and the next attempt tells what is wrong then
        if isinstance(plan := balancer.plan(rendering), Reload):
            balancer.defer(plan, now=now)


def _failed(error: AdoptionNeeded | ApplyError | TransientError) -> Failed | Held:
    if isinstance(error, AdoptionNeeded):
        return Held(ADOPTION, error.problems[0])
    if isinstance(error, ApplyError):
        return Failed(Step(error.step), error.problems, error.disruptive)
    return Failed(Step.CHECK, error.problems)
