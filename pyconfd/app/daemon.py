"""``pyconfd run``, and the loop around a cluster that it shares with ``pyconfd publish``."""

import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from pyconfd import __version__, wiring
from pyconfd.app.explaining import explainer
from pyconfd.app.page_views import page_views
from pyconfd.app.service import ServiceContext, removal_rules, serve, with_dns
from pyconfd.daemon.causes import changed_objects
from pyconfd.daemon.installed_certificates import InstalledCertificates
from pyconfd.daemon.loop import Daemon, LoopSettings
from pyconfd.daemon.memory import Seen
from pyconfd.daemon.name_register import NameRegisterFile, SharedNames
from pyconfd.daemon.pause import Pause
from pyconfd.daemon.pinning import Pinning, PinSurroundings
from pyconfd.daemon.ports import NoRenderings, RestoringBalancer, RolloutPort, World
from pyconfd.daemon.protection import hold_file
from pyconfd.errors import PyconfdError
from pyconfd.explain.conditions import SHARE_SPENT, WAITS_FOR_SHARE
from pyconfd.explain.route_hosts import hosts_of_backends
from pyconfd.explain.unserved import unserved
from pyconfd.haproxy.history.generations import GenerationStore
from pyconfd.haproxy.history.pins import InputsStore, PinFile
from pyconfd.haproxy.process.adoption import adopted
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.runtime.traffic import TrafficWatch
from pyconfd.model.context import Refusal
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.last_round import LastRound
from pyconfd.model.nodes import NodeSummary
from pyconfd.model.rendering import FragmentSet
from pyconfd.model.snapshot import KIND_OF, Key, Snapshot
from pyconfd.model.status import BackendDown
from pyconfd.predecessors import cluster_templates
from pyconfd.predecessors.sandbox.background import BackgroundTemplates
from pyconfd.predecessors.targets.worker import Targets
from pyconfd.presets.addresses import GATEWAY_CONTROLLER
from pyconfd.settings import Resolved, Settings
from pyconfd.settings.inputs import inputs_of, with_inputs
from pyconfd.sources.fragments import SettledFragments
from pyconfd.sources.host import ClusterSource
from pyconfd.sources.kubernetes.events import EventWriter, ObjectNotice, Turn, refused_object
from pyconfd.sources.kubernetes.lease import identity_of
from pyconfd.sources.kubernetes.node_board import NodeBoard
from pyconfd.sources.kubernetes.object_status import Scope
from pyconfd.sources.kubernetes.ownership_record import OwnershipRecord
from pyconfd.sources.kubernetes.status_writer import StatusWriter
from pyconfd.status.changes import ChangeLog
from pyconfd.status.headline import headline_of
from pyconfd.status.redaction import public_refusal
from pyconfd.system.secrecy import known_secrets
from pyconfd.wiring import base_options

log = structlog.get_logger(__name__)

_FIELD_OF = {kind: resource.field for resource, kind in KIND_OF.items()}

_SETTLING_S = 0.05
"""Far longer than an editor needs between truncating a file and writing it, far shorter than anybody notices."""


def run(settings: Resolved) -> int:
    """Run the daemon until it is asked to stop; SIGHUP starts again with the settings as they are then."""
    return serve(settings, with_dns(_daemon, settings))


def _daemon(own: Settings, around: ServiceContext) -> Daemon:
    settings = pinned_settings(own)
    targets = wiring.targets(settings)
    balancer = around.open(wiring.balancer(settings, targets))
    chosen = pinning(own, settings, _fragments_reader(settings), around.restart)
    workers = wiring.workers(settings, targets)
    source = wiring.source(settings)
    statuses = status_writer(settings, source)
    record = ownership_record(settings, statuses)
    board = node_board(settings) if record is not None else None
    return cluster_loop(
        settings, around, source, balancer, workers, chosen=chosen, statuses=statuses, record=record, board=board
    )


def status_writer(settings: Settings, source: ClusterSource) -> StatusWriter | None:
    """Return what writes the status of the objects that haproxy serves, and elects who writes; None for neither."""
    needed = wiring.rights(settings)
    if not needed.needs_lease:
        return None
    written = frozenset(needed.statuses)
    addresses, options = wiring.base_options(settings).addresses, settings.cluster_status
    scope = Scope(written, frozenset((*addresses.pool, *addresses.shared)), GATEWAY_CONTROLLER)
    return StatusWriter(settings.kubernetes, options, source.snapshot, scope, identity=identity_of(settings.state_dir))


def ownership_record(settings: Settings, statuses: StatusWriter | None) -> OwnershipRecord | None:
    """Return the record of names that all load balancers share; None where each keeps its own."""
    if statuses is None or not wiring.rights(settings).owners:
        return None
    own = settings.cluster_status
    return OwnershipRecord(settings.kubernetes, statuses, lease=(own.lease_namespace, own.lease_name))


def node_board(settings: Settings) -> NodeBoard:
    """Return where the balancers of a cluster say what they serve."""
    own = settings.cluster_status
    lease = own.lease_namespace, own.lease_name
    return NodeBoard(settings.kubernetes, lease=lease, identity=identity_of(settings.state_dir))


def summary_of(daemon: Daemon, floating: Mapping[str, Any] | None) -> NodeSummary:
    """Return what this node says of itself."""
    status = daemon.status()
    headline, generation = headline_of(status), status.generation
    routers = floating.get("routers") if floating else None
    return NodeSummary(
        status.version[:64],
        headline.level.name.lower(),
        headline.sentence[:400],
        daemon.fragments_digest(),
        generation.number if generation is not None else 0,
        int(generation.applied_at) if generation is not None else 0,
        int(status.started_at),
        status.hosts_total,
        len({each.ref for each in status.refused}),
        any(router["holds"] for router in routers) if routers else None,
    )


def cluster_loop(
    settings: Settings,
    around: ServiceContext,
    source: ClusterSource,
    balancer: RestoringBalancer,
    targets: Targets,
    *,
    chosen: Pinning | None = None,
    statuses: StatusWriter | None = None,
    turn: Turn | None = None,
    record: OwnershipRecord | None = None,
    board: NodeBoard | None = None,
) -> Daemon:
    """Return the loop that brings what ``source`` reads to ``balancer`` and ``targets``.

    The fragments are those on disk, or what is ``chosen`` where former ones may be pinned. ``statuses`` writes the
    status of the objects that are served; by ``turn`` one of several balancers writes Events. ``record`` is what all
    of them remember together, ``board`` where they say what they serve.
    """
    templates = cluster_templates.in_background(settings)
    world = cluster_world(settings, around, source, balancer, targets, chosen=chosen, templates=templates, names=record)
    if chosen is not None:
        world = _with_pins(world, settings, around, balancer, chosen)
    events = None
    if settings.events.enabled:
        events = EventWriter(settings.kubernetes, every_s=settings.events.every_s, turn=turn or statuses)
        around.parts.callback(events.stop)
        problems = world.other_problems
        world = replace(world, other_problems=lambda: (*problems(), *events.problems()), object_events=events.counts)
    if statuses is not None:
        around.parts.callback(statuses.stop)
        others = world.other_problems
        world = replace(world, other_problems=lambda: (*others(), *statuses.problems()), object_statuses=statuses)
    if record is not None:
        around.parts.callback(record.stop)
        without = world.other_problems
        world = replace(world, other_problems=lambda: (*without(), *record.problems()))
    world = _with_board(world, around, board)
    daemon = loop_in(world, settings)
    around.page.explain = explainer(settings, daemon)
    if settings.status.metrics_per_host:
        around.page.route_hosts = partial(_route_hosts, daemon)
    around.page.views = page_views(settings, daemon.status, around.page.data.of_backend)
    if events is not None:
        events.start(Notices(daemon, record.notices if record is not None else tuple).now)
    if statuses is not None:
        statuses.start()
    if record is not None:
        record.start(daemon.mailbox.post)
    if board is not None:
        board.start(lambda: summary_of(daemon, around.page.data.floating()))
    return daemon


def _with_board(base: World, around: ServiceContext, board: NodeBoard | None) -> World:
    if board is None:
        return base
    around.parts.callback(board.stop)
    return replace(base, other_problems=lambda: (*base.other_problems(), *board.problems()), nodes=board)


def _with_pins(
    base: World,
    settings: Settings,
    around: ServiceContext,
    balancer: RestoringBalancer,
    chosen: Pinning,
) -> World:
    return replace(
        base,
        read_fragments=chosen.read,
        other_problems=lambda: (*base.other_problems(), *chosen.problems()),
        former_fragments=chosen.former,
        served_before=chosen.served,
        pinned=lambda serving, refused: chosen.status(serving, refused=refused),
        rollout=rollout_port(settings, balancer, around.parts) if isinstance(balancer, Balancer) else RolloutPort(),
    )


def loop_in(world: World, settings: Settings) -> Daemon:
    """Return the loop in this world."""
    apply, rules = wiring.apply_settings(settings), removal_rules(settings)
    presets, pid = settings.presets.names, os.getpid()
    return Daemon(world, LoopSettings(apply, presets, __version__, pid, rules, settings.history))


def cluster_world(
    settings: Settings,
    around: ServiceContext,
    source: ClusterSource,
    balancer: RestoringBalancer,
    targets: Targets,
    *,
    chosen: Pinning | None = None,
    templates: BackgroundTemplates | None = None,
    names: SharedNames | None = None,
) -> World:
    """Return everything outside of the loop, which waits for templates of the cluster only without ``templates``."""
    for note in wiring.preset_notes(settings):
        log.warning("presets.noted", note=note)
    with suppress(PyconfdError):  # the loop reads the fragments itself and says what is wrong
        found = wiring.fragments(settings)
        if note := wiring.order_note(found):
            log.warning("fragments.order_differs", note=note)
        if note := wiring.option_note(settings, found):
            log.warning("fragments.option_missing", note=note)
    name_register = NameRegisterFile(settings.state_dir, settings.claims.reserve_s, names)
    return World(
        source=source,
        balancer=balancer,
        notifier=around.notifier,
        clock=around.clock,
        read_fragments=_fragments_reader(settings),
        make_renderer=lambda found: wiring.renderer(
            settings, found, inputs=chosen.keep(found) if chosen else "", templates=templates
        ),
        preset_options=lambda renderer: wiring.preset_options(settings, renderer),
        allowed_holds=lambda: around.holds.allowed() | adopted(settings.state_dir),
        forget_holds=around.holds.forget,
        publish=around.status_file.update,
        other_problems=lambda: (*around.problems(), *targets.problems(), *name_register.problems()),
        targets=targets,
        base_options=base_options(settings),
        renderings=templates or NoRenderings(),
        hold_file=hold_file(settings.state_dir),
        certificates=InstalledCertificates(settings.state_dir),
        paused=Pause(settings.state_dir).read,
        changes=ChangeLog(settings.runtime_dir),
        name_register=name_register,
    )


def _fragments_reader(settings: Settings) -> Callable[[], FragmentSet]:
    return SettledFragments(lambda: wiring.fragments(settings), lambda: time.sleep(_SETTLING_S)).read


def pinned_settings(settings: Settings) -> Settings:
    """Return the settings with those that are pinned; where these cannot be had, the loop says why."""
    pin = PinFile(settings.state_dir).read()
    if pin is not None and not pin.broken:
        with suppress(PyconfdError):
            return with_inputs(settings, InputsStore(settings.state_dir).read(pin.inputs).settings)
    return settings


def pinning(own: Settings, in_force: Settings, read: Callable[[], FragmentSet], restart: Callable[[], None]) -> Pinning:
    """Return what chooses the fragments; ``own`` are the settings of the files, ``in_force`` those of this run."""
    inputs = InputsStore(own.state_dir)
    inputs.clean()
    around = PinSurroundings(
        read=read,
        pin=PinFile(own.state_dir).read,
        inputs=inputs,
        on_disk=inputs_of(own),
        in_force=inputs_of(in_force),
        taking=lambda inputs: inputs_of(with_inputs(own, inputs.settings)),
        restart=restart,
        needed=GenerationStore(own.state_dir, own.apply.keep_generations).inputs,
    )
    return Pinning(around)


def rollout_port(settings: Settings, balancer: Balancer, parts: ExitStack) -> RolloutPort:
    """Return what the rollout monitor reads and marks; ``parts`` stops the thread that reads HAProxy's counters."""
    watch = TrafficWatch(lambda: balancer.sockets, balancer.spares_of)
    if settings.history.rollout_monitor_s:
        parts.callback(watch.stop)
        watch.start()
    return RolloutPort(watch.newest, balancer.store.mark_ran_well)


UNSERVED_S = 60.0
"""Pods of a new Service are not ready at first: what ends by itself within a minute is no Event."""
_UNSERVED_EVERY_S = 5.0


def _route_hosts(daemon: Daemon) -> Mapping[str, Collection[str]]:
    seen = daemon.memory.seen
    return hosts_of_backends(seen.context) if seen is not None else {}


class Notices:
    """What Events say: of refused objects, of those that no server answers for, and what ``others`` returns."""

    def __init__(self, daemon: Daemon, others: Callable[[], Sequence[ObjectNotice]] = tuple) -> None:
        self._daemon = daemon
        self._others = others
        self._refused = LastRound(_of_refusal)
        """Once a second of all, of which nearly all are the former ones."""
        self._unserved: list[ObjectNotice] = []
        self._unserved_at = -math.inf

    def now(self) -> list[ObjectNotice]:
        """Return all as of now."""
        seen, status = self._daemon.memory.seen, self._daemon.status()
        if seen is None:
            return []
        secrets = known_secrets()
        refused = self._refused.of((each, _uid(each.ref, seen.snapshot), secrets) for each in seen.refused)
        # What an operator has taken out is no fault of the object.
        by_hand = {each.server.partition("/")[0] for each in status.live.overrides}
        down = tuple(
            each for each in status.live.down if status.now - each.since >= UNSERVED_S and each.backend not in by_hand
        )
        spent = status.spent_share
        waiting = self._waiting(seen, spent.namespaces) if spent is not None else ()
        others = (replace(each, uid=_uid(each.ref, seen.snapshot)) for each in self._others())
        return [*refused, *others, *waiting, *self._of_unserved(seen, down, status.now)]

    def _waiting(self, seen: Seen, namespaces: Sequence[str]) -> Iterator[ObjectNotice]:
        """Return what is said of changed objects whose namespace has no share of reloads left, at this balancer."""
        complete = self._daemon.memory.complete or seen.snapshot
        for ref in changed_objects(complete, seen.snapshot, namespaces):
            message = f"{WAITS_FOR_SHARE}; changes that come together need one"
            uid = _uid(ref, seen.snapshot)
            yield ObjectNotice(ref, SHARE_SPENT, message, uid, action="Delayed", is_local=True)

    def _of_unserved(self, seen: Seen, down: tuple[BackendDown, ...], now: float) -> list[ObjectNotice]:
        # All claims are made to find these, and there may be thousands: not each second.
        if not down:
            self._unserved, self._unserved_at = [], -math.inf
        elif not 0 <= now - self._unserved_at < _UNSERVED_EVERY_S:  # the clock may be set back
            self._unserved_at = now
            self._unserved = [
                ObjectNotice(
                    each.ref, each.reason, each.message, _uid(each.ref, seen.snapshot), each.backend, "Watched"
                )
                for each in unserved(seen.context, down)
            ]
        return self._unserved


def _of_refusal(of: tuple[Refusal, str, tuple[str, ...]]) -> ObjectNotice:
    """Return the notice of a refusal, of the UID of its object; with the secrets that its text is redacted with."""
    refusal, uid, _ = of
    return refused_object(public_refusal(refusal), uid)


def _uid(ref: ObjectRef, snapshot: Snapshot) -> str:
    records = getattr(snapshot, _FIELD_OF.get(ref.kind, ""), {})
    found = records.get(Key(ref.namespace, ref.name))
    return found.metadata.uid if found is not None else ""
