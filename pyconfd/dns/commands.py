"""The commands of ``pyconfd dns`` beside ``run``: each reads, plans and changes by itself, service or not."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import SystemRandom
from typing import Any

from pyconfd.dns import planner
from pyconfd.dns.activity import ServingFacts, reasons
from pyconfd.dns.names import (
    DnsNames,
    KeptName,
    dns_names,
    floating,
    is_withdrawn,
    of_name,
    set_published,
    set_withdrawn,
    stored_annotated,
)
from pyconfd.dns.node import NodeAddresses, NodeReader
from pyconfd.dns.planner import DnsNode, NamePlan, NameView, Wish
from pyconfd.dns.records import ADDRESS_TYPES, RecordAction, RecordSet, RefusedBatchError, ThrottledError
from pyconfd.dns.report import report
from pyconfd.errors import Problem, PyconfdError, RejectedInput, TransientError, first_line
from pyconfd.settings import Settings, dns_name, name_of
from pyconfd.system.backoff import Backoff
from pyconfd.system.clock import SystemClock

ATTEMPTS = 20
BUSY_ATTEMPTS = 6
"""Each has the three tries of the SDK, with pauses of its own."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 2.0


@dataclass(frozen=True, slots=True)
class PlannedName:
    """What is to be done, or was done, about one name.

    ``ttl_s`` is how long a resolver may keep a former answer; ``error`` is why nothing is known of this name.
    """

    name: str
    zone_id: str
    plan: NamePlan
    ttl_s: int = 0
    error: PyconfdError | None = None

    @property
    def state(self) -> str:
        """``in step``, ``kept``, ``changes``, ``blocked`` or ``failed``."""
        if self.error:
            return "failed"
        if self.plan.problem:
            return "blocked"
        if self.plan.changes:
            return "changes"
        return "kept" if self.plan.kept else "in step"

    @property
    def lines(self) -> list[str]:
        """The changes, or what is in the way, and what stays."""
        if self.error:
            return [first_line(self.error.problems)]
        if self.plan.problem:
            return [self.plan.problem.message, f"-> {self.plan.problem.remedy}"]
        return [*map(str, self.plan.changes), *self.plan.kept]

    @property
    def values(self) -> dict[str, Any]:
        """The same for JSON."""
        return {"name": self.name, "zone": self.zone_id, "state": self.state, "lines": self.lines}


def plan_names(settings: Settings) -> tuple[PlannedName, ...]:
    """Return what the service would do now."""
    names, withdrawn, active = dns_names(settings), is_withdrawn(settings), _active_by_name(settings)
    # Without a service that knows already, one look has to do.
    facts = None if active else _facts(settings)

    def decide(kept: KeptName, seen: tuple[RecordSet, ...]) -> NamePlan:
        serves = (
            active.get(_key(kept), active.get(_NODE, False)) if facts is None else not reasons(facts, kept.spec.vip)
        )
        wish = Wish.PUBLISH if serves and not withdrawn and not kept.gone else Wish.WITHDRAW
        return planner.plan(kept.spec, _node(names, kept), wish, seen)

    return _each(names, _kept(names), decide, change=False)


def withdraw(settings: Settings, *, until_boot: bool) -> tuple[PlannedName, ...]:
    """Remove this node from every name until it is published again; the service retries what fails."""
    names = dns_names(settings)
    set_withdrawn(settings, until_boot=until_boot)
    published = {(item["name"], item["private"]): item["addresses"] for item in report(settings).get("names", ())}

    def decide(kept: KeptName, seen: tuple[RecordSet, ...]) -> NamePlan:
        # Not from the source of addresses: instance metadata may be away at a shutdown.
        known = published.get(_key(kept)) or [kept.spec.address, kept.spec.address6]
        v4, v6 = (next((address for address in known if mark in address), "") for mark in ".:")
        return planner.plan(kept.spec, DnsNode(names.node, v4, v6), Wish.WITHDRAW, seen)

    return _each(names, _kept(names), decide)


def publish(settings: Settings) -> tuple[PlannedName, ...]:
    """Lift the withdrawal, and publish this node at once where it can serve.

    Raises:
        RejectedInput: it cannot serve; it joins by itself when it can.
    """
    names = dns_names(settings)
    set_published(settings)
    facts = _facts(settings)
    if why := reasons(facts):
        message = f"this node cannot serve yet: {'; '.join(why)}"
        raise RejectedInput(Problem("dns publish", message, "the service joins when it can"))

    def decide(kept: KeptName, seen: tuple[RecordSet, ...]) -> NamePlan:
        wish = Wish.WITHDRAW if reasons(facts, kept.spec.vip) else Wish.PUBLISH
        return planner.plan(kept.spec, _node(names, kept), wish, seen)

    return _each(names, (kept for kept in _kept(names) if not kept.gone), decide)


def adopt(settings: Settings, name: str) -> tuple[PlannedName, ...]:
    """Adopt the records at a name."""
    names = dns_names(settings)
    return _each(names, of_name(_kept(names), name), lambda kept, seen: planner.adopt(kept.spec, seen))


def drop(settings: Settings, name: str) -> PlannedName:
    """Remove all that this owner has at a name that is no longer kept, the last record too.

    Raises:
        RejectedInput: it is still kept here, or is no name.
        TransientError: Route 53 does not answer.
    """
    names = dns_names(settings)
    try:
        wanted = dns_name(name)
    except ValueError as error:
        raise RejectedInput(Problem("dns drop", str(error))) from error
    own = name_of(replace(settings.dns, annotation_zones=()), wanted)
    for kept in _kept(names):
        if _key(kept) == (wanted, own.private) and not kept.gone:
            where = "in the annotation" if kept.annotated else "in the settings"
            remedy = "take it out there first, on all nodes; then no node puts it back"
            raise RejectedInput(Problem("dns drop", f"{wanted} is still {where} of this node", remedy))
    return _done(names, KeptName(own), lambda kept, seen: planner.drop(kept.spec, seen))


def forget(settings: Settings, node: str) -> tuple[PlannedName, ...]:
    """Remove a node that will not come back from every name.

    Raises:
        RejectedInput: no name has it.
    """
    names = dns_names(settings)
    found = _each(names, _kept(names), lambda kept, seen: planner.forget(kept.spec, node, seen))
    if all(item.plan == NamePlan() and not item.error for item in found):
        raise RejectedInput(Problem("", f"no name has a node {node}", "pyconfd dns status lists them"))
    return found


def status(settings: Settings) -> tuple[dict[str, Any], PyconfdError | None]:
    """Return what is in Route 53, what the service of this node reports, and the error of a name that is missing."""
    names = dns_names(settings)
    annotation, _ = NodeReader(settings).annotated()
    views: dict[tuple[str, bool], NameView] = {}
    kept = _kept(names)

    def decide(kept: KeptName, seen: tuple[RecordSet, ...]) -> NamePlan:
        views[_key(kept)] = NameView(kept.spec, seen)
        return NamePlan()

    found = _each(names, kept, decide, change=False)
    values = {
        "service": {**report(settings), "unit": "pyconfd" if settings.dns.in_daemon else "pyconfd-dns"},
        "names": [_name_status(item, views.get(_key(each))) for each, item in zip(kept, found, strict=True)],
        "not_taken": [] if settings.dns.annotation_suffixes else list(annotation or ()),
    }
    return values, next((item.error for item in found if item.error), None)


def _name_status(planned: PlannedName, view: NameView | None) -> dict[str, Any]:
    found = {"name": planned.name, "zone": planned.zone_id, "problem": "; ".join(planned.lines)}
    if view is None:
        return {**found, "mode": "", "generation": 0, "records": [], "doubts": {}}
    records = [
        {
            "type": kind,
            "value": value,
            "node": view.values(kind).get(value, ""),
            "identifier": item.identifier,
            "ttl_s": item.ttl_s,
        }
        for kind in ADDRESS_TYPES
        for item in view.at(kind)
        for value in item.values or ("(alias)",)
    ]
    doubts = {marker.node: marker.doubt for marker in view.markers() if marker.doubt}
    generation = view.owner[0].generation if view.owner else 0
    return {**found, "mode": view.spec.mode.value, "generation": generation, "records": records, "doubts": doubts}


def _kept(names: DnsNames) -> tuple[KeptName, ...]:
    return names.kept(stored_annotated(names.settings, SystemClock()))


def _key(kept: KeptName) -> tuple[str, bool]:
    return kept.spec.name, kept.spec.private


def _facts(settings: Settings) -> ServingFacts:
    reader = NodeReader(settings)
    try:
        return reader.facts()
    finally:
        reader.close()


_NODE = ("", False)


def _active_by_name(settings: Settings) -> dict[tuple[str, bool], bool]:
    """Return for which names the service counts this node as active; nothing while it does not know."""
    found = report(settings)
    active = {(item["name"], item["private"]): item["active"] for item in found.get("names", ())}
    if not found["running"] or not active or None in active.values():
        return {}
    return active | {_NODE: bool(found["active"])}


class _NoAddressError(TransientError):
    """The source of this node's address is silent, which says nothing of other names."""


def _node(names: DnsNames, kept: KeptName) -> DnsNode:
    try:
        return NodeAddresses(kept.spec, names.node, floating=floating(names.settings)).read()
    except TransientError as error:
        raise _NoAddressError(*error.problems) from error


_Decide = Callable[[KeptName, tuple[RecordSet, ...]], NamePlan]


def _each(
    names: DnsNames, kept: Iterable[KeptName], decide: _Decide, *, change: bool = True
) -> tuple[PlannedName, ...]:
    """Plan, and change, each name: an error of one, an annotated name's say, keeps no other from its turn.

    Where Route 53 is away the rest is not tried: each name would take as long, and a shutdown may be waiting.
    """
    found: list[PlannedName] = []
    away: TransientError | None = None
    for each in kept:
        error: PyconfdError | None = away
        if error is None:
            try:
                found.append(_done(names, each, decide) if change else _planned(names, each, decide))
                continue
            except PyconfdError as raised:
                error = raised
                if isinstance(raised, TransientError) and not isinstance(raised, _NoAddressError):
                    away = raised
        found.append(PlannedName(each.spec.name, "", NamePlan(), error=error))
    return tuple(found)


def _planned(names: DnsNames, kept: KeptName, decide: _Decide) -> PlannedName:
    spec = kept.spec
    with names.zone(spec) as zone_id:
        found = decide(kept, names.provider.records(zone_id, spec.name))
    former = (item.record.ttl_s or 0 for item in found.changes if item.action is RecordAction.DELETE)
    return PlannedName(spec.name, zone_id, found, max((spec.ttl_s, *former)))


def _done(names: DnsNames, kept: KeptName, decide: _Decide) -> PlannedName:
    """Plan and change until no other node was faster; whether a change whose reply was lost was done shows then, too.

    A busy account is retried too: where all nodes leave at once, each would find it so.
    """
    throttled = 0
    backoff = Backoff(first_s=FIRST_PAUSE_S, last_s=LONGEST_PAUSE_S, jitter=SystemRandom())
    for _ in range(ATTEMPTS):
        try:
            found = _planned(names, kept, decide)
            if found.plan.changes:
                names.provider.change(found.zone_id, found.plan.changes)
        except (RefusedBatchError, ThrottledError) as error:
            last = error
            throttled += isinstance(error, ThrottledError)
            if throttled == BUSY_ATTEMPTS:
                break
            time.sleep(backoff.delay_s())
        else:
            return found
    raise TransientError(*last.problems)
