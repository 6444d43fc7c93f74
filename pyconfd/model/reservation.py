"""Whose a claimed name is, whose it stays for a while when its owner is gone, and which names moved. Pure."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from pyconfd.model.listener import Listener
from pyconfd.model.versioned import VersionedDict, differing

NEVER = "9999"
"""Sorts after every creation time: an object without one (typed by hand) never takes a name from a real one."""


class Name(NamedTuple):
    """What one preset gives to one claimant; ``place`` is where it counts (a socket), ``name`` is "" for all of it."""

    place: str
    name: str


_SOCKET = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<v4>\*|[0-9.]+)):(?P<port>[0-9]{1,5})(?:/(?P<protocol>\w+))?")


@lru_cache(maxsize=65_536)
def _socket(place: str) -> tuple[Listener, str] | None:
    found = _SOCKET.fullmatch(place)
    return (Listener.at(found["v6"] or found["v4"], int(found["port"])), found["protocol"] or "") if found else None


def covers(place: str, other: str) -> bool:
    """Return whether what counts at ``place`` counts at ``other`` too: it is the same, or a socket on all addresses."""
    if place == other:
        return True
    wide, narrow = _socket(place), _socket(other)
    return wide is not None and narrow is not None and wide[1] == narrow[1] and wide[0].covers(narrow[0])


def port_of(place: str) -> object:
    """Return what is the same for all places of which one can cover another: port and protocol of a socket."""
    socket = _socket(place)
    return place if socket is None else (socket[0].port, socket[1])


class Owner(NamedTuple):
    """The object that has a name; ``since`` is its creation time as Kubernetes writes it."""

    kind: str
    namespace: str
    name: str
    since: str

    @property
    def rank(self) -> tuple[str, str, str, str]:
        """Its place among claims to one thing: the older object comes first, twins go by namespace, name and kind."""
        return self.since, self.namespace, self.name, self.kind

    def asking_for(self, what: object) -> "Owner":
        """Return it as the owner of a name that is counted, and not reserved: another one where ``what`` is.

        ``what`` is all that a change of the object may take a reload, or spares, for: no endpoints, no weights.
        """
        return self._replace(since=hashlib.sha256(repr(what).encode()).hexdigest())


class HostClaim(NamedTuple):
    """One object asks for a host; ``shared_with`` are the namespaces that it lets add paths to it.

    ``domain_proto`` is the protocol of a domain that can be served: one without HTTP has no site of its own.
    """

    host: str
    owner: Owner
    shared_with: frozenset[str] = frozenset()
    domain_proto: str = ""

    @property
    def rank(self) -> tuple[str, str, str, str]:
        """That of its owner."""
        return self.owner.rank


class Reservation(NamedTuple):
    """A namespace has a name: that of ``owner``, the object that was given it last.

    It has it as long as an object of it asks, and until ``until`` (seconds since the epoch) after that; ``until`` is 0
    while one asks. Of an owner that another load balancer recorded only the namespace is known.
    """

    owner: Owner
    until: float = 0.0

    @property
    def namespace(self) -> str:
        """The namespace that has the name."""
        return self.owner.namespace


Owners = Mapping[Name, Owner]
Reservations = Mapping[Name, Reservation]
NO_OWNERS: Owners = MappingProxyType({})
NO_RESERVATIONS: Reservations = MappingProxyType({})


def owned_by(namespace: str) -> Owner:
    """Return the owner of a name of which only the namespace is known."""
    return Owner("", namespace, "", NEVER)


@dataclass(frozen=True, slots=True)
class NameRegister:
    """What is remembered from one translation to the next, by scope: a preset, or what several presets share.

    ``owners`` has the objects that were given names, ``reservations`` each name that a namespace has, those of
    ``owners`` included. ``waiting`` are the reserved names that no object asks for.
    """

    owners: Mapping[str, Owners] = field(default_factory=lambda: MappingProxyType({}))
    reservations: Mapping[str, Reservations] = field(default_factory=lambda: MappingProxyType({}))
    waiting: frozenset[tuple[str, Name]] = frozenset()

    @classmethod
    def of(cls, reservations: Mapping[str, Reservations]) -> "NameRegister":
        """Return the register with these reservations; the scopes without any are left out."""
        kept = {scope: VersionedDict(mine) for scope, mine in reservations.items() if mine}
        owners = {
            scope: {name: each.owner for name, each in mine.items() if not each.until} for scope, mine in kept.items()
        }
        waiting = frozenset((scope, name) for scope, mine in kept.items() for name, each in mine.items() if each.until)
        return cls(owners, kept, waiting)

    def is_due(self, now: float) -> bool:
        """Return whether the time of a name that was kept is over, so that another namespace may have it."""
        return any(self.reservations[scope][name].until <= now for scope, name in self.waiting)


@dataclass(frozen=True, slots=True)
class Move:
    """``name`` (a host name, or a port or listener as a whole) of ``preset`` has another owner."""

    preset: str
    name: str
    former: str
    now: str

    @property
    def sentence(self) -> str:
        """Return it in words."""
        return f"{self.name} moved from {self.former} to {self.now}"


def moves(before: Mapping[str, Owners], after: Mapping[str, Owners]) -> tuple[Move, ...]:
    """Return the names that have other owners in ``after``, sorted; what came or went is no move."""
    return tuple(sorted(_moves(before, after), key=lambda each: (each.preset, each.name)))


def _moves(before: Mapping[str, Owners], after: Mapping[str, Owners]) -> Iterator[Move]:
    for preset, now in after.items():
        former = before.get(preset, now)
        if former is now:
            continue
        for name in differing(former, now):
            was, owner = former.get(name), now.get(name)
            if was is not None and owner is not None and was[:3] != owner[:3]:
                yield Move(preset, shown(name), _object(was), _object(owner))


def shown(name: Name) -> str:
    """Return a name for people."""
    return f"{name.name} on {name.place}" if name.name and name.place else name.name or name.place


def _object(owner: Owner) -> str:
    return f"{owner.kind} {owner.namespace}/{owner.name}"


def namespaces_of_changes(before: Mapping[str, Owners], after: Mapping[str, Owners]) -> frozenset[str]:
    """Return the namespaces of which a name came, went or has another owner in ``after``."""
    found: set[str] = set()
    for preset in before.keys() | after.keys():
        former, now = before.get(preset, NO_OWNERS), after.get(preset, NO_OWNERS)
        for name in differing(former, now):
            if (was := former.get(name)) != (owner := now.get(name)):
                found |= {each.namespace for each in (was, owner) if each is not None}
    return frozenset(found)
