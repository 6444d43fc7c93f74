"""Preset ``kubefigurator``: Services labelled for haproxy-kubefigurator, on listeners of their own choice.

Gives ``listeners`` (one for each address and port) and ``backends`` (one for each port of a Service that is served).
Where two ask for one listener or one host name on it, the older Service has it and the other is refused by name.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import is_not
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName, Refusal, RefusalReason
from pyconfd.model.kubernetes import AnyObject, Service
from pyconfd.model.listener import ANY_IPV6, Listener
from pyconfd.model.reservation import NO_OWNERS, NO_RESERVATIONS, Owner, Owners, Reservations
from pyconfd.model.snapshot import HostFacts, Key, Snapshot
from pyconfd.model.versioned import VersionedDict, with_values
from pyconfd.predecessors.kubefigurator.claims import (
    ANY,
    LABEL,
    PREFIX,
    KubefiguratorOptions,
    ListenerClaim,
    Slot,
    certified_name,
    parse,
)
from pyconfd.presets import values
from pyconfd.presets.cluster import Cluster, nothing_read
from pyconfd.presets.conflicts import NO_REFUSALS, Claims, ReservedNames, Sockets, SortedRefusals, reuse_equal
from pyconfd.presets.endpoints import families_of, node_targets, pod_targets, targets_on_nodes
from pyconfd.presets.preset import CLUSTER_VIEW, Preset, PresetOptions, PresetResult, Translation
from pyconfd.presets.views import EndpointView, NodeView

_NAMES_IN_A_LINE = 240


class Certificate(msgspec.Struct, frozen=True, gc=False):
    """One line of a listener's ``crt-list``: a file, and for which names it is presented (SNI)."""

    path: str
    names: tuple[str, ...]


class Route(msgspec.Struct, frozen=True, gc=False):
    """One host name of a listener, as a Host header has it (an IPv6 address in brackets), and its backend's name.

    ``wildcard`` says that ``hostname`` is the end of names, for example ``.example.com``.
    """

    hostname: str
    backend: str
    wildcard: bool = False


class KubefiguratorListener(msgspec.Struct, frozen=True, gc=False):
    """One address and port.

    ``address`` is ``*`` or an IP address; ``mode`` is "http" (then there are ``routes``) or "tcp" (then there is a
    ``default_backend``); ``certificates`` are paths, sorted, none for no TLS. ``certificate_list`` says which of them
    is for which names, that of the oldest claim first: HAProxy presents it where no name fits.
    """

    name: str
    address: str
    port: int
    mode: str
    certificates: tuple[str, ...]
    routes: tuple[Route, ...]
    default_backend: str = ""
    certificate_list: tuple[Certificate, ...] = ()


class Backend(msgspec.Struct, frozen=True, gc=False):
    """One port of one Service; ``port`` is its name.

    ``ssl`` is TLS to the servers, ``verify`` whether their certificates are verified with ``ca_file``. ``node_port``
    is 0 where traffic goes to pods. ``targets`` are the nodes without the port, or the pods.
    """

    name: str
    namespace: str
    service: str
    port: str
    mode: str
    balance: str
    ssl: bool
    verify: bool
    ca_file: str
    node_port: int
    targets: tuple[EndpointView, ...]

    @property
    def endpoints(self) -> tuple[EndpointView, ...]:
        """Where traffic goes, with its port. Made when asked: thousands of Services share the same nodes."""
        if not self.node_port:
            return self.targets
        return tuple(msgspec.structs.replace(target, port=self.node_port) for target in self.targets)


@dataclass(slots=True)
class _Taken:
    """A listener while it is given away: its first claimant decides mode and TLS; then who has which host name."""

    first: ListenerClaim
    owners: dict[str, ListenerClaim] = field(default_factory=dict)
    served: dict[str, ListenerClaim] = field(default_factory=dict)

    def can_share(self, other: "_Taken") -> bool:
        """Return whether the names of both can be served on one listener."""
        mine, its = self.first, other.first
        return mine.mode == its.mode == "http" and bool(mine.certificate) == bool(its.certificate)


@dataclass(frozen=True, slots=True)
class _KubefiguratorInputs:
    """All beside a service itself that its claims are read with."""

    cluster: str
    options: PresetOptions
    host: HostFacts


@dataclass(frozen=True, slots=True)
class _DecidedListeners:
    """Who has which listener: the claims that are served, in order of their backends' names."""

    listeners: tuple[KubefiguratorListener, ...] = ()
    served: tuple[ListenerClaim, ...] = ()
    bound: Mapping[Listener, Owner] = field(default_factory=lambda: MappingProxyType({}))
    refused: tuple[Refusal, ...] = ()
    owners: Owners = field(default_factory=lambda: NO_OWNERS)
    reservations: Reservations = field(default_factory=lambda: NO_RESERVATIONS)


class _Counted(NamedTuple):
    backend: Backend
    ready: int


@dataclass(frozen=True, slots=True)
class _KubefiguratorFormer:
    """What a result was made of, and its parts."""

    inputs: _KubefiguratorInputs
    certificates: Mapping[str, str] | None
    cluster: Cluster
    claims: Claims[ListenerClaim]
    decided: _DecidedListeners | None = None
    backends: Sequence[_Counted] = ()
    serves: Mapping[str, Backend] = field(default_factory=dict)
    refused: SortedRefusals = NO_REFUSALS


def _serves(memo: _KubefiguratorFormer, backends: Sequence[_Counted]) -> Mapping[str, Backend]:
    """Return the backends by their names; where the same are served, only the changed ones are made again."""
    if backends is memo.backends:
        return memo.serves
    if len(backends) == len(memo.backends):
        changed = compress(backends, map(is_not, backends, memo.backends))
        replaced = {backend.name: backend for backend, _ in changed}
        if replaced.keys() <= memo.serves.keys():
            return with_values(memo.serves, replaced)
    return VersionedDict({backend.name: backend for backend, _ in backends})


def _addresses_of(backend: Backend) -> list[str]:
    return [target.address for target in backend.targets if target.state == "ready"]


def _decide(
    claims: Sequence[ListenerClaim],
    certificates: Mapping[str, str] | None,
    options: PresetOptions,
    former: _DecidedListeners,
) -> _DecidedListeners:
    """Assign each listener, and each host name on it, to the first of the claims, which come in order of their rank.

    What is reserved for another namespace is left out. A claim on all addresses counts on each of them.
    """
    refused: list[Refusal] = []
    taken: dict[Slot, _Taken] = {}
    sockets: Sockets[ListenerClaim] = Sockets()
    reservations = options.reservations_of("kubefigurator")
    reserved_names = ReservedNames(
        reservations, lambda: ((name, c.ref.namespace, c.who) for c in claims for name in c.names)
    )
    first_of_host: dict[str, ListenerClaim] = {}
    for claim in claims:
        if claim.hostname:
            first_of_host.setdefault(claim.hostname, claim)
        wrong = (
            _reserved(claim, reserved_names) or _conflict(claim, sockets) or _foreign_certificate(claim, first_of_host)
        )
        if wrong is not None:
            refused.append(wrong)
            continue
        # A claim whose certificate is missing keeps its name: no other claim gets it while the file is renewed.
        sockets.take(claim.slot.listener, claim)
        if claim.mode == "http":
            sockets.name(claim.slot.listener, claim.hostname, claim)
        listener = taken.setdefault(claim.slot, _Taken(claim))
        listener.owners[claim.hostname] = claim
        missing = _unusable(claim, certificates, options)
        if missing is not None:
            refused.append(missing)
        else:
            listener.served[claim.hostname] = claim
    served = [claim for _, listener in sorted(taken.items()) for claim in listener.served.values()]
    return _DecidedListeners(
        reuse_equal(former.listeners, _listeners(taken)),
        tuple(sorted(served, key=_backend_name)),
        {slot.listener: listener.first.owner for slot, listener in taken.items()},
        tuple(refused),
        {claim.names[1]: claim.owner for listener in taken.values() for claim in listener.owners.values()},
        reservations,
    )


def _reserved(claim: ListenerClaim, reserved_names: ReservedNames) -> Refusal | None:
    """Refuse what is kept for another namespace: the host name, the whole listener, or a part of it."""
    namespace, (whole, name) = claim.ref.namespace, claim.names
    reason = RefusalReason.NAME_RESERVED
    why = reserved_names.reserved_for_another(whole, namespace)
    if not why and claim.mode == "tcp":
        why = reserved_names.place_reserved_for_another(whole.place, namespace)
    if why:
        return claim.refusal("listen-port", str(claim.slot.port), reason, why)
    why = reserved_names.reserved_for_another(name, namespace)
    return claim.refusal("hostname", claim.hostname, reason, why) if why else None


def _with_claims(
    decided: _DecidedListeners, replaced: Iterable[tuple[ListenerClaim, ListenerClaim]]
) -> _DecidedListeners:
    """Return what was decided for claims that still ask for the same, though other endpoints may stand behind them."""
    renewed = {id(old): new for old, new in replaced}
    if not renewed:
        return decided
    return replace(decided, served=tuple([renewed.get(id(claim), claim) for claim in decided.served]))


def _conflict(claim: ListenerClaim, sockets: Sockets[ListenerClaim]) -> Refusal | None:
    first = sockets.first(claim.slot.listener)
    if first is None:
        return _name_taken(claim, sockets)
    older = f"{first.who} listens on {first.slot} already (the older Service keeps it)"
    if first.mode != claim.mode:
        detail = f"{older}, in mode {first.mode}; choose another listen-port or listen-ip"
        return claim.refusal("haproxy-mode", claim.mode, RefusalReason.PORT_TAKEN, detail)
    if bool(first.certificate) != bool(claim.certificate):
        detail = f"{older}, with{'' if first.certificate else 'out'} TLS; choose another listen-port or change use-ssl"
        return claim.refusal("use-ssl", "true" if claim.certificate else "false", RefusalReason.PORT_TAKEN, detail)
    if claim.mode == "tcp":
        detail = f"{older}; in mode tcp a port has one service: choose another listen-port or listen-ip"
        return claim.refusal("listen-port", str(claim.slot.port), RefusalReason.PORT_TAKEN, detail)
    return _name_taken(claim, sockets)


def _foreign_certificate(claim: ListenerClaim, first_of_host: Mapping[str, ListenerClaim]) -> Refusal | None:
    """Refuse the certificate of a host that is an older claim's of another namespace, on whatever listener."""
    owner = first_of_host.get(certified_name(claim.certificate)) if claim.certificate else None
    if owner is None or owner.ref.namespace == claim.ref.namespace:
        return None
    detail = f"{owner.who} is the oldest claim of this host, so the certificate serves its namespace only"
    return claim.refusal("ssl-certificate", claim.certificate, RefusalReason.NAME_TAKEN, detail)


def _name_taken(claim: ListenerClaim, sockets: Sockets[ListenerClaim]) -> Refusal | None:
    owner = sockets.owner(claim.slot.listener, claim.hostname) if claim.mode == "http" else None
    if owner is None:
        return None
    detail = f"{owner.who} has this name on {owner.slot} already (the older Service keeps it); change one of them"
    return claim.refusal("hostname", claim.hostname, RefusalReason.NAME_TAKEN, detail)


def _unusable(claim: ListenerClaim, certificates: Mapping[str, str] | None, options: PresetOptions) -> Refusal | None:
    """Return why a claim cannot be served for want of a file; None where it can, or where nothing is known."""
    if certificates is None:
        return None
    if claim.certificate:
        fault = certificates.get(claim.certificate, "the file does not exist")
        if fault:
            detail = f"{fault}; put certificate and key there and it is served; only this is left out until then"
            return claim.refusal("ssl-certificate", claim.certificate, RefusalReason.NO_CERTIFICATE, detail)
    ca_file = options.of(KubefiguratorOptions).ca_file
    if claim.tls and claim.verify and not ca_file.startswith("@"):
        fault = certificates.get(ca_file, "the file does not exist")
        if fault:
            detail = f"the setting kubefigurator.ca_file names {ca_file}: {fault}"
            return claim.refusal("backends-verify-ssl", "true", RefusalReason.NO_CERTIFICATE, detail)
    return None


def _listeners(taken: Mapping[Slot, _Taken]) -> Iterator[KubefiguratorListener]:
    """Return what is to be bound. The names of a listener on all addresses are served on each of them."""
    for slot, own in sorted(taken.items()):
        wider = (Slot(ANY, slot.port), Slot(ANY_IPV6, slot.port))
        around = [taken[w] for w in wider if w in taken and w != slot and w.listener.covers(slot.listener)]
        shared = [each for each in around if own.can_share(each)]
        # Without a listener of its own, the address would be that of the others, for as long as nothing is served.
        if own.served or (len(shared) < len(around) and any(each.served for each in around)):
            yield _listener(slot, own, shared)


def _listener(slot: Slot, own: _Taken, shared: Iterable[_Taken]) -> KubefiguratorListener:
    claims = [claim for each in (own, *shared) for claim in each.served.values()]
    routes = [_route(claim.hostname, claim) for claim in claims] if own.first.mode == "http" else []
    # Whole names first, then wildcards, the longest (the most special) first.
    routes.sort(key=lambda route: (route.wildcard, -len(route.hostname) * route.wildcard, route.hostname))
    certificates = tuple(_certificates(claims))
    return KubefiguratorListener(
        name=f"k8s-service_{'all' if slot.address == ANY else slot.address}_{slot.port}_listen",
        address=slot.address,
        port=slot.port,
        mode=own.first.mode,
        certificates=tuple(sorted({claim.certificate for claim in claims if claim.certificate})),
        routes=tuple(routes),
        default_backend=_backend_name(own.first) if own.first.mode == "tcp" and own.served else "",
        certificate_list=certificates,
    )


def _certificates(claims: Iterable[ListenerClaim]) -> Iterator[Certificate]:
    """Return each certificate with the names of the claims that it belongs to, and no others that it may be good for.

    The names of a file that has many stand on several lines, as a line has at most 2048 words and 64 KiB. Each line
    has its own spelling of the path, since it is the key of the line.
    """
    names: dict[str, list[str]] = {}
    for claim in sorted(claims, key=lambda claim: claim.rank):
        if claim.certificate:
            of_file = names.setdefault(claim.certificate, [])
            # SNI never holds an address. Source: RFC 6066, 3.
            if claim.hostname and values.address(claim.hostname) is None:
                of_file.append(claim.hostname)
    for path, found in names.items():
        folder, _, file = path.rpartition("/")
        for number, at in enumerate(range(0, max(len(found), 1), _NAMES_IN_A_LINE), 1):
            # "!*" alone: for no name at all. Without any, HAProxy would take those inside of the file.
            yield Certificate(f"{folder}{'/' * number}{file}", tuple(found[at : at + _NAMES_IN_A_LINE]) or ("!*",))


def _route(hostname: str, claim: ListenerClaim) -> Route:
    if hostname.startswith("*."):
        return Route(hostname[1:], _backend_name(claim), wildcard=True)
    return Route(f"[{hostname}]" if values.address(hostname) and ":" in hostname else hostname, _backend_name(claim))


def _backend_name(claim: ListenerClaim) -> str:
    return f"k8s-service_{claim.ref.namespace}_{claim.ref.name}_{claim.port_name}_backend"


def _backends(
    decided: _DecidedListeners, memo: _KubefiguratorFormer, nodes: tuple[NodeView, ...], options: PresetOptions
) -> Sequence[_Counted]:
    """Return the backend of each claim, the former one where nothing about it changed."""
    former: dict[int, _Counted] = {}
    if memo.decided is not None and (
        nodes is memo.cluster.view.nodes or not options.of(KubefiguratorOptions).node_ports
    ):
        if decided.served is memo.decided.served:
            return memo.backends
        former = {id(claim): backend for claim, backend in zip(memo.decided.served, memo.backends, strict=True)}
    addresses = _Addresses(nodes, options)

    def made(number: int, claim: ListenerClaim) -> _Counted:
        backend = _backend(claim, addresses, options)
        if number < len(memo.backends) and memo.backends[number].backend == backend:
            return memo.backends[number]
        return _Counted(backend, sum([endpoint.state == "ready" for endpoint in backend.targets]))

    return [former.get(id(claim)) or made(number, claim) for number, claim in enumerate(decided.served)]


class _Addresses:
    """The addresses of the nodes by the families of a Service, made once for all of them."""

    def __init__(self, nodes: tuple[NodeView, ...], options: PresetOptions) -> None:
        self._nodes = nodes
        self._kinds = options.node_address_types
        self._by_family: dict[tuple[str, ...], tuple[EndpointView, ...]] = {}

    def of(self, families: tuple[str, ...]) -> tuple[EndpointView, ...]:
        if families not in self._by_family:
            self._by_family[families] = node_targets(self._nodes, self._kinds, families)
        return self._by_family[families]


def _backend(claim: ListenerClaim, addresses: _Addresses, options: PresetOptions) -> Backend:
    own = options.of(KubefiguratorOptions)
    if own.node_ports:
        behind = targets_on_nodes(claim.port, claim.service, addresses.of(families_of(claim.service)))
    else:
        behind = pod_targets(claim.port, claim.service)
    return Backend(
        name=_backend_name(claim),
        namespace=claim.ref.namespace,
        service=claim.ref.name,
        port=claim.port_name,
        mode=claim.mode,
        balance=claim.balance,
        ssl=claim.tls,
        verify=claim.tls and claim.verify,
        ca_file=own.ca_file,
        node_port=claim.port.node_port if own.node_ports else 0,
        targets=behind,
    )


class KubefiguratorPreset(Preset):
    """Reads Services with the label of haproxy-kubefigurator."""

    name = PresetName.KUBEFIGURATOR
    gives = frozenset({"listeners", "backends"})
    resources = CLUSTER_VIEW
    fragments = Path(__file__).parent / "fragments"

    def read(self, cluster: Cluster, options: PresetOptions, former: PresetResult | None = None) -> PresetResult:
        """Return ``listeners``, sorted by address and port, and ``backends``, sorted by name."""
        host = cluster.snapshot.host
        facts = host.addressing
        inputs = _KubefiguratorInputs(cluster.view.name, options.without_reservations(), facts)
        memo = former.memo if former else None
        if not isinstance(memo, _KubefiguratorFormer) or memo.inputs != inputs:
            memo = _KubefiguratorFormer(inputs, None, nothing_read(cluster.view.name), Claims({}))
        changed = cluster.changed_since(memo.cluster)
        claims = memo.claims.updated(changed, lambda key: parse(key, cluster, options))
        same_files = memo.certificates == host.certificates
        known, reservations = memo.decided, options.reservations_of("kubefigurator")
        if known and same_files and claims.places is memo.claims.places and known.reservations == reservations:
            decided = _with_claims(known, claims.replaced(memo.claims, changed))
        else:
            decided = _decide(list(claims.in_order()), host.certificates, options, known or _DecidedListeners())
        backends = _backends(decided, memo, cluster.view.nodes, options)
        refused = memo.refused.of(claims.refused, decided.refused)
        serves = _serves(memo, backends)
        return PresetResult(
            {"listeners": list(decided.listeners), "backends": [backend for backend, _ in backends]},
            refused.refused,
            sum([ready for _, ready in backends]),
            decided.bound,
            serves=serves,
            addresses_of=_addresses_of,
            owners=decided.owners,
            memo=_KubefiguratorFormer(inputs, host.certificates, cluster, claims, decided, backends, serves, refused),
        )

    def claims(self, translation: Translation) -> Iterator[Claim]:
        """Return a claim for each labelled Service."""
        given, options = translation.given, translation.options
        hosts_of: defaultdict[str, set[str]] = defaultdict(set)
        for listener in given.get("listeners", ()):
            for route in listener.routes:
                hosts_of[route.backend].add(f"*{route.hostname}" if route.wildcard else route.hostname.strip("[]"))
        backends: defaultdict[Key, list[ClaimedBackend]] = defaultdict(list)
        for each in given.get("backends", ()):
            title, hosts = f"port {each.port or '(unnamed)'}", frozenset(hosts_of[each.name])
            backend = ClaimedBackend(title, each.name, each.name, each.endpoints, hosts)
            backends[Key(each.namespace, each.service)].append(backend)
        for key, service in sorted(translation.snapshot.services.items()):
            if (service.metadata.labels or {}).get(LABEL) != "yes":
                continue
            wanted = (
                text.strip().replace("CLUSTER", options.of(KubefiguratorOptions).cluster, 1)
                for name, text in sorted((service.metadata.annotations or {}).items())
                if name.startswith(PREFIX) and name.endswith(".hostname")
            )
            names = tuple(dict.fromkeys(values.comparable_name(text) for text in wanted if text))
            ref, endpoints = translation.ref("Service", key), translation.endpoints_of(key)
            yield Claim(ref, self.name, f"label {LABEL} yes", names, tuple(backends[key]), endpoints)

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the label."""
        del options
        return f"label the Service {LABEL}=yes"

    def mistakes(self, record: AnyObject, snapshot: Snapshot) -> Iterator[str]:
        """Return the label with another value."""
        del snapshot
        if not isinstance(record, Service):
            return
        value = (record.metadata.labels or {}).get(LABEL)
        if value is not None:
            yield f"its label {LABEL} is {values.shown(value)!r}: only 'yes' counts"
