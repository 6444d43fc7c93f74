"""What a node does about one name [pure]: from the records that are there to the changes of one batch.

Each plan is a compare-and-swap. A DELETE names the whole record set as it was read, a CREATE fails where there is one
by now, and whatever takes something out of the answer also swaps the owner's generation: of two nodes that leave at
once, one batch is refused, and that node reads again before it retries.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pyconfd.dns.records import (
    ADDRESS_TYPES,
    Marker,
    NameOwner,
    Policy,
    RecordChange,
    RecordSet,
    adopted_node,
    identifier_of,
    marker_name,
    marker_record,
    markers_of,
    normalised,
    owner_record,
    owners_of,
    record_set,
    swapped,
)
from pyconfd.errors import Problem
from pyconfd.settings import Mode, NameSettings

_BY_HAND = "pyconfd never touches it: remove it by hand, or take another name"


def policy_of(spec: NameSettings) -> Policy:
    """Return the routing policy of a name's record sets."""
    if spec.mode is not Mode.MULTIVALUE:
        return Policy.SIMPLE
    return Policy.MULTIVALUE if spec.weight is None else Policy.WEIGHTED


@dataclass(frozen=True, slots=True)
class DnsNode:
    """A node and its addresses by type (``A``, ``AAAA``), "" where it has none."""

    name: str
    v4: str = ""
    v6: str = ""

    def address(self, kind: str) -> str:
        """Return the address of a type of record, "" for none."""
        return self.v4 if kind == "A" else self.v6


class Wish(StrEnum):
    """What a node wants of a name."""

    PUBLISH = "publish"
    WITHDRAW = "withdraw"


@dataclass(frozen=True, slots=True)
class NamePlan:
    """What is to be done about a name: the changes of one batch; none where it is in step, or blocked.

    ``kept`` says what stays although the node would withdraw it, ``problem`` which foreign records are in the way, with
    the command that solves it.
    """

    changes: tuple[RecordChange, ...] = ()
    kept: tuple[str, ...] = ()
    problem: Problem | None = None

    @property
    def in_step(self) -> bool:
        """Return whether there is nothing to do."""
        return not self.changes and self.problem is None


def plan(spec: NameSettings, node: DnsNode, wish: Wish, observed: Iterable[RecordSet]) -> NamePlan:
    """Plan what makes a name say what the node wishes, as far as that leaves an answer."""
    view = NameView(spec, observed)
    if wish is Wish.WITHDRAW and spec.mode is Mode.VIP:
        # The next holder of the address replaces the value; until then the former one is the best there is.
        return NamePlan()
    blocked = obstacle(view, [kind for kind in ADDRESS_TYPES if node.address(kind) or view.own(kind, node.name)])
    if blocked:
        # A node that wants nothing in the answer and has nothing in it is not blocked.
        return NamePlan() if wish is Wish.WITHDRAW and view.marker(node.name) is None else NamePlan(problem=blocked)
    draft = _Draft(view, node)
    for kind in ADDRESS_TYPES:
        address = node.address(kind) if wish is Wish.PUBLISH else ""
        if spec.mode is Mode.MULTIVALUE:
            _own_record(draft, kind, address)
        else:
            _shared_record(draft, kind, address)
    if spec.mode is Mode.MULTIVALUE and wish is Wish.PUBLISH:
        _take_adopted(draft)
    if spec.mode is Mode.VIP:
        for marker in view.markers():
            if marker.node != node.name:  # it held the address before
                draft.changes += swapped(view.all_markers[spec.owner, marker.node][1], None)
    return draft.plan()


def forget(spec: NameSettings, name: str, observed: Iterable[RecordSet]) -> NamePlan:
    """Plan what takes a node that will not come back out of a name, as far as that leaves an answer."""
    return plan(spec, DnsNode(name), Wish.WITHDRAW, observed)


def drop(spec: NameSettings, observed: Iterable[RecordSet]) -> NamePlan:
    """Plan what takes out all that an owner has at a name: the last record too, so only ever by command."""
    view = NameView(spec, observed)
    own = identifier_of(spec.owner, "")
    alone = view.owner is not None and view.owner[0].mode is not Mode.MULTIVALUE
    answered = (item for kind in ADDRESS_TYPES for item in view.at(kind))
    records = [
        item for item in answered if item.identifier.startswith(own) or (alone and item == view.simple(item.type))
    ]
    records += [record for (owner, _), (_, record) in sorted(view.all_markers.items()) if owner == spec.owner]
    records += [view.owner[1]] if view.owner else []
    return NamePlan(tuple(change for item in records for change in swapped(item, None)))


def doubt(spec: NameSettings, name: str, doubter: str, observed: Iterable[RecordSet]) -> NamePlan:
    """Plan what marks a node as seemingly dead, which it undoes itself if it lives; with "" undo it for the node."""
    view = NameView(spec, observed)
    found = view.marker(name)
    if found is None or found[0].doubt == doubter:
        return NamePlan()
    marker, record = found
    doubted = replace(marker, sequence=marker.sequence + (not doubter), doubt=doubter)
    return NamePlan(swapped(record, marker_record(spec.name, doubted, spec.ttl_s)))


def adopt(spec: NameSettings, observed: tuple[RecordSet, ...]) -> NamePlan:
    """Plan what makes the records of a name pyconfd's own; only ever by command, and the answer stays the same.

    Every address stays in the answer. In mode multivalue each that no node has published gets a record set of its own,
    which the node with that address takes over when it publishes, and which ``pyconfd dns forget`` takes out.
    """
    view = NameView(spec, observed)
    foreign = obstacle(view.without_adoptable(), ADDRESS_TYPES)
    if foreign:
        return NamePlan(problem=foreign)
    changes = [change for kind in ADDRESS_TYPES for change in _adopted_records(view, kind)]
    owner = view.owner
    settled = owner is not None and owner[0].mode is spec.mode
    if not changes and (settled or (owner is None and not any(view.at(kind) for kind in ADDRESS_TYPES))):
        return NamePlan()
    following = NameOwner(spec.owner, spec.mode, owner[0].generation + 1 if owner else 1)
    changes += [*_adopted_markers(view), *_other_owners(view)]
    changes += swapped(owner[1] if owner else None, owner_record(spec.name, following, spec.ttl_s))
    return NamePlan(tuple(changes))


class NameView:
    """What is at a name, seen by one owner: the ``records``, and those ``beside`` it at its marker name."""

    def __init__(self, spec: NameSettings, observed: Iterable[RecordSet]) -> None:
        found = tuple(observed)
        self.spec = spec
        self.records = tuple(item for item in found if item.name == normalised(spec.name))
        self.beside = tuple(item for item in found if item.name == normalised(marker_name(spec.name)))
        self.all_markers, self.owners = markers_of(self.beside), owners_of(self.beside)

    @property
    def owner(self) -> tuple[NameOwner, RecordSet] | None:
        """What this owner has said of the name."""
        return self.owners.get(self.spec.owner)

    def marker(self, node: str) -> tuple[Marker, RecordSet] | None:
        """Return what a node of this owner says of itself."""
        return self.all_markers.get((self.spec.owner, node))

    def markers(self) -> list[Marker]:
        """Return the markers of this owner, by node."""
        return [self.all_markers[key][0] for key in sorted(self.all_markers) if key[0] == self.spec.owner]

    def own(self, kind: str, node: str) -> RecordSet | None:
        """Return the record set of a type that a node has of its own."""
        wanted = identifier_of(self.spec.owner, node)
        return next((item for item in self.at(kind) if item.identifier == wanted), None)

    def simple(self, kind: str) -> RecordSet | None:
        """Return the one record set that serves a type alone."""
        return next((item for item in self.at(kind) if item.policy is Policy.SIMPLE), None)

    def at(self, kind: str) -> list[RecordSet]:
        """Return the record sets of a type."""
        return [item for item in self.records if item.type == kind]

    def others(self, kind: str, node: str) -> int:
        """Count the nodes of this owner beside ``node`` that are in the answer and not taken for dead."""
        return sum(
            marker.node != node and not marker.doubt and self.own(kind, marker.node) is not None
            for marker in self.markers()
        )

    def values(self, kind: str) -> dict[str, str]:
        """Return the addresses of a type that are the owner's or no owner's, and the node of each, "" for none."""
        nodes = {address: marker.node for marker in self.markers() for address in marker.addresses}
        own = identifier_of(self.spec.owner, "")
        return {
            value: nodes.get(value, "")
            for item in self.at(kind)
            if not item.alias and (item.policy is Policy.SIMPLE or item.identifier.startswith(own))
            for value in item.values
        }

    def adoptable(self, item: RecordSet) -> bool:
        """Return whether adoption takes a record set over: a plain address record, or one of this owner."""
        own = item.identifier.startswith(identifier_of(self.spec.owner, ""))
        return item.type in ADDRESS_TYPES and not item.alias and (own or item.policy is Policy.SIMPLE)

    def without_adoptable(self) -> "NameView":
        """Return what even adoption leaves alone."""
        left = NameView(self.spec, [*(item for item in self.records if not self.adoptable(item)), *self.beside])
        left.owners = {}
        return left


def obstacle(view: NameView, kinds: Iterable[str]) -> Problem | None:
    """Return what keeps an owner from the record sets of these types, with what solves it; None for nothing."""
    name, spec = view.spec.name, view.spec
    aliased = [*view.at("CNAME"), *(item for item in view.beside if item.type == "CNAME")]
    if aliased:
        return Problem(name, f"a CNAME is at {aliased[0].name}, and nothing can stand beside one", _BY_HAND)
    if any(item.type == "TXT" and item.policy is not Policy.MULTIVALUE for item in view.beside):
        message = f"a TXT record is at {marker_name(name)} that pyconfd did not write"
        return Problem(name, message, _BY_HAND)
    if view.owner and view.owner[0].mode is not spec.mode:
        mode = view.owner[0].mode
        message = f"{spec.owner} keeps this name in mode {mode}, and this node has mode {spec.mode}"
        remedy = f"set dns.mode to {mode} here, or change it on all nodes and run: {_adopt_command(name)}"
        return Problem(name, message, remedy)
    return next(filter(None, (_in_the_way(view, kind) for kind in kinds)), None)


def _in_the_way(view: NameView, kind: str) -> Problem | None:
    name, spec, policy = view.spec.name, view.spec, policy_of(view.spec)
    for item in view.at(kind):
        if item.alias and (item.policy is Policy.SIMPLE or item.policy is not policy):
            return Problem(name, f"an alias is there as {kind}", _BY_HAND)
        if item.policy is policy and (item.policy is not Policy.SIMPLE or view.owner):
            continue
        if item.policy is Policy.SIMPLE:
            owners = ", ".join(sorted(view.owners.keys() - {spec.owner}))
            whose = f"that {owners} keeps" if owners and policy is Policy.SIMPLE else "that pyconfd did not write"
            message = f"a simple {kind} record ({', '.join(item.values)}) is there {whose}"
            return Problem(name, message, f"to take it over, run: {_adopt_command(name)}")
        message = f"{kind} records are there with routing policy {item.policy} ({item.identifier}), not {policy}"
        remedy = _BY_HAND
        if item.identifier.startswith(identifier_of(spec.owner, "")):
            modes = "give all nodes the same dns.mode, and dns.weight to all or to none"
            remedy = f"{modes}, then run: {_adopt_command(name)}"
        return Problem(name, message, remedy)
    return None


def _adopt_command(name: str) -> str:
    return f"pyconfd dns adopt {name}"


@dataclass(slots=True)
class _Draft:
    """A plan in the making. ``published`` are the node's addresses in the answer once it is carried out."""

    view: NameView
    node: DnsNode
    changes: list[RecordChange] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    published: list[str] = field(default_factory=list)
    takes: bool = False
    """Whether something goes out of the answer, or a record set is swapped that other nodes write too."""

    def keep(self, kind: str, values: Sequence[str], others: int) -> None:
        """Leave what the node would take out, and say why."""
        self.published += values
        least = self.view.spec.min_records
        self.kept.append(f"{kind} {', '.join(values)} stays: {others} would be left, and dns.min_records is {least}")

    def plan(self) -> NamePlan:
        """Return the plan: the records, then the node's marker and the owner's generation."""
        spec, marker, owner = self.view.spec, self.view.marker(self.node.name), self.view.owner
        addresses = tuple(self.published)
        if not addresses:
            self.changes += swapped(marker[1] if marker else None, None)
        elif marker is None:
            self.changes += swapped(None, _marker_record(spec, Marker(spec.owner, self.node.name, addresses)))
        elif marker[0].addresses != addresses or marker[0].doubt or marker[1].ttl_s != spec.ttl_s:
            following = replace(marker[0], addresses=addresses, sequence=marker[0].sequence + 1, doubt="")
            self.changes += swapped(marker[1], _marker_record(spec, following))
        if self.changes and (owner is None or self.takes):
            generation = NameOwner(spec.owner, spec.mode, owner[0].generation + 1 if owner else 1)
            self.changes += swapped(owner[1] if owner else None, owner_record(spec.name, generation, spec.ttl_s))
        return NamePlan(tuple(self.changes), tuple(self.kept))


def _marker_record(spec: NameSettings, marker: Marker) -> RecordSet:
    return marker_record(spec.name, marker, spec.ttl_s)


def _node_record(spec: NameSettings, kind: str, node: str, address: str) -> RecordSet:
    record = record_set(spec.name, kind, spec.ttl_s, [address], policy_of(spec), identifier_of(spec.owner, node))
    return replace(record, weight=spec.weight, health_check_id=spec.health_check_id)


def _own_record(draft: _Draft, kind: str, address: str) -> None:
    """Add the node's own record set, or remove it where enough others answer."""
    view, name = draft.view, draft.node.name
    have = view.own(kind, name)
    if address:
        draft.changes += swapped(have, _node_record(view.spec, kind, name, address))
        draft.published.append(address)
    elif have:
        others = view.others(kind, name)
        if others >= view.spec.min_records:
            draft.changes += swapped(have, None)
            draft.takes = True
        else:
            draft.keep(kind, have.values, others)


def _take_adopted(draft: _Draft) -> None:
    """Remove what was adopted for the addresses that this node publishes itself."""
    view = draft.view
    for marker in view.markers():
        if not marker.adopted or not set(marker.addresses) <= set(draft.published):
            continue
        for kind in ADDRESS_TYPES:
            draft.changes += swapped(view.own(kind, marker.node), None)
        draft.changes += swapped(view.all_markers[view.spec.owner, marker.node][1], None)
        draft.takes = True


def _shared_record(draft: _Draft, kind: str, address: str) -> None:
    """Add the node's address to the one record set (mode vip: in place of all others), or remove it."""
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
    # One of the nodes sees to the time to live: two with other settings would take turns.
    other_ttl = have is not None and have.ttl_s != spec.ttl_s and bool(address) and address == min(wanted)
    if wanted != values or other_ttl:
        draft.changes += swapped(have, record_set(spec.name, kind, spec.ttl_s, wanted))
        draft.takes = True
    draft.published += [address] if address else []


def _adopted_records(view: NameView, kind: str) -> list[RecordChange]:
    """Return the changes from the record sets that are adopted to those of the mode; equal ones stay."""
    spec = view.spec
    nodes = view.values(kind)
    former = [item for item in view.at(kind) if view.adoptable(item)]
    if spec.mode is Mode.MULTIVALUE:
        wanted = [_node_record(spec, kind, nodes[value] or adopted_node(value), value) for value in sorted(nodes)]
    else:
        wanted = [record_set(spec.name, kind, spec.ttl_s, nodes)] if nodes else []
    kept = {(item.key, item.values, item.policy) for item in former}
    kept &= {(item.key, item.values, item.policy) for item in wanted}
    gone = [item for item in former if (item.key, item.values, item.policy) not in kept]
    new = [item for item in wanted if (item.key, item.values, item.policy) not in kept]
    return [
        *(change for item in gone for change in swapped(item, None)),
        *(change for item in new for change in swapped(None, item)),
    ]


def _adopted_markers(view: NameView) -> list[RecordChange]:
    """Mark the addresses that no node has: only multivalue, where each is a record set of its own."""
    spec = view.spec
    if spec.mode is not Mode.MULTIVALUE:
        stale = [view.all_markers[spec.owner, item.node][1] for item in view.markers() if item.adopted]
        return [change for item in stale for change in swapped(item, None)]
    orphans = [value for kind in ADDRESS_TYPES for value, node in sorted(view.values(kind).items()) if not node]
    markers = (Marker(spec.owner, adopted_node(value), (value,)) for value in orphans)
    return [change for marker in markers for change in swapped(None, _marker_record(spec, marker))]


def _other_owners(view: NameView) -> list[RecordChange]:
    """Remove the markers of the former owners of a record set that is adopted."""
    others = {owner for owner, (said, _) in view.owners.items() if said.mode is not Mode.MULTIVALUE}
    others.discard(view.spec.owner)
    records = [view.owners[owner][1] for owner in sorted(others)]
    records += [record for (owner, _), (_, record) in sorted(view.all_markers.items()) if owner in others]
    return [change for item in records for change in swapped(item, None)]
