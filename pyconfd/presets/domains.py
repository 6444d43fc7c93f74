"""Preset ``domains``: the annotations ``domain`` and ``proto``, as python-confd read them.

Read from Endpoints objects (python-confd's way) and from Services, there also as ``pyconfd.io/domain``,
``pyconfd.io/proto``, ``pyconfd.io/port`` (which port of the service, by name or number) and ``pyconfd.io/listen-port``
(which port to bind for a protocol that is not routed by name).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, TypeVar

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import Endpoints, ObjectMeta, ObjectRef, Service
from pyconfd.model.layered import Layered, copied, with_values
from pyconfd.model.listener import Listener
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import targets, values
from pyconfd.presets.changes import differing
from pyconfd.presets.claims import Asked, Claims
from pyconfd.presets.cluster import Translated
from pyconfd.presets.reading import PresetOptions, Reading
from pyconfd.presets.views import EndpointView, NodeView, PortView, ServiceView

_T = TypeVar("_T")

PREFIX = "pyconfd.io/"

ROUTED_BY_NAME = frozenset({"http", "https"})
"""Protocols whose connections name the domain they want, so that many domains share one port."""

_NEVER = "9999"
"""Sorts after every creation time: an object without one (typed by hand) never takes a name from a real one."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """One object that asks for one domain."""

    ref: ObjectRef
    created: str
    domain: str
    proto: str
    port: PortView
    listen_port: int | None
    service: Service | None
    view: ServiceView

    @property
    def rank(self) -> tuple[str, str, str, str]:
        """The older object wins; the name decides between twins."""
        return self.created, self.ref.namespace, self.ref.name, self.ref.kind

    @property
    def asks(self) -> tuple[Any, ...]:
        """All that decides who gets what; what stands behind it does not."""
        port = self.port
        return self.rank, self.domain, self.proto, self.listen_port, port.name, port.port, port.node_port


class _Refused(Exception):  # noqa: N818 - it carries a Refusal out of a parser
    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.detail)


@dataclass(frozen=True, slots=True)
class _Decided:
    """Who has which domain, with the port to bind for it; ``listeners`` are all that were given away."""

    served: Mapping[str, tuple[_Claim, int | None]]
    refused: tuple[Refusal, ...]
    listeners: frozenset[Listener]


@dataclass(frozen=True, slots=True)
class _Memo:
    """What a reading was made of, and its parts; it never changes."""

    snapshot: Snapshot
    by_key: Mapping[Key, ServiceView]
    nodes: tuple[NodeView, ...]
    options: PresetOptions
    claims: Claims[_Claim]
    decided: _Decided
    entries: Mapping[str, dict[str, Any]]
    refused: tuple[Refusal, ...] = ()
    claimed: int = 0

    @property
    def kind_of_targets(self) -> tuple[bool, tuple[str, ...]]:
        """The options that decide where traffic goes."""
        return self.options.node_ports, self.options.node_address_types


def read(snapshot: Snapshot, cluster: Translated, options: PresetOptions, former: Reading | None = None) -> Reading:
    """Give ``domains``: a dict from domain to its entry, sorted by domain."""
    memo = former.memo if former else None
    if not isinstance(memo, _Memo) or memo.snapshot.cluster != snapshot.cluster:
        nothing = _Decided({}, (), frozenset())
        memo = _Memo(Snapshot(snapshot.cluster), {}, (), options, Claims({}), nothing, {})
    changed = {
        *differing(memo.by_key, cluster.by_key),
        *differing(memo.snapshot.services, snapshot.services),
        *differing(memo.snapshot.endpoints, snapshot.endpoints),
    }
    claims = memo.claims.updated(changed, lambda key: _asked(key, snapshot, cluster))
    if claims.places is memo.claims.places and options == memo.options:
        decided = _with_claims(memo.decided, claims.replaced(memo.claims, changed))
    else:
        decided = _decide(claims.in_order(), options)
    refused = memo.refused
    if decided.refused is not memo.decided.refused or claims.refused is not memo.claims.refused:
        refused = tuple(sorted((*claims.refused, *decided.refused)))
    nodes = cluster.view.nodes
    entries = _entries(decided, memo, nodes, options)
    # A copy: what a template does to the whole must not reach the next translation.
    names = former.names if former and entries is memo.entries else {"domains": copied(entries)}
    claimed = memo.claimed
    for domain in differing(memo.entries, entries):
        claimed += len(entries[domain]["ips"]) if domain in entries else 0
        claimed -= len(memo.entries[domain]["ips"]) if domain in memo.entries else 0
    kept = _Memo(snapshot, cluster.by_key, nodes, options, claims, decided, entries, refused, claimed)
    return Reading(names, refused, claimed, decided.listeners, memo=kept)


def _with_claims(decided: _Decided, replaced: Iterable[tuple[_Claim, _Claim]]) -> _Decided:
    """Give what was decided for claims that still ask for the same, though other endpoints may stand behind them."""
    anew: dict[str, tuple[_Claim, int | None]] = {}
    for old, new in replaced:
        owner, listen_port = decided.served[old.domain]
        if owner is old:
            anew[new.domain] = new, listen_port
    return replace(decided, served=with_values(decided.served, anew)) if anew else decided


def _decide(claims: Iterable[_Claim], options: PresetOptions) -> _Decided:
    """Give each domain to the first of the claims, which come in order of their rank."""
    refused: list[Refusal] = []
    ports: dict[int, _Claim] = {}
    served: dict[str, tuple[_Claim, int | None]] = {}
    for claim in claims:
        if claim.domain in served:
            owner, _ = served[claim.domain]
            if (owner.ref.namespace, owner.ref.name) != (claim.ref.namespace, claim.ref.name):
                refused.append(_taken(claim, owner))
            continue
        if options.node_ports and not claim.port.node_port:
            detail = "traffic goes to node ports (presets.backend_target) but this port has none: use type NodePort"
            refused.append(_refusal(claim.ref, "spec.ports", claim.port.name, RefusalReason.NO_NODE_PORT, detail))
        served[claim.domain] = claim, _listen_port(claim, ports, options, refused)
    return _Decided(
        Layered(dict(sorted(served.items(), key=itemgetter(0)))),
        tuple(refused),
        frozenset(Listener.at(options.listen_address, port) for port in ports),
    )


def _entries(
    decided: _Decided, memo: _Memo, nodes: tuple[NodeView, ...], options: PresetOptions
) -> Mapping[str, dict[str, Any]]:
    """Give the entry of each domain, the former one where nothing about it changed."""
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


def _entry(claim: _Claim, endpoints: tuple[EndpointView, ...], listen_port: int | None) -> dict[str, Any]:
    ready = [endpoint for endpoint in endpoints if endpoint.state == "ready"]
    return {
        "ips": [endpoint.address for endpoint in ready],
        "proto": claim.proto,
        "port": endpoints[0].port if endpoints else claim.port.target_port,
        "domain": claim.domain,
        "key": claim.domain.replace("*", ":any"),
        "namespace": claim.ref.namespace,
        "name": claim.ref.name,
        "cluster": claim.ref.cluster,
        "endpoints": list(endpoints),
        "listen_port": listen_port,
        "ports": [{"name": p.name, "port": p.target_port, "protocol": p.protocol} for p in claim.view.ports],
        "service": claim.view,
    }


def _asked(key: Key, snapshot: Snapshot, cluster: Translated) -> Asked[_Claim] | None:
    """Give what the objects of one name ask for; None for nothing."""
    view = cluster.by_key.get(key)
    if view is None:
        return None
    claims: list[_Claim] = []
    refused: list[Refusal] = []
    service, endpoints = snapshot.services.get(key), snapshot.endpoints.get(key)
    asked: list[tuple[str, ObjectMeta, Mapping[str, str], Endpoints | None]] = []
    if service is not None:
        asked.append(("Service", service.metadata, _annotations(service.metadata), None))
    if endpoints is not None:
        asked.append(("Endpoints", endpoints.metadata, endpoints.metadata.annotations or {}, endpoints))
    for kind, meta, annotations, subsets in asked:
        if not (annotations.get("domain") or annotations.get("proto")):
            continue
        ref = ObjectRef(kind, key.namespace, key.name, snapshot.cluster)
        try:
            claims.append(
                _claim(ref, annotations, meta.creation_timestamp, service=service, endpoints=subsets, view=view)
            )
        except _Refused as error:
            refused.append(error.refusal)
    return Asked(tuple(claims), tuple(refused)) if claims or refused else None


def _annotations(meta: ObjectMeta) -> Mapping[str, str]:
    """Give a Service's annotations under their short names; the prefixed one wins."""
    given = meta.annotations or {}
    return {name: given.get(PREFIX + name, given.get(name, "")) for name in ("domain", "proto")} | {
        name: given.get(PREFIX + name, "") for name in ("port", "listen-port")
    }


def _claim(
    ref: ObjectRef,
    annotations: Mapping[str, str],
    created: str | None,
    *,
    service: Service | None,
    endpoints: Endpoints | None,
    view: ServiceView,
) -> _Claim:
    domain, proto = annotations.get("domain", ""), annotations.get("proto", "")
    if not domain or not proto:
        missing = "proto" if domain else "domain"
        detail = f"annotation {missing} is missing: an object is served when it has both domain and proto"
        raise _Refused(_refusal(ref, f"annotation {missing}", domain or proto, RefusalReason.INCOMPLETE, detail))
    listen = annotations.get("listen-port", "")
    return _Claim(
        ref=ref,
        created=created or _NEVER,
        domain=_parsed(ref, "domain", domain, values.host_name),
        proto=_parsed(ref, "proto", proto, values.protocol),
        port=_chosen_port(ref, annotations.get("port", ""), view, endpoints),
        listen_port=_parsed(ref, "listen-port", listen, values.port_number) if listen else None,
        service=service,
        view=view,
    )


def _parsed(ref: ObjectRef, name: str, value: str, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(value)
    except ValueError as error:
        raise _Refused(_refusal(ref, f"annotation {name}", value, RefusalReason.INVALID_VALUE, str(error))) from None


def _chosen_port(ref: ObjectRef, wanted: str, view: ServiceView, endpoints: Endpoints | None) -> PortView:
    """Give the port that is asked for; else, as python-confd did, the first of the first subset; else the first."""
    candidates = [port for port in view.ports if port.protocol == "TCP"]
    if wanted:
        for port in candidates:
            if wanted in {port.name, str(port.port), str(port.target_port)}:
                return port
        names = ", ".join(f"{port.name or '(unnamed)'} {port.port}" for port in candidates) or "none"
        detail = f"the service has no such TCP port; it has: {names}"
        raise _Refused(_refusal(ref, "annotation port", wanted, RefusalReason.NO_SUCH_PORT, detail))
    for subset in (endpoints.subsets or ())[:1] if endpoints else ():
        for item in (subset.ports or ())[:1]:
            found = next((port for port in candidates if port.name == (item.name or "")), None)
            if found:
                return found
    if not candidates:
        detail = "there is no TCP port to send traffic to (no addresses yet, or only UDP ports)"
        raise _Refused(_refusal(ref, "spec.ports", "", RefusalReason.NO_SUCH_PORT, detail))
    return candidates[0]


def _listen_port(claim: _Claim, taken: dict[int, _Claim], options: PresetOptions, refused: list[Refusal]) -> int | None:
    """Give the port to bind for a protocol that is not routed by name, or None where it must not be bound."""
    if claim.proto in ROUTED_BY_NAME:
        return None
    port = claim.listen_port or claim.port.port
    reason, detail = RefusalReason.PORT_TAKEN, ""
    if not any(first <= port <= last for first, last in options.listen_ports):
        reason, detail = RefusalReason.INVALID_VALUE, "this port is not in the setting presets.listen_ports"
    elif holder := options.holder(Listener.at(options.listen_address, port)):
        detail = f"{holder}; choose another with pyconfd.io/listen-port"
    elif port in taken:
        detail = f"{taken[port].ref} ({taken[port].domain}) listens there; choose another with pyconfd.io/listen-port"
    if detail:
        refused.append(_refusal(claim.ref, "annotation listen-port", str(port), reason, detail))
        return None
    taken[port] = claim
    return port


def _taken(claim: _Claim, owner: _Claim) -> Refusal:
    detail = f"{owner.ref} has this name already (the older object keeps it); remove the annotation from one of them"
    return _refusal(claim.ref, "annotation domain", claim.domain, RefusalReason.NAME_TAKEN, detail)


def _refusal(ref: ObjectRef, field: str, value: str, reason: RefusalReason, detail: str) -> Refusal:
    return Refusal(ref, field, values.shown(value), reason, detail)
