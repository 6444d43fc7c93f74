"""Preset ``domains``: the annotations ``domain`` and ``proto``, as python-confd read them.

Read from Endpoints objects (python-confd's way) and from Services, there also as ``pyconfd.io/domain``,
``pyconfd.io/proto``, ``pyconfd.io/port`` (which port of the service, by name or number) and ``pyconfd.io/listen-port``
(which port to bind for a protocol that is not routed by name); those of :mod:`pyconfd.presets.domain_tls` ask for TLS.

Read in this order: ``_parse`` parses what the objects of one name claim; which namespace has a host is decided for all
presets at once (:mod:`pyconfd.presets.host_ownership`); ``_decide`` gives each name to the oldest claim of that
namespace, ``_certificates`` finds those, ``_entries`` makes what templates see.
"""

import difflib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName, Refusal, RefusalReason
from pyconfd.model.kubernetes import AnyObject, Endpoints, ObjectRef, Service
from pyconfd.model.listener import Listener
from pyconfd.model.records import ObjectMeta
from pyconfd.model.reservation import NEVER, NO_OWNERS, HostClaim, Name, Owner, Owners
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.model.versioned import GivenDict, GivenList, VersionedDict, differing, replaced, with_values
from pyconfd.presets import host_ownership, values
from pyconfd.presets.annotations import read_foreign
from pyconfd.presets.certificates import described_secret
from pyconfd.presets.cluster import Cluster, ReadService, nothing_read
from pyconfd.presets.conflicts import NO_REFUSALS, Claims, ParsedClaims, ReservedNames, SortedRefusals
from pyconfd.presets.domain_tls import (
    TLS_ANNOTATIONS,
    AnnotationError,
    DomainCertificates,
    DomainTls,
    DomainTlsClaim,
    WantedTls,
    tls_claim,
)
from pyconfd.presets.endpoints import EXTERNAL_NAME, NO_TCP, targets_of_port
from pyconfd.presets.host_ownership import HostOwnership
from pyconfd.presets.policy import ClaimOptions, in_ranges
from pyconfd.presets.preset import CLUSTER_VIEW, Preset, PresetOptions, PresetResult, Translation
from pyconfd.presets.views import EndpointView, PortView, ServiceView

_T = TypeVar("_T")

PREFIX = "pyconfd.io/"
_SHARED_WITH = host_ownership.SHARED_WITH.removeprefix(PREFIX)
_PREFIXED = ("port", "listen-port", _SHARED_WITH, *TLS_ANNOTATIONS)
_ANNOTATIONS = ("domain", "proto", *(PREFIX + name for name in ("domain", "proto", *_PREFIXED)))

ROUTED_BY_NAME = frozenset({"http", "https"})
"""Protocols whose connections name the domain they want, so that many domains share one port."""


@dataclass(frozen=True, slots=True)
class DomainClaim:
    """One object that asks for one domain; ``claimed_name`` and ``owner`` are both for those who come after it.

    ``first_port`` is the number of its port in the first subset of Endpoints, 0 where that is not known.
    """

    ref: ObjectRef
    created: str
    claimed_name: Name
    owner: Owner
    domain: str
    proto: str
    port: PortView
    listen_port: int | None
    service: Service | None
    view: ServiceView
    first_port: int = 0
    tls: DomainTlsClaim | None = None

    @property
    def rank(self) -> tuple[str, str, str, str]:
        """The older object wins; the name decides between twins."""
        return self.created, self.ref.namespace, self.ref.name, self.ref.kind

    @property
    def bound(self) -> int | None:
        """The port to bind, None for a protocol that is routed by name."""
        return None if self.proto in ROUTED_BY_NAME else self.listen_port or self.port.port

    @property
    def decisive(self) -> tuple[Any, ...]:
        """All that decides which claim gets a name; the endpoints behind it do not."""
        port = self.port
        return self.rank, self.domain, self.proto, self.listen_port, port.name, port.port, port.node_port


class _RefusedClaim(Exception):  # noqa: N818 - it carries a Refusal out of a parser
    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.detail)


def port_name(port: int) -> Name:
    """Return what stands for a port among the names that are kept."""
    return Name(f"port {port}", "")


@dataclass(frozen=True, slots=True)
class ParsedDomains:
    """What all objects claim, and what it was parsed of; ``hosts`` are those that they ask for."""

    cluster: str
    rules: ClaimOptions
    services: Mapping[Key, Service] = field(default_factory=dict)
    endpoints: Mapping[Key, Endpoints] = field(default_factory=dict)
    read: Mapping[Key, ReadService] = field(default_factory=dict)
    claims: Claims[DomainClaim] = field(default_factory=lambda: Claims({}))

    hosts: Mapping[Key, tuple[HostClaim, ...]] = field(default_factory=lambda: VersionedDict({}))


def parse(cluster: Cluster, options: PresetOptions, former: ParsedDomains | None) -> ParsedDomains:
    """Return what the annotations ask for; ``former`` is an earlier result."""
    name, rules = cluster.view.name, options.claims
    if former is None or (former.cluster, former.rules) != (name, rules):
        former = ParsedDomains(name, rules)
    known, snapshot = former, cluster.snapshot
    changed = {
        *differing(known.read, cluster.services),
        *differing(known.services, snapshot.services),
        *differing(known.endpoints, snapshot.endpoints),
    }
    claims = known.claims.updated(changed, lambda key: _parse(key, cluster, rules, known))
    asked = {key: claims.by_key[key].hosts if key in claims.by_key else None for key in changed}
    hosts = replaced(known.hosts, {key: found or None for key, found in asked.items()})
    return ParsedDomains(name, rules, snapshot.services, snapshot.endpoints, cluster.services, claims, hosts)


def _parse(key: Key, cluster: Cluster, rules: ClaimOptions, former: ParsedDomains) -> ParsedClaims[DomainClaim] | None:
    """Return the claims of the objects of one name; None for nothing."""
    view, snapshot = cluster.service(key), cluster.snapshot
    if view is None:
        return None
    service, endpoints = snapshot.services.get(key), snapshot.endpoints.get(key)
    if former.services.get(key) is service and former.endpoints.get(key) is endpoints:
        before = former.read.get(key)
        again = _with_view(former.claims.by_key.get(key), before.view if before is not None else None, view)
        if again is not None:
            return again
    claims: list[DomainClaim] = []
    refused: list[Refusal] = []
    hosts: list[HostClaim] = []
    sources: list[tuple[str, ObjectMeta, Mapping[str, str], Endpoints | None]] = []
    if service is not None:
        if note := read_foreign(service.metadata.annotations, "Service").note("Service"):
            ref = ObjectRef("Service", key.namespace, key.name, snapshot.cluster)
            refused.append(Refusal(ref, "metadata.annotations", "", RefusalReason.IGNORED_ANNOTATION, note))
        sources.append(("Service", service.metadata, annotations_of(service.metadata, "Service"), None))
    if endpoints is not None:
        sources.append(("Endpoints", endpoints.metadata, annotations_of(endpoints.metadata, "Endpoints"), endpoints))
    for kind, meta, annotations, subsets in sources:
        if not (annotations["domain"] or annotations["proto"]):
            continue
        ref = ObjectRef(kind, key.namespace, key.name, snapshot.cluster)
        asked = list(_host_claims(ref, annotations, meta.creation_timestamp or NEVER, rules, refused))
        try:
            claim = _claim(ref, annotations, meta.creation_timestamp, service=service, endpoints=subsets, view=view)
            claims.append(_allowed(claim, rules))
            asked = [each._replace(domain_proto=claim.proto) for each in asked]
        except _RefusedClaim as error:
            refused.append(error.refusal)
        hosts += asked
    return ParsedClaims(tuple(claims), tuple(refused), tuple(hosts)) if claims or refused else None


def _host_claims(
    ref: ObjectRef, annotations: Mapping[str, str], created: str, rules: ClaimOptions, refused: list[Refusal]
) -> Iterator[HostClaim]:
    """Return the host that an object asks for, also where nothing of it can be served."""
    try:
        domain, proto = values.host_name(annotations["domain"]), values.protocol(annotations["proto"])
    except ValueError:
        return
    if rules.domain(ref.namespace, domain) or rules.protocol(ref.namespace, proto):
        return
    shared: frozenset[str] = frozenset()
    try:
        shared = host_ownership.shared_with(annotations.get(_SHARED_WITH, ""))
    except ValueError as error:
        value, reason = annotations[_SHARED_WITH], RefusalReason.INVALID_VALUE
        refused.append(refusal(ref, f"annotation {_SHARED_WITH}", value, reason, f"{error}; it has no effect"))
    yield HostClaim(domain, Owner(ref.kind, ref.namespace, ref.name, created), shared)


def _with_view(
    parsed: ParsedClaims[DomainClaim] | None, former: ServiceView | None, view: ServiceView
) -> ParsedClaims[DomainClaim] | None:
    """Return what the same objects ask for with other endpoints behind them; None where the ports are others too."""
    if parsed is None or former is None or list(map(_numbers, former.ports)) != list(map(_numbers, view.ports)):
        return None
    return ParsedClaims(
        tuple(
            DomainClaim(
                claim.ref, claim.created, claim.claimed_name, claim.owner, claim.domain, claim.proto,
                view.ports[former.ports.index(claim.port)], claim.listen_port, claim.service, view,
                claim.first_port, claim.tls,
            )
            for claim in parsed.claims
        ),
        parsed.refused,
        parsed.hosts,
    )  # fmt: skip


def _numbers(port: PortView) -> tuple[str, int, str, int, int]:
    return port.name, port.port, port.protocol, port.node_port, port.target_port


def annotations_of(meta: ObjectMeta, kind: str) -> Mapping[str, str]:
    """Return the annotations of a Service under their short names, the prefixed one wins; of Endpoints the plain ones.

    What is missing is "".
    """
    given = meta.annotations or {}
    if kind == "Endpoints":
        return {name: given.get(name, "") for name in ("domain", "proto", "port", "listen-port")}
    return {name: given.get(PREFIX + name, given.get(name, "")) for name in ("domain", "proto")} | {
        name: given.get(PREFIX + name, "") for name in _PREFIXED
    }


def _claim(
    ref: ObjectRef,
    annotations: Mapping[str, str],
    created: str | None,
    *,
    service: Service | None,
    endpoints: Endpoints | None,
    view: ServiceView,
) -> DomainClaim:
    domain, proto = annotations.get("domain", ""), annotations.get("proto", "")
    if not domain or not proto:
        missing = "proto" if domain else "domain"
        detail = f"annotation {missing} is missing: an object is served when it has both domain and proto"
        raise _RefusedClaim(refusal(ref, f"annotation {missing}", "", RefusalReason.INCOMPLETE, detail))
    if service is not None and service.spec.type == "ExternalName" and endpoints is None:
        raise _RefusedClaim(refusal(ref, "spec.type", "ExternalName", RefusalReason.INVALID_VALUE, EXTERNAL_NAME))
    listen, wanted = annotations.get("listen-port", ""), _parsed(ref, "domain", domain, values.host_name)
    port = _chosen_port(ref, annotations.get("port", ""), view, endpoints)
    parsed_proto = _parsed(ref, "proto", proto, values.protocol)
    return DomainClaim(
        ref=ref,
        created=created or NEVER,
        claimed_name=Name("", wanted),
        owner=Owner(ref.kind, ref.namespace, ref.name, created or NEVER),
        domain=wanted,
        proto=parsed_proto,
        port=port,
        listen_port=_parsed(ref, "listen-port", listen, values.port_number) if listen else None,
        service=service,
        view=view,
        first_port=_first_number(port, endpoints),
        tls=_asked_tls(ref, annotations, wanted, parsed_proto),
    )


def _asked_tls(ref: ObjectRef, annotations: Mapping[str, str], domain: str, proto: str) -> DomainTlsClaim | None:
    try:
        return tls_claim(annotations, domain, proto)
    except AnnotationError as error:
        field = f"annotation {error.name}"
        raise _RefusedClaim(refusal(ref, field, error.value, RefusalReason.INVALID_VALUE, str(error))) from None


def _first_number(port: PortView, endpoints: Endpoints | None) -> int:
    for subset in (endpoints.subsets or ())[:1] if endpoints else ():
        for item in subset.ports or ():
            if (item.name or "", item.protocol or "TCP") == (port.name, port.protocol):
                return item.port or 0
    return 0


def _allowed(claim: DomainClaim, rules: ClaimOptions) -> DomainClaim:
    """Return a claim that its namespace may make; what it asks of ports is judged where they are given away."""
    namespace = claim.ref.namespace
    for name, value, wrong in (
        ("domain", claim.domain, rules.domain(namespace, claim.domain)),
        ("proto", claim.proto, rules.protocol(namespace, claim.proto)),
    ):
        if wrong:
            raise _RefusedClaim(refusal(claim.ref, f"annotation {name}", value, RefusalReason.NOT_ALLOWED, wrong))
    return claim


def _parsed(ref: ObjectRef, name: str, value: str, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(value)
    except ValueError as error:
        raise _RefusedClaim(
            refusal(ref, f"annotation {name}", value, RefusalReason.INVALID_VALUE, str(error))
        ) from None


def _chosen_port(ref: ObjectRef, wanted: str, view: ServiceView, endpoints: Endpoints | None) -> PortView:
    """Return the port that is asked for; else, as python-confd did, the first of the first subset; else the first."""
    candidates = [port for port in view.ports if port.protocol == "TCP"]
    if wanted:
        for port in candidates:
            if wanted in {port.name, str(port.port), str(port.target_port)}:
                return port
        names = ", ".join(f"{port.name or '(unnamed)'} {port.port}" for port in candidates) or "none"
        detail = f"the service has no such TCP port; it has: {names}"
        raise _RefusedClaim(refusal(ref, "annotation port", wanted, RefusalReason.NO_SUCH_PORT, detail))
    for subset in (endpoints.subsets or ())[:1] if endpoints else ():
        for item in (subset.ports or ())[:1]:
            found = next((port for port in candidates if port.name == (item.name or "")), None)
            if found:
                return found
    if not candidates and view.ports:
        protocols = ", ".join(sorted({port.protocol for port in view.ports}))
        raise _RefusedClaim(refusal(ref, "spec.ports", protocols, RefusalReason.INVALID_VALUE, NO_TCP))
    if not candidates:
        detail = "there is no port to send traffic to: it has no addresses yet"
        raise _RefusedClaim(refusal(ref, "spec.ports", "", RefusalReason.INCOMPLETE, detail))
    return candidates[0]


def refusal(ref: ObjectRef, field: str, value: str, reason: RefusalReason, detail: str) -> Refusal:
    """Refuse one field of an object; the value is shown shortened and escaped."""
    return Refusal(ref, field, values.shown(value), reason, detail)


class _Served(NamedTuple):
    """Who has a domain; ``below_foreign``: the next wildcard above it belongs to another namespace."""

    claim: DomainClaim
    listen_port: int | None
    below_foreign: bool = False


@dataclass(frozen=True, slots=True)
class _DecidedDomains:
    """Who has which domain, with the port to bind for it; ``listeners`` were given away, ``owners`` says to whom.

    ``ports`` are those of ``owners`` that stand for ports.
    """

    served: Mapping[str, "_Served"]
    refused: tuple[Refusal, ...]
    listeners: Mapping[Listener, Owner]
    owners: Owners = field(default_factory=lambda: NO_OWNERS)
    ports: Owners = field(default_factory=lambda: NO_OWNERS)


@dataclass(frozen=True, slots=True)
class _Former:
    """What a result was made of, and its parts."""

    cluster: Cluster
    options: PresetOptions
    claims: Claims[DomainClaim]
    decided: _DecidedDomains
    entries: Mapping[str, dict[str, Any]]
    certificates: DomainCertificates = field(default_factory=DomainCertificates)
    refused: SortedRefusals = NO_REFUSALS
    claimed: int = 0

    @property
    def kind_of_targets(self) -> tuple[bool, tuple[str, ...]]:
        """The options that decide where traffic goes."""
        return self.options.node_ports, self.options.node_address_types

    def decides_alike(self, cluster: Cluster, options: PresetOptions) -> bool:
        """Return whether the same claims still get the same."""
        before = self.options
        reserved = options.reservations_of("domains"), before.reservations_of("domains")
        if reserved[0] is not reserved[1] and reserved[0] != reserved[1]:
            return False
        if options is not before and options.without_reservations() != before.without_reservations():
            return False
        old, new = self.cluster.hosts, cluster.hosts
        moved = differing(old.decisions, new.decisions)
        return not any(claim.owner.kind in _KINDS for host in moved for each in (old, new) for claim in each.of(host))


def _addresses_of(entry: Mapping[str, Any]) -> list[str]:
    return [endpoint.address for endpoint in entry["endpoints"] if endpoint.state == "ready"]


_KINDS = frozenset({"Service", "Endpoints"})


def _with_claims(decided: _DecidedDomains, replaced: Iterable[tuple[DomainClaim, DomainClaim]]) -> _DecidedDomains:
    """Return what was decided for claims that still ask for the same, though other endpoints may stand behind them."""
    replacing: dict[str, _Served] = {}
    for old, new in replaced:
        # A name that is reserved for a namespace whose object is gone has no owner.
        served = decided.served.get(old.domain)
        if served is not None and served.claim is old:
            replacing[new.domain] = _Served(new, served.listen_port, served.below_foreign)
    if not replacing:
        return decided
    # Not dataclasses.replace(): each change of an endpoint comes through here.
    return _DecidedDomains(
        with_values(decided.served, replacing), decided.refused, decided.listeners, decided.owners, decided.ports
    )


def _decide(claims: Sequence[DomainClaim], hosts: HostOwnership, options: PresetOptions) -> _DecidedDomains:
    """Assign each domain to the first of its namespace's claims, which come by rank."""
    refused: list[Refusal] = []
    ports: dict[int, DomainClaim] = {}
    served: dict[str, _Served] = {}
    reserved_names = ReservedNames(
        options.reservations_of("domains"),
        lambda: ((port_name(c.bound), c.ref.namespace, c.ref) for c in claims if c.bound is not None),
    )
    for claim in claims:
        if not hosts.is_owner(claim.domain, claim.ref.namespace):
            # A domain is the whole host, so no consent to paths is enough.
            reason = RefusalReason.NAME_RESERVED if hosts.is_kept(claim.domain) else RefusalReason.NAME_TAKEN
            detail = hosts.why_not(claim.domain)
            refused.append(refusal(claim.ref, "annotation domain", claim.domain, reason, detail))
            continue
        if claim.domain in served:
            owner = served[claim.domain].claim
            if (owner.ref.namespace, owner.ref.name) != (claim.ref.namespace, claim.ref.name):
                refused.append(_taken(claim, owner))
            continue
        if claim.claimed_name in options.taken_names:
            taken = options.taken_names[claim.claimed_name]
            refused.append(refusal(claim.ref, "annotation domain", claim.domain, RefusalReason.NAME_TAKEN, taken))
            continue
        if options.node_ports and not claim.port.node_port:
            detail = "traffic goes to node ports (presets.backend_target) but this port has none: use type NodePort"
            refused.append(refusal(claim.ref, "spec.ports", claim.port.name, RefusalReason.NO_NODE_PORT, detail))
        listen_port = _listen_port(claim, ports, reserved_names, options, refused)
        served[claim.domain] = _Served(claim, listen_port, hosts.is_below_foreign(claim.domain))
    owned_ports = {port_name(port): claim.owner for port, claim in ports.items()}
    return _DecidedDomains(
        VersionedDict(dict(sorted(served.items(), key=itemgetter(0)))),
        tuple(refused),
        {Listener.at(options.listen_address, port): claim.owner for port, claim in ports.items()},
        {claim.claimed_name: claim.owner for claim, *_ in served.values()} | owned_ports,
        owned_ports,
    )


def _certificates(
    decided: _DecidedDomains, memo: _Former, cluster: Cluster, options: PresetOptions
) -> DomainCertificates:
    served, former = decided.served, memo.certificates.wanted
    changed = {
        domain: want
        for domain in differing(memo.decided.served, served)
        if (want := _wanted_tls(served.get(domain))) != former.get(domain)
    }
    same = options.tls == memo.options.tls and cluster.snapshot.denied == memo.cluster.snapshot.denied
    secrets = differing(memo.cluster.secrets, cluster.secrets) if same else None
    if secrets is not None and options.tls.default in secrets:
        secrets = None
    return memo.certificates.updated(changed, secrets, cluster, options.tls)


def _wanted_tls(served: _Served | None) -> WantedTls | None:
    if served is None or served.claim.tls is None:
        return None
    return WantedTls(served.claim.ref, served.claim.tls)


def _entries(
    decided: _DecidedDomains, memo: _Former, cluster: Cluster, options: PresetOptions, tls: Mapping[str, DomainTls]
) -> Mapping[str, dict[str, Any]]:
    """Return the entry of each domain, the former one where nothing about it changed."""
    nodes = cluster.view.nodes
    kind = (options.node_ports, options.node_address_types)
    same_nodes = nodes is memo.cluster.view.nodes or not options.node_ports
    former = memo.decided.served if same_nodes and kind == memo.kind_of_targets else {}
    made: dict[str, dict[str, Any]] = {}
    gone = False
    changed_tls = differing(memo.certificates.views, tls)
    for domain in dict.fromkeys((*differing(former, decided.served), *changed_tls)):
        if domain not in decided.served:
            gone = True
            continue
        served = decided.served[domain]
        before, own = former.get(domain), tls.get(domain)
        same_tls = own is memo.certificates.views.get(domain)
        if not same_tls or before is None or before.claim is not served.claim or before[1:] != served[1:]:
            targets = targets_of_port(served.claim.port, served.claim.service, nodes, options)
            made[domain] = _entry(served, targets, own)
    if former is not memo.decided.served:
        return VersionedDict(made)
    if not made and not gone:
        return memo.entries
    if gone or not former.keys() >= made.keys():
        return VersionedDict({domain: made.get(domain) or memo.entries[domain] for domain in decided.served})
    return with_values(memo.entries, made)


def _entry(served: _Served, endpoints: tuple[EndpointView, ...], tls: DomainTls | None) -> dict[str, Any]:
    claim = served.claim
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
        listen_port=served.listen_port,
        below_foreign=served.below_foreign,
        ports=GivenList(map(GivenDict, ports)),
        service=claim.view,
        tls=tls,
    )


def _listen_port(
    claim: DomainClaim,
    taken: dict[int, DomainClaim],
    reserved_names: ReservedNames,
    options: PresetOptions,
    refused: list[Refusal],
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
    elif kept := reserved_names.reserved_for_another(port_name(port), claim.ref.namespace):
        reason, detail = RefusalReason.NAME_RESERVED, kept
    if detail:
        refused.append(refusal(claim.ref, "annotation listen-port", str(port), reason, detail))
        return None
    taken[port] = claim
    return port


def _taken(claim: DomainClaim, owner: DomainClaim) -> Refusal:
    detail = f"{owner.ref} has this name already (the older object keeps it); remove the annotation from one of them"
    return refusal(claim.ref, "annotation domain", claim.domain, RefusalReason.NAME_TAKEN, detail)


class DomainsPreset(Preset):
    """Reads annotations of Services and Endpoints."""

    name = PresetName.DOMAINS
    gives = frozenset({"domains"})
    resources = CLUSTER_VIEW

    def read(self, cluster: Cluster, options: PresetOptions, former: PresetResult | None = None) -> PresetResult:
        """Return ``domains``: a dict from domain to its entry, sorted by domain."""
        parsed = cluster.domains or parse(cluster, options, None)
        claims = parsed.claims
        memo = former.memo if former else None
        if not isinstance(memo, _Former) or memo.cluster.view.name != cluster.view.name:
            nothing, empty = _DecidedDomains({}, (), {}), nothing_read(cluster.view.name)
            memo = _Former(empty, PresetOptions(), Claims({}), nothing, VersionedDict({}))
        if claims.places is memo.claims.places and memo.decides_alike(cluster, options):
            replaced = claims.replaced(memo.claims, differing(memo.claims.by_key, claims.by_key))
            decided = _with_claims(memo.decided, replaced)
        else:
            decided = _decide(list(claims.in_order()), cluster.hosts, options)
        certificates = _certificates(decided, memo, cluster, options)
        refused = memo.refused.of(claims.refused, decided.refused, certificates.refused)
        entries = _entries(decided, memo, cluster, options, certificates.views)
        claimed = memo.claimed
        for domain in differing(memo.entries, entries):
            claimed += len(_addresses_of(entries[domain])) if domain in entries else 0
            claimed -= len(_addresses_of(memo.entries[domain])) if domain in memo.entries else 0
        return PresetResult(
            {"domains": entries},
            refused.refused,
            claimed,
            decided.listeners,
            files=certificates.files,
            serves=entries,
            addresses_of=_addresses_of,
            owners=decided.owners,
            reserves=decided.ports,
            ends_tls=bool(certificates.wanted),
            certificates=certificates.presented,
            memo=_Former(cluster, options, claims, decided, entries, certificates, refused, claimed),
        )

    def claims(self, translation: Translation) -> Iterator[Claim]:
        """Return a claim for each object with one of the annotations."""
        entries: defaultdict[Key, list[Mapping[str, Any]]] = defaultdict(list)
        for entry in translation.given.get("domains", {}).values():
            entries[Key(entry["namespace"], entry["name"])].append(entry)
        snapshot = translation.snapshot
        for kind, objects in (("Service", snapshot.services), ("Endpoints", snapshot.endpoints)):
            for key in sorted(objects):
                given = annotations_of(objects[key].metadata, kind)
                if not (given["domain"] or given["proto"]):
                    continue
                wanted = values.comparable_name(given["domain"])
                domain, proto = (values.shown(given[name]) or "(missing)" for name in ("domain", "proto"))
                because = f"annotations domain {domain} and proto {proto}"
                if secret := given.get("tls-secret", ""):
                    because += f", tls-secret {values.shown(secret)}"
                    because += f" ({described_secret(snapshot, Key(key.namespace, secret))})"
                yield Claim(
                    translation.ref(kind, key),
                    self.name,
                    because,
                    (wanted,) if wanted else (),
                    tuple(map(_backend, (entry for entry in entries[key] if entry["domain"] == wanted))),
                    translation.endpoints_of(key),
                )

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the annotations."""
        del options
        return "annotate the Service with domain and proto"

    def mistakes(self, record: AnyObject, snapshot: Snapshot) -> Iterator[str]:
        """Return misspelled annotations, and labels that should be annotations."""
        del snapshot
        if not isinstance(record, Service):
            return
        for name in sorted(record.metadata.annotations or {}):
            known = PREFIX + name if name in _PREFIXED else name.lower()
            close = difflib.get_close_matches(known, _ANNOTATIONS, n=1, cutoff=0.75)
            if close and name not in _ANNOTATIONS:
                yield f"its annotation {values.shown(name)} has no effect: did you mean {close[0]}?"
        if any(name in (record.metadata.labels or {}) for name in ("domain", "proto")):
            yield "domain and proto are labels of it: they have to be annotations"


def _backend(entry: Mapping[str, Any]) -> ClaimedBackend:
    domain = entry["domain"]
    routed = entry["proto"] in ROUTED_BY_NAME or entry["listen_port"] is not None
    why = "" if routed else "it was given no port to listen on"
    return ClaimedBackend(domain, entry["key"], domain, entry["endpoints"], frozenset({domain}), why)
