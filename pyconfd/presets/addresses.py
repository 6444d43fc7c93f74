"""The pool of addresses: which one each Gateway and each Service of type LoadBalancer gets.

Both ask one pool, so it is shared out in one place, before the presets read: :func:`read` turns the objects of a
Snapshot into requests, :func:`allocate` answers them. The answer depends on the objects alone: on all load balancers of
a cluster it is the same one, and what an object has in its status it keeps.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from pyconfd.model.context import PresetName
from pyconfd.model.kubernetes import Service
from pyconfd.model.listener import Listener
from pyconfd.model.records import Status
from pyconfd.model.reservation import (
    NEVER,
    NO_OWNERS,
    NO_RESERVATIONS,
    Name,
    Owner,
    Owners,
    Reservation,
    Reservations,
)
from pyconfd.model.snapshot import KIND_OF, HostFacts, Key, Resource, Snapshot
from pyconfd.model.versioned import differing, with_values
from pyconfd.presets import conflicts, values
from pyconfd.presets.conflicts import updated
from pyconfd.presets.policy import ANYTHING, ClaimOptions

GATEWAY_CONTROLLER = "pyconfd.io/gateway"
"""``controllerName`` of the GatewayClasses that pyconfd serves."""
LOAD_BALANCER_CLASS = "pyconfd.io/lb"
"""``spec.loadBalancerClass`` of the Services that pyconfd serves."""
ADDRESSES_ANNOTATION = "pyconfd.io/addresses"
"""The annotation of a Service that asks for certain addresses of the pool, separated by commas."""

_ASKING = MappingProxyType({Resource.GATEWAYS: "gateway", Resource.SERVICES: PresetName.LOADBALANCER})
"""The resources whose objects are given addresses, each with the preset that serves them."""
RESERVED = "addresses"
"""Stands for the pool where names and ports are reserved by preset."""
_ANY = ""
_FAMILIES = frozenset({"IPv4", "IPv6", _ANY})
_WHOLE = 0
"""Stands for all ports of an address."""


@dataclass(frozen=True, slots=True)
class AddressOptions:
    """``[addresses]`` of the settings: single addresses in their usual spelling.

    ``pool`` is shared out in this order, ``members`` are the same; ``shared`` are those that names of the shared
    frontends are reached at. ``default_class``: Services without a class are served too.
    """

    pool: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    default_class: bool = False
    members: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the set."""
        object.__setattr__(self, "members", frozenset(self.pool))


NO_POOL = AddressOptions()


class AddressReason(StrEnum):
    """Why an address cannot be had."""

    NO_POOL = "no_pool"
    NO_FAMILY = "no_family"
    EXHAUSTED = "exhausted"
    INVALID = "invalid"
    NOT_ALLOWED = "not_allowed"
    NOT_IN_POOL = "not_in_pool"
    RESERVED = "reserved"
    TAKEN = "taken"

    @property
    def is_about_one_address(self) -> bool:
        """Whether the object asks for an address that it cannot have, where another one may be free."""
        return self not in {AddressReason.NO_POOL, AddressReason.NO_FAMILY, AddressReason.EXHAUSTED}


class AddressProblem(NamedTuple):
    """An address that an object asks for and cannot have; ``wanted`` is "" or a family where any would do.

    ``detail`` says why, and what to do.
    """

    wanted: str
    reason: AddressReason
    detail: str


@dataclass(frozen=True, slots=True)
class AddressRequest:
    """What one object asks for.

    ``wanted`` has an entry for each address: that address, or "IPv4", "IPv6" or "" for any of a family or at all.
    ``ports`` are the TCP ports that it needs there, and others may have the rest; () is all ports. ``current`` are the
    addresses in its status. ``problems`` were found in what it asks for.
    """

    resource: Resource
    key: Key
    created: str
    wanted: tuple[str, ...] = (_ANY,)
    ports: tuple[int, ...] = ()
    current: tuple[str, ...] = ()
    problems: tuple[AddressProblem, ...] = ()

    @property
    def rank(self) -> tuple[str, Key, Resource]:
        """The older object comes first; the name decides between twins."""
        return self.created, self.key, self.resource

    def __str__(self) -> str:
        return f"{KIND_OF[self.resource]} {'/'.join(self.key)}"


class Assigned(NamedTuple):
    """The addresses that an object has, in the order in which it asks for them, and why it lacks others."""

    addresses: tuple[str, ...] = ()
    problems: tuple[AddressProblem, ...] = ()


NOTHING_ASSIGNED = Assigned()
Requests = Mapping[Key, AddressRequest]


def allocate(
    requests: Iterable[AddressRequest], pool: Sequence[str], reservations: Reservations = NO_RESERVATIONS
) -> dict[tuple[Resource, Key], Assigned]:
    """Return what each request is given.

    First each object keeps the addresses in its status, as far as it still asks for them; then the others are served by
    age. A request for any address gets one that no request names, if there is one. An address that is reserved for
    another namespace is not given.
    """
    ranked = sorted(requests, key=lambda request: request.rank)
    free = _Free(pool, {each for request in ranked for each in request.wanted}, reservations)
    found: dict[tuple[Resource, Key], dict[str, str]] = defaultdict(dict)
    for request in ranked:
        for wanted in request.wanted if request.current else ():
            address = next((each for each in request.current if free.suits(each, wanted, request)), "")
            if address:
                free.take(address, request)
                found[request.resource, request.key][wanted] = address
    result = {}
    for request in ranked:
        had = found[request.resource, request.key]
        problems = list(request.problems)
        for wanted in request.wanted:
            if wanted in had:
                continue
            address = free.first(wanted, request)
            if address:
                free.take(address, request)
                had[wanted] = address
            else:
                problems.append(free.problem(wanted, request))
        addresses = tuple(had[wanted] for wanted in request.wanted if wanted in had)
        if addresses:
            # Of two families the pool may have one: the object is served there.
            problems = [each for each in problems if each.reason is not AddressReason.NO_FAMILY]
        result[request.resource, request.key] = Assigned(addresses, tuple(problems))
    return result


class _Free:
    """What is left of the pool.

    Within one allocation nothing becomes free again, so a search for a port starts where the former one ended.
    """

    def __init__(self, pool: Sequence[str], named: Collection[str], reservations: Reservations) -> None:
        self._pool = frozenset(pool)
        self._reserved: defaultdict[str, list[tuple[int, Reservation]]] = defaultdict(list)
        for (place, _), reservation in reservations.items():
            address, _, port = (place, "", "") if place in self._pool else place.rpartition(":")
            self._reserved[address.strip("[]")].append((int(port) if port.isdecimal() else _WHOLE, reservation))
        order = sorted(pool, key=named.__contains__)
        self._order = {
            _ANY: order,
            "IPv4": [each for each in order if ":" not in each],
            "IPv6": [each for each in order if ":" in each],
        }
        self._owners: dict[tuple[str, int], AddressRequest] = {}
        self._in_use: dict[str, AddressRequest] = {}
        self._starts: defaultdict[tuple[str, int], int] = defaultdict(int)

    def suits(self, address: str, wanted: str, request: AddressRequest) -> bool:
        """Return whether an address is in the pool, is what is wanted, and can be had."""
        right = wanted == address or (wanted in _FAMILIES and wanted in {_ANY, _family(address)})
        return right and address in self._pool and self._is_free(address, request)

    def take(self, address: str, request: AddressRequest) -> None:
        """Record that a request has an address."""
        self._in_use.setdefault(address, request)
        for port in request.ports or (_WHOLE,):
            self._owners[address, port] = request

    def first(self, wanted: str, request: AddressRequest) -> str:
        """Return the address to give, "" where there is none."""
        if wanted not in _FAMILIES:
            return wanted if self.suits(wanted, wanted, request) else ""
        order = self._order[wanted]
        ports = request.ports or (_WHOLE,)
        for port in ports:
            start = self._starts[wanted, port]
            while start < len(order) and self._owner_of(order[start], (port,) if port else ()) is not None:
                start += 1
            self._starts[wanted, port] = start
        start = max(self._starts[wanted, port] for port in ports)
        return next((each for each in order[start:] if self._is_free(each, request)), "")

    def problem(self, wanted: str, request: AddressRequest) -> AddressProblem:
        """Return why an address cannot be had."""
        problem = partial(AddressProblem, wanted)
        if not self._pool:
            return problem(AddressReason.NO_POOL, "there is no pool of addresses: set addresses.pool")
        if wanted not in _FAMILIES:
            if wanted not in self._pool:
                return problem(AddressReason.NOT_IN_POOL, "this address is not in the setting addresses.pool")
            if owner := self._owner_of(wanted, request.ports):
                detail = f"{owner} has this address already; ask for another one, or for none"
                return problem(AddressReason.TAKEN, detail)
            reserved = next(self._reserved_for_others(wanted, request))
            why = conflicts.reserved_until(reserved) if reserved.until else f"namespace {reserved.namespace} has it"
            return problem(AddressReason.RESERVED, why)
        if not self._order[wanted]:
            return problem(AddressReason.NO_FAMILY, f"the setting addresses.pool has no {wanted} address")
        what = f"with the ports {', '.join(map(str, request.ports))} free" if request.ports else "that is free"
        family = f"{wanted} address" if wanted else "address"
        return problem(AddressReason.EXHAUSTED, f"the setting addresses.pool has no {family} {what}: add addresses")

    def _is_free(self, address: str, request: AddressRequest) -> bool:
        return self._owner_of(address, request.ports) is None and not any(self._reserved_for_others(address, request))

    def _reserved_for_others(self, address: str, request: AddressRequest) -> Iterator[Reservation]:
        for port, reservation in self._reserved.get(address, ()):
            concerned = not (port and request.ports) or port in request.ports
            # The namespace may have it again by an object that is younger than this one.
            counts = reservation.until or request.created >= reservation.since
            if concerned and counts and reservation.namespace != request.key.namespace:
                yield reservation

    def _owner_of(self, address: str, ports: tuple[int, ...]) -> AddressRequest | None:
        """Return the owner of an address, or of one of these ports of it; None where it is free."""
        user = self._in_use.get(address)
        if user is None or not ports:
            return user
        return next((self._owners[address, each] for each in (_WHOLE, *ports) if (address, each) in self._owners), None)


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


# From the objects of a Snapshot to requests


@dataclass(frozen=True, slots=True)
class AddressBook:
    """The requests for addresses and what was assigned; what did not change is the same object as in the former one.

    ``terms`` are all beside the objects that requests are read and answered with. ``owners`` says who has which
    address, or which port of one.
    """

    snapshot: Snapshot
    terms: tuple[Any, ...]
    requests: Mapping[Resource, Requests]
    assigned: Mapping[Resource, Mapping[Key, Assigned]]
    owners: Owners = field(default_factory=lambda: NO_OWNERS)

    def of(self, resource: Resource, key: Key) -> Assigned:
        """Return what an object has."""
        return self.of_all(resource).get(key, NOTHING_ASSIGNED)

    def of_all(self, resource: Resource) -> Mapping[Key, Assigned]:
        """Return what each object of a resource has."""
        return self.assigned.get(resource, _NOBODY)


_NOBODY: Mapping[Key, Assigned] = MappingProxyType({})
NO_ADDRESSES = AddressBook(Snapshot(), (), MappingProxyType({}), MappingProxyType({}))


def read(
    snapshot: Snapshot,
    presets: Collection[str] = (),
    options: AddressOptions = NO_POOL,
    claims: ClaimOptions = ANYTHING,
    former: AddressBook = NO_ADDRESSES,
    *,
    reservations: Reservations = NO_RESERVATIONS,
) -> AddressBook:
    """Return which addresses the objects of these presets have. Never raises.

    With ``former`` only changed objects are read, and nothing is shared out again unless one asks for something else.
    """
    asking = tuple(resource for resource, preset in _ASKING.items() if preset in presets)
    terms = (asking, options.pool, options.default_class, claims, reservations)
    if snapshot is former.snapshot and terms == former.terms:
        return former
    same_terms = terms == former.terms
    if terms[:-1] != former.terms[:-1]:
        former = NO_ADDRESSES
    requests = {resource: _requests(resource, snapshot, options, claims, former) for resource in asking}
    changed = [
        (requests[resource].get(key), former.requests.get(resource, {}).get(key))
        for resource in asking
        for key in differing(former.requests.get(resource, {}), requests[resource])
    ]
    assigned, owners = former.assigned, former.owners
    if not (same_terms and all(_asks_alike(new, old, former) for new, old in changed)):
        found = allocate((each for mine in requests.values() for each in mine.values()), options.pool, reservations)
        assigned = {
            resource: _kept(former.assigned.get(resource, {}), {key: found[resource, key] for key in mine})
            for resource, mine in requests.items()
        }
        owners = _owners(requests, assigned)
    return AddressBook(snapshot, terms, requests, assigned, owners)


def _owners(requests: Mapping[Resource, Requests], assigned: Mapping[Resource, Mapping[Key, Assigned]]) -> Owners:
    found: dict[Name, Owner] = {}
    for resource, mine in requests.items():
        for key, request in mine.items():
            owner = Owner(KIND_OF[resource], *key, request.created)
            for address in assigned[resource][key].addresses:
                places = [str(Listener(address, port)) for port in request.ports] or [address]
                found |= {Name(place, ""): owner for place in places}
    return found


def _asks_alike(new: AddressRequest | None, old: AddressRequest | None, former: AddressBook) -> bool:
    """Return whether a request changes nothing for anybody: all that is new is that the object's status has its answer.

    The object then keeps what it was given before, so no other object gets anything else.
    """
    if new is None or old is None or replace(new, current=()) != replace(old, current=()):
        return False
    return len(new.wanted) == 1 and new.current == former.of(new.resource, new.key).addresses


def _kept(former: Mapping[Key, Assigned], now: dict[Key, Assigned]) -> Mapping[Key, Assigned]:
    """Return ``now`` with the objects of ``former`` that are equal."""
    if former.keys() != now.keys():
        return {key: old if (old := former.get(key)) is not None and old == new else new for key, new in now.items()}
    return with_values(former, {key: new for key, new in now.items() if new != former[key]})


def _requests(
    resource: Resource, snapshot: Snapshot, options: AddressOptions, claims: ClaimOptions, former: AddressBook
) -> Requests:
    objects: Mapping[Key, Any] = getattr(snapshot, resource.field)
    known = former.requests.get(resource, {})
    changed = differing(getattr(former.snapshot, resource.field), objects)
    if resource is Resource.GATEWAYS:
        if differing(former.snapshot.gatewayclasses, snapshot.gatewayclasses):
            changed = {*changed, *objects}
        return updated(known, changed, lambda key: _of_gateway(key, snapshot, claims))
    return updated(known, changed, lambda key: _of_service(key, snapshot, options, claims))


def is_served(service: Service, options: AddressOptions) -> bool:
    """Return whether a Service is of type LoadBalancer and of pyconfd's class."""
    spec = service.spec
    mine = spec.load_balancer_class == LOAD_BALANCER_CLASS or (not spec.load_balancer_class and options.default_class)
    return spec.type == "LoadBalancer" and mine


def _of_service(key: Key, snapshot: Snapshot, options: AddressOptions, claims: ClaimOptions) -> AddressRequest | None:
    service = snapshot.services.get(key)
    if service is None or not is_served(service, options):
        return None
    ports = {each.port for each in service.spec.ports or () if (each.protocol or "TCP") == "TCP"}
    ports = {each for each in ports if not claims.port(key.namespace, each)}
    if not ports or claims.protocol(key.namespace, "tcp"):
        return None
    texts = (service.metadata.annotations or {}).get(ADDRESSES_ANNOTATION, "") or service.spec.load_balancer_ip or ""
    asked = [text.strip() for text in texts.split(",") if text.strip()]
    families = [each for each in service.spec.ip_families or () if each in _FAMILIES]
    wanted, problems = _wanted(asked or families or [_ANY], key, claims)
    current = _current(service.status, "loadBalancer", "ingress", name="ip")
    created = service.metadata.creation_timestamp or NEVER
    return AddressRequest(Resource.SERVICES, key, created, wanted, tuple(sorted(ports)), current, problems)


def _of_gateway(key: Key, snapshot: Snapshot, claims: ClaimOptions) -> AddressRequest | None:
    gateway = snapshot.gateways.get(key)
    found = snapshot.gatewayclasses.get(Key("", gateway.spec.gateway_class_name)) if gateway is not None else None
    if gateway is None or found is None or found.spec.controller_name != GATEWAY_CONTROLLER:
        return None
    if found.spec.parameters_ref is not None:  # a class that is not accepted serves nothing
        return None
    asked = gateway.spec.addresses or ()
    if any(each.type != "IPAddress" for each in asked):
        return None
    if all(claims.port(key.namespace, each.port) for each in gateway.spec.listeners):
        return None
    wanted, problems = _wanted([each.value for each in asked] or [_ANY], key, claims)
    current = _current(gateway.status, "addresses", name="value")
    created = gateway.metadata.creation_timestamp or NEVER
    return AddressRequest(Resource.GATEWAYS, key, created, wanted, (), current, problems)


def _wanted(asked: Iterable[str], key: Key, claims: ClaimOptions) -> tuple[tuple[str, ...], tuple[AddressProblem, ...]]:
    """Return what can be wanted of what is asked for, each once, and what is wrong with the rest."""
    wanted: dict[str, None] = {}
    problems = []
    for text in asked:
        address = values.address(text)
        if text in _FAMILIES:
            wanted[text] = None
        elif address is None:
            problems.append(AddressProblem(values.shown(text), AddressReason.INVALID, "not an IP address"))
        elif wrong := claims.address(key.namespace, address):
            problems.append(AddressProblem(str(address), AddressReason.NOT_ALLOWED, wrong))
        else:
            wanted[str(address)] = None
    return tuple(wanted), tuple(problems)


def _current(status: Status | None, *path: str, name: str) -> tuple[str, ...]:
    """Return the addresses in a status, which anybody may have written."""
    found: Any = status
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    texts = [each.get(name) for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    parsed = (values.canonical_address(text) for text in texts if isinstance(text, str))
    return tuple(dict.fromkeys(each[0] for each in parsed if each is not None))


def absent(address: str, host: HostFacts) -> str:
    """Return why no connection to an address of the pool gets to this machine, "" where it may."""
    free = host.nonlocal_bind_v6 if ":" in address else host.nonlocal_bind_v4
    # All of 127.0.0.0/8 is there, though the interface lists one. Without facts about the host nothing is judged.
    if free or not host.known or address in host.addresses or address.startswith("127."):
        return ""
    family = "ipv6" if ":" in address else "ipv4"
    return (
        f"not on this machine, so nothing reaches it: `ip address add {address} dev DEVICE`,"
        f" or net.{family}.ip_nonlocal_bind=1 if it floats"
    )
