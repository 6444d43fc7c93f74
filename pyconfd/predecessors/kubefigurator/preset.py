"""Preset ``kubefigurator``: Services labelled for haproxy-kubefigurator, on listeners of their own choice.

Gives ``listeners`` (one for each address and port) and ``backends`` (one for each port of a Service that is served).
Where two ask for one listener or one host name on it, the older Service has it and the other is refused by name.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pyconfd.derived import Derived, Grouped, Joined, Published, Read, SameParts, Source, Spread, Tally, Value
from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import PresetName, Refusal, RefusalReason
from pyconfd.model.kubernetes import AnyObject, ObjectRef, Service
from pyconfd.model.listener import ANY_IPV6, Listener
from pyconfd.model.reservation import Name, Owner, Owners, Reservation, Reservations, port_of
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.predecessors.kubefigurator.claims import (
    ANY,
    LABEL,
    KubefiguratorClaim,
    KubefiguratorOptions,
    ParsedService,
    Slot,
    certified_name,
    parse,
)
from pyconfd.presets import listener_ownership, values
from pyconfd.presets.address_ownership import AddressOwners
from pyconfd.presets.cluster import NO_SERVICE, ReadService
from pyconfd.presets.conflicts import ReservedNames, Sockets
from pyconfd.presets.endpoints import families_of, node_targets, pod_targets, targets_on_nodes
from pyconfd.presets.listener_ownership import ListenerOwners
from pyconfd.presets.objects import Objects
from pyconfd.presets.preset import CLUSTER_VIEW, Preset, PresetCollections, PresetOptions, PresetResult
from pyconfd.presets.refusals import JoinedRefusals
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

    first: KubefiguratorClaim
    owners: dict[str, KubefiguratorClaim] = field(default_factory=dict)
    served: dict[str, KubefiguratorClaim] = field(default_factory=dict)

    def can_share(self, other: "_Taken") -> bool:
        """Return whether the names of both can be served on one listener."""
        mine, its = self.first, other.first
        return mine.mode == its.mode == "http" and bool(mine.certificate) == bool(its.certificate)


class DecidedListeners(NamedTuple):
    """Who has which listener of one port number, and the claims that are served there."""

    listeners: tuple[KubefiguratorListener, ...]
    served: tuple[KubefiguratorClaim, ...]
    bound: Mapping[Listener, Owner]
    refused: tuple[Refusal, ...]
    owners: Owners


def _addresses_of(backend: Backend) -> list[str]:
    return [target.address for target in backend.targets if target.state == "ready"]


Find = Callable[[KubefiguratorClaim], Refusal | None]
"""Returns what is wrong with a claim for reasons that lie outside its port number."""


def decide(
    claims: Sequence[KubefiguratorClaim], reservations: Reservations, foreign_certificate: Find, unusable: Find
) -> DecidedListeners:
    """Assign each listener, and each host name on it, to the first of the claims, which come in order of their rank.

    What is reserved for another namespace is left out. A claim on all addresses counts on each of them.
    """
    refused: list[Refusal] = []
    taken: dict[Slot, _Taken] = {}
    sockets: Sockets[KubefiguratorClaim] = Sockets()
    reserved_names = ReservedNames(
        reservations, lambda: ((name, c.ref.namespace, c.who) for c in claims for name in c.names)
    )
    for claim in claims:
        wrong = _reserved(claim, reserved_names) or _conflict(claim, sockets) or foreign_certificate(claim)
        if wrong is not None:
            refused.append(wrong)
            continue
        # A claim whose certificate is missing keeps its name: no other claim gets it while the file is renewed.
        sockets.take(claim.slot.listener, claim)
        if claim.mode == "http":
            sockets.name(claim.slot.listener, claim.hostname, claim)
        listener = taken.setdefault(claim.slot, _Taken(claim))
        listener.owners[claim.hostname] = claim
        missing = unusable(claim)
        if missing is not None:
            refused.append(missing)
        else:
            listener.served[claim.hostname] = claim
    return DecidedListeners(
        tuple(_listeners(taken)),
        tuple(claim for _, listener in sorted(taken.items()) for claim in listener.served.values()),
        {slot.listener: listener.first.owner for slot, listener in taken.items()},
        tuple(refused),
        {claim.names[1]: claim.owner for listener in taken.values() for claim in listener.owners.values()},
    )


def _reserved(claim: KubefiguratorClaim, reserved_names: ReservedNames) -> Refusal | None:
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


def _conflict(claim: KubefiguratorClaim, sockets: Sockets[KubefiguratorClaim]) -> Refusal | None:
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


def _name_taken(claim: KubefiguratorClaim, sockets: Sockets[KubefiguratorClaim]) -> Refusal | None:
    owner = sockets.owner(claim.slot.listener, claim.hostname) if claim.mode == "http" else None
    if owner is None:
        return None
    detail = f"{owner.who} has this name on {owner.slot} already (the older Service keeps it); change one of them"
    return claim.refusal("hostname", claim.hostname, RefusalReason.NAME_TAKEN, detail)


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


def _certificates(claims: Iterable[KubefiguratorClaim]) -> Iterator[Certificate]:
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


def _route(hostname: str, claim: KubefiguratorClaim) -> Route:
    if hostname.startswith("*."):
        return Route(hostname[1:], _backend_name(claim), wildcard=True)
    return Route(f"[{hostname}]" if values.address(hostname) and ":" in hostname else hostname, _backend_name(claim))


def _backend_name(claim: KubefiguratorClaim) -> str:
    return f"k8s-service_{claim.ref.namespace}_{claim.ref.name}_{claim.port_name}_backend"


class _KubefiguratorTerms(NamedTuple):
    """By what Services are read, and whether it is known which files there are."""

    options: KubefiguratorOptions
    judges_files: bool


class KubefiguratorCollections(PresetCollections):
    """Services with the label: what each asks for, who gets it, and what templates see."""

    def __init__(self, objects: Objects) -> None:
        self._objects, graph = objects, objects.graph
        self._terms = Value[_KubefiguratorTerms](graph, "preset kubefigurator")
        self._files = Source[str, str](graph, "files of certificates")
        self._reserved = Source[Name, Reservation](graph, "names reserved in kubefigurator")
        self.parsed = Derived(objects.services, self._parse, "claims of kubefigurator by Service")
        self.claims = Spread(
            self.parsed, lambda _, parsed: ((each.position, each) for each in parsed.claims), "claims of kubefigurator"
        )
        self.listeners = Derived(
            self.claims,
            lambda _, __, claim: listener_ownership.ListenerClaim(claim.slot.listener, claim.owner),
            "listeners that kubefigurator asks for",
        )

    def see(self, snapshot: Snapshot, options: PresetOptions) -> None:
        """Record the settings of the preset, the files of certificates, and the names that namespaces have."""
        files = snapshot.host.certificates
        self._terms.set(_KubefiguratorTerms(options.of(KubefiguratorOptions), files is not None))
        self._files.follow(files or {})
        self._reserved.follow(options.reservations_of(PresetName.KUBEFIGURATOR))

    def serve(self, owners: ListenerOwners) -> None:
        """Decide who gets a listener and names, port number by port number: no other concerns the same socket."""
        self._owners, objects = owners, self._objects
        self.held = Derived(self.claims, self._held, "claims of kubefigurator whose port another has")
        free = Derived(
            self.claims, lambda read, at, claim: claim if read(self.held, at) is None else None, "free listeners"
        )
        self._by_host = Grouped(
            free, lambda _, claim: (claim.hostname,) if claim.hostname else (), "claims by certified host", rank=_rank
        )
        by_number = Grouped(free, lambda _, claim: (claim.slot.port,), "claims by number", rank=_rank)
        self._reserved_by_port = Grouped(self._reserved, lambda name, _: (port_of(name.place),), "kept by port")
        self.decided = Derived(by_number, self._decide, "ports of kubefigurator")
        given = Spread(
            self.decided, lambda _, found: ((each.name, each) for each in found.listeners), "listeners given"
        )
        served = Spread(
            self.decided, lambda _, found: (((_backend_name(each), each.rank), each) for each in found.served), "served"
        )
        self._nodes = Derived(objects.nodes, self._targets_on_nodes, "nodes by family")
        self.backends = Derived(served, self._backend, "backends of kubefigurator")
        self.bound = Spread(self.decided, lambda _, found: found.bound.items(), "listeners of kubefigurator")
        self.names = Spread(self.decided, lambda _, found: found.owners.items(), "names of kubefigurator")
        self.ready = Tally(
            self.backends, lambda _, backend: (((), len(_addresses_of(backend))),), "endpoints of kubefigurator"
        )
        self._asked = Published[Key, ParsedService](self.parsed)
        self._decided = Published[int, DecidedListeners](self.decided, rank=None)
        self._all_listeners = Published[str, KubefiguratorListener](given, key=_own_key, rank=None)
        self._in_order = SameParts[tuple[KubefiguratorListener, ...]]()
        self._backends = Published[Any, Backend](self.backends, key=_own_key)
        self._serves = Published[str, Backend](self.backends, key=lambda at: at[1][0], rank=None)
        self._bound = Published[Listener, Owner](self.bound, key=_own_key, rank=None)
        self._names = Published[Name, Owner](self.names, key=_own_key, rank=None)
        self._counted = Published[Name, Owner](
            Joined[Any, Any](self.names, served, name="names and backends of kubefigurator"),
            key=lambda at: at[1] if isinstance(at[1], Name) else Name(at[1][0], ""),
            rank=None,
            value=lambda each: each if isinstance(each, Owner) else each.owner.asking_for(each),
        )
        self._refused = JoinedRefusals(self.parsed, self.held, self.decided)

    def result(self) -> PresetResult:
        """Return ``listeners``, sorted by address and port, and ``backends``, sorted by name."""
        listeners, backends = self._all_listeners.mapping(), self._backends.mapping()
        in_order = self._in_order.made(
            (listeners,), lambda: tuple(sorted(listeners.values(), key=lambda each: Slot(each.address, each.port)))
        )
        return PresetResult(
            # Copies: what a template does to a list must not reach the next translation.
            {"listeners": list(in_order), "backends": list(backends.values())},
            self._refused.all(),
            self.ready.items.get((), 0),
            partial(_explained, self._asked.mapping(), in_order, backends.values(), self._objects.cluster),
            self._bound.mapping(),
            serves=self._serves.mapping(),
            addresses_of=_addresses_of,
            owners=self._counted.mapping(),
            reserves=self._names.mapping(),
        )

    def _parse(self, read: Read, _: Key, seen: ReadService) -> ParsedService | None:
        terms, objects = read.value(self._terms), self._objects
        return parse(seen, objects.cluster, terms.options, read.value(objects.policy), read.value(objects.host))

    def _held(self, read: Read, _: object, claim: KubefiguratorClaim) -> Refusal | None:
        holder = self._owners.holder(read, PresetName.KUBEFIGURATOR, claim.slot.listener)
        detail = f"{holder}; choose another port, or another address with listen-ip"
        port = str(claim.slot.port)
        return claim.refusal("listen-port", port, RefusalReason.PORT_TAKEN, detail) if holder else None

    def _decide(self, read: Read, _: int, asking: Sequence[tuple[object, KubefiguratorClaim]]) -> DecidedListeners:
        claims = [claim for _, claim in asking]
        at = {port_of(str(claim.slot)): None for claim in claims}
        reserved = {name: each for port in at for name, each in read(self._reserved_by_port, port) or ()}
        return decide(claims, reserved, partial(self._foreign_certificate, read), partial(self._unusable, read))

    def _foreign_certificate(self, read: Read, claim: KubefiguratorClaim) -> Refusal | None:
        """Refuse the certificate of a host that is an older claim's of another namespace, on whatever listener."""
        asking = read(self._by_host, certified_name(claim.certificate)) if claim.certificate else None
        owner = asking[0][1] if asking else None
        if owner is None or owner.rank > claim.rank or owner.ref.namespace == claim.ref.namespace:
            return None
        detail = f"{owner.who} is the oldest claim of this host, so the certificate serves its namespace only"
        return claim.refusal("ssl-certificate", claim.certificate, RefusalReason.NAME_TAKEN, detail)

    def _unusable(self, read: Read, claim: KubefiguratorClaim) -> Refusal | None:
        """Return why a claim cannot be served for want of a file; None where it can, or where nothing is known."""
        terms = read.value(self._terms)
        if not terms.judges_files:
            return None
        if claim.certificate and (fault := self._fault(read, claim.certificate)):
            detail = f"{fault}; put certificate and key there and it is served; only this is left out until then"
            return claim.refusal("ssl-certificate", claim.certificate, RefusalReason.NO_CERTIFICATE, detail)
        ca_file = terms.options.ca_file
        if claim.tls and claim.verify and not ca_file.startswith("@") and (fault := self._fault(read, ca_file)):
            detail = f"the setting kubefigurator.ca_file names {ca_file}: {fault}"
            return claim.refusal("backends-verify-ssl", "true", RefusalReason.NO_CERTIFICATE, detail)
        return None

    def _fault(self, read: Read, path: str) -> str:
        found = read(self._files, path)
        return "the file does not exist" if found is None else found

    def _targets_on_nodes(
        self, read: Read, _: object, nodes: tuple[NodeView, ...]
    ) -> Mapping[tuple[str, ...], tuple[EndpointView, ...]]:
        """Return the nodes by the families of a Service, made once for all of them."""
        kinds = read.value(self._objects.targets).node_address_types
        return {families: node_targets(nodes, kinds, families) for families in _FAMILIES}

    def _backend(self, read: Read, _: object, claim: KubefiguratorClaim) -> Backend:
        own, objects = read.value(self._terms).options, self._objects
        seen = read(objects.services, Key(claim.ref.namespace, claim.ref.name)) or NO_SERVICE
        port = seen.view.ports[claim.position] if seen.view is not None else None
        behind: tuple[EndpointView, ...] = ()
        if port is not None and own.node_ports:
            families = families_of(seen.object)
            known = read.value(self._nodes).get(families if len(families) < 2 else ())
            behind = targets_on_nodes(port, seen.object, known or ())
        elif port is not None:
            behind = pod_targets(port, seen.object)
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
            node_port=claim.node_port if own.node_ports else 0,
            targets=behind,
        )


_FAMILIES: tuple[tuple[str, ...], ...] = ((), ("IPv4",), ("IPv6",))
"""What a Service may list; two are as good as none, which means both."""


def _rank(_: object, claim: KubefiguratorClaim) -> tuple[Any, ...]:
    return claim.rank


def _own_key(at: tuple[int, Any]) -> Any:
    return at[1]


class KubefiguratorPreset(Preset):
    """Reads Services with the label of haproxy-kubefigurator."""

    name = PresetName.KUBEFIGURATOR
    gives = frozenset({"listeners", "backends"})
    resources = CLUSTER_VIEW
    fragments = Path(__file__).parent / "fragments"

    def collections(self, objects: Objects, addresses: AddressOwners) -> KubefiguratorCollections:
        """Return what is made of Services."""
        del addresses
        return KubefiguratorCollections(objects)

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the label."""
        del options
        return f"label the Service {LABEL}=yes"

    def mistakes(self, record: AnyObject, snapshot: Snapshot, options: PresetOptions) -> Iterator[str]:
        """Return the label with another value."""
        del snapshot, options
        if not isinstance(record, Service):
            return
        value = (record.metadata.labels or {}).get(LABEL)
        if value is not None:
            yield f"its label {LABEL} is {values.shortened(value)!r}: only 'yes' counts"


def _explained(
    asked: Mapping[Key, ParsedService],
    listeners: Iterable[KubefiguratorListener],
    backends: Iterable[Backend],
    cluster: str,
) -> Iterator[Claim]:
    """Return a claim for each labelled Service."""
    hosts_of: defaultdict[str, set[str]] = defaultdict(set)
    for listener in listeners:
        for route in listener.routes:
            hosts_of[route.backend].add(f"*{route.hostname}" if route.wildcard else route.hostname.strip("[]"))
    served: defaultdict[Key, list[ClaimedBackend]] = defaultdict(list)
    for each in backends:
        title, hosts = f"port {each.port or '(unnamed)'}", frozenset(hosts_of[each.name])
        backend = ClaimedBackend(title, each.name, each.name, each.endpoints, hosts)
        served[Key(each.namespace, each.service)].append(backend)
    for key, parsed in asked.items():
        names = tuple(dict.fromkeys(map(values.comparable_name, parsed.hostnames)))
        ref, because = ObjectRef("Service", *key, cluster), f"label {LABEL} yes"
        yield Claim(ref, PresetName.KUBEFIGURATOR, because, names, tuple(served[key]), services=(key,))
