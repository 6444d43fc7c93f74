"""Removal protection: a sudden loss of endpoints is held back until it proves to be meant [pure].

An empty list after a change of permissions, a restored etcd or the wrong cluster looks like a cluster in which
everything was deleted. HAProxy's own checks know better which of the last known servers answer. The life of a hold:

* **Nothing held.** Of each Snapshot the names that changed are compared with the former ones. An endpoint that went
  without an announcement (its pod terminates, its node is cordoned), and without a newcomer behind the same name, is
  lost. What was lost within ``window_s`` counts together. Where nothing is left, announcements do not count. What a
  route, Gateway, Ingress or Service asked for is no loss once the API server says that this object was deleted.
* **Begun**, when everything is lost, or all that one preset serves, or more than ``share`` and at least ``least``; and
  some of that is not applied yet. The objects that had those addresses, and those that asked for them, stay as they
  were in the Snapshot that is served (:mod:`pyconfd.admission.kept_objects`): held means that the previous claim
  stays. All else is the cluster's, newcomers included. What is lost later joins the hold.
* **Confirmed**, when every resource was listed in full once more and the loss is still there.
* **Ended**: *returned*, when what is missing is too little to be held; *allowed* by an operator; *expired*, once it is
  confirmed and ``persist_s`` old, which a total loss never does.
* **Begun again** under another ID and with a new time, when it becomes another kind of loss.

:mod:`pyconfd.admission.endpoint_counts` counts what is lost, :mod:`pyconfd.admission.kept_objects` keeps the objects,
:mod:`pyconfd.daemon.protection` calls this in the loop, and saves the hold for a restart.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from pyconfd.admission.endpoint_counts import EndpointCounts, Name, changes_between, ready_addresses
from pyconfd.admission.kept_objects import CLAIM_FIELDS, ENDPOINT_FIELDS, KeptObjects, with_missing
from pyconfd.model.context import Claimed, Context
from pyconfd.model.gateway_api import (
    BackendTLSPolicy,
    Gateway,
    GatewayClass,
    GatewayClassSpec,
    GRPCRoute,
    HTTPRoute,
    ListenerSet,
    ReferenceGrant,
    TCPRoute,
    TLSRoute,
)
from pyconfd.model.hold import SHOWN, Hold, HoldEvent, HoldKind, HoldStep
from pyconfd.model.ingress import Ingress, IngressClass, IngressClassSpec
from pyconfd.model.kubernetes import ConfigMap, Endpoints, EndpointSlice, Namespace, Node, Pod, Service
from pyconfd.model.route_policy import RoutePolicyObject
from pyconfd.model.snapshot import ENDS_BY_DELETION, Snapshot
from pyconfd.model.versioned import differing, versioned

_CLASSES = ("ingressclasses", "gatewayclasses")
_OUR_CONTROLLERS = "pyconfd.io/"
"""How the controllers of pyconfd's classes begin."""

CLUSTER = "cluster"
"""Stands for a preset where none serves anything: all services of the cluster count then."""


@dataclass(frozen=True, slots=True)
class RemovalRules:
    """When a loss is held.

    ``total``: whether the loss of everything is. ``share``: a loss above this part of what was served is (1.0: never),
    if it is of at least ``least`` endpoints and happened within ``window_s``. It expires ``persist_s`` after it began.
    """

    total: bool = True
    share: float = 0.5
    least: int = 5
    window_s: float = 60.0
    persist_s: float = 60.0

    def is_too_much(self, lost: int, of: int) -> bool:
        """Return whether the loss of so many of so many endpoints is one to hold."""
        return self.share < 1.0 and lost >= self.least and lost > self.share * of


@dataclass(frozen=True, slots=True)
class Moment:
    """Both clocks: ``now`` never jumps, ``at`` is seconds since the epoch."""

    now: float
    at: float


class SavedHold(msgspec.Struct, frozen=True, omit_defaults=True):
    """A hold as it survives a restart, with the objects that are kept.

    ``losses`` has a preset, a name, how many it lost and how many it should have; ``missing`` are all their addresses.
    """

    hold: Hold | None = None
    losses: list[tuple[str, str | tuple[str, str], int, int]] = []
    missing: list[str] = []
    services: list[Service] = []
    endpointslices: list[EndpointSlice] = []
    endpoints: list[Endpoints] = []
    nodes: list[Node] = []
    pods: list[Pod] = []
    config_maps: list[ConfigMap] = []
    namespaces: list[Namespace] = []
    ingressclasses: list[IngressClass] = []
    ingresses: list[Ingress] = []
    gatewayclasses: list[GatewayClass] = []
    gateways: list[Gateway] = []
    listenersets: list[ListenerSet] = []
    httproutes: list[HTTPRoute] = []
    grpcroutes: list[GRPCRoute] = []
    tlsroutes: list[TLSRoute] = []
    tcproutes: list[TCPRoute] = []
    referencegrants: list[ReferenceGrant] = []
    backendtlspolicies: list[BackendTLSPolicy] = []
    routepolicies: list[RoutePolicyObject] = []


class RemovalProtection:
    """Belongs to one loop: :meth:`start` or :meth:`restore` it, then :meth:`admit` each Snapshot."""

    def __init__(self, rules: RemovalRules) -> None:
        self._rules = rules
        self._by_preset = False
        """Whether what the presets serve is counted; until they serve anything, all services of the cluster are."""
        self._claimed: tuple[Claimed, ...] = ()
        self._counts = EndpointCounts((), rules.window_s)
        self.snapshot = Snapshot()
        """The last Snapshot that was admitted, as the cluster shows it."""
        self._applied = Snapshot()
        """The last one that was applied before something was held, with what came since and was not lost."""
        self._missing: set[str] = set()
        """The addresses that were lost since then, and are served by a hold."""
        self._released: set[str] = set()
        """The addresses that this hold serves no longer: another pod has them now, or they announced their end."""
        self._kept = KeptObjects()
        self._began = 0.0
        self._events: list[HoldEvent] = []
        self.hold: Hold | None = None
        self.is_saved = True
        """Whether what :meth:`saved` returns was saved; the caller sets it after saving."""

    def start(self, snapshot: Snapshot, context: Context) -> None:
        """Begin with a first Snapshot, of which nothing counts as lost."""
        self.snapshot = self._applied = snapshot
        self._count_all(context, by_preset=any(each.by_name for each in context.claimed))

    def without_deleted(self, snapshot: Snapshot) -> Snapshot:
        """Return the last Snapshot without the objects that were deleted by name before the new one.

        It is the last one itself where there are none, and where a class is missing too: who uninstalls the Gateway
        API deletes each Gateway by name as well.
        """
        former = self.snapshot
        for field in _CLASSES:
            if {*getattr(former, field), *self._kept.objects[field]} - getattr(snapshot, field).keys():
                return former
        parts: dict[str, Any] = {}
        for field in (each.field for each in ENDS_BY_DELETION):
            before, after = getattr(former, field), getattr(snapshot, field)
            gone = [key for key in differing(before, after) if key not in after]
            deleted = [key for key in gone if any(before[key].metadata.uid in each for each in snapshot.terminating)]
            if deleted:
                parts[field] = versioned(before).with_changes({}, deleted)
        return replace(former, **parts) if parts else former

    def rebase(self, snapshot: Snapshot, context: Context) -> None:
        """Compare with another Snapshot than the last one from now on, and with what other settings make of it.

        It lacks what was deleted by name: neither that nor an edit of settings loses anything.
        """
        deleted = [
            (each.field, key)
            for each in ENDS_BY_DELETION
            for key in differing(getattr(self.snapshot, each.field), getattr(snapshot, each.field))
        ]
        applied: dict[str, Any] = {}
        for field in {field for field, _ in deleted}:
            gone = [key for of, key in deleted if of == field]
            applied[field] = versioned(getattr(self._applied, field)).with_changes({}, gone)
        self.snapshot, self._applied = snapshot, replace(self._applied, **applied)
        forgiven, unwanted = self._kept.forget(deleted) if deleted and self.hold is not None else (set(), set())
        self._missing -= unwanted
        former, self._claimed = self._claimed, _tracked(context, by_preset=self._by_preset)
        for each in changes_between(former, self._claimed):
            self._counts.ready[each.name[0]] += each.more
        if deleted:
            self._counts.forgive(former, self._claimed, len(forgiven))

    def admit(
        self, moment: Moment, snapshot: Snapshot, context: Context, *, confirmed: bool, allowed: Collection[str]
    ) -> Snapshot:
        """Return the Snapshot to serve: with what is held, and itself where nothing is.

        ``confirmed`` says whether every resource was listed in full since the hold began, ``allowed`` has the holds
        that an operator allowed.
        """
        former, self.snapshot = self.snapshot, snapshot
        if self.hold is None and self._applied is not former:
            self._add_unapplied(former)
        name_vanished = self._count(moment.now, context)
        if self.hold is not None:
            self._kept.keep_lost(former, snapshot, self._missing, name_vanished=name_vanished)
            self._release(former)
        self._decide(moment, confirmed=confirmed, allowed=allowed)
        return self._served()

    def _add_unapplied(self, newer: Snapshot) -> None:
        """Add what came or was edited and could not be applied yet: a hold keeps it as it was shown last.

        It may be running all the same, from before it was gone for a moment.
        """
        changed: dict[str, Any] = {}
        for field in CLAIM_FIELDS:
            if getattr(newer, field) is not getattr(self._applied, field):
                changed[field] = {**getattr(self._applied, field), **getattr(newer, field)}
        for field in ENDPOINT_FIELDS:
            applied, objects = getattr(self._applied, field), dict(getattr(newer, field))
            for key in differing(applied, getattr(newer, field)):
                record = with_missing(applied.get(key), objects.get(key), self._missing)
                if record is not None:
                    objects[key] = record
            changed[field] = objects
        self._applied = replace(self._applied, **changed)

    def applied(self) -> None:
        """Record that the last Snapshot to serve is applied: what it lacks is not kept by a later hold."""
        if self.hold is None:
            self._applied = self.snapshot
            self._missing.clear()
            self._counts.unapplied = 0

    def is_due(self, now: float, *, confirmed: bool, allowed: Collection[str]) -> bool:
        """Return whether admitting the same Snapshot again would change the hold."""
        hold = self.hold
        if hold is None:
            return False
        return hold.hold_id in allowed or (self._is_over(now) if hold.confirmed_at else confirmed)

    def events(self) -> tuple[HoldEvent, ...]:
        """Return what happened to holds since the last call."""
        events, self._events = tuple(self._events), []
        return events

    # What is lost

    def _count_all(self, context: Context, *, by_preset: bool) -> None:
        self._by_preset, self._claimed = by_preset, _tracked(context, by_preset=by_preset)
        self._counts = EndpointCounts(self._claimed, self._rules.window_s)

    def _count(self, now: float, context: Context) -> bool:
        """Count what changed, and return whether a name vanished that lost something."""
        counts = self._counts
        if self.hold is None:
            counts.expire(now)
        if not self._by_preset and any(each.by_name for each in context.claimed):
            self._count_all(context, by_preset=True)  # from now on other things count: nothing of them is lost
            return False
        claimed = _tracked(context, by_preset=self._by_preset)
        changes = changes_between(self._claimed, claimed)
        self._claimed = claimed
        if not changes:
            return False
        came = {address for each in changes for address in each.came}
        # An address that is served under another name at the same time was renamed, not lost.
        lost = {address for each in changes for address in each.gone} - came
        total_loss = not counts.ready_total + sum(each.more for each in changes)
        if not total_loss:
            lost = {one for one in lost if not any(one in each for each in self.snapshot.terminating)}
        for each in changes:
            counts.count(now, each, len(each.gone & lost), total_loss=total_loss)
        self._missing = (self._missing | lost) - came - self._released
        return any(each.vanished and each.name in counts.lost for each in changes)

    def _release(self, former: Snapshot) -> None:
        """Stop serving addresses that another pod has now or, unless the loss is total, that announced their end."""
        released = self._kept.reused_addresses(former, self.snapshot) - self._released
        if released:
            self._kept.merge_all_again()
        if self._counts.ready_total or not self._rules.total:
            released |= {
                one for one in self._kept.addresses_to_merge() if any(one in each for each in self.snapshot.terminating)
            }
        self._released |= released
        self._missing -= released

    # What is held

    def _decide(self, moment: Moment, *, confirmed: bool, allowed: Collection[str]) -> None:
        hold, (kind, preset) = self.hold, self._kind()
        if hold is None:
            if kind is not None and self._counts.unapplied:
                self._begin(moment, kind, preset)
        elif kind is None:
            self._end(HoldStep.RETURNED)
        elif hold.hold_id in allowed and not (kind is HoldKind.TOTAL and hold.kind is not HoldKind.TOTAL):
            self._end(HoldStep.ALLOWED)
        elif (kind, preset) != (hold.kind, hold.preset):
            # Another loss than the one that was shown: a permission for that one does not count for this one.
            self._begin(moment, kind, preset)
        elif confirmed and not hold.confirmed_at:
            applies_at = moment.at + max(0.0, self._rules.persist_s - (moment.now - self._began))
            applies_at = 0.0 if kind is HoldKind.TOTAL else applies_at
            self._show(replace(hold, confirmed_at=moment.at, applies_at=applies_at), HoldStep.CONFIRMED)
        elif hold.confirmed_at and self._is_over(moment.now):
            self._end(HoldStep.EXPIRED)
        elif (hold.lost, hold.missing_classes) != (self._lost_now(hold), self._missing_classes()):
            self._show(hold)

    def _kind(self) -> tuple[HoldKind | None, str]:
        """Return what kind of loss this is, and of which preset; None where it is none to hold."""
        counts, hold = self._counts, self.hold
        if self._rules.total and not counts.ready_total:
            return (HoldKind.TOTAL if counts.lost else None), ""
        if counts.lost_total <= (hold.already_applied if hold else 0):
            return None, ""
        if self._rules.is_too_much(counts.lost_total, hold.of if hold else counts.ready_total + counts.lost_total):
            return HoldKind.SHARE, ""
        emptied = [preset for preset, _ in counts.lost if not counts.ready[preset]]
        if emptied and counts.ready_total and self._rules.share < 1.0:
            return HoldKind.PRESET, min(emptied)
        return None, ""

    def _is_over(self, now: float) -> bool:
        is_total = self.hold is not None and self.hold.kind is HoldKind.TOTAL
        return not is_total and now - self._began >= self._rules.persist_s

    def _begin(self, moment: Moment, kind: HoldKind, preset: str) -> None:
        former, counts = self.hold, self._counts
        of = former.of if former else counts.ready_total + counts.lost_total
        already_applied = former.already_applied if former else counts.lost_total - counts.unapplied
        if former is None:
            name_vanished = any(name not in each.by_name for by, name in counts.lost for each in self._claimed_by(by))
            self._kept.keep_lost(self._applied, self.snapshot, self._missing, name_vanished=name_vanished)
            self._release(Snapshot())
        elif former.kind is HoldKind.TOTAL:
            self._kept.merge_all_again()  # announcements count again
            self._release(self.snapshot)
        self._began = moment.now
        applies_at = 0.0 if kind is HoldKind.TOTAL else moment.at + self._rules.persist_s
        seed = f"{kind} {preset} {moment.at!r} {moment.now!r} {sorted(counts.lost)[:SHOWN]}"
        hold_id = hashlib.sha256(seed.encode()).hexdigest()[:8]
        hold = Hold(
            hold_id, kind, moment.at, 0, of, 0, (), preset, applies_at=applies_at, already_applied=already_applied
        )
        self._show(hold, HoldStep.BEGUN)

    def _end(self, step: HoldStep) -> None:
        if self.hold is not None:
            self._show(self.hold, step)
        self.hold, self._kept, self._released = None, KeptObjects(), set()
        self.applied()
        if step is not HoldStep.RETURNED:
            self._counts.forget_losses()

    def _show(self, hold: Hold, step: HoldStep | None = None) -> None:
        names = sorted(self._counts.lost)
        shown = tuple(name if isinstance(name, str) else "/".join(name) for _, name in names[:SHOWN])
        self.hold = replace(
            hold,
            lost=self._lost_now(hold),
            affected=len(names),
            names=shown,
            missing_classes=self._missing_classes(),
        )
        if step is not None:
            self._events.append(HoldEvent(step, self.hold))
            self.is_saved = False

    def _lost_now(self, hold: Hold) -> int:
        return self._counts.lost_total - hold.already_applied

    def _missing_classes(self) -> tuple[str, ...]:
        """Return pyconfd's own classes that are kept and gone from the cluster."""
        found: list[str] = []
        for field in _CLASSES:
            shown = getattr(self.snapshot, field)
            for record in (record for key, record in self._kept.objects[field].items() if key not in shown):
                match record:
                    case IngressClass(metadata=meta, spec=IngressClassSpec(controller=controller)):
                        kind = "IngressClass"
                    case GatewayClass(metadata=meta, spec=GatewayClassSpec(controller_name=controller)):
                        kind = "GatewayClass"
                    case _:
                        continue
                if controller.startswith(_OUR_CONTROLLERS):
                    found.append(f"{kind} {meta.name}")
        return tuple(sorted(found))

    def _served(self) -> Snapshot:
        if self.hold is None:
            return self.snapshot
        served = self._kept.merged(self.snapshot, self._missing)
        self.is_saved, self._kept.changed = self.is_saved and not self._kept.changed, False
        return served

    # Over restarts

    def saved(self) -> SavedHold:
        """Return what has to survive a restart."""
        if self.hold is None:
            return SavedHold()
        losses = [
            (
                *name,
                len(lost),
                len(lost) + sum(len(ready_addresses(each, name[1])) for each in self._claimed_by(name[0])),
            )
            for name, lost in self._counts.lost.items()
        ]
        kept: dict[str, Any] = {field: list(objects.values()) for field, objects in self._kept.objects.items()}
        return SavedHold(self.hold, losses, sorted(self._missing), **kept)

    def restore(self, saved: SavedHold, moment: Moment, snapshot: Snapshot, context: Context) -> Snapshot:
        """Start with the hold of a former run, and return the Snapshot to serve."""
        hold = saved.hold
        if hold is None:
            self.start(snapshot, context)
            return snapshot
        self.snapshot = self._applied = snapshot
        self._count_all(context, by_preset=any(preset != CLUSTER for preset, *_ in saved.losses))
        present: set[str] = set()
        for preset, name, count, should in saved.losses:
            now = frozenset[str]().union(*(ready_addresses(each, name) for each in self._claimed_by(preset)))
            self._counts.lose(moment.now, (preset, name), max(0, min(count, should - len(now))))
            present |= now
        self._missing = set(saved.missing) - present
        self._kept.restore({field: getattr(saved, field) for field in self._kept.objects}, snapshot)
        self._release(Snapshot())
        elapsed_s = min(max(0.0, moment.at - hold.since), self._rules.persist_s)
        self._began = moment.now - elapsed_s
        applies_at = moment.at + self._rules.persist_s - elapsed_s if hold.applies_at else 0.0
        # The lists of this run are others: a second one has to confirm them again.
        self._show(replace(hold, confirmed_at=0.0, applies_at=applies_at), HoldStep.BEGUN)
        self._decide(moment, confirmed=False, allowed=())
        return self._served()

    def _claimed_by(self, preset: str) -> list[Claimed]:
        return [each for each in self._claimed if each.preset == preset]


def kept_back(served: Context, shown: Context) -> Mapping[Name, frozenset[str]]:
    """Return the addresses that are ready in ``served`` and not in what the cluster shows, by preset and name."""
    return {each.name: each.gone for each in changes_between(served.claimed, shown.claimed) if each.gone}


def _tracked(context: Context, *, by_preset: bool) -> tuple[Claimed, ...]:
    """Return what counts: what the presets serve, or all services of the cluster."""
    if by_preset:
        return context.claimed
    return (context.everything,) if context.everything is not None else ()
