"""Taking over what is at a name already: only ever because somebody asked for it by command."""

from dataclasses import replace

from pyconfd.dns.ownership import Claim, Marker, Mode, adopted_node, claim_record, identifier_of, marker_record
from pyconfd.dns.planning import Batch, Blocked, InStep, Plan, own_record
from pyconfd.dns.records import ADDRESS_TYPES, Change, Policy, RecordSet, record_set, swapped
from pyconfd.dns.view import Spec, View, obstacle, values_of, view_of


def adopt(spec: Spec, observed: tuple[RecordSet, ...]) -> Plan:
    """Return the batch that makes the records of a name pyconfd's own; the answer stays the same.

    Every address stays in the answer. In mode multivalue each that no node has published gets a record set of its own,
    which the node with that address takes over when it publishes, and which ``pyconfd dns forget`` takes out.
    """
    view = view_of(spec, observed)
    claim = view.claim
    wrong_mode = claim is not None and claim[0].mode is not spec.mode
    left = [change for kind in ADDRESS_TYPES for change in _records(view, kind)]
    foreign = _foreign(view)
    if foreign:
        return foreign
    if not left and not wrong_mode and claim:
        return InStep()
    if not left and not claim and not any(view.at(kind) for kind in ADDRESS_TYPES):
        return InStep()
    following = Claim(spec.owner, spec.mode, claim[0].generation + 1 if claim else 1)
    claims = swapped(claim[1] if claim else None, claim_record(spec.name, following, spec.ttl_s))
    return Batch((*left, *_markers(view), *_other_owners(view), *claims))


def _foreign(view: View) -> Blocked | None:
    """Return what even adoption leaves alone: what is no plain address record, and the policies of others."""
    spec = view.spec
    tolerant = View(
        spec,
        tuple(item for item in view.records if not _takes(view, item)),
        view.beside,
        replace(view.marks, claims={}),
    )
    found = obstacle(tolerant, ADDRESS_TYPES)
    return Blocked(found) if found else None


def _takes(view: View, item: RecordSet) -> bool:
    own = item.identifier.startswith(identifier_of(view.spec.owner, ""))
    return item.type in ADDRESS_TYPES and not item.alias and (own or item.policy is Policy.SIMPLE)


def _records(view: View, kind: str) -> list[Change]:
    spec = view.spec
    taken = [item for item in view.at(kind) if _takes(view, item)]
    nodes = values_of(view, kind)
    if spec.mode is Mode.MULTIVALUE:
        wanted = [own_record(spec, kind, nodes[value] or adopted_node(value), value) for value in sorted(nodes)]
    else:
        wanted = [record_set(spec.name, kind, spec.ttl_s, nodes)] if nodes else []
    return _replaced(taken, wanted)


def _replaced(former: list[RecordSet], wanted: list[RecordSet]) -> list[Change]:
    """Return the changes from some record sets to others; those that are good by their key and values stay."""
    kept = {
        item.key
        for item in former
        for other in wanted
        if (item.key, item.values, item.policy) == (other.key, other.values, other.policy)
    }
    gone = [change for item in former if item.key not in kept for change in swapped(item, None)]
    return gone + [change for item in wanted if item.key not in kept for change in swapped(None, item)]


def _markers(view: View) -> list[Change]:
    """Mark the addresses that no node has: only multivalue, where each is a record set of its own."""
    spec = view.spec
    if spec.mode is not Mode.MULTIVALUE:
        stale = [view.marks.markers[spec.owner, item.node][1] for item in view.markers() if item.adopted]
        return [change for item in stale for change in swapped(item, None)]
    orphans = [value for kind in ADDRESS_TYPES for value, node in sorted(values_of(view, kind).items()) if not node]
    return [
        change
        for value in orphans
        for change in swapped(
            None, marker_record(spec.name, Marker(spec.owner, adopted_node(value), (value,)), spec.ttl_s)
        )
    ]


def _other_owners(view: View) -> list[Change]:
    """Take out the claims and markers of owners whose one record set is taken over."""
    owners = {owner for owner, (claim, _) in view.marks.claims.items() if claim.mode is not Mode.MULTIVALUE}
    owners.discard(view.spec.owner)
    claims = [view.marks.claims[owner][1] for owner in sorted(owners)]
    markers = [record for (owner, _), (_, record) in sorted(view.marks.markers.items()) if owner in owners]
    return [change for item in (*claims, *markers) for change in swapped(item, None)]
