"""What the daemon would make of the cluster now, for commands: its own reconciliation, and nothing is changed by it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyconfd import wiring
from pyconfd.daemon.quarantine import LeftOut
from pyconfd.daemon.reconcile import Inputs, Reconciled, reconcile
from pyconfd.errors import Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.haproxy.history.pins import BasisStore
from pyconfd.model.context import Census
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Applied, Deferred, Failed, Generation, Rejected, Stored
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.preset import PresetName
from pyconfd.model.rendering import FragmentSet, Rendering
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets.origins import Origin, everything, ref_of
from pyconfd.render.engine import Rendered
from pyconfd.settings import Settings
from pyconfd.status.document import read_report


class _Serving(Protocol):
    """What is known of what serves."""

    def last_good(self) -> Stored | None: ...

    def contested(self, rendering: Rendering) -> Mapping[Listener, str]: ...

    def check(self, rendering: Rendering) -> None: ...


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """One rendering as the daemon would have it; ``checked`` says whether HAProxy accepted it just now."""

    once: wiring.Once
    checked: bool


def rehearse(
    settings: Settings,
    snapshot_files: tuple[str, ...],
    serving: _Serving,
    *,
    curdate: str | None = None,
    again: bool = False,
    lenient: bool = False,
    judged_here: bool = True,
) -> Rehearsed:
    """Translate, render and check as the daemon would: without the objects for which it would be refused.

    ``serving`` tells what serves, and judges; ``curdate`` None is now; ``again``: what serves already is judged too.
    ``lenient``: where HAProxy cannot be run, nothing is judged. What cannot be bound at present goes without that, and
    new fragments take nothing away from anybody, unless files are read: those may be judged anywhere.

    Raises:
        RejectedInput: no object is behind it, or the daemon would leave nobody out: so the former one goes on serving.
        ConfigurationError, TransientError: it cannot be read, or not be judged.
    """
    read = wiring.read_for_command(settings, snapshot_files, judged_here=judged_here)
    clock, stand_in = wiring.SystemClock(), _Rehearsing(serving, binds=not snapshot_files, again=again, lenient=lenient)
    now = clock.now()
    left_out = LeftOut(read.snapshot)
    if not snapshot_files and _are_new(settings, read.fragments, serving):
        left_out = LeftOut(read.snapshot, _in_quarantine(settings, read.snapshot), may_search=False)
    done = reconcile(
        Inputs(
            snapshot=read.snapshot,
            renderer=read.renderer,
            presets=settings.presets.use,
            options=read.options,
            now=now,
            curdate=clock.date(now) if curdate is None else curdate,
            left_out=left_out,
            monotonic=time.monotonic,
            remembered=read.remembered,
        ),
        stand_in,
    )
    rendering = _served(done, stand_in, is_new=not left_out.may_search)
    return Rehearsed(read.once(settings, done.context, Rendered(rendering, used_curdate=False)), stand_in.checked)


def _served(done: Reconciled, stand_in: "_Rehearsing", *, is_new: bool) -> Rendering:
    outcome = done.outcome
    if isinstance(outcome, Failed):
        raise TransientError(*outcome.problems)
    if isinstance(outcome, Rejected):
        why = done.search.why if done.search is not None else ""
        if is_new:
            why = "with the former fragments the objects are served, and new fragments take nothing away"
        nobody = (Problem("quarantine", f"no object can be left out for it: {why}"),) if why else ()
        raise RejectedInput(*outcome.problems, *nobody)
    if stand_in.accepted is not None:
        return stand_in.accepted  # with its own date
    if done.rendering is None:  # pragma: no cover - nothing but a rejection goes without one
        raise RejectedInput(Problem("templates", "nothing was rendered"))
    return done.rendering


def _are_new(settings: Settings, found: FragmentSet, serving: _Serving) -> bool:
    """Return whether the running configuration was made of other fragments."""
    last = serving.last_good()
    if last is None or not last.rendering.basis:
        return False
    try:
        return BasisStore(settings.state_dir).read(last.rendering.basis).fragments != found
    except PyconfdError:
        return False


def _in_quarantine(settings: Settings, snapshot: Snapshot) -> Mapping[Origin, Problem]:
    """Return what the daemon leaves out now."""
    report = read_report(settings)
    now = report.status.quarantine.now if report.running and report.status is not None else ()
    if not now:
        return {}
    shown = {(str(each.ref), each.entry): Problem("", each.detail) for each in now}
    own = settings.configmap
    services = Key(own.namespace, own.services) if PresetName.CONFIGMAP in settings.presets.use else None
    named = ((each, shown.get((str(ref_of(snapshot, each)), each.entry))) for each in everything(snapshot, services))
    return {each: problem for each, problem in named if problem is not None}


class _Rehearsing:
    """Stands in for the balancer: it judges, and changes nothing."""

    def __init__(self, serving: _Serving, *, binds: bool, again: bool, lenient: bool) -> None:
        self._serving = serving
        self._binds = binds
        self._again = again
        self._lenient = lenient
        self.accepted: Rendering | None = None
        self.checked = False

    def last_good(self) -> Stored | None:
        return self._serving.last_good()

    def plan(self, rendering: Rendering) -> Plan:
        last = None if self._again else self.last_good()
        return Noop() if last is not None and last.gives(rendering) else Reload((ReloadReason.TEXT_CHANGED,))

    def check(self, rendering: Rendering) -> None:
        try:
            self._serving.check(rendering)
        except TransientError:
            if not self._lenient:
                raise

    def contested(self, rendering: Rendering) -> Mapping[Listener, str]:
        return self._serving.contested(rendering) if self._binds else {}

    def change(
        self, rendering: Rendering, plan: RuntimeUpdate, *, curdate: str, census: Census, now: float
    ) -> Applied | Reload:
        raise NotImplementedError  # it never plans that

    def defer(self, plan: Reload, *, now: float) -> Deferred:
        raise NotImplementedError

    def apply(self, rendering: Rendering, plan: Reload, *, curdate: str, census: Census, now: float) -> Applied:
        self.check(rendering)
        self.accepted, self.checked = rendering, True
        return Applied(Generation(0, "", now, curdate, census=census), plan, verified=False)


class Nothing:
    """Stands for a HAProxy that serves nothing yet; ``check`` judges."""

    def __init__(self, check: Callable[[Rendering], None] = lambda _: None) -> None:
        self._check = check

    def last_good(self) -> Stored | None:
        """Return None."""
        return None

    def contested(self, rendering: Rendering) -> Mapping[Listener, str]:
        """Return none."""
        del rendering
        return {}

    def check(self, rendering: Rendering) -> None:
        """Have it judged."""
        self._check(rendering)
