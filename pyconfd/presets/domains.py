"""Preset ``domains``: the annotations ``domain`` and ``proto``, as python-confd read them.

Read from Endpoints objects (python-confd's way) and from Services, there also as ``pyconfd.io/domain``,
``pyconfd.io/proto``, ``pyconfd.io/port`` (which port of the service, by name or number) and ``pyconfd.io/listen-port``
(which port to bind for a protocol that is not routed by name).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.given import GivenDict, GivenList
from pyconfd.model.layered import Layered, copied, differing, with_values
from pyconfd.model.listener import Listener
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.model.tenure import NO_OWNERS, Owner, Owners
from pyconfd.presets import targets
from pyconfd.presets.claiming import ClaimOptions, in_ranges
from pyconfd.presets.claims import Claims
from pyconfd.presets.cluster import Translated
from pyconfd.presets.domain_claims import DomainClaim, Former, asked, port_name, refusal
from pyconfd.presets.reading import PresetOptions, Reading
from pyconfd.presets.tenures import Seats
from pyconfd.presets.views import EndpointView, NodeView, ServiceView


@dataclass(frozen=True, slots=True)
class _Decided:
    """Who has which domain, with the port to bind for it; ``listeners`` were given away, ``owners`` says to whom."""

    served: Mapping[str, tuple[DomainClaim, int | None]]
    refused: tuple[Refusal, ...]
    listeners: Mapping[Listener, Owner]
    owners: Owners = field(default_factory=lambda: NO_OWNERS)


@dataclass(frozen=True, slots=True)
class _Memo:
    """What a reading was made of, and its parts; it never changes."""

    snapshot: Snapshot
    by_key: Mapping[Key, ServiceView]
    nodes: tuple[NodeView, ...]
    options: PresetOptions
    claims: Claims[DomainClaim]
    decided: _Decided
    entries: Mapping[str, dict[str, Any]]
    refused: tuple[Refusal, ...] = ()
    claimed: int = 0

    @property
    def basis(self) -> tuple[str, ClaimOptions]:
        """All beside the objects that claims are read with."""
        return self.snapshot.cluster, self.options.claims

    @property
    def kind_of_targets(self) -> tuple[bool, tuple[str, ...]]:
        """The options that decide where traffic goes."""
        return self.options.node_ports, self.options.node_address_types


def read(snapshot: Snapshot, cluster: Translated, options: PresetOptions, former: Reading | None = None) -> Reading:
    """Return ``domains``: a dict from domain to its entry, sorted by domain."""
    memo = former.memo if former else None
    if not isinstance(memo, _Memo) or memo.basis != (snapshot.cluster, options.claims):
        former = None
        nothing = _Decided({}, (), {})
        memo = _Memo(Snapshot(snapshot.cluster), {}, (), PresetOptions(claims=options.claims), Claims({}), nothing, {})
    changed = {
        *differing(memo.by_key, cluster.by_key),
        *differing(memo.snapshot.services, snapshot.services),
        *differing(memo.snapshot.endpoints, snapshot.endpoints),
    }
    known = Former(memo.snapshot, memo.by_key, memo.claims.by_key)
    claims = memo.claims.updated(changed, lambda key: asked(key, snapshot, cluster, options.claims, known))
    if claims.places is memo.claims.places and options == memo.options:
        decided = _with_claims(memo.decided, claims.replaced(memo.claims, changed))
    else:
        decided = _decide(list(claims.in_order()), options)
    refused = memo.refused
    if decided.refused is not memo.decided.refused or claims.refused is not memo.claims.refused:
        refused = tuple(sorted((*claims.refused, *decided.refused)))
    nodes = cluster.view.nodes
    entries = _entries(decided, memo, nodes, options)
    # A copy: what a template does to the whole must not reach the next translation.
    names = former.names if former and entries is memo.entries else {"domains": copied(entries)}
    claimed = memo.claimed
    for domain in differing(memo.entries, entries):
        claimed += len(_addresses_of(entries[domain])) if domain in entries else 0
        claimed -= len(_addresses_of(memo.entries[domain])) if domain in memo.entries else 0
    kept = _Memo(snapshot, cluster.by_key, nodes, options, claims, decided, entries, refused, claimed)
    return Reading(
        names,
        refused,
        claimed,
        decided.listeners,
        serves=entries,
        addresses_of=_addresses_of,
        owners=decided.owners,
        memo=kept,
    )


def _addresses_of(entry: Mapping[str, Any]) -> list[str]:
    return [endpoint.address for endpoint in entry["endpoints"] if endpoint.state == "ready"]


def _with_claims(decided: _Decided, replaced: Iterable[tuple[DomainClaim, DomainClaim]]) -> _Decided:
    """Return what was decided for claims that still ask for the same, though other endpoints may stand behind them."""
    anew: dict[str, tuple[DomainClaim, int | None]] = {}
    for old, new in replaced:
        # Nobody serves a name that is kept for a namespace whose object is gone.
        owner, listen_port = decided.served.get(old.domain) or (None, None)
        if owner is old:
            anew[new.domain] = new, listen_port
    if not anew:
        return decided
    # Not dataclasses.replace(): each change of an endpoint comes through here.
    return _Decided(with_values(decided.served, anew), decided.refused, decided.listeners, decided.owners)


def _decide(claims: Sequence[DomainClaim], options: PresetOptions) -> _Decided:
    """Assign each domain to the first of the claims, which come by rank, unless another namespace has reserved it."""
    refused: list[Refusal] = []
    ports: dict[int, DomainClaim] = {}
    served: dict[str, tuple[DomainClaim, int | None]] = {}
    seats = Seats(options.tenures_of("domains"), lambda: ((n, c.ref.namespace, c.ref) for c in claims for n in c.names))
    for claim in claims:
        if claim.domain in served:
            owner, _ = served[claim.domain]
            if (owner.ref.namespace, owner.ref.name) != (claim.ref.namespace, claim.ref.name):
                refused.append(_taken(claim, owner))
            continue
        if kept := seats.barred(claim.seat, claim.ref.namespace, claim.created):
            reason = RefusalReason.NAME_RESERVED
            refused.append(refusal(claim.ref, "annotation domain", claim.domain, reason, kept))
            continue
        if options.node_ports and not claim.port.node_port:
            detail = "traffic goes to node ports (presets.backend_target) but this port has none: use type NodePort"
            refused.append(refusal(claim.ref, "spec.ports", claim.port.name, RefusalReason.NO_NODE_PORT, detail))
        served[claim.domain] = claim, _listen_port(claim, ports, seats, options, refused)
    return _Decided(
        Layered(dict(sorted(served.items(), key=itemgetter(0)))),
        tuple(refused),
        {Listener.at(options.listen_address, port): claim.owner for port, claim in ports.items()},
        {claim.seat: claim.owner for claim, _ in served.values()}
        | {port_name(port): claim.owner for port, claim in ports.items()},
    )


def _entries(
    decided: _Decided, memo: _Memo, nodes: tuple[NodeView, ...], options: PresetOptions
) -> Mapping[str, dict[str, Any]]:
    """Return the entry of each domain, the former one where nothing about it changed."""
    kind = (options.node_ports, options.node_address_types)
    same_nodes = nodes is memo.nodes or not options.node_ports
    former = memo.decided.served if same_nodes and kind == memo.kind_of_targets else {}
    made: dict[str, dict[str, Any]] = {}
    gone = False
    for domain in differing(former, decided.served):
        if domain not in decided.served:
            gone = True
            continue
        claim, listen_port = decided.served[domain]
        before = former.get(domain)
        if before is None or before[0] is not claim or before[1] != listen_port:
            endpoints = targets.of_port(claim.port, claim.service, nodes, options)
            made[domain] = _entry(claim, endpoints, listen_port)
    if not made and not gone:
        return memo.entries
    if gone or not former.keys() >= made.keys():
        return Layered({domain: made.get(domain) or memo.entries[domain] for domain in decided.served})
    return with_values(memo.entries, made)


def _entry(claim: DomainClaim, endpoints: tuple[EndpointView, ...], listen_port: int | None) -> dict[str, Any]:
    ready = [endpoint for endpoint in endpoints if endpoint.state == "ready"]
    # One port for all of ``ips``, as python-confd had it: that of the first subset, where a pod of it is ready.
    port = claim.first_port or claim.port.target_port
    if all(endpoint.port != port for endpoint in ready):
        port = (ready or endpoints)[0].port if endpoints else port
    ports = [{"name": p.name, "port": p.target_port, "protocol": p.protocol} for p in claim.view.ports]
    return GivenDict(
        ips=GivenList(endpoint.address for endpoint in ready if endpoint.port == port),
        proto=claim.proto,
        port=port,
        domain=claim.domain,
        key=claim.domain.replace("*", ":any"),
        namespace=claim.ref.namespace,
        name=claim.ref.name,
        cluster=claim.ref.cluster,
        endpoints=GivenList(endpoints),
        listen_port=listen_port,
        ports=GivenList(map(GivenDict, ports)),
        service=claim.view,
    )


def _listen_port(
    claim: DomainClaim, taken: dict[int, DomainClaim], seats: Seats, options: PresetOptions, refused: list[Refusal]
) -> int | None:
    """Return the port to bind for a protocol that is not routed by name, or None where it must not be bound."""
    port = claim.bound
    if port is None:
        return None
    reason, detail = RefusalReason.PORT_TAKEN, ""
    if not in_ranges(port, options.listen_ports):
        reason, detail = RefusalReason.NOT_ALLOWED, "this port is not in the setting presets.listen_ports"
    elif wrong := options.claims.port(claim.ref.namespace, port):
        reason, detail = RefusalReason.NOT_ALLOWED, wrong
    elif holder := options.holder(Listener.at(options.listen_address, port)):
        detail = f"{holder}; choose another with pyconfd.io/listen-port"
    elif port in taken:
        detail = f"{taken[port].ref} ({taken[port].domain}) listens there; choose another with pyconfd.io/listen-port"
    elif kept := seats.barred(port_name(port), claim.ref.namespace, claim.created):
        reason, detail = RefusalReason.NAME_RESERVED, kept
    if detail:
        refused.append(refusal(claim.ref, "annotation listen-port", str(port), reason, detail))
        return None
    taken[port] = claim
    return port


def _taken(claim: DomainClaim, owner: DomainClaim) -> Refusal:
    detail = f"{owner.ref} has this name already (the older object keeps it); remove the annotation from one of them"
    return refusal(claim.ref, "annotation domain", claim.domain, RefusalReason.NAME_TAKEN, detail)
