"""Conflicts: who listens where, and names that belong to a namespace."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Generic, TypeVar

from pyconfd.model.listener import ANY_IPV4, ANY_IPV6, Listener
from pyconfd.model.reservation import (
    NO_OWNERS,
    NO_RESERVATIONS,
    Name,
    NameRegister,
    Owner,
    Owners,
    Reservation,
    Reservations,
    covers,
    port_of,
)
from pyconfd.model.snapshot import Key
from pyconfd.model.versioned import differing, versioned

_T = TypeVar("_T")


_Port = tuple[int, str]


@lru_cache(maxsize=4096)
def covering(listener: Listener) -> tuple[Listener, ...]:
    """Return the listener, and those on all addresses that get its connections where it is not bound."""
    wider = (ANY_IPV6,) if ":" in listener.address else (ANY_IPV4, ANY_IPV6)
    return (listener, *(Listener(each, listener.port) for each in wider if each != listener.address))


def overlap(one: Listener, other: Listener) -> bool:
    """Return whether one of two listeners covers the other."""
    return one.covers(other) or other.covers(one)


class Sockets(Generic[_T]):
    """The claims that were accepted so far, which come in order of their rank."""

    def __init__(self) -> None:
        self._first: dict[tuple[Listener, str], tuple[int, _T]] = {}
        self._names: defaultdict[tuple[_Port, str], list[tuple[Listener, _T]]] = defaultdict(list)

    def first(self, listener: Listener, protocol: str = "tcp") -> _T | None:
        """Return the oldest claim that gets the connections of ``listener``; None where none does."""
        places = ((each, protocol) for each in covering(listener))
        found = [self._first[place] for place in places if place in self._first]
        return min(found, key=lambda item: item[0])[1] if found else None

    def take(self, listener: Listener, claim: _T, protocol: str = "tcp") -> None:
        """Record a claim; the first one on a listener decides which others may join it."""
        self._first.setdefault((listener, protocol), (len(self._first), claim))

    def owner(self, listener: Listener, name: str, protocol: str = "tcp") -> _T | None:
        """Return who has ``name`` on a listener that overlaps this one."""
        known = self._names.get(((listener.port, protocol), name), ())
        return next((claim for place, claim in known if overlap(place, listener)), None)

    def name(self, listener: Listener, name: str, claim: _T, protocol: str = "tcp") -> None:
        """Record the owner of a name."""
        self._names[(listener.port, protocol), name].append((listener, claim))


IsReleased = Callable[[str, Owner], bool]
"""Returns whether the owner that had a name of a scope still exists, and gave the name up."""


class ReservedNames:
    """Names that namespaces have; what is reserved on all addresses counts on each of them.

    ``claimed`` returns all claims, first in rank first: name, namespace, and owner.
    """

    def __init__(self, reservations: Reservations, claimed: Callable[[], Iterable[tuple[Name, str, object]]]) -> None:
        self._successors: dict[Name, object] = {}
        self._by_name: defaultdict[tuple[object, str], list[tuple[Name, Reservation]]] = defaultdict(list)
        self._reserved_at: defaultdict[object, list[tuple[str, Reservation]]] = defaultdict(list)
        if reservations:
            for name, namespace, who in claimed():
                if name in reservations and reservations[name].namespace == namespace:
                    self._successors.setdefault(name, who)
            for name, reservation in reservations.items():
                self._by_name[port_of(name.place), name.name].append((name, reservation))
                if name not in self._successors:
                    self._reserved_at[port_of(name.place)].append((name.place, reservation))

    def reserved_for_another(self, name: Name, namespace: str) -> str:
        """Return why ``name`` stays with another namespace, or ""."""
        for known, reservation in self._by_name.get((port_of(name.place), name.name), ()):
            # A part of what is asked for may be another's where all of a listener is meant ("").
            same = covers(known.place, name.place) or (bool(name.name) and covers(name.place, known.place))
            if same and reservation.namespace != namespace:
                return reserved_for(reservation, self._successors.get(known))
        return ""

    def place_reserved_for_another(self, place: str, namespace: str) -> str:
        """Return for whom a part of ``place`` is reserved, so that another namespace cannot have all of it; or ""."""
        at_port = self._reserved_at.get(port_of(place), ())
        others = (each for where, each in at_port if each.namespace != namespace and covers(where, place))
        return next(map(reserved_until, others), "")


def reserved_for(reservation: Reservation, successor: object = None) -> str:
    """Return whose a name is, as a sentence; ``successor`` is the object of its namespace that asks for it now."""
    if successor is not None:
        return f"{successor} has this already: the namespace that was given it first keeps it while it asks for it"
    return reserved_until(reservation)


def reserved_until(reservation: Reservation) -> str:
    """Return for which namespace a name without an owner is reserved, and until when, as a sentence."""
    until, free = "", ""
    if reservation.until:
        until = datetime.fromtimestamp(int(reservation.until), UTC).strftime(" until %Y-%m-%dT%H:%M:%SZ")
        free = "; it is free after that"
    why = "its object is gone and may come back (setting claims.reserve_s)"
    return f"namespace {reservation.namespace} has this{until}: {why}{free}"


def current_register(
    previous: NameRegister, now: float, keep_s: float, held_back: Collection[Key] = ()
) -> NameRegister:
    """Return what is remembered at ``now``, without what was kept long enough; a clock that was set back is no reason.

    The reservations of objects that are ``held_back`` start again.
    """
    moved: defaultdict[str, dict[Name, Reservation]] = defaultdict(dict)
    ended: defaultdict[str, list[Name]] = defaultdict(list)
    for scope, name in previous.waiting:
        reservation = previous.reservations[scope][name]
        is_held_back = Key(reservation.namespace, reservation.owner.name) in held_back
        if is_held_back or reservation.until > now + keep_s:
            moved[scope][name] = reservation._replace(until=now + keep_s)
        elif reservation.until <= now:
            ended[scope].append(name)
    if not moved and not ended:
        return previous
    reservations = dict(previous.reservations)
    for scope in {*moved, *ended}:
        reservations[scope] = versioned(reservations[scope]).with_changes(moved[scope], ended[scope])
    gone = {(scope, name) for scope, names in ended.items() for name in names}
    return NameRegister(previous.owners, reservations, previous.waiting - gone)


def register_after(
    previous: NameRegister, owners: Mapping[str, Owners], *, is_released: IsReleased, now: float, keep_s: float
) -> NameRegister:
    """Return what to remember once ``owners`` have the names, where ``previous`` was remembered before.

    A name without owner is free if its owner gave it up, and else stays with its namespace for ``keep_s``.
    """
    if previous.owners.keys() == owners.keys() and all(previous.owners[each] is mine for each, mine in owners.items()):
        return previous
    reservations, waiting = dict(previous.reservations), set(previous.waiting)
    for scope in sorted({*previous.owners, *owners}):
        before, after = previous.owners.get(scope, NO_OWNERS), owners.get(scope, NO_OWNERS)
        known = reservations.get(scope, NO_RESERVATIONS)
        given: dict[Name, Reservation] = {}
        ended: list[Name] = []
        for name in differing(before, after):
            owner, reservation = after.get(name), known.get(name)
            if owner is not None:
                waiting.discard((scope, name))
                if reservation is None or reservation != (owner, 0.0):
                    given[name] = Reservation(owner)
            elif reservation is not None and not reservation.until:
                if keep_s > 0 and not is_released(scope, reservation.owner):
                    given[name] = Reservation(reservation.owner, now + keep_s)
                    waiting.add((scope, name))
                else:
                    ended.append(name)
        if given or ended:
            reservations[scope] = versioned(known).with_changes(given, ended)
        if not reservations.get(scope):
            reservations.pop(scope, None)
    return NameRegister(owners, reservations, frozenset(waiting))


def freed(before: NameRegister, after: NameRegister) -> bool:
    """Return whether ``after`` lacks a name that was reserved in ``before``, so that another claim may have it now."""
    return any(
        name not in after.reservations.get(scope, NO_RESERVATIONS)
        for scope, mine in before.reservations.items()
        for name in differing(mine, after.reservations.get(scope, NO_RESERVATIONS))
    )
