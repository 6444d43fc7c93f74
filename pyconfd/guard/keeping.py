"""Keeps the objects that lost something, and puts what they lost back into a Snapshot."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from pyconfd.guard.addresses import addresses_of, first_address, identity_of, is_ready, is_terminating, leaves
from pyconfd.model.kubernetes import (
    SERVICE_NAME_LABEL,
    AnyObject,
    Endpoint,
    Endpoints,
    EndpointSlice,
    Pod,
    Service,
)
from pyconfd.model.layered import Layered, differing, flat, with_values
from pyconfd.model.snapshot import Key, Snapshot

HOLDERS = ("endpointslices", "pods", "nodes")
"""The fields of a Snapshot whose objects are, or list, what traffic is sent to."""

_POD_HOLDERS = ("endpointslices", "pods")

CARRIERS = ("services", "endpoints", "config_maps")
"""The fields whose objects ask for something to be served."""

_ALL = ""
"""Stands for the address where an object is kept as a whole."""


class Delta:
    """Two Snapshots, and the keys by which each field of them differs; found once, where it is asked for."""

    def __init__(self, old: Snapshot, new: Snapshot) -> None:
        self.old = old
        self.new = new
        self._keys: dict[str, Collection[Key]] = {}

    def keys(self, field: str) -> Collection[Key]:
        """Return the keys whose object is another one, or only in one of them."""
        found = self._keys.get(field)
        if found is None:
            former, latter = getattr(self.old, field), getattr(self.new, field)
            nothing = former is latter or not (len(former) or len(latter))
            found = self._keys[field] = () if nothing else differing(former, latter)
        return found


class Place(NamedTuple):
    """One object of a Snapshot: the field and the key."""

    field: str
    key: Key


@dataclass(frozen=True, slots=True)
class _Kept:
    """A record as it was; of a slice just one ``endpoint``. ``after`` is what a carrier had become by then."""

    at: float
    record: AnyObject
    endpoint: Endpoint | None = None
    after: AnyObject | None = None


class Keeping:
    """What went within the window, by object and address; and how the Snapshot looks where that is put back."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._kept: dict[tuple[Place, str], _Kept] = {}
        """In the order in which it went."""
        self._places: dict[str, set[Place]] = {}
        """Where each kept address was."""
        self._of: dict[Place, dict[str, _Kept]] = {}
        self._owners: set[Key] = set()
        """The Services that kept slices belong to, or belonged to."""
        self._overlay: dict[str, dict[Key, AnyObject]] = {}
        self._dirty: set[Place] = set()
        self._passed: set[tuple[Place, str]] = set()
        """What the Snapshot that was given last does not have although it is kept."""
        self._seen: tuple[Snapshot, Snapshot] | None = None
        """The last Snapshot, and how it was given."""
        self._unchecked = True
        self.changed = False
        """True once something was kept or dropped, until somebody says False."""

    def __bool__(self) -> bool:
        return bool(self._kept)

    def record(self, now: float, delta: Delta, gone: Collection[str], *, asked: bool) -> None:
        """Keep what the objects that changed had of the addresses ``gone``, and what asked for something and vanished.

        With ``asked`` it is kept even where it only changed.
        """
        for field in HOLDERS:
            former: Mapping[Key, AnyObject] = getattr(delta.old, field)
            for key in delta.keys(field):
                before, place = former.get(key), Place(field, key)
                if before is None:
                    continue
                for address, endpoint in addresses_of(before):
                    is_better = endpoint is not None and is_ready(endpoint)
                    if address in gone and (is_better or (place, address) not in self._kept):
                        self._keep(place, address, _Kept(now, before, endpoint))
        for field in CARRIERS:
            former, latter = getattr(delta.old, field), getattr(delta.new, field)
            for key in delta.keys(field):
                carrier = former.get(key)
                if carrier is not None and (asked or key not in latter or _loses(carrier, gone)):
                    self._keep(Place(field, key), _ALL, _Kept(now, carrier, after=latter.get(key)))

    def expire(self, now: float) -> None:
        """Forget what went before the window."""
        begins = now - self._window_s
        while self._kept:
            ref = next(iter(self._kept))
            if self._kept[ref].at >= begins:
                return
            self._drop(*ref)

    def forget(self) -> None:
        """Keep nothing."""
        self.changed = self.changed or bool(self._kept)
        for each in (self._kept, self._places, self._of, self._owners, self._overlay, self._dirty, self._passed):
            each.clear()
        self._seen = None

    def let_go(self) -> None:
        """Drop what the Snapshot that was given last does not have: it is applied without it."""
        for ref in self._passed & self._kept.keys():
            self._drop(*ref)
        self._passed.clear()

    def touch(self, addresses: Iterable[str]) -> None:
        """Note that these addresses are wanted, or are wanted no more."""
        for address in addresses:
            self._dirty |= self._places.get(address, set())

    def follow(self, delta: Delta) -> None:
        """Note what changed beneath what is kept."""
        for field in (*HOLDERS, *CARRIERS):
            for key in delta.keys(field):
                place = Place(field, key)
                if place in self._of:
                    self._dirty.add(place)
        self.changed = self.changed or not self._owners.isdisjoint(delta.keys("services"))

    def give_way(self, delta: Delta) -> None:
        """Drop each address that another pod has; the old Snapshot of ``delta`` was looked at already.

        Pods in the network of their node share its address, and take it from nobody.
        """
        if self._unchecked:
            delta = Delta(Snapshot(), delta.new)
            self._unchecked = False
        of_nodes: set[str] | None = None
        for field in _POD_HOLDERS:
            latter: Mapping[Key, AnyObject] = getattr(delta.new, field)
            for key in delta.keys(field):
                for address, endpoint in addresses_of(latter[key]) if key in latter else ():
                    if address not in self._places:
                        continue
                    if of_nodes is None:
                        of_nodes = {each for node in flat(delta.new.nodes).values() for each, _ in addresses_of(node)}
                    if address not in of_nodes:
                        self._give(address, identity_of(latter[key], endpoint))

    def _give(self, address: str, owner: tuple[str, str, str]) -> None:
        for place in tuple(self._places[address]):
            kept = self._of[place][address]
            if place.field in _POD_HOLDERS and identity_of(kept.record, kept.endpoint) != owner:
                self._drop(place, address)

    def merged(self, snapshot: Snapshot, wanted: Collection[str], *, strictly: bool) -> Snapshot:
        """Return ``snapshot`` with what is kept of the addresses ``wanted``; the same one as long as nothing changes.

        With ``strictly`` even an endpoint of which the cluster says that it leaves on purpose stays.
        """
        if self._seen is not None and self._seen[0] is snapshot and not self._dirty:
            return self._seen[1]
        renewed: dict[str, set[Key]] = {}
        for place in sorted(self._dirty):
            present: AnyObject | None = getattr(snapshot, place.field).get(place.key)
            kept = self._of.get(place, {})
            made = _merged(present, kept, wanted, strictly=strictly)
            self._passed.difference_update([(place, address) for address in kept])
            self._passed.update((place, each) for each in _passed_over(present, kept, wanted, strictly=strictly))
            overlay = self._overlay.setdefault(place.field, {})
            if made is None or made is present:
                overlay.pop(place.key, None)
            elif overlay.get(place.key) != made:
                overlay[place.key] = made
            renewed.setdefault(place.field, set()).add(place.key)
        self._dirty.clear()
        parts: dict[str, Any] = {
            field: self._layered(field, getattr(snapshot, field), renewed.get(field, set())) for field in self._overlay
        }
        merged = replace(snapshot, **parts)
        self._seen = (snapshot, merged)
        return merged

    def _layered(self, field: str, present: Mapping[Key, AnyObject], renewed: set[Key]) -> Mapping[Key, AnyObject]:
        """Return one mapping with what is put back; where no key came or went this costs what changed."""
        overlay = self._overlay[field]
        former = getattr(self._seen[0], field) if self._seen else None
        shown: Mapping[Key, AnyObject] = getattr(self._seen[1], field) if self._seen else {}
        changed = () if present is former else _changed_keys(present, former)
        values = {key: overlay.get(key, present.get(key)) for key in {*(changed or ()), *renewed}}
        if changed is None or any(value is None or key not in shown for key, value in values.items()):
            return Layered({**flat(present), **overlay})
        return with_values(shown, {key: value for key, value in values.items() if value is not None})

    def begin(self, *, anew: bool) -> None:
        """Have all of it looked at; ``anew`` where nothing was put back until now."""
        if anew:
            self._overlay.clear()
            self._seen = None
        self._dirty |= set(self._of)

    def objects(self) -> Snapshot:
        """Return all that is kept, of a slice just the kept endpoints."""
        parts: dict[str, dict[Key, AnyObject]] = {}
        for place, of_place in self._of.items():
            parts.setdefault(place.field, {})[place.key] = _whole(of_place)
        return Snapshot(**parts)  # type: ignore[arg-type]

    def afterwards(self) -> Snapshot:
        """Return what the kept carriers had become by then, those that had not vanished."""
        parts: dict[str, dict[Key, AnyObject]] = {}
        for place, of_place in self._of.items():
            after = of_place[_ALL].after if _ALL in of_place else None
            if after is not None:
                parts.setdefault(place.field, {})[place.key] = after
        return Snapshot(**parts)  # type: ignore[arg-type]

    def standing(self, present: Snapshot) -> Mapping[Key, Service]:
        """Return the Services of kept slices that are still there: their lists may go next."""
        return {key: service for key in self._owners if (service := present.services.get(key)) is not None}

    def restore(
        self,
        now: float,
        objects: Snapshot,
        afterwards: Snapshot | None,
        standing: Mapping[Key, Service],
        present: Snapshot,
    ) -> None:
        """Keep what the methods of these names gave once; ``present`` is what the cluster shows now.

        A carrier that changed again meanwhile, or was made anew, is not kept. Without ``afterwards`` (a file of an
        older version) nobody knows that, and each is kept.
        """
        for field in (*HOLDERS, *CARRIERS):
            for key, record in getattr(objects, field).items():
                place = Place(field, key)
                after = getattr(present, field).get(key)
                if field in CARRIERS and (afterwards is None or getattr(afterwards, field).get(key) == after):
                    self._keep(place, _ALL, _Kept(now, record, after=after))
                for address, endpoint in addresses_of(record) if field in HOLDERS else ():
                    self._keep(place, address, _Kept(now, record, endpoint))
        for key, service in standing.items():
            if key not in present.services:  # it went on to vanish while nobody looked
                self._keep(Place("services", key), _ALL, _Kept(now, service))

    def _keep(self, place: Place, address: str, kept: _Kept) -> None:
        self._kept.pop((place, address), None)
        self._kept[place, address] = kept
        self._of.setdefault(place, {})[address] = kept
        self._places.setdefault(address, set()).add(place)
        self._dirty.add(place)
        if isinstance(kept.record, EndpointSlice) and (
            owner := (kept.record.metadata.labels or {}).get(SERVICE_NAME_LABEL)
        ):
            self._owners.add(Key(place.key.namespace, owner))
        self.changed = self._unchecked = True

    def _drop(self, place: Place, address: str) -> None:
        del self._kept[place, address]
        of_place, places = self._of[place], self._places[address]
        del of_place[address]
        places.discard(place)
        if not of_place:
            del self._of[place]
        if not places:
            del self._places[address]
        self._dirty.add(place)
        self.changed = True


def _changed_keys(present: Mapping[Key, AnyObject], former: Mapping[Key, AnyObject] | None) -> Collection[Key] | None:
    """Return the keys of other values, None where keys came or went too, or it is not known."""
    return present.changed_since(former) if isinstance(present, Layered) and former is not None else None


def _loses(carrier: AnyObject, gone: Collection[str]) -> bool:
    """Return whether an Endpoints object without slices had some of these."""
    if not isinstance(carrier, Endpoints):
        return False
    return any(item.ip in gone for subset in carrier.subsets or () for item in subset.addresses or ())


def _merged(
    present: AnyObject | None, kept: Mapping[str, _Kept], wanted: Collection[str], *, strictly: bool
) -> AnyObject | None:
    """Return an object as it is to be seen: itself where nothing of it is kept."""
    whole = kept.get(_ALL)
    if whole is not None:
        # Who changed it again, or made it anew, knows what is wanted.
        return whole.record if present is whole.after else present
    mine = {address: each for address, each in kept.items() if address in wanted}
    if not mine:
        return present
    first = next(iter(mine.values())).record
    if isinstance(first, EndpointSlice):
        return _merged_slice(present, first, mine, strictly=strictly)
    if present is not None and leaves(present) and not strictly:
        return present
    # A pod that was made anew under its name has another address: that one is new, and the former one is gone.
    is_same = present is None or {each for each, _ in addresses_of(present)} & mine.keys()
    return first if is_same or not isinstance(first, Pod) else present


def _passed_over(
    present: AnyObject | None, kept: Mapping[str, _Kept], wanted: Collection[str], *, strictly: bool
) -> Iterable[str]:
    """Return the keys of what is kept of an object, and :func:`_merged` does not put back."""
    whole = kept.get(_ALL)
    if whole is not None:
        return (_ALL,) if present is not whole.after else ()
    found = {address for address in kept if address not in wanted}
    if present is not None and not strictly:
        leaving = {
            address
            for address, endpoint in addresses_of(present)
            if (leaves(present) if endpoint is None else is_terminating(endpoint))
        }
        found |= leaving & kept.keys()
    return found


def _merged_slice(
    present: AnyObject | None, first: EndpointSlice, kept: Mapping[str, _Kept], *, strictly: bool
) -> EndpointSlice:
    now = present if isinstance(present, EndpointSlice) else None
    endpoints: dict[str, Endpoint] = {first_address(each): each for each in (now.endpoints or () if now else ())}
    for address, each in kept.items():
        current = endpoints.get(address)
        if current is not None and (is_ready(current) or (is_terminating(current) and not strictly)):
            continue
        if each.endpoint is not None:
            endpoints[address] = each.endpoint
    return EndpointSlice(
        metadata=now.metadata if now else first.metadata,
        address_type=now.address_type if now else first.address_type,
        endpoints=tuple(endpoints.values()),
        ports=now.ports if now and now.ports else first.ports,
    )


def _whole(kept: Mapping[str, _Kept]) -> AnyObject:
    record = next(iter(kept.values())).record
    if not isinstance(record, EndpointSlice):
        return record
    endpoints = tuple(each.endpoint for each in kept.values() if each.endpoint is not None)
    return msgspec.structs.replace(record, endpoints=endpoints)


def announced(delta: Delta, gone: Collection[str]) -> set[str]:
    """Return those of the addresses ``gone`` that announced their end, now or before."""
    found = {address for each in delta.new.departures for address in gone if address in each}
    for field in HOLDERS:
        former, latter = getattr(delta.old, field), getattr(delta.new, field)
        for key in delta.keys(field):
            for record in (former.get(key), latter.get(key)):
                for address, endpoint in addresses_of(record) if record is not None else ():
                    if address in gone and (leaves(record) if endpoint is None else is_terminating(endpoint)):
                        found.add(address)
    return found
