"""What preset ``kube2lb`` gives to templates, and who of several Services gets a port or a name."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Self

import msgspec

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.listener import Listener
from pyconfd.model.reservation import Name, Owner, Owners, Reservations
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions, NameTemplate, ServerName, name_template
from pyconfd.presets import values
from pyconfd.presets.conflicts import ReservedNames, Sockets
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.views import NodeText


class Kube2lbPort(msgspec.Struct, frozen=True, gc=False):
    """Where to listen: ``ip`` as text without brackets, ``mode`` "http" or "tcp", ``protocol`` "tcp", "udp", "sctp".

    It prints as a label: the address in hexadecimal digits, port, protocol and mode, such as ``0a000001_80_tcp_http``.
    """

    ip: str
    port: int
    mode: str
    protocol: str

    def __str__(self) -> str:
        return f"{ip_address(self.ip).packed.hex()}_{self.port}_{self.protocol}_{self.mode}"

    @property
    def bind(self) -> str:
        """Address and port, an IPv6 address in brackets."""
        return _hostport(self.ip, self.port)


class Kube2lbEndpoint(msgspec.Struct, frozen=True, gc=False):
    """One address to send traffic to; ``name`` is that of the pod (or node), else the address.

    It prints as ``ip:port``. ``state`` is "ready" or "draining"; ``pod``, ``node`` and ``zone`` are "" where unknown.
    """

    name: str
    ip: str
    port: int
    state: str = "ready"
    pod: str = ""
    node: str = ""
    zone: str = ""

    def __str__(self) -> str:
        return _hostport(self.ip, self.port)

    @property
    def address(self) -> str:
        """The address, under the name that the filters know."""
        return self.ip

    @property
    def family(self) -> str:
        """Return "ipv4" or "ipv6"."""
        return "ipv6" if ":" in self.ip else "ipv4"


class Kube2lbService(msgspec.Struct, frozen=True, gc=False):
    """One port of one service.

    ``endpoints`` are the ready ones, ``draining`` those that end what they have begun; ``external`` are the names of
    the annotation, regular expressions with their ``~``; ``timeout`` is in milliseconds, 0 where none is set;
    ``node_port`` is 0 where there is none. It prints as a label: name, namespace, port, protocol and mode.
    """

    name: str
    namespace: str
    port: Kube2lbPort
    endpoints: tuple[Kube2lbEndpoint, ...]
    draining: tuple[Kube2lbEndpoint, ...]
    node_port: int
    external: tuple[str, ...]
    timeout: int

    def __str__(self) -> str:
        port = self.port
        return f"{self.name}_{self.namespace}_{port.port}_{port.protocol}_{port.mode}"


class Kube2lbNode(NodeText):
    """The name of a node that may get traffic, with its ``address`` ("" where it has none of the wanted type)."""

    __slots__ = ("address", "zone")
    address: str
    zone: str

    def __new__(cls, name: str, address: str, zone: str) -> Self:
        """Return the name with what is known of the node."""
        node = super().__new__(cls, name)
        node.address = address
        node.zone = zone
        return node


def _hostport(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


EXTERNAL_DOMAINS = "kube2lb/external-domains"

_EntryKey = tuple[str, str, Kube2lbPort]


@dataclass(frozen=True, slots=True)
class Kube2lbClaim:
    """One service with all of its ports that can be served."""

    ref: ObjectRef
    created: str
    entries: tuple[Kube2lbService, ...]

    @property
    def rank(self) -> tuple[str, str, str]:
        """The older service wins; the name decides between twins."""
        return self.created, self.ref.namespace, self.ref.name

    @property
    def owner(self) -> Owner:
        """The owner that later claims are told of."""
        return Owner(self.ref.kind, self.ref.namespace, self.ref.name, self.created)

    @property
    def decisive(self) -> tuple[Any, ...]:
        """All that decides who gets what; the endpoints do not."""
        return self.rank, [(entry.port, entry.node_port, entry.external) for entry in self.entries]


@dataclass(frozen=True, slots=True)
class DecidedPorts:
    """Who serves what: the claims with the ports that they got, and the names given out to them."""

    names: "Kube2lbServerNames"
    services: list[Kube2lbService]
    by_port: list[tuple[Kube2lbPort, list[Kube2lbService]]]
    refused: tuple[Refusal, ...]
    owners: Owners
    reservations: Reservations
    bound: Mapping[Listener, Owner]


def decide(claims: list[Kube2lbClaim], options: PresetOptions) -> DecidedPorts:
    """Assign ports and names to the claims, which come in order of their rank, unless others have reservation."""
    refused: list[Refusal] = []
    own, reservations = options.of(Kube2lbOptions), options.reservations_of("kube2lb")
    templates = tuple(name_template(text) for text in own.server_name_templates)
    reserved_names = ReservedNames(reservations, lambda: _wanted(claims, templates, own.domain))
    owners: dict[Name, Owner] = {}
    claims = _without_port_conflicts(claims, reserved_names, owners, refused)
    names = Kube2lbServerNames([_asking(claim) for claim in claims], templates, reserved_names, options.claims)
    refused.extend(names.refusals(own.domain))
    owners |= names.owners(own.domain)
    # In order of age, so that what is tried one after the other (regular expressions) goes to the older one.
    services = [entry for claim in claims for entry in claim.entries]
    return DecidedPorts(
        names,
        services,
        _by_port(services),
        tuple(refused),
        owners,
        reservations,
        _bound(claims),
    )


def _bound(claims: list[Kube2lbClaim]) -> dict[Listener, Owner]:
    """Return what is listened on over TCP, each with its oldest claim."""
    bound: dict[Listener, Owner] = {}
    for claim in claims:
        for entry in claim.entries:
            if entry.port.protocol == "tcp":
                bound.setdefault(_listener(entry.port), claim.owner)
    return bound


def _by_port(services: list[Kube2lbService]) -> list[tuple[Kube2lbPort, list[Kube2lbService]]]:
    """Return what listens where; names on all addresses of the balancer are served on each of them."""
    listeners: dict[Kube2lbPort, list[Kube2lbService]] = {entry.port: [] for entry in services}
    of_number: defaultdict[int, list[Kube2lbPort]] = defaultdict(list)
    for port in listeners:
        of_number[port.port].append(port)
    joined = {port: [each for each in of_number[port.port] if each == port or _joins(port, each)] for port in listeners}
    for entry in services:
        for port in joined[entry.port]:
            listeners[port].append(entry)
    return [(port, listeners[port]) for port in sorted(listeners, key=_port_order)]


def _joins(port: Kube2lbPort, other: Kube2lbPort) -> bool:
    """Return whether the names of ``port`` are to be served on ``other``, of which it is a part."""
    return _is_shared(port) and _is_shared(other) and _listener(port).covers(_listener(other))


def _is_shared(port: Kube2lbPort) -> bool:
    """Return whether a listener can be shared, by host names."""
    return (port.mode, port.protocol) == ("http", "tcp")


@lru_cache(maxsize=4096)
def _listener(port: Kube2lbPort) -> Listener:
    return Listener(port.ip, port.port)


def _wanted(
    claims: list[Kube2lbClaim], templates: tuple[NameTemplate, ...], domain: str
) -> Iterator[tuple[Name, str, ObjectRef]]:
    """Return all names of the claims that may be reserved for another namespace."""
    for claim in claims:
        for entry in claim.entries:
            place = _place(entry.port)
            yield Name(place, ""), claim.ref.namespace, claim.ref
            for name in entry.external:
                yield Name(place, name), claim.ref.namespace, claim.ref
            for template in templates:
                with suppress(ValueError):
                    yield Name(place, template.name(entry, domain)), claim.ref.namespace, claim.ref


def _place(port: Kube2lbPort) -> str:
    return f"{port.bind}/{port.protocol}"


def _asking(claim: Kube2lbClaim) -> Kube2lbClaim:
    """Return a claim without what stands behind it, which soon is out of date."""
    entries = (msgspec.structs.replace(entry, endpoints=(), draining=()) for entry in claim.entries)
    return Kube2lbClaim(claim.ref, claim.created, tuple(entries))


def with_claims(decided: DecidedPorts, replaced: Iterable[tuple[Kube2lbClaim, Kube2lbClaim]]) -> DecidedPorts:
    """Return what was decided for claims that still ask for the same, though other endpoints may stand behind them."""
    renewed: dict[int, Kube2lbService] = {}
    for old, new in replaced:
        pairs = zip(old.entries, new.entries, strict=True)
        renewed |= {id(before): after for before, after in pairs if before is not after}
    if not renewed:
        return decided

    def renewed_entries(entries: Iterable[Kube2lbService]) -> list[Kube2lbService]:
        return [renewed.get(id(entry), entry) for entry in entries]

    by_port = [(port, renewed_entries(entries)) for port, entries in decided.by_port]
    return replace(decided, services=renewed_entries(decided.services), by_port=by_port)


def _without_port_conflicts(
    claims: list[Kube2lbClaim], reserved_names: ReservedNames, owned_names: dict[Name, Owner], refused: list[Refusal]
) -> list[Kube2lbClaim]:
    """Leave out what asks for a taken socket; only ports of mode http over TCP can be shared, by host names.

    A port on all addresses is taken on each of them. The owner of an unshared socket goes into ``owned_names``.
    """
    sockets: Sockets[tuple[Kube2lbClaim, Kube2lbPort]] = Sockets()
    kept = []
    for claim in claims:
        entries = []
        for entry in claim.entries:
            port, place = entry.port, _place(entry.port)
            shared = _is_shared(port)
            reserved = reserved_names.reserved_for_another(Name(place, ""), claim.ref.namespace)
            if not reserved and not shared:
                reserved = reserved_names.place_reserved_for_another(place, claim.ref.namespace)
            if reserved:
                reason = RefusalReason.NAME_RESERVED
                refused.append(refusal(claim.ref, "spec.ports", str(port.port), reason, reserved))
                continue
            taken = sockets.first(_listener(port), port.protocol)
            if taken is None or (shared and _is_shared(taken[1])):
                sockets.take(_listener(port), (claim, port), port.protocol)
                entries.append(entry)
                if not shared:
                    owned_names[Name(place, "")] = claim.owner
                continue
            owner, owned = taken
            why = "in another mode" if owned.mode != port.mode else f"in mode {port.mode}, which cannot be shared"
            detail = f"{owner.ref} listens on {owned.bind}/{port.protocol} already (the older one keeps it), {why}"
            refused.append(refusal(claim.ref, "spec.ports", str(port.port), RefusalReason.PORT_TAKEN, detail))
        kept.append(Kube2lbClaim(claim.ref, claim.created, tuple(entries)))
    return kept


@dataclass(frozen=True)
class Kube2lbServerNames:
    """The server names of all services; a name that several want on one socket belongs to the oldest of them.

    Names that come from the templates are given out before those of annotations, so that no annotation takes the
    name that another service has by itself. ``reserved_names`` keep names for those who had them, ``rules`` say who
    may have them at all.
    """

    claims: list[Kube2lbClaim]
    templates: tuple[NameTemplate, ...]
    reserved_names: ReservedNames
    rules: ClaimOptions
    _by_domain: dict[str, dict[_EntryKey, list[ServerName]]] = field(default_factory=dict)
    _refused: dict[str, list[Refusal]] = field(default_factory=dict)
    _owners: dict[str, dict[Name, Owner]] = field(default_factory=dict)

    def of(self, service: Kube2lbService, domain: object) -> list[ServerName]:
        """Return the names by which clients ask for ``service``, those of the templates first.

        Raises:
            ValueError: ``service`` is not one of ``services``.
        """
        try:
            return list(self._names(str(domain)).get(_key(service), ()))
        except (AttributeError, TypeError):
            raise ValueError(f"ServerNames takes one of services, not {values.shown(str(service))}") from None

    def refusals(self, domain: str) -> list[Refusal]:
        """Return the names that another claim has, or that are none."""
        self._names(domain)
        return self._refused[domain]

    def owners(self, domain: str) -> Owners:
        """Return who has which name."""
        self._names(domain)
        return self._owners[domain]

    def _names(self, domain: str) -> dict[_EntryKey, list[ServerName]]:
        if domain not in self._by_domain:
            self._by_domain[domain], self._refused[domain], self._owners[domain] = self._given_out(domain)
        return self._by_domain[domain]

    def _given_out(self, domain: str) -> tuple[dict[_EntryKey, list[ServerName]], list[Refusal], dict[Name, Owner]]:
        owners: Sockets[Kube2lbClaim] = Sockets()
        reserved_names: dict[Name, Owner] = {}
        names: dict[_EntryKey, list[ServerName]] = defaultdict(list)
        refused: list[Refusal] = []

        def give(claim: Kube2lbClaim, entry: Kube2lbService, where: str, wanted: Iterable[ServerName]) -> None:
            for name in wanted:
                lost = self._lost(claim, entry.port, name, owners)
                if lost is not None:
                    refused.append(refusal(claim.ref, where, name, *lost))
                    continue
                reserved_names.setdefault(Name(_place(entry.port), str(name)), claim.owner)
                if name not in names[_key(entry)]:
                    names[_key(entry)].append(name)

        for claim in self.claims:
            for entry in claim.entries:
                give(claim, entry, "server name", self._from_templates(claim, entry, domain, refused))
        for claim in self.claims:
            for entry in claim.entries:
                give(claim, entry, f"annotation {EXTERNAL_DOMAINS}", map(ServerName, entry.external))
        return names, refused, reserved_names

    def _lost(
        self, claim: Kube2lbClaim, port: Kube2lbPort, name: ServerName, owners: Sockets[Kube2lbClaim]
    ) -> tuple[RefusalReason, str] | None:
        """Return a name to a claim in ``owners``, or say why it cannot have it."""
        namespace, claimed_name, listener = claim.ref.namespace, Name(_place(port), str(name)), _listener(port)
        if wrong := self.rules.domain(namespace, name):
            return RefusalReason.NOT_ALLOWED, wrong
        if kept := self.reserved_names.reserved_for_another(claimed_name, namespace):
            return RefusalReason.NAME_RESERVED, kept
        owner = owners.owner(listener, name, port.protocol) if port.mode == "http" else claim
        if owner is None:
            owners.name(listener, name, claim, port.protocol)
        if owner is None or owner is claim:
            return None
        detail = f"{owner.ref} has this name on {port.bind} already; choose another one for one of them"
        return RefusalReason.NAME_TAKEN, detail

    def _from_templates(
        self, claim: Kube2lbClaim, entry: Kube2lbService, domain: str, refused: list[Refusal]
    ) -> Iterator[ServerName]:
        for template in self.templates:
            try:
                yield template.name(entry, domain)
            except ValueError as error:
                refused.append(
                    refusal(claim.ref, "server name", template.text, RefusalReason.INVALID_VALUE, str(error))
                )


def _key(entry: Kube2lbService) -> _EntryKey:
    return entry.namespace, entry.name, entry.port


def _port_order(port: Kube2lbPort) -> tuple[int, bytes, int, str, str]:
    address = ip_address(port.ip)
    return address.version, address.packed, port.port, port.protocol, port.mode


def refusal(ref: ObjectRef, field_: str, value: str, reason: RefusalReason, detail: str) -> Refusal:
    """Refuse a value of an object; it is shown shortened and escaped."""
    return Refusal(ref, field_, values.shown(value), reason, detail)
