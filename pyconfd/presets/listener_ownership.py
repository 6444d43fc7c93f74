"""Who listens where: decided here once, between all presets.

A place belongs to one preset: to that of the oldest claim, where a claim comes first whose namespace was given the
place before. Which objects of that preset share it, and how, the preset decides, and so it is with
a reservation for an object that is gone.
"""

from collections import defaultdict
from collections.abc import Collection as AnyCollection
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyconfd.derived import Collection, Derived, Graph, Grouped, Joined, Read, Source, Value
from pyconfd.model.listener import ANY_IPV4, ANY_IPV6, Listener
from pyconfd.model.reservation import Name, Owner, Reservation
from pyconfd.presets.preset import PresetOptions

SCOPE = "listeners"
"""Stands for what presets listen on beside the pool, where names are reserved by scope."""


class ListenerClaim(NamedTuple):
    """An object asks to listen somewhere."""

    listener: Listener
    owner: Owner


class ListenerPlace(NamedTuple):
    """What claims of one preset ask for together."""

    preset: str
    listener: Listener


class ListenerOwners:
    """Who has which place to listen, as collections; ``claims`` have what each preset asks for, by any key."""

    def __init__(self, graph: Graph, claims: Mapping[str, Collection[Any, ListenerClaim]]) -> None:
        self.options = Value[PresetOptions](graph, "who listens where")
        """Those by which :meth:`PresetOptions.holder` judges."""
        self._taken = Source[Listener, str](graph, "listeners that are taken")
        self._reservations = Source[Name, Reservation](graph, "reserved listeners")
        self._by_port = {
            preset: Grouped(asked, lambda _, claim: (claim.listener.port,), f"listeners of {preset} by port")
            for preset, asked in claims.items()
        }
        ports = Joined[int, Any](*self._by_port.values(), name="ports that presets ask for")
        self.lost = Derived(ports, self._decide, "listeners of other presets")

    def see(self, options: PresetOptions) -> None:
        """Put what differs from the last time into the sources."""
        self.options.set(
            PresetOptions(reserved=options.reserved, status_page=options.status_page, addresses=options.addresses)
        )
        self._taken.follow(options.taken_listeners)
        self._reservations.follow(options.reservations_of(SCOPE))

    def holder(self, read: Read, preset: str, listener: Listener) -> str:
        """Return who has a place, so that no object of the preset can be given it; "" where it is free.

        It says nothing of other objects of the same preset, nor of a place that is reserved and asked for by nobody
        else: the preset decides about these itself.
        """
        if found := read.value(self.options).holder(listener) or read(self._taken, listener):
            return found
        lost = read(self.lost, listener.port)
        return lost.get(ListenerPlace(preset, listener), "") if lost is not None else ""

    def _decide(self, read: Read, port: int, _: object) -> Mapping[ListenerPlace, str] | None:
        """Return the places at a port that an older claim of another preset has, each with a sentence about that."""
        asking = {preset: found for preset, each in self._by_port.items() if (found := read(each, port))}
        if len(asking) < 2:
            return None
        first: dict[ListenerPlace, tuple[tuple[bool, tuple[str, ...]], Owner]] = {}
        for preset, (listener, owner) in ((preset, each) for preset, found in asking.items() for _, each in found):
            known = read(self._reservations, name_of(listener))
            is_new = known is None or known.namespace != owner.namespace
            ranked, place = ((is_new, owner.rank), owner), ListenerPlace(preset, listener)
            first[place] = min(first.get(place, ranked), ranked)
        pool, lost = read.value(self.options).addresses.members, dict[ListenerPlace, str]()
        kept: defaultdict[str, list[tuple[ListenerPlace, Owner]]] = defaultdict(list)
        for place, (_, owner) in sorted(first.items(), key=lambda item: (item[1], item[0])):
            address = place.listener.address
            # An address that is not known may be any.
            covering = {address, ANY_IPV4, ANY_IPV6, ""} if address else kept.keys()
            older = (each for where in covering for each in kept.get(where, ()))
            first_one = next((each for each in older if _is_taken_by(each[0], place, pool)), None)
            if first_one is None:
                kept[address].append((place, owner))
            else:
                (preset, where), by = first_one
                whose = f"{by.kind} {by.namespace}/{by.name} of preset {preset}"
                lost[place] = f"{whose} listens on {where} already, and keeps it"
        return lost or None


def name_of(listener: Listener) -> Name:
    """Return a place as it is remembered."""
    return Name(str(listener), "")


def _is_taken_by(older: ListenerPlace, place: ListenerPlace, pool: AnyCollection[str]) -> bool:
    """Return whether nothing is left to who comes later, of another preset; an address that is not known may be any.

    An address of the ``pool`` is not lost to who listens on all addresses.
    """
    if older.preset == place.preset:
        return False
    had, wanted = older.listener, place.listener
    if wanted.address in pool and had.address != wanted.address:
        return not had.address
    return had.covers(wanted) or (not (had.address and wanted.address) and had.overlaps(wanted))
