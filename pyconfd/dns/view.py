"""What is there at a name, as one owner sees it, and what of it is in the way."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyconfd.dns.ownership import Claim, Marker, Marks, Mode, identifier_of, marker_name, marks_of
from pyconfd.dns.records import Policy, RecordSet, normalised
from pyconfd.errors import Problem


@dataclass(frozen=True, slots=True)
class Spec:
    """How one name is kept. With ``weight`` the record sets of mode multivalue are weighted ones instead.

    ``zone_id`` "" is the zone with the longest fitting name among the ``private`` ones or the public ones; of the
    zones ``may_be_in`` only, where these are given.
    """

    name: str
    owner: str
    mode: Mode = Mode.MULTIVALUE
    ttl_s: int = 60
    weight: int | None = None
    health_check_id: str = ""
    min_records: int = 1
    zone_id: str = ""
    private: bool = False
    may_be_in: tuple[str, ...] = ()

    @property
    def policy(self) -> Policy:
        """The routing policy of the record sets."""
        if self.mode is not Mode.MULTIVALUE:
            return Policy.SIMPLE
        return Policy.MULTIVALUE if self.weight is None else Policy.WEIGHTED


@dataclass(frozen=True, slots=True)
class Node:
    """A node and its addresses by type (``A``, ``AAAA``), "" where it has none."""

    name: str
    v4: str = ""
    v6: str = ""

    def address(self, kind: str) -> str:
        """Return the address of a type of record, "" for none."""
        return self.v4 if kind == "A" else self.v6


@dataclass(frozen=True, slots=True)
class View:
    """What is there at a name, seen by one owner: the records, and those ``beside`` it at its marker name."""

    spec: Spec
    records: tuple[RecordSet, ...]
    beside: tuple[RecordSet, ...]
    marks: Marks

    @property
    def claim(self) -> tuple[Claim, RecordSet] | None:
        """The owner's claim."""
        return self.marks.claims.get(self.spec.owner)

    def marker(self, node: str) -> tuple[Marker, RecordSet] | None:
        """Return what a node of this owner says of itself."""
        return self.marks.markers.get((self.spec.owner, node))

    def markers(self) -> list[Marker]:
        """Return the markers of this owner, by node."""
        return [self.marks.markers[key][0] for key in sorted(self.marks.markers) if key[0] == self.spec.owner]

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
        """Count the nodes of this owner beside ``node`` that the answer has and nobody thinks dead."""
        return sum(
            marker.node != node and not marker.doubt and self.own(kind, marker.node) is not None
            for marker in self.markers()
        )


def view_of(spec: Spec, observed: Iterable[RecordSet]) -> View:
    """Sort what was read at a name and at its marker name."""
    found = tuple(observed)
    name = normalised(spec.name)
    beside = tuple(item for item in found if item.name == normalised(marker_name(spec.name)))
    return View(spec, tuple(item for item in found if item.name == name), beside, marks_of(beside))


_BY_HAND = "pyconfd never touches it: remove it by hand, or take another name"


def obstacle(view: View, kinds: Iterable[str]) -> Problem | None:
    """Return what keeps an owner from the record sets of these types, with what solves it; None for nothing."""
    name, spec = view.spec.name, view.spec
    aliased = [*view.at("CNAME"), *(item for item in view.beside if item.type == "CNAME")]
    if aliased:
        return Problem(name, f"a CNAME is at {aliased[0].name}, and nothing can stand beside one", _BY_HAND)
    if any(item.type == "TXT" and item.policy is not Policy.MULTIVALUE for item in view.beside):
        message = f"a TXT record is at {marker_name(name)} that pyconfd did not write"
        return Problem(name, message, _BY_HAND)
    claim = view.claim
    if claim and claim[0].mode is not spec.mode:
        message = f"{spec.owner} keeps this name in mode {claim[0].mode}, and this node has mode {spec.mode}"
        remedy = f"set dns.mode to {claim[0].mode} here, or change it on all nodes and run: {_adopt(name)}"
        return Problem(name, message, remedy)
    return next(filter(None, (_in_the_way(view, kind) for kind in kinds)), None)


def _in_the_way(view: View, kind: str) -> Problem | None:
    name, spec = view.spec.name, view.spec
    for item in view.at(kind):
        if item.alias and (item.policy is Policy.SIMPLE or item.policy is not spec.policy):
            return Problem(name, f"an alias is there as {kind}", _BY_HAND)
        if item.policy is spec.policy and (item.policy is not Policy.SIMPLE or view.claim):
            continue
        if item.policy is Policy.SIMPLE:
            owners = ", ".join(sorted(view.marks.claims.keys() - {spec.owner}))
            whose = f"that {owners} keeps" if owners and spec.policy is Policy.SIMPLE else "that pyconfd did not write"
            message = f"a simple {kind} record ({', '.join(item.values)}) is there {whose}"
            return Problem(name, message, f"to take it over, run: {_adopt(name)}")
        message = f"{kind} records are there with routing policy {item.policy} ({item.identifier}), not {spec.policy}"
        if item.identifier.startswith(identifier_of(spec.owner, "")):
            remedy = f"give all nodes the same dns.mode, and dns.weight to all or to none, then run: {_adopt(name)}"
            return Problem(name, message, remedy)
        return Problem(name, message, _BY_HAND)
    return None


def _adopt(name: str) -> str:
    return f"pyconfd dns adopt {name}"


def values_of(view: View, kind: str) -> dict[str, str]:
    """Return the addresses of a type in the answer as far as they are the owner's or nobody's, and the node of each."""
    nodes = {address: marker.node for marker in view.markers() for address in marker.addresses}
    own = identifier_of(view.spec.owner, "")
    return {
        value: nodes.get(value, "")
        for item in view.at(kind)
        if not item.alias and (item.policy is Policy.SIMPLE or item.identifier.startswith(own))
        for value in item.values
    }
