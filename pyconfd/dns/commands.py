"""The commands of ``pyconfd dns`` beside ``run``: each reads, plans and changes by itself, service or not."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyconfd.dns.activity import reasons
from pyconfd.dns.addresses import Addresses
from pyconfd.dns.adoption import adopt as adoption
from pyconfd.dns.agent import change_text
from pyconfd.dns.memory import stored_asked
from pyconfd.dns.planning import Batch, Blocked, InStep, Plan, Wish, plan
from pyconfd.dns.planning import drop as dropping
from pyconfd.dns.planning import forget as forgetting
from pyconfd.dns.provider import RefusedBatchError, ThrottledError
from pyconfd.dns.readers import Reader
from pyconfd.dns.records import ADDRESS_TYPES, Action, RecordSet
from pyconfd.dns.reporting import report
from pyconfd.dns.site import Kept, Site, floating, is_withdrawn, of_name, set_published, set_withdrawn, site_of, spec_of
from pyconfd.dns.view import Node, Spec, values_of, view_of
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
    plan: Plan
    ttl_s: int = 0
    error: PyconfdError | None = None

    @property
    def state(self) -> str:
        """``in step``, ``kept``, ``changes``, ``blocked`` or ``failed``."""
        if self.error:
            return "failed"
        match self.plan:
            case Blocked():
                return "blocked"
            case Batch():
                return "changes"
            case InStep(kept):
                return "kept" if kept else "in step"

    @property
    def lines(self) -> list[str]:
        """The changes, or what is in the way, and what stays."""
        if self.error:
            return [first_line(self.error.problems)]
        if isinstance(self.plan, Blocked):
            return [self.plan.problem.message, f"-> {self.plan.problem.remedy}"]
        changes = self.plan.changes if isinstance(self.plan, Batch) else ()
        return [*(change_text(item) for item in changes), *self.plan.kept]

    @property
    def values(self) -> dict[str, Any]:
        """The same for JSON."""
        return {"name": self.name, "zone": self.zone_id, "state": self.state, "lines": self.lines}


def plan_names(settings: Settings) -> tuple[Planned, ...]:
    """Return what the service would do now."""
    site = site_of(settings)
    withdrawn, able = is_withdrawn(settings), _able(settings)

    def decide(kept: Kept) -> Planned:
        gone = kept.asked is not None and kept.asked.gone
        wish = Wish.WITHDRAW if withdrawn or gone or not able(kept) else Wish.PUBLISH
        node = _node(site, kept)
        return _planned(site, kept.spec, lambda spec, seen: plan(spec, node, wish, seen))

    return _each(_kept(site), decide)


def withdraw(settings: Settings, *, until_boot: bool) -> tuple[Planned, ...]:
    """Take this node out of every name, and keep it out; where that fails the service goes on trying."""
    site = site_of(settings)
    set_withdrawn(settings, until_boot=until_boot)
    said = {(item["name"], item["private"]): item["addresses"] for item in report(settings).get("names", ())}

    def done(kept: Kept) -> Planned:
        known = said.get((kept.spec.name, kept.spec.private)) or [kept.own.address, kept.own.address6]
        node = Node(
            site.node,
            next((item for item in known if "." in item), ""),
            next((item for item in known if ":" in item), ""),
        )
        return _done(site, kept.spec, lambda spec, seen: plan(spec, node, Wish.WITHDRAW, seen))

    return _each(_kept(site), done)


def publish(settings: Settings) -> tuple[Planned, ...]:
    """Let this node in again, and publish it at once where it can serve.

    Raises:
        RejectedInput: it cannot serve; it joins by itself when it can.
    """
    site = site_of(settings)
    set_published(settings)
    reader = Reader(settings)
    try:
        facts = reader.facts()
    finally:
        reader.close()
    if why := reasons(facts):
        problem = Problem(
            "dns publish", f"this node cannot serve yet: {'; '.join(why)}", "the service joins when it can"
        )
        raise RejectedInput(problem)

    def done(kept: Kept) -> Planned:
        wish = Wish.WITHDRAW if reasons(facts, kept.own.vip) else Wish.PUBLISH
        node = _node(site, kept)
        return _done(site, kept.spec, lambda spec, seen: plan(spec, node, wish, seen))

    return _each((kept for kept in _kept(site) if kept.asked is None or not kept.asked.gone), done)


def adopt(settings: Settings, name: str) -> tuple[Planned, ...]:
    """Take over what is at a name."""
    site = site_of(settings)
    return _each(of_name(_kept(site), name), lambda kept: _done(site, kept.spec, adoption))


def drop(settings: Settings, name: str) -> Planned:
    """Take out all that this owner has at a name that is kept no more, the last record too.

    Raises:
        RejectedInput: it is still kept here, or is no name.
        TransientError: Route 53 does not answer.
    """
    site = site_of(settings)
    try:
        wanted = dns_name(name)
    except ValueError as error:
        raise RejectedInput(Problem("dns drop", str(error))) from error
    own = name_of(settings.dns, wanted)
    for kept in _kept(site):
        if (kept.spec.name, kept.spec.private) == (wanted, own.private) and not (kept.asked and kept.asked.gone):
            where = "in the annotation" if kept.asked else "in the settings"
            remedy = "take it out there first, on all nodes; then nobody puts it back"
            raise RejectedInput(Problem("dns drop", f"{wanted} is still {where} of this node", remedy))
    return _done(site, spec_of(own), dropping)


def forget(settings: Settings, node: str) -> tuple[Planned, ...]:
    """Take a node that will not come back out of every name.

    Raises:
        RejectedInput: no name has it.
    """
    site = site_of(settings)

    def done(kept: Kept) -> Planned:
        return _done(site, kept.spec, lambda spec, seen: forgetting(spec, node, seen))

    found = _each(_kept(site), done)
    if all(item.plan == InStep() and not item.error for item in found):
        raise RejectedInput(Problem("", f"no name has a node {node}", "pyconfd dns status lists them"))
    return found


def status(settings: Settings) -> tuple[dict[str, Any], PyconfdError | None]:
    """Return what is in Route 53 and what the service of this node thinks, and why something is missing there."""
    site = site_of(settings)
    told = Reader(settings).told().names or ()
    rows: list[dict[str, Any]] = []

    def seen(kept: Kept) -> Planned:
        rows.append(_name_status(site, kept.spec))
        return Planned(kept.spec.name, "", InStep())

    failed = [item for item in _each(_kept(site), seen) if item.error]
    rows += [_unknown(item) for item in failed]
    values = {
        "service": {**report(settings), "unit": "pyconfd" if settings.dns.in_daemon else "pyconfd-dns"},
        "names": rows,
        "not_taken": [] if settings.dns.annotation_suffixes else list(told),
    }
    return values, failed[0].error if failed else None


def _kept(site: Site) -> tuple[Kept, ...]:
    asked = stored_asked(site.settings) if site.settings.dns.annotation_suffixes else {}
    return site.kept(asked)


def _name_status(site: Site, spec: Spec) -> dict[str, Any]:
    zone_id = site.zone_id(spec)
    view = view_of(spec, site.provider.records(zone_id, spec.name))
    rows = [
        {"type": kind, "value": value, **_whose(item, values_of(view, kind).get(value)), "ttl_s": item.ttl_s}
        for kind in ADDRESS_TYPES
        for item in view.at(kind)
        for value in item.values or ("(alias)",)
    ]
    doubts = {marker.node: marker.doubt for marker in view.markers() if marker.doubt}
    claim = view.claim
    return {
        "name": spec.name,
        "zone": zone_id,
        "mode": spec.mode.value,
        "generation": claim[0].generation if claim else 0,
        "records": rows,
        "doubts": doubts,
        "problem": "",
    }


def _unknown(failed: Planned) -> dict[str, Any]:
    nothing = {"zone": "", "mode": "", "generation": 0, "records": [], "doubts": {}}
    return {"name": failed.name, **nothing, "problem": "; ".join(failed.lines)}


def _whose(item: RecordSet, node: str | None) -> dict[str, str]:
    return {"node": node or "", "identifier": item.identifier}


def _able(settings: Settings) -> Callable[[Kept], bool]:
    """Return what tells whether this node can serve a name: by what the service believes, else by one look."""
    said = report(settings)
    names = said["names"] if said["running"] else ()
    believed = {(item["name"], item["private"]): item["active"] for item in names}
    if believed and None not in believed.values():
        return lambda kept: bool(believed.get((kept.spec.name, kept.spec.private), said["active"]))
    reader = Reader(settings)
    try:
        facts = reader.facts()
    finally:
        reader.close()
    return lambda kept: not reasons(facts, kept.own.vip)


_Decide = Callable[[Spec, tuple[RecordSet, ...]], Plan]


class _NoAddressError(TransientError):
    """The source of this node's address is silent, which says nothing of other names."""


def _node(site: Site, kept: Kept) -> Node:
    try:
        return Addresses(kept.own, site.node, floating=floating(site.settings)).read()
    except TransientError as error:
        raise _NoAddressError(*error.problems) from error


def _each(kept: Iterable[Kept], do: Callable[[Kept], Planned]) -> tuple[Planned, ...]:
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
        found.append(Planned(each.spec.name, "", InStep(), error=error))
    return tuple(found)


def _planned(site: Site, spec: Spec, decide: _Decide) -> Planned:
    zone_id = site.zone_id(spec)
    found = decide(spec, site.provider.records(zone_id, spec.name))
    changes = found.changes if isinstance(found, Batch) else ()
    former = (item.record.ttl_s or 0 for item in changes if item.action is Action.DELETE)
    return Planned(spec.name, zone_id, found, max((spec.ttl_s, *former)))


def _done(site: Site, spec: Spec, decide: _Decide) -> Planned:
    """Plan and change until nobody was faster; a reply that was lost shows when it is read again.

    A busy account is asked again too: where all nodes leave at once, each would find it so.
    """
    throttled = 0
    for attempt in range(ATTEMPTS):
        try:
            found = _planned(site, spec, decide)
            if isinstance(found.plan, Batch):
                site.provider.change(found.zone_id, found.plan.changes)
        except (RefusedBatchError, ThrottledError) as error:
            last = error
            throttled += isinstance(error, ThrottledError)
            if throttled == BUSY_ATTEMPTS:
                break
            time.sleep(PAUSE_S * (attempt % 4 + 1))
        else:
            return found
    raise TransientError(*last.problems)
