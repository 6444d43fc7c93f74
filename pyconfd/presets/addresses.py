"""The pool of addresses: which one each Gateway and each Service of type LoadBalancer gets.

Both ask one pool, so it is shared out in one place: :func:`of_gateway` and :func:`of_service` turn objects into
requests, :func:`allocate` answers all of them (:mod:`pyconfd.presets.address_ownership`). The answer depends on the
objects, and on what the register of names says of them: what an object was given it keeps. Its status counts for
nothing: others may write it.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import partial
from typing import NamedTuple

from pyconfd.model.gateway_api import Gateway, GatewayClass
from pyconfd.model.kubernetes import Service
from pyconfd.model.listener import Listener
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.ownership import BY_OBJECT
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
from pyconfd.model.snapshot import KIND_OF, HostFacts, Key, Resource
from pyconfd.presets import conflicts, values
from pyconfd.presets.policy import ClaimOptions

GATEWAY_CONTROLLER = "pyconfd.io/gateway"
"""``controllerName`` of the GatewayClasses that pyconfd serves."""
LOAD_BALANCER_CLASS = "pyconfd.io/lb"
"""``spec.loadBalancerClass`` of the Services that pyconfd serves."""
ADDRESSES_ANNOTATION = "pyconfd.io/addresses"
"""The annotation of a Service that asks for certain addresses of the pool, separated by commas."""
SHARING_ANNOTATION = "pyconfd.io/sharing-key"
"""The annotation of Services of several namespaces that share an address: an equal one on all of them."""
MOST_ADDRESSES = 16
"""Addresses that one object asks for, as the CRD of Gateways has it: an annotation has room for 20,000."""
MOST_PORTS = 1_000
"""Ports of one Service: each is a frontend, and the API takes tens of thousands."""
_MOST_SHOWN = 8
_SHARING_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)

RESERVED = BY_OBJECT
"""Stands for the pool where names and ports are reserved by preset."""
_ANY = ""
_FAMILIES = frozenset({"IPv4", "IPv6", _ANY})
_WHOLE = 0
"""Stands for all ports of an address."""
FIRST_OWNER = "first owner"
"""The name at an address that namespaces share of who had it before the others; a sharing key has no space."""


@dataclass(frozen=True, slots=True)
class AddressOptions:
    """``[addresses]`` of the settings: single addresses in their usual spelling.

    ``pool`` is shared out in this order, ``members`` are the same; ``shared`` are those that names of the shared
    frontends are reached at. ``default_class``: Services without a class are served too. ``per_namespace`` is how many
    addresses of the pool one namespace is given, 0 for as many as there are.
    """

    pool: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    default_class: bool = False
    per_namespace: int = 0
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
    TOO_MANY = "too_many"
    INVALID = "invalid"
    INVALID_KEY = "invalid_key"
    NOT_ALLOWED = "not_allowed"
    NOT_IN_POOL = "not_in_pool"
    RESERVED = "reserved"
    TAKEN = "taken"

    @property
    def is_about_one_address(self) -> bool:
        """Whether the object asks for an address that it cannot have, where another one may be free."""
        return self not in {
            AddressReason.NO_POOL,
            AddressReason.NO_FAMILY,
            AddressReason.EXHAUSTED,
            AddressReason.TOO_MANY,
        }


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
    ``ports`` are the TCP ports that it needs there, and others may have the rest; () is all ports. ``sharing_key`` is
    for others of another namespace, "" shares with none. ``problems`` were found in what it asks for.
    """

    resource: Resource
    key: Key
    created: str
    wanted: tuple[str, ...] = (_ANY,)
    ports: tuple[int, ...] = ()
    sharing_key: str = ""
    problems: tuple[AddressProblem, ...] = ()

    @property
    def rank(self) -> tuple[str, Key, Resource]:
        """The older object comes first; the name decides between twins."""
        return self.created, self.key, self.resource

    @property
    def id(self) -> ObjectKey:
        """The object, as it is told what it has."""
        return ObjectKey(self.resource, self.key)

    @property
    def owner(self) -> Owner:
        """The object."""
        return Owner(KIND_OF[self.resource], *self.key, self.created)

    def places(self, address: str) -> Iterator[Name]:
        """Return what it has where it has an address: its ports there, or all of it."""
        places = [str(Listener(address, port)) for port in self.ports] or [address]
        return (Name(place, self.sharing_key) for place in places)

    def __str__(self) -> str:
        return f"{KIND_OF[self.resource]} {'/'.join(self.key)}"


class Assigned(NamedTuple):
    """The addresses that an object has, in the order in which it asks for them, and why it lacks others."""

    addresses: tuple[str, ...] = ()
    problems: tuple[AddressProblem, ...] = ()


NOTHING_ASSIGNED = Assigned()


def allocate(
    requests: Iterable[AddressRequest],
    pool: Sequence[str],
    reservations: Reservations = NO_RESERVATIONS,
    *,
    owners: Owners = NO_OWNERS,
    per_namespace: int = 0,
) -> dict[ObjectKey, Assigned]:
    """Return what each request is given.

    First each object keeps what it has by ``owners``, as far as it still asks for it, in the order of
    :class:`_Precedence`. Then what is reserved for an object that is created again, then the others by age. A request
    for any address gets one that no request names, if there is one.
    """
    ranked = sorted(requests, key=lambda request: request.rank)
    free = _Free(pool, {each for request in ranked for each in request.wanted}, reservations, per_namespace)
    owned = _by_object(owners)
    first = _FirstOwners(ranked, owners, owned)
    for precedence in _Precedence if owned else ():
        for request in ranked:
            for address, has in owned.get(request.owner[:3], {}).items():
                if first.precedence(request, address, has) is precedence:
                    but_guests = precedence is _Precedence.AS_BEFORE or first.is_first(request, address)
                    free.keep(request, address, but_guests=but_guests)
    for request in ranked if reservations else ():
        for address in free.kept_for(request):
            free.keep(request, address)
    for request in ranked:
        free.assign(request)
    return {request.id: free.answer(request) for request in ranked}


class _Precedence(Enum):
    """How an object asks for an address of which it has a part; who comes first keeps it."""

    AS_BEFORE = "no more than it has"
    ASKS_FOR_MORE = "more ports than it has, or by another sharing key"
    LOST_CONSENT = "as a guest of another namespace, which does not share it by this key"


class _FirstOwners:
    """Which namespace was first at each address that namespaces share, and by which keys its objects share it now."""

    def __init__(
        self,
        requests: Iterable[AddressRequest],
        owners: Owners,
        owned: Mapping[tuple[str, str, str], Mapping[str, set[Name]]],
    ) -> None:
        self._namespaces = {name.place: owner.namespace for name, owner in owners.items() if name.name == FIRST_OWNER}
        self._keys: defaultdict[str, set[str]] = defaultdict(set)
        for request in requests if self._namespaces else ():
            for address in owned.get(request.owner[:3], ()):
                if self.is_first(request, address):
                    self._keys[address].add(request.sharing_key)

    def is_first(self, request: AddressRequest, address: str) -> bool:
        """Return whether an object is of the namespace that was first at a shared address."""
        return self._namespaces.get(address) == request.key.namespace

    def precedence(self, request: AddressRequest, address: str, has: Collection[Name]) -> _Precedence:
        """Return how an object asks for an address of which it has a part."""
        of_first = self._keys.get(address, {request.sharing_key})
        if of_first != {request.sharing_key} and not self.is_first(request, address):
            return _Precedence.LOST_CONSENT
        is_as_before = all(each in has for each in request.places(address))
        return _Precedence.AS_BEFORE if is_as_before else _Precedence.ASKS_FOR_MORE


def first_owners(
    requests: Iterable[AddressRequest],
    assigned: Mapping[ObjectKey, Assigned],
    owners: Owners,
    reservations: Reservations,
) -> Iterator[tuple[Name, Owner]]:
    """Return who was first at each address that namespaces share: that namespace ends it without losing the address.

    It stays the first one while an object of it is there, and while the place of one that is gone is reserved.
    """
    users: defaultdict[str, list[AddressRequest]] = defaultdict(list)
    for request in requests:
        for address in assigned[request.id].addresses if request.sharing_key else ():
            users[address].append(request)
    shared = {each: mine for each, mine in users.items() if len({user.key.namespace for user in mine}) > 1}
    had = _by_object(owners) if shared else {}
    for address, mine in shared.items():
        name = Name(address, FIRST_OWNER)
        known = owners.get(name) or (reservations[name].owner if name in reservations else None)
        in_order = sorted(
            (user for user in mine if known is None or user.key.namespace == known.namespace),
            key=lambda user: (user.owner != known, address not in had.get(user.owner[:3], ()), user.rank),
        )
        if in_order:
            yield name, in_order[0].owner


def _by_object(owners: Owners) -> Mapping[tuple[str, str, str], Mapping[str, set[Name]]]:
    """Return what each object (kind, namespace, name) has, by address."""
    found: defaultdict[tuple[str, str, str], defaultdict[str, set[Name]]] = defaultdict(lambda: defaultdict(set))
    for name, owner in owners.items():
        found[owner[:3]][_address_and_port(name.place)[0]].add(name)
    return found


def _address_and_port(place: str) -> tuple[str, int]:
    """Return the address of a place of the register, and the port or ``_WHOLE``."""
    if values.address(place) is not None:
        return place, _WHOLE
    address, _, port = place.rpartition(":")
    return address.strip("[]"), int(port) if port.isdecimal() else _WHOLE


class _ReservedPlace(NamedTuple):
    port: int
    sharing_key: str
    reservation: Reservation


class _PartlyUsedAddresses:
    """Addresses that are partly in use, the first one first."""

    def __init__(self) -> None:
        self._listed: list[str] = []
        self._members: set[str] = set()
        self._starts: defaultdict[tuple[str, tuple[int, ...]], int] = defaultdict(int)

    def add(self, address: str) -> None:
        """Add one that is not known yet."""
        if address not in self._members:
            self._members.add(address)
            self._listed.append(address)

    def after(self, wanted: str, ports: tuple[int, ...], is_taken: Callable[[str], bool]) -> Iterator[str]:
        """Return those from the first one on of which these ports are not taken; what is taken stays so."""
        start = self._starts[wanted, ports]
        while start < len(self._listed) and is_taken(self._listed[start]):
            start += 1
        self._starts[wanted, ports] = start
        return (self._listed[number] for number in range(start, len(self._listed)))


class _Free:
    """What is left of the pool.

    Within one allocation nothing becomes free again, so a search starts where the former one ended.
    """

    def __init__(
        self, pool: Sequence[str], named: Collection[str], reservations: Reservations, per_namespace: int
    ) -> None:
        self._pool, self._named, self._per_namespace = frozenset(pool), named, per_namespace
        self._reserved: defaultdict[str, list[_ReservedPlace]] = defaultdict(list)
        self._counted: defaultdict[str, set[str]] = defaultdict(set)
        """By namespace: the addresses of which it has a part, and those that are kept for it."""
        self._kept: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        for (place, key), reservation in reservations.items():
            address, port = _address_and_port(place)
            if key != FIRST_OWNER:
                self._reserved[address].append(_ReservedPlace(port, key, reservation))
            self._counted[reservation.namespace].add(address)
            self._kept[reservation.namespace, reservation.owner.name][address] = None
        order = sorted(pool, key=named.__contains__)
        self._order = {
            _ANY: order,
            "IPv4": [each for each in order if ":" not in each],
            "IPv6": [each for each in order if ":" in each],
        }
        self._owners: dict[tuple[str, int], AddressRequest] = {}
        self._users: defaultdict[str, defaultdict[str, dict[str, AddressRequest]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        """By address, namespace and sharing key: the oldest."""
        self._of_namespace: defaultdict[str, _PartlyUsedAddresses] = defaultdict(_PartlyUsedAddresses)
        self._of_key: defaultdict[str, _PartlyUsedAddresses] = defaultdict(_PartlyUsedAddresses)
        self._starts: defaultdict[str, int] = defaultdict(int)
        self._nothing_unused: set[tuple[str, str]] = set()
        self._given: defaultdict[ObjectKey, dict[str, str]] = defaultdict(dict)
        """By request: the address for each of what it wants."""

    def keep(self, request: AddressRequest, address: str, *, but_guests: bool = False) -> None:
        """Assign an address if the request wants and can have it.

        ``but_guests``: what is reserved there for others by a sharing key that the request does not have is void.
        """
        given = self._given[request.id]
        lacking = (each for each in request.wanted if each not in given)
        suiting = (each for each in lacking if self._suits(address, each, request, but_guests=but_guests))
        if (wanted := next(suiting, None)) is not None:
            self._take(address, wanted, request)

    def assign(self, request: AddressRequest) -> None:
        """Assign what a request still lacks, as far as there is something."""
        given = self._given[request.id]
        for wanted in request.wanted:
            if wanted not in given and (address := self._first(wanted, request)):
                self._take(address, wanted, request)

    def answer(self, request: AddressRequest) -> Assigned:
        """Return all that a request has, and why it lacks others, once everything is assigned."""
        given = self._given[request.id]
        problems = [
            *request.problems,
            *(self._problem(wanted, request) for wanted in request.wanted if wanted not in given),
        ]
        addresses = tuple(given[wanted] for wanted in request.wanted if wanted in given)
        if addresses:
            # Of two families the pool may have one: the object is served there.
            problems = [each for each in problems if each.reason is not AddressReason.NO_FAMILY]
        return Assigned(addresses, tuple(problems))

    def _suits(self, address: str, wanted: str, request: AddressRequest, *, but_guests: bool = False) -> bool:
        """Return whether an address is in the pool, is what is wanted, and can be had."""
        right = wanted == address or (wanted in _FAMILIES and wanted in {_ANY, _family(address)})
        return right and address in self._pool and self._is_free(address, request, but_guests=but_guests)

    def _take(self, address: str, wanted: str, request: AddressRequest) -> None:
        self._given[request.id][wanted] = address
        namespace, key = request.key.namespace, request.sharing_key
        by_key = self._users[address][namespace]
        by_key[key] = min(by_key.get(key, request), request, key=_rank)
        self._of_namespace[namespace].add(address)
        self._counted[namespace].add(address)
        if key:
            self._of_key[key].add(address)
        for port in request.ports or (_WHOLE,):
            self._owners[address, port] = request

    def kept_for(self, request: AddressRequest) -> Collection[str]:
        """Return the addresses that are reserved for an object of this name, or for any of its namespace."""
        known, unknown = self._kept.get(request.key, ()), self._kept.get((request.key.namespace, ""), ())
        # Another balancer may have recorded the namespace alone, in any order.
        return (*known, *(each for each in self._order[_ANY] if each in unknown)) if unknown else (*known,)

    def _first(self, wanted: str, request: AddressRequest) -> str:
        """Return the address to give, "" where there is none: rather one that is shared than one that is unused."""
        if wanted not in _FAMILIES:
            right = self._has_room(wanted, request) and self._suits(wanted, wanted, request)
            return wanted if right else ""
        named = ""
        for each in self._shared(wanted, request):
            if self._has_room(each, request) and self._suits(each, wanted, request):
                if each not in self._named:
                    return each
                named = named or each
        unused = self._unused(wanted, request)
        # What another one names comes last.
        return named if named and (not unused or unused in self._named) else unused

    def _shared(self, wanted: str, request: AddressRequest) -> Iterator[str]:
        """Return the addresses of which this namespace, or one with the same sharing key, has a part."""
        if not request.ports:
            return

        def is_taken(address: str) -> bool:
            return wanted not in {_ANY, _family(address)} or self._owner_of(address, request.ports) is not None

        for found in (self._of_namespace.get(request.key.namespace), self._of_key.get(request.sharing_key)):
            if found is not None:
                yield from found.after(wanted, request.ports, is_taken)

    def _problem(self, wanted: str, request: AddressRequest) -> AddressProblem:
        """Return why an address cannot be had."""
        problem = partial(AddressProblem, wanted)
        if not self._pool:
            return problem(AddressReason.NO_POOL, "there is no pool of addresses: set addresses.pool")
        if wanted not in _FAMILIES:
            if wanted not in self._pool:
                return problem(AddressReason.NOT_IN_POOL, "this address is not in the setting addresses.pool")
            if found := self._why_not(wanted, request):
                return problem(*found)
        elif not self._order[wanted]:
            return problem(AddressReason.NO_FAMILY, f"the setting addresses.pool has no {wanted} address")
        return problem(*self._why_none(wanted, request))

    def _why_not(self, address: str, request: AddressRequest) -> tuple[AddressReason, str] | None:
        if owner := self._owner_of(address, request.ports):
            return AddressReason.TAKEN, f"{owner} has this address already; ask for another one, or for none"
        if other := self._not_shared_by(address, request):
            detail = (
                f"{other} has this address, and shares it with Services of an equal annotation {SHARING_ANNOTATION}"
            )
            return AddressReason.TAKEN, detail
        if reserved := next(self._reserved_for_others(address, request), None):
            why = conflicts.reserved_until(reserved) if reserved.until else f"namespace {reserved.namespace} has it"
            return AddressReason.RESERVED, why
        return None

    def _why_none(self, wanted: str, request: AddressRequest) -> tuple[AddressReason, str]:
        namespace = request.key.namespace
        if not self._has_room("", request):
            count = len(self._counted[namespace])
            remedy = "ask for ports that are free at one of them" if request.ports else "delete a Gateway or Service"
            detail = f"namespace {namespace} has the {count} that addresses.per_namespace allows: {remedy}"
            return AddressReason.TOO_MANY, detail
        what = f"with the ports {_shown(request.ports)} free" if request.ports else "that is free"
        family = f"{wanted} address" if wanted else "address"
        return AddressReason.EXHAUSTED, f"the setting addresses.pool has no {family} {what}: add addresses"

    def _unused(self, wanted: str, request: AddressRequest) -> str:
        namespace, order = request.key.namespace, self._order[wanted]
        if (wanted, namespace) in self._nothing_unused:
            return ""
        start = self._starts[wanted]
        while start < len(order) and order[start] in self._users:
            start += 1
        self._starts[wanted] = start
        unused = (each for each in order[start:] if each not in self._users and self._has_room(each, request))
        found = next((each for each in unused if self._is_free(each, request)), "")
        if not (found or request.sharing_key):
            self._nothing_unused.add((wanted, namespace))
        return found

    def _is_free(self, address: str, request: AddressRequest, *, but_guests: bool = False) -> bool:
        if address in self._users and (
            self._owner_of(address, request.ports) is not None or self._not_shared_by(address, request) is not None
        ):
            return False
        return not any(self._reserved_for_others(address, request, but_guests=but_guests))

    def _has_room(self, address: str, request: AddressRequest) -> bool:
        """Return whether a namespace may have this address beside what it has."""
        mine = self._counted[request.key.namespace]
        return not self._per_namespace or address in mine or len(mine) < self._per_namespace

    def _not_shared_by(self, address: str, request: AddressRequest) -> AddressRequest | None:
        """Return who has a part of an address and does not share it with this namespace."""
        mine, own_key = request.key.namespace, request.sharing_key
        # One of each namespace: a tenant may have thousands of keys there.
        others = (
            next((user for key, user in by_key.items() if not (key and key == own_key)), None)
            for namespace, by_key in self._users.get(address, {}).items()
            if namespace != mine
        )
        return min((user for user in others if user is not None), key=_rank, default=None)

    def _reserved_for_others(
        self, address: str, request: AddressRequest, *, but_guests: bool = False
    ) -> Iterator[Reservation]:
        for port, key, reservation in self._reserved.get(address, ()):
            is_shared = key and key == request.sharing_key and port and request.ports and port not in request.ports
            is_guest = but_guests and key and key != request.sharing_key
            if not (is_shared or is_guest) and reservation.namespace != request.key.namespace:
                yield reservation

    def _owner_of(self, address: str, ports: tuple[int, ...]) -> AddressRequest | None:
        """Return the owner of an address, or of one of these ports of it; None where it is free."""
        users = self._users.get(address)
        if not users or not ports:
            return min((next(iter(each.values())) for each in users.values()), key=_rank) if users else None
        return next((self._owners[address, each] for each in (_WHOLE, *ports) if (address, each) in self._owners), None)


def _shown(ports: Sequence[int]) -> str:
    few = ", ".join(map(str, ports[:_MOST_SHOWN]))
    return few if len(ports) <= _MOST_SHOWN else f"{few} and {len(ports) - _MOST_SHOWN} more"


def _rank(request: AddressRequest) -> tuple[str, Key, Resource]:
    return request.rank


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


# From objects to requests


def is_served(service: Service, options: AddressOptions) -> bool:
    """Return whether a Service is of type LoadBalancer and of pyconfd's class."""
    spec = service.spec
    mine = spec.load_balancer_class == LOAD_BALANCER_CLASS or (not spec.load_balancer_class and options.default_class)
    return spec.type == "LoadBalancer" and mine


def is_of_gateway(service: Service) -> bool:
    """Return whether a Service is one that pyconfd made for a Gateway, by its class."""
    return service.spec.load_balancer_class == GATEWAY_CONTROLLER


def of_service(key: Key, service: Service, options: AddressOptions, claims: ClaimOptions) -> AddressRequest | None:
    """Return what a Service asks for, None where it is not pyconfd's or may have no port."""
    if not is_served(service, options):
        return None
    ports = {each.port for each in service.spec.ports or () if (each.protocol or "TCP") == "TCP"}
    ports = {each for each in ports if not claims.port(key.namespace, each)}
    if not ports or claims.protocol(key.namespace, "tcp"):
        return None
    if len(service.spec.ports or ()) > MOST_PORTS:
        return None
    texts = (service.metadata.annotations or {}).get(ADDRESSES_ANNOTATION, "") or service.spec.load_balancer_ip or ""
    asked = [text.strip() for text in texts.split(",") if text.strip()]
    families = [each for each in service.spec.ip_families or () if each in _FAMILIES]
    wanted, problems = _wanted(asked or families or [_ANY], key, claims)
    sharing_key = (service.metadata.annotations or {}).get(SHARING_ANNOTATION, "").strip()
    if sharing_key and not _SHARING_KEY.fullmatch(sharing_key):
        detail = "expected up to 63 letters, digits, '-', '_' and '.': it is shared with no other namespace"
        problems = (*problems, AddressProblem(values.shortened(sharing_key), AddressReason.INVALID_KEY, detail))
        sharing_key = ""
    created = service.metadata.creation_timestamp or NEVER
    return AddressRequest(Resource.SERVICES, key, created, wanted, tuple(sorted(ports)), sharing_key, problems)


def of_gateway(key: Key, gateway: Gateway, class_: GatewayClass, claims: ClaimOptions) -> AddressRequest | None:
    """Return what a Gateway asks for, None where it is not pyconfd's or can be served nowhere."""
    if class_.spec.controller_name != GATEWAY_CONTROLLER:
        return None
    if class_.spec.parameters_ref is not None:  # a class that is not accepted serves nothing
        return None
    asked = gateway.spec.addresses or ()
    if any(each.type != "IPAddress" for each in asked):
        return None
    if all(claims.port(key.namespace, each.port) for each in gateway.spec.listeners):
        return None
    wanted, problems = _wanted([each.value for each in asked] or [_ANY], key, claims)
    created = gateway.metadata.creation_timestamp or NEVER
    return AddressRequest(Resource.GATEWAYS, key, created, wanted, problems=problems)


def _wanted(asked: Iterable[str], key: Key, claims: ClaimOptions) -> tuple[tuple[str, ...], tuple[AddressProblem, ...]]:
    """Return what can be wanted of what is asked for, each once, and what is wrong with the rest."""
    wanted: dict[str, None] = {}
    problems, texts = [], list(dict.fromkeys(asked))
    if len(texts) > MOST_ADDRESSES:
        detail = f"it asks for {len(texts)} addresses, and is given some of the first {MOST_ADDRESSES} only"
        problems.append(AddressProblem("", AddressReason.INVALID, detail))
    for text in texts[:MOST_ADDRESSES]:
        address = values.address(text)
        if text in _FAMILIES:
            wanted[text] = None
        elif address is None:
            problems.append(AddressProblem(values.shortened(text), AddressReason.INVALID, "not an IP address"))
        elif wrong := claims.address(key.namespace, address):
            problems.append(AddressProblem(str(address), AddressReason.NOT_ALLOWED, wrong))
        else:
            wanted[str(address)] = None
    return tuple(wanted), tuple(problems)


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
