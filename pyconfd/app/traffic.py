"""Where the requests of an access log go before and after a change: what is applied, and what would be."""

import time
from typing import NamedTuple

from pyconfd import wiring
from pyconfd.app.dry_run import DryRun, EmptyBalancer, dry_run
from pyconfd.app.explaining import own_fragments
from pyconfd.errors import Problem, RejectedInput
from pyconfd.explain.conditions import Evidence
from pyconfd.explain.decision import RoutingDecisions
from pyconfd.explain.replay import TrafficReplay
from pyconfd.haproxy.history.pins import InputsStore
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.model.rendering import FragmentSet
from pyconfd.settings import Settings
from pyconfd.settings.inputs import with_inputs


class PreparedReplay(NamedTuple):
    """What counts the lines of a log, and what has to be known of what it compares."""

    replay: TrafficReplay
    notes: tuple[str, ...]


class _Side(NamedTuple):
    """What is before or after a change; ``fragments`` are those of it where it is not the installed ones."""

    settings: Settings
    once: DryRun
    fragments: FragmentSet | None = None


def prepare_replay(
    settings: Settings, snapshot_files: tuple[str, ...], before_files: tuple[str, ...]
) -> PreparedReplay:
    """Render the configurations before and after a change, and return what compares them.

    After it is what ``pyconfd plan`` is about. Before it is what ``before_files`` ask for with the same fragments and
    settings; without them what the cluster asks for with the fragments and settings of the applied generation.

    Raises:
        RejectedInput: it cannot be rendered.
        ConfigurationError, TransientError: it cannot be read, or not be checked.
    """
    if not wiring.serves_haproxy(settings):
        remedy = "use it where haproxy is served"
        raise RejectedInput(Problem("--traffic", "other load balancers than HAProxy route by their own rules", remedy))
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir)
    unchecked = EmptyBalancer(balancer.check)
    if before_files:
        before = dry_run(settings, before_files, unchecked, lenient=True)
        after = dry_run(settings, snapshot_files, unchecked if snapshot_files else balancer, lenient=True)
        return _compared(_Side(settings, before), _Side(settings, after))
    last = balancer.last_good()
    if last is None:
        remedy = "name the objects before the change with --before FILE, as pyconfd record writes them"
        raise RejectedInput(Problem("--traffic", "nothing was applied here yet to compare with", remedy))
    inputs, notes = None, list[str]()
    if last.rendering.inputs:
        try:
            inputs = InputsStore(settings.state_dir).read(last.rendering.inputs)
        except RejectedInput as error:
            notes.append(f"before: with the fragments and settings on disk, since {error.problems[0].message}")
    applied = with_inputs(settings, inputs.settings) if inputs is not None else settings
    curdate = last.generation.curdate
    read = wiring.snapshot_once(applied, ())
    fragments = inputs.fragments if inputs is not None else None
    before = dry_run(applied, (), balancer, curdate=curdate, lenient=True, fragments=fragments, read=read)
    if snapshot_files:
        after = dry_run(settings, snapshot_files, unchecked, lenient=True)
    else:
        # Of one view of the cluster, unless other presets read other objects.
        reads_same = _reads(applied) == _reads(settings)
        after = dry_run(settings, (), balancer, curdate=curdate, lenient=True, read=read if reads_same else None)
    if not before.rendering.same_as(last.rendering):
        notes.append(
            f"before: what the cluster asks for now with the applied fragments and settings; generation "
            f"{last.generation.number}, which HAProxy runs, is of other objects (name those with --before FILE)"
        )
    return _compared(_Side(applied, before, fragments), _Side(settings, after), tuple(notes))


def _reads(settings: Settings) -> tuple[object, ...]:
    return wiring.resources(settings), wiring.named(settings)


def _compared(before: _Side, after: _Side, notes: tuple[str, ...] = ()) -> PreparedReplay:
    sides = _decisions(before), _decisions(after)
    own = dict.fromkeys(name for each in sides for name in each.evidence.own_fragments)
    not_covered = (f"not covered: what fragment {name} says of requests, which is not the shipped one" for name in own)
    return PreparedReplay(TrafficReplay(*sides), (*notes, *not_covered))


def _decisions(side: _Side) -> RoutingDecisions:
    settings, once = side.settings, side.once
    evidence = Evidence(
        now=time.time(),
        snapshot=once.snapshot,
        context=once.context,
        presets=settings.presets.names,
        options=wiring.base_options(settings),
        desired=once.rendering,
        running=None,
        refused=once.refused,
        variables=wiring.variables(settings),
        own_fragments=tuple(own_fragments(settings, side.fragments)),
    )
    return RoutingDecisions(evidence)
