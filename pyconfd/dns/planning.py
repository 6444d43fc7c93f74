"""What a node does about one name: from what is there and what it wishes to the changes of one batch; does nothing.

Each plan is a compare-and-swap. A DELETE names the whole record set as it was read, a CREATE fails where there is one
by now, and whatever takes something out of the answer also swaps the owner's generation: of two nodes that leave at
once, one batch is refused, and that node looks again before it tries.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pyconfd.dns.ownership import Claim, Marker, Mode, claim_record, identifier_of, marker_record
from pyconfd.dns.records import ADDRESS_TYPES, Change, RecordSet, record_set, swapped
from pyconfd.dns.view import Node, Spec, View, obstacle, view_of
from pyconfd.errors import Problem


class Wish(StrEnum):
    """What a node wants of a name."""

    PUBLISH = "publish"
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True)
class InStep:
    """There is nothing to do; ``kept`` says in words what stays although the node would withdraw it."""

    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes that belong into one request; ``kept`` as in :class:`InStep`."""

    changes: tuple[Change, ...]
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Blocked:
    """Somebody else's records are in the way; the problem's remedy is the command that solves it."""

    problem: Problem


Plan = InStep | Batch | Blocked


def plan(spec: Spec, node: Node, wish: Wish, observed: Iterable[RecordSet]) -> Plan:
    """Return what makes a name say what the node wishes, as far as that leaves an answer."""
    view = view_of(spec, observed)
    if wish is Wish.WITHDRAW and spec.mode is Mode.VIP:
        return InStep()  # who holds the address next says so; until then the former value is the best there is
    blocked = obstacle(view, [kind for kind in ADDRESS_TYPES if node.address(kind) or view.own(kind, node.name)])
    if blocked:
        # Whoever wants nothing in the answer and has nothing in it has nothing to be blocked from.
        return InStep() if wish is Wish.WITHDRAW and view.marker(node.name) is None else Blocked(blocked)
    draft = _Draft(view, node)
    if spec.mode is Mode.MULTIVALUE:
        for kind in ADDRESS_TYPES:
            _own_record(draft, kind, node.address(kind) if wish is Wish.PUBLISH else "")
        if wish is Wish.PUBLISH:
            _take_adopted(draft)
    else:
        for kind in ADDRESS_TYPES:
            _shared_record(draft, kind, node.address(kind) if wish is Wish.PUBLISH else "")
    if spec.mode is Mode.VIP:
        for marker in view.markers():
            if marker.node != node.name:  # it held the address before
                draft.changes += swapped(view.marks.markers[spec.owner, marker.node][1], None)
    return draft.plan()


def forget(spec: Spec, name: str, observed: Iterable[RecordSet]) -> Plan:
    """Return what takes a node that will not come back out of a name, as far as that leaves an answer."""
    return plan(spec, Node(name), Wish.WITHDRAW, observed)


def drop(spec: Spec, observed: Iterable[RecordSet]) -> Plan:
    """Return what takes out all that an owner has at a name: the answer too, so only ever because somebody asked."""
    view = view_of(spec, observed)
    own = identifier_of(spec.owner, "")
    alone = view.claim is not None and view.claim[0].mode is not Mode.MULTIVALUE
    answered = (item for kind in ADDRESS_TYPES for item in view.at(kind))
    records = [
        item for item in answered if item.identifier.startswith(own) or (alone and item == view.simple(item.type))
    ]
    records += [record for (owner, _), (_, record) in sorted(view.marks.markers.items()) if owner == spec.owner]
    records += [view.claim[1]] if view.claim else []
    return Batch(tuple(change for item in records for change in swapped(item, None))) if records else InStep()


def doubt(spec: Spec, name: str, doubter: str, observed: Iterable[RecordSet]) -> Plan:
    """Return what writes down that a node seems dead; it wipes that out itself if it can. "" wipes it out for it."""
    view = view_of(spec, observed)
    found = view.marker(name)
    if found is None or found[0].doubt == doubter:
        return InStep()
    marker, record = found
    doubted = Marker(marker.owner, marker.node, marker.addresses, marker.sequence + (not doubter), doubter)
    return Batch(swapped(record, _marker(view, doubted)))


@dataclass(slots=True)
class _Draft:
    """A plan in the making. ``published`` are the node's addresses in the answer once it is carried out."""

    view: View
    node: Node
    changes: list[Change] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    published: list[str] = field(default_factory=list)
    takes: bool = False
    """Whether something goes out of the answer, or a record is swapped that others write too."""

    def keep(self, kind: str, values: Sequence[str], others: int) -> None:
        """Leave what the node would take out, and say why."""
        self.published += values
        least = self.view.spec.min_records
        self.kept.append(f"{kind} {', '.join(values)} stays: {others} would be left, and dns.min_records is {least}")

    def plan(self) -> Plan:
        """Return the plan: the records, then the node's marker and the owner's claim."""
        marker = self.view.marker(self.node.name)
        if self.published:
            self.changes += self._marked(marker)
        elif marker:
            self.changes += swapped(marker[1], None)
        if not self.changes:
            return InStep(tuple(self.kept))
        return Batch((*self.changes, *self._claimed()), tuple(self.kept))

    def _marked(self, marker: tuple[Marker, RecordSet] | None) -> Sequence[Change]:
        spec = self.view.spec
        addresses = tuple(self.published)
        if marker is None:
            return swapped(None, _marker(self.view, Marker(spec.owner, self.node.name, addresses)))
        former, record = marker
        same = former.addresses == addresses and not former.doubt and record.ttl_s == spec.ttl_s
        if same:
            return ()
        return swapped(record, _marker(self.view, Marker(spec.owner, self.node.name, addresses, former.sequence + 1)))

    def _claimed(self) -> Sequence[Change]:
        claim = self.view.claim
        spec = self.view.spec
        if claim is None:
            return swapped(None, claim_record(spec.name, Claim(spec.owner, spec.mode, 1), spec.ttl_s))
        if not self.takes:
            return ()
        following = Claim(spec.owner, spec.mode, claim[0].generation + 1)
        return swapped(claim[1], claim_record(spec.name, following, spec.ttl_s))


def _marker(view: View, marker: Marker) -> RecordSet:
    return marker_record(view.spec.name, marker, view.spec.ttl_s)


def own_record(spec: Spec, kind: str, node: str, address: str) -> RecordSet:
    """Return the record set of a type that a node has of its own."""
    record = record_set(spec.name, kind, spec.ttl_s, [address], spec.policy, identifier_of(spec.owner, node))
    return replace(record, weight=spec.weight, health_check_id=spec.health_check_id)


def _own_record(draft: _Draft, kind: str, address: str) -> None:
    """Put the node's own record set in, or take it out where enough others answer."""
    view, name = draft.view, draft.node.name
    have = view.own(kind, name)
    if address:
        draft.changes += swapped(have, own_record(view.spec, kind, name, address))
        draft.published.append(address)
    elif have:
        others = view.others(kind, name)
        if others >= view.spec.min_records:
            draft.changes += swapped(have, None)
            draft.takes = True
        else:
            draft.keep(kind, have.values, others)


def _take_adopted(draft: _Draft) -> None:
    """Take out what was adopted for the addresses that this node publishes itself."""
    view = draft.view
    for marker in view.markers():
        if not marker.adopted or not set(marker.addresses) <= set(draft.published):
            continue
        for kind in ADDRESS_TYPES:
            draft.changes += swapped(view.own(kind, marker.node), None)
        draft.changes += swapped(view.marks.markers[view.spec.owner, marker.node][1], None)
        draft.takes = True


def _shared_record(draft: _Draft, kind: str, address: str) -> None:
    """Put the node's address into the one record set (mode vip: in place of all others), or take it out."""
    view, spec = draft.view, draft.view.spec
    have = view.simple(kind)
    values = set(have.values) if have else set()
    marker = view.marker(draft.node.name)
    mine = {*(marker[0].addresses if marker else ()), draft.node.address(kind)} & values
    others = {value for item in view.markers() if item.node != draft.node.name for value in item.addresses}
    wanted = (values - (mine - others)) | {address} - {""}
    if spec.mode is Mode.VIP:
        wanted = {address} if address else values
    dead = {value for item in view.markers() if item.doubt for value in item.addresses}
    if values - wanted and len(wanted - (dead - {address})) < spec.min_records:
        draft.keep(kind, sorted(mine), len(wanted - dead))
        return
    # Of several nodes one sees to the time to live: two with other settings would take turns.
    other_ttl = have is not None and have.ttl_s != spec.ttl_s and bool(address) and address == min(wanted)
    if wanted != values or other_ttl:
        draft.changes += swapped(have, record_set(spec.name, kind, spec.ttl_s, wanted))
        draft.takes = True
    draft.published += [address] if address else []
