"""Who has which address of the pool, or which port of one: decided here once, for Gateways and LoadBalancer Services.

What an object asks for is read from it alone; :func:`pyconfd.presets.addresses.allocate` answers all requests together.
"""

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

from pyconfd.derived import Derived, Grouped, Joined, Read, SameParts, Spread, Value
from pyconfd.model.context import PresetName
from pyconfd.model.gateway_api import Gateway
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.reservation import NO_OWNERS, NO_RESERVATIONS, Owner, Owners, Reservations
from pyconfd.model.snapshot import Key, Resource
from pyconfd.model.versioned import differing
from pyconfd.presets.addresses import (
    NOTHING_ASSIGNED,
    RESERVED,
    AddressOptions,
    AddressReason,
    AddressRequest,
    Assigned,
    allocate,
    first_owners,
    of_gateway,
    of_service,
)
from pyconfd.presets.cluster import ReadService
from pyconfd.presets.objects import Objects, class_of_gateway
from pyconfd.presets.preset import PresetOptions


class _Before(NamedTuple):
    """What objects had before, and what is reserved."""

    owners: Owners = NO_OWNERS
    reservations: Reservations = NO_RESERVATIONS


class _Allocation(NamedTuple):
    """What each object has, and who has each name."""

    assigned: Mapping[ObjectKey, Assigned]
    owners: Mapping[Any, Owner]


_NOTHING = _Allocation({}, {})


class AddressOwners:
    """Requests for addresses and what is assigned, as collections."""

    def __init__(self, objects: Objects) -> None:
        self._objects, graph = objects, objects.graph
        self._options = Value[AddressOptions](graph, "addresses")
        self._before = Value[_Before](graph, "who had which address")
        asking = [Derived[Any, Any, AddressRequest](objects.gateways, self._of_gateway, "requests of Gateways")]
        if PresetName.LOADBALANCER in objects.presets:
            asking.append(Derived(objects.declared, self._of_service, "requests of Services"))
        requests = Joined(*asking, name="requests for addresses")
        self._requests = Grouped(requests, lambda _, __: ((),), "all requests for addresses", rank=_rank)
        self._allocation = Derived(self._requests, self._allocate, "allocation of addresses")
        self._assigned = Spread(self._allocation, lambda _, found: found.assigned.items(), "addresses of objects")
        self._counted, self._waiting = _Before(), _Before()
        self._recorded = SameParts[bool]()

    def see(self, options: PresetOptions, had: Owners) -> None:
        """Put what differs from the last time into the sources; ``had`` is what objects had before.

        What only records the last allocation makes no other one: :meth:`catch_up` is for when somebody asks for more.
        By other settings each keeps what it has by the newest record.
        """
        is_other = options.addresses != self._options.items.get(())
        self._options.set(options.addresses)
        self._waiting = _Before(had, options.reservations_of(RESERVED))
        if is_other or not self._is_recorded(self._waiting):
            self._count()

    def catch_up(self) -> bool:
        """Answer requests that changed by the newest record; return whether that is another one."""
        if not self._requests.changed or all(map(is_, self._counted, self._waiting)):
            return False
        self._count()
        return True

    def assigned(self, read: Read, id_: ObjectKey) -> Assigned:
        """Return what an object has, for a function of a later collection."""
        return read(self._assigned, ((), id_)) or NOTHING_ASSIGNED

    def owners(self) -> Owners:
        """Return the names to remember, as of the last round."""
        return self._allocation.items.get((), _NOTHING).owners

    def _count(self) -> None:
        self._counted = self._waiting
        self._before.set(self._counted)

    def _is_recorded(self, now: _Before) -> bool:
        """Return whether all would be assigned as before: what differs is recorded for who was given it or had it."""
        allocation = self._allocation.items.get((), _NOTHING)
        about = (*now, *self._counted, allocation)
        return self._recorded.made(about, lambda: self._only_records(now, allocation))

    def _only_records(self, now: _Before, allocation: _Allocation) -> bool:
        counted = self._counted
        if not any(now.owners is known or now.owners == known for known in (allocation.owners, counted.owners)):
            return False
        told = False
        for name in differing(counted.reservations, now.reservations):
            before, after = counted.reservations.get(name), now.reservations.get(name)
            if after is None or after.owner not in (allocation.owners.get(name), before and before.owner):
                return False
            told = told or before is not None
        # Who may not have an address is told until when.
        return not told or not any(
            problem.reason is AddressReason.RESERVED
            for each in allocation.assigned.values()
            for problem in each.problems
        )

    def _of_gateway(self, read: Read, id_: ObjectKey, gateway: Gateway) -> AddressRequest | None:
        found = read(self._objects.gateway_classes, class_of_gateway(gateway))
        return of_gateway(id_.key, gateway, found, read.value(self._objects.policy)) if found is not None else None

    def _of_service(self, read: Read, key: Key, seen: ReadService) -> AddressRequest | None:
        if seen.object is None:
            return None
        return of_service(key, seen.object, read.value(self._options), read.value(self._objects.policy))

    def _allocate(self, read: Read, _: tuple[()], asking: Sequence[tuple[object, AddressRequest]]) -> _Allocation:
        requests, before = [request for _, request in asking], read.value(self._before)
        options = read.value(self._options)
        assigned = allocate(
            requests,
            options.pool,
            before.reservations,
            owners=before.owners,
            per_namespace=options.per_namespace,
        )
        owners = {
            name: each.owner
            for each in requests
            for address in assigned[each.id].addresses
            for name in each.places(address)
        }
        owners.update(first_owners(requests, assigned, before.owners, before.reservations))
        return _Allocation(assigned, owners)


def _rank(_: object, request: AddressRequest) -> tuple[str, Key, Resource]:
    return request.rank
