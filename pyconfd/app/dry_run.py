"""What the daemon would make of the cluster now, for commands: its own reconciliation, and nothing is changed by it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyconfd import wiring
from pyconfd.daemon.name_register import NameRegisterFile
from pyconfd.daemon.quarantine import LeftOut
from pyconfd.daemon.reconcile import Inputs, Reconciled, reconcile
from pyconfd.daemon.translation import Translator
from pyconfd.errors import Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.haproxy.history.pins import InputsStore
from pyconfd.model.context import Context, EndpointTotals, Refusal, in_order
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Applied, Deferred, Failed, Generation, Rejected, Stored
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import FragmentSet, Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.origins import ObjectOrigin
from pyconfd.settings import Settings
from pyconfd.status.document import read_report
from pyconfd.system.clock import SystemClock


class _Running(Protocol):
    """What is known of the running configuration, and what validates the next one."""

    def last_good(self) -> Stored | None: ...

    def listener_conflicts(self, rendering: Rendering) -> Mapping[Listener, str]: ...

    def check(self, rendering: Rendering) -> None: ...


@dataclass(frozen=True, slots=True)
class DryRun:
    """One rendering as the daemon would have it; ``checked`` says whether HAProxy accepted it just now."""

    snapshot: Snapshot
    context: Context
    rendering: Rendering
    refused: tuple[Refusal, ...]
    notes: tuple[str, ...]
    checked: bool


def dry_run(
    settings: Settings,
    snapshot_files: tuple[str, ...],
    running: _Running,
    *,
    curdate: str | None = None,
    again: bool = False,
    lenient: bool = False,
    for_this_host: bool = True,
    fragments: FragmentSet | None = None,
    read: tuple[Snapshot, tuple[Refusal, ...]] | None = None,
) -> DryRun:
    """Translate, render and check as the daemon would: without the objects for which it would be rejected.

    ``curdate`` None is now; ``again``: what is applied already is checked too; ``lenient``: where HAProxy cannot be
    run, nothing is checked. What cannot be bound at present goes without that, and new fragments take nothing away from
    any object, unless files are read: those may be for another machine. ``fragments`` are those to render with, where
    these are not the installed ones; ``read`` is the Snapshot and what is unreadable, where it was read before.

    Raises:
        RejectedInput: no object is behind it, or the daemon would leave none out: the running configuration stays.
        ConfigurationError, TransientError: it cannot be read, or not be checked.
    """
    fragments = fragments or wiring.fragments(settings)
    renderer = wiring.renderer(settings, fragments)
    snapshot, unreadable = read or wiring.snapshot_once(settings, snapshot_files, for_this_host=for_this_host)
    clock = SystemClock()
    stand_in = _DryRunBalancer(running, binds=not snapshot_files, again=again, lenient=lenient)
    now = clock.now()
    left_out = LeftOut(snapshot)
    if not snapshot_files and _are_new(settings, fragments, running):
        left_out = LeftOut(snapshot, _in_quarantine(settings), may_search=False)
    # As the daemon does: names are reserved for the namespaces of former owners.
    names = NameRegisterFile("" if snapshot_files else settings.state_dir, settings.claims.reserve_s).at(now)
    options = wiring.preset_options(settings, renderer)
    done = reconcile(
        Inputs(
            snapshot=snapshot,
            renderer=renderer,
            translator=Translator(settings.presets.names, options, names=names),
            now=now,
            curdate=clock.date(now) if curdate is None else curdate,
            left_out=left_out,
            monotonic=time.monotonic,
        ),
        stand_in,
    )
    return DryRun(
        snapshot,
        done.context,
        _rendering(done, stand_in, is_new=not left_out.may_search),
        in_order(done.context.refused, unreadable),
        tuple(note for note in (wiring.order_note(fragments), *wiring.preset_notes(settings)) if note),
        stand_in.checked,
    )


def _rendering(done: Reconciled, stand_in: "_DryRunBalancer", *, is_new: bool) -> Rendering:
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


def _are_new(settings: Settings, found: FragmentSet, serving: _Running) -> bool:
    """Return whether the running configuration was made of other fragments."""
    last = serving.last_good()
    if last is None or not last.rendering.inputs:
        return False
    try:
        return InputsStore(settings.state_dir).read(last.rendering.inputs).fragments != found
    except PyconfdError:
        return False


def _in_quarantine(settings: Settings) -> Mapping[ObjectOrigin, Problem]:
    """Return what the daemon leaves out now."""
    report = read_report(settings)
    now = report.status.quarantine.now if report.running and report.status is not None else ()
    return {ObjectOrigin.at(each.ref, each.entry): Problem("", each.detail) for each in now}


class _DryRunBalancer:
    """Stands in for the balancer: it checks, and changes nothing."""

    def __init__(self, serving: _Running, *, binds: bool, again: bool, lenient: bool) -> None:
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

    def listener_conflicts(self, rendering: Rendering) -> Mapping[Listener, str]:
        return self._serving.listener_conflicts(rendering) if self._binds else {}

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
        raise NotImplementedError  # it never plans that

    def defer(self, plan: Reload, *, now: float, in_slices: bool = False) -> Deferred:
        raise NotImplementedError

    def apply(self, rendering: Rendering, plan: Reload, *, curdate: str, totals: EndpointTotals, now: float) -> Applied:
        self.check(rendering)
        self.accepted, self.checked = rendering, True
        return Applied(Generation(0, "", now, curdate, totals=totals), plan, verified=False)


class EmptyBalancer:
    """Stands for a HAProxy that runs nothing yet; ``check`` validates."""

    def __init__(self, check: Callable[[Rendering], None] = lambda _: None) -> None:
        self._check = check

    def last_good(self) -> Stored | None:
        """Return None."""
        return None

    def listener_conflicts(self, rendering: Rendering) -> Mapping[Listener, str]:
        """Return none."""
        del rendering
        return {}

    def check(self, rendering: Rendering) -> None:
        """Validate it."""
        self._check(rendering)
