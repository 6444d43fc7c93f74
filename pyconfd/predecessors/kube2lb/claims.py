"""What preset ``kube2lb`` gives to templates, and who of several Services gets a port or a name."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple, Self

import msgspec

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.listener import Listener
from pyconfd.model.reservation import Name, Owner, Owners, Reservations
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions, NameTemplate, ServerName, name_template
from pyconfd.presets import values
from pyconfd.presets.conflicts import ReservedNames, Sockets
from pyconfd.presets.policy import ClaimOptions
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


class Kube2lbPlace(NamedTuple):
    """Where a port of a service stands among all: the older service comes first, the name decides between twins."""

    created: str
    namespace: str
    name: str
    position: int
    number: int
    protocol: str

    @property
    def title(self) -> str:
        """The name under which the port is counted."""
        return _title(self.namespace, self.name, self.number, self.protocol)


def title_of(entry: Kube2lbService) -> str:
    """Return the name under which a port of a service is counted."""
    return _title(entry.namespace, entry.name, entry.port.port, entry.port.protocol)


def _title(namespace: str, name: str, number: int, protocol: str) -> str:
    return f"{namespace}/{name}:{number}/{protocol}"


class Kube2lbClaim(NamedTuple):
    """A port of a service that can be served; ``entry`` is without what stands behind it."""

    ref: ObjectRef
    created: str
    position: int
    entry: Kube2lbService

    @property
    def place(self) -> Kube2lbPlace:
        """Its place among all."""
        entry = self.entry
        return Kube2lbPlace(
            self.created, entry.namespace, entry.name, self.position, entry.port.port, entry.port.protocol
        )

    @property
    def owner(self) -> Owner:
        """The owner that later claims are told of."""
        return Owner(self.ref.kind, self.ref.namespace, self.ref.name, self.created)


class DecidedPorts(NamedTuple):
    """Who serves what: the claims that got their ports, in order, and the names given out to them."""

    served: tuple[Kube2lbClaim, ...]
    names: Mapping[_EntryKey, Sequence[ServerName]]
    refused: tuple[Refusal, ...]
    owners: Owners

    @property
    def bound(self) -> dict[Listener, Owner]:
        """What is listened on over TCP, each with its oldest claim."""
        bound: dict[Listener, Owner] = {}
        for claim in self.served:
            if claim.entry.port.protocol == "tcp":
                bound.setdefault(listener_of(claim.entry.port), claim.owner)
        return bound

    @property
    def by_port(self) -> Mapping[Kube2lbPort, tuple[Kube2lbPlace, ...]]:
        """What listens where; names on all addresses of the balancer are served on each of them."""
        listeners: dict[Kube2lbPort, list[Kube2lbPlace]] = {claim.entry.port: [] for claim in self.served}
        of_number: defaultdict[int, list[Kube2lbPort]] = defaultdict(list)
        for port in listeners:
            of_number[port.port].append(port)
        joined = {
            port: [each for each in of_number[port.port] if each == port or _joins(port, each)] for port in listeners
        }
        for claim in self.served:
            for port in joined[claim.entry.port]:
                listeners[port].append(claim.place)
        return {port: tuple(places) for port, places in listeners.items()}


def decide(
    claims: Sequence[Kube2lbClaim], options: Kube2lbOptions, rules: ClaimOptions, reservations: Reservations
) -> DecidedPorts:
    """Assign ports and names to the claims, which come in order, unless others have reservations.

    Claims of different port numbers do not concern each other.
    """
    refused: list[Refusal] = []
    owners: dict[Name, Owner] = {}
    templates = tuple(map(name_template, options.server_name_templates))
    reserved_names = ReservedNames(reservations, lambda: _wanted(claims, templates, options.domain))
    served = tuple(_without_port_conflicts(claims, reserved_names, owners, refused))
    giving = _Giving(templates, options.domain, reserved_names, rules, {}, refused, owners)
    return DecidedPorts(served, giving.names_of(served), tuple(refused), owners)


def _joins(port: Kube2lbPort, other: Kube2lbPort) -> bool:
    """Return whether the names of ``port`` are to be served on ``other``, of which it is a part."""
    return _is_shared(port) and _is_shared(other) and listener_of(port).covers(listener_of(other))


def _is_shared(port: Kube2lbPort) -> bool:
    """Return whether a listener can be shared, by host names."""
    return (port.mode, port.protocol) == ("http", "tcp")


@lru_cache(maxsize=4096)
def listener_of(port: Kube2lbPort) -> Listener:
    """Return what is listened on for a port."""
    return Listener(port.ip, port.port)


def _wanted(
    claims: Iterable[Kube2lbClaim], templates: tuple[NameTemplate, ...], domain: str
) -> Iterator[tuple[Name, str, ObjectRef]]:
    """Return all names of the claims that may be reserved for another namespace."""
    for claim in claims:
        entry, place = claim.entry, _place(claim.entry.port)
        yield Name(place, ""), claim.ref.namespace, claim.ref
        for name in entry.external:
            yield Name(place, name), claim.ref.namespace, claim.ref
        for template in templates:
            with suppress(ValueError):
                yield Name(place, template.name(entry, domain)), claim.ref.namespace, claim.ref


def _place(port: Kube2lbPort) -> str:
    return f"{port.bind}/{port.protocol}"


def _without_port_conflicts(
    claims: Iterable[Kube2lbClaim], reserved_names: ReservedNames, owned: dict[Name, Owner], refused: list[Refusal]
) -> Iterator[Kube2lbClaim]:
    """Leave out what asks for a taken socket; only ports of mode http over TCP can be shared, by host names.

    A port on all addresses is taken on each of them. The owner of an unshared socket goes into ``owned``.
    """
    sockets: Sockets[Kube2lbClaim] = Sockets()
    for claim in claims:
        port, place = claim.entry.port, _place(claim.entry.port)
        shared = _is_shared(port)
        reserved = reserved_names.reserved_for_another(Name(place, ""), claim.ref.namespace)
        if not reserved and not shared:
            reserved = reserved_names.place_reserved_for_another(place, claim.ref.namespace)
        if reserved:
            reason = RefusalReason.NAME_RESERVED
            refused.append(refusal(claim.ref, "spec.ports", str(port.port), reason, reserved))
            continue
        taken = sockets.first(listener_of(port), port.protocol)
        if taken is None or (shared and _is_shared(taken.entry.port)):
            sockets.take(listener_of(port), claim, port.protocol)
            if not shared:
                owned[Name(place, "")] = claim.owner
            yield claim
            continue
        had = taken.entry.port
        why = "in another mode" if had.mode != port.mode else f"in mode {port.mode}, which cannot be shared"
        detail = f"{taken.ref} listens on {had.bind}/{port.protocol} already (the older one keeps it), {why}"
        refused.append(refusal(claim.ref, "spec.ports", str(port.port), RefusalReason.PORT_TAKEN, detail))


class _Giving(NamedTuple):
    """Assigns names; what was refused, and who has which name, is added to ``refused`` and ``owned``.

    A name that several want on one socket belongs to the oldest of them. Names that come from the templates are given
    out before those of annotations, so that no annotation takes the name that another service has by itself.
    ``reserved_names`` keep names for those who had them, ``rules`` say who may have them at all.
    """

    templates: tuple[NameTemplate, ...]
    domain: str
    reserved_names: ReservedNames
    rules: ClaimOptions
    names: dict[_EntryKey, list[ServerName]]
    refused: list[Refusal]
    owned: dict[Name, Owner]

    def names_of(self, claims: Sequence[Kube2lbClaim]) -> Mapping[_EntryKey, Sequence[ServerName]]:
        """Return the names of each port."""
        owners: Sockets[Kube2lbClaim] = Sockets()
        for claim in claims:
            self._give(claim, "server name", self._from_templates(claim), owners)
        for claim in claims:
            self._give(claim, f"annotation {EXTERNAL_DOMAINS}", map(ServerName, claim.entry.external), owners)
        return self.names

    def _give(
        self, claim: Kube2lbClaim, where: str, wanted: Iterable[ServerName], owners: Sockets[Kube2lbClaim]
    ) -> None:
        place, given = _place(claim.entry.port), self.names.setdefault(_key(claim.entry), [])
        for name in wanted:
            lost = self._lost(claim, name, owners)
            if lost is not None:
                self.refused.append(refusal(claim.ref, where, name, *lost))
                continue
            self.owned.setdefault(Name(place, str(name)), claim.owner)
            if name not in given:
                given.append(name)

    def _lost(
        self, claim: Kube2lbClaim, name: ServerName, owners: Sockets[Kube2lbClaim]
    ) -> tuple[RefusalReason, str] | None:
        """Return why a claim cannot have a name; None where it has it, and is in ``owners`` from now on."""
        port, namespace = claim.entry.port, claim.ref.namespace
        if wrong := self.rules.domain(namespace, name):
            return RefusalReason.NOT_ALLOWED, wrong
        if kept := self.reserved_names.reserved_for_another(Name(_place(port), str(name)), namespace):
            return RefusalReason.NAME_RESERVED, kept
        owner = owners.owner(listener_of(port), name, port.protocol) if port.mode == "http" else claim
        if owner is None:
            owners.name(listener_of(port), name, claim, port.protocol)
        if owner is None or owner is claim:
            return None
        detail = f"{owner.ref} has this name on {port.bind} already; choose another one for one of them"
        return RefusalReason.NAME_TAKEN, detail

    def _from_templates(self, claim: Kube2lbClaim) -> Iterator[ServerName]:
        for template in self.templates:
            try:
                yield template.name(claim.entry, self.domain)
            except ValueError as error:
                self.refused.append(
                    refusal(claim.ref, "server name", template.text, RefusalReason.INVALID_VALUE, str(error))
                )


class Kube2lbServerNames:
    """The server names of all services, in the domain of the settings as decided, and in any other."""

    def __init__(
        self,
        decided: Mapping[int, DecidedPorts],
        options: Kube2lbOptions,
        rules: ClaimOptions,
        reservations: Reservations,
    ) -> None:
        self._decided, self._options, self._rules, self._reservations = decided, options, rules, reservations
        self._elsewhere: dict[tuple[int, str], Mapping[_EntryKey, Sequence[ServerName]]] = {}

    def of(self, service: Kube2lbService, domain: object) -> list[ServerName]:
        """Return the names by which clients ask for ``service``, those of the templates first.

        Raises:
            ValueError: ``service`` is not one of ``services``.
        """
        try:
            return list(self._names(service.port.port, str(domain)).get(_key(service), ()))
        except (AttributeError, TypeError):
            raise ValueError(f"ServerNames takes one of services, not {values.shortened(str(service))}") from None

    def _names(self, number: int, domain: str) -> Mapping[_EntryKey, Sequence[ServerName]]:
        decided = self._decided.get(number)
        if decided is None or domain == self._options.domain:
            return decided.names if decided is not None else {}
        if (number, domain) not in self._elsewhere:
            templates = tuple(map(name_template, self._options.server_name_templates))
            # Who has a reserved name is of no account: nobody is told of it.
            reserved_names = ReservedNames(self._reservations, tuple)
            giving = _Giving(templates, domain, reserved_names, self._rules, {}, [], {})
            self._elsewhere[number, domain] = giving.names_of(decided.served)
        return self._elsewhere[number, domain]


def _key(entry: Kube2lbService) -> _EntryKey:
    return entry.namespace, entry.name, entry.port


def port_order(port: Kube2lbPort) -> tuple[int, bytes, int, str, str]:
    """Return by what ports are sorted."""
    address = ip_address(port.ip)
    return address.version, address.packed, port.port, port.protocol, port.mode


def refusal(ref: ObjectRef, field_: str, value: str, reason: RefusalReason, detail: str) -> Refusal:
    """Refuse a value of an object; it is shown shortened and escaped."""
    return Refusal(ref, field_, values.shortened(value), reason, detail)
