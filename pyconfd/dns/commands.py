"""The commands of ``pyconfd dns`` beside ``run``: each reads, plans and changes by itself, service or not."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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
    spec_of,
    stored_annotated,
)
from pyconfd.dns.node import NodeAddresses, NodeReader
from pyconfd.dns.planner import DnsNode, NamePlan, NameSpec, NameView, Wish
from pyconfd.dns.records import ADDRESS_TYPES, Action, RecordSet, RefusedBatchError, ThrottledError
from pyconfd.dns.report import report
from pyconfd.errors import Problem, PyconfdError, RejectedInput, TransientError, first_line
from pyconfd.settings import Settings, dns_name, name_of

ATTEMPTS = 20
BUSY_ATTEMPTS = 6
"""Each has the three tries of the SDK, with pauses of its own."""
PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Planned:
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


def plan_names(settings: Settings) -> tuple[Planned, ...]:
    """Return what the service would do now."""
    names = dns_names(settings)
    withdrawn, able = is_withdrawn(settings), _able(settings)

    def decide(kept: KeptName) -> Planned:
        gone = kept.gone
        wish = Wish.WITHDRAW if withdrawn or gone or not able(kept) else Wish.PUBLISH
        node = _node(names, kept)
        return _planned(names, kept.spec, lambda spec, seen: planner.plan(spec, node, wish, seen))

    return _each(_kept(names), decide)


def withdraw(settings: Settings, *, until_boot: bool) -> tuple[Planned, ...]:
    """Take this node out of every name, and keep it out; where that fails the service goes on trying."""
    names = dns_names(settings)
    set_withdrawn(settings, until_boot=until_boot)
    said = {(item["name"], item["private"]): item["addresses"] for item in report(settings).get("names", ())}

    def done(kept: KeptName) -> Planned:
        known = said.get((kept.spec.name, kept.spec.private)) or [kept.own.address, kept.own.address6]
        node = DnsNode(
            names.node,
            next((item for item in known if "." in item), ""),
            next((item for item in known if ":" in item), ""),
        )
        return _done(names, kept.spec, lambda spec, seen: planner.plan(spec, node, Wish.WITHDRAW, seen))

    return _each(_kept(names), done)


def publish(settings: Settings) -> tuple[Planned, ...]:
    """Let this node in again, and publish it at once where it can serve.

    Raises:
        RejectedInput: it cannot serve; it joins by itself when it can.
    """
    names = dns_names(settings)
    set_published(settings)
    facts = _facts(settings)
    if why := reasons(facts):
        problem = Problem(
            "dns publish", f"this node cannot serve yet: {'; '.join(why)}", "the service joins when it can"
        )
        raise RejectedInput(problem)

    def done(kept: KeptName) -> Planned:
        wish = Wish.WITHDRAW if reasons(facts, kept.own.vip) else Wish.PUBLISH
        node = _node(names, kept)
        return _done(names, kept.spec, lambda spec, seen: planner.plan(spec, node, wish, seen))

    return _each((kept for kept in _kept(names) if not kept.gone), done)


def adopt(settings: Settings, name: str) -> tuple[Planned, ...]:
    """Take over what is at a name."""
    names = dns_names(settings)
    return _each(of_name(_kept(names), name), lambda kept: _done(names, kept.spec, planner.adopt))


def drop(settings: Settings, name: str) -> Planned:
    """Take out all that this owner has at a name that is kept no more, the last record too.

    Raises:
        RejectedInput: it is still kept here, or is no name.
        TransientError: Route 53 does not answer.
    """
    names = dns_names(settings)
    try:
        wanted = dns_name(name)
    except ValueError as error:
        raise RejectedInput(Problem("dns drop", str(error))) from error
    own = name_of(settings.dns, wanted)
    for kept in _kept(names):
        if (kept.spec.name, kept.spec.private) == (wanted, own.private) and not kept.gone:
            where = "in the annotation" if kept.annotated else "in the settings"
            remedy = "take it out there first, on all nodes; then nobody puts it back"
            raise RejectedInput(Problem("dns drop", f"{wanted} is still {where} of this node", remedy))
    return _done(names, spec_of(own), planner.drop)


def forget(settings: Settings, node: str) -> tuple[Planned, ...]:
    """Take a node that will not come back out of every name.

    Raises:
        RejectedInput: no name has it.
    """
    names = dns_names(settings)

    def done(kept: KeptName) -> Planned:
        return _done(names, kept.spec, lambda spec, seen: planner.forget(spec, node, seen))

    found = _each(_kept(names), done)
    if all(item.plan == NamePlan() and not item.error for item in found):
        raise RejectedInput(Problem("", f"no name has a node {node}", "pyconfd dns status lists them"))
    return found


def status(settings: Settings) -> tuple[dict[str, Any], PyconfdError | None]:
    """Return what is in Route 53 and what the service of this node thinks, and why something is missing there."""
    names = dns_names(settings)
    annotation, _ = NodeReader(settings).annotated()
    rows: list[dict[str, Any]] = []

    def seen(kept: KeptName) -> Planned:
        rows.append(_name_status(names, kept.spec))
        return Planned(kept.spec.name, "", NamePlan())

    failed = [item for item in _each(_kept(names), seen) if item.error]
    rows += [_unknown(item) for item in failed]
    values = {
        "service": {**report(settings), "unit": "pyconfd" if settings.dns.in_daemon else "pyconfd-dns"},
        "names": rows,
        "not_taken": [] if settings.dns.annotation_suffixes else list(annotation or ()),
    }
    return values, failed[0].error if failed else None


def _kept(names: DnsNames) -> tuple[KeptName, ...]:
    return names.kept(stored_annotated(names.settings))


def _name_status(names: DnsNames, spec: NameSpec) -> dict[str, Any]:
    zone_id = names.zone_id(spec)
    view = NameView(spec, names.provider.records(zone_id, spec.name))
    rows = [
        {"type": kind, "value": value, **_whose(item, view.values(kind).get(value)), "ttl_s": item.ttl_s}
        for kind in ADDRESS_TYPES
        for item in view.at(kind)
        for value in item.values or ("(alias)",)
    ]
    doubts = {marker.node: marker.doubt for marker in view.markers() if marker.doubt}
    owner = view.owner
    return {
        "name": spec.name,
        "zone": zone_id,
        "mode": spec.mode.value,
        "generation": owner[0].generation if owner else 0,
        "records": rows,
        "doubts": doubts,
        "problem": "",
    }


def _unknown(failed: Planned) -> dict[str, Any]:
    nothing = {"zone": "", "mode": "", "generation": 0, "records": [], "doubts": {}}
    return {"name": failed.name, **nothing, "problem": "; ".join(failed.lines)}


def _whose(item: RecordSet, node: str | None) -> dict[str, str]:
    return {"node": node or "", "identifier": item.identifier}


def _facts(settings: Settings) -> ServingFacts:
    reader = NodeReader(settings)
    try:
        return reader.facts()
    finally:
        reader.close()


def _able(settings: Settings) -> Callable[[KeptName], bool]:
    """Return what tells whether this node can serve a name: by what the service believes, else by one look."""
    said = report(settings)
    names = said["names"] if said["running"] else ()
    believed = {(item["name"], item["private"]): item["active"] for item in names}
    if believed and None not in believed.values():
        return lambda kept: bool(believed.get((kept.spec.name, kept.spec.private), said["active"]))
    facts = _facts(settings)
    return lambda kept: not reasons(facts, kept.own.vip)


_Decide = Callable[[NameSpec, tuple[RecordSet, ...]], NamePlan]


class _NoAddressError(TransientError):
    """The source of this node's address is silent, which says nothing of other names."""


def _node(names: DnsNames, kept: KeptName) -> DnsNode:
    try:
        return NodeAddresses(kept.own, names.node, floating=floating(names.settings)).read()
    except TransientError as error:
        raise _NoAddressError(*error.problems) from error


def _each(kept: Iterable[KeptName], do: Callable[[KeptName], Planned]) -> tuple[Planned, ...]:
    """Do something about each name: what is wrong with one, an annotation's say, keeps no other from its turn.

    Where Route 53 is away the rest is not asked: each name would take as long, and a shutdown may be waiting.
    """
    found: list[Planned] = []
    away: TransientError | None = None
    for each in kept:
        error: PyconfdError | None = away
        if error is None:
            try:
                found.append(do(each))
                continue
            except PyconfdError as raised:
                error = raised
                if isinstance(raised, TransientError) and not isinstance(raised, _NoAddressError):
                    away = raised
        found.append(Planned(each.spec.name, "", NamePlan(), error=error))
    return tuple(found)


def _planned(names: DnsNames, spec: NameSpec, decide: _Decide) -> Planned:
    zone_id = names.zone_id(spec)
    found = decide(spec, names.provider.records(zone_id, spec.name))
    former = (item.record.ttl_s or 0 for item in found.changes if item.action is Action.DELETE)
    return Planned(spec.name, zone_id, found, max((spec.ttl_s, *former)))


def _done(names: DnsNames, spec: NameSpec, decide: _Decide) -> Planned:
    """Plan and change until nobody was faster; a reply that was lost shows when it is read again.

    A busy account is asked again too: where all nodes leave at once, each would find it so.
    """
    throttled = 0
    for attempt in range(ATTEMPTS):
        try:
            found = _planned(names, spec, decide)
            if found.plan.changes:
                names.provider.change(found.zone_id, found.plan.changes)
        except (RefusedBatchError, ThrottledError) as error:
            last = error
            throttled += isinstance(error, ThrottledError)
            if throttled == BUSY_ATTEMPTS:
                break
            time.sleep(PAUSE_S * (attempt % 4 + 1))
        else:
            return found
    raise TransientError(*last.problems)
