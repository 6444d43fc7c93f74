"""What the collections of addresses make of a Snapshot, as one value to compare."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyconfd.model.object_status import ObjectKey
from pyconfd.model.reservation import NO_OWNERS, NO_RESERVATIONS, Owners, Reservations
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.presets.address_ownership import AddressOwners
from pyconfd.presets.addresses import NOTHING_ASSIGNED, RESERVED, AddressOptions, AddressRequest, Assigned
from pyconfd.presets.objects import Objects
from pyconfd.presets.policy import ANYTHING, ClaimOptions
from pyconfd.presets.preset import PresetOptions


class AddressBook:
    """The requests and the answers, as of one reading; the collections go on to the next one."""

    def __init__(self, objects: Objects, owners: AddressOwners, snapshot: Snapshot) -> None:
        items = {each.name: dict(each.items) for each in objects.graph.collections}
        self.objects, self.collections, self.snapshot = objects, owners, snapshot
        self.requests: Mapping[Any, AddressRequest] = items["requests for addresses"]
        self.assigned: Mapping[ObjectKey, Assigned] = {
            at[1]: each for at, each in items["addresses of objects"].items()
        }
        self.owners = owners.owners()

    def of(self, resource: Resource, key: Key) -> Assigned:
        return self.assigned.get(ObjectKey(resource, key), NOTHING_ASSIGNED)


def read(
    snapshot: Snapshot,
    presets: Sequence[str] = ("gateway", "loadbalancer"),
    addresses: AddressOptions | None = None,
    claims: ClaimOptions = ANYTHING,
    previous: AddressBook | None = None,
    *,
    reservations: Reservations = NO_RESERVATIONS,
    owners: Owners = NO_OWNERS,
) -> AddressBook:
    """Return what the objects have; ``owners`` says what they had, with ``previous`` the same collections go on."""
    objects = previous.objects if previous is not None else Objects("", presets)
    book = previous.collections if previous is not None else AddressOwners(objects)
    options = PresetOptions(
        addresses=addresses or AddressOptions(), claims=claims, reservations={RESERVED: reservations}
    )
    objects.see(snapshot, options)
    book.see(options, owners)
    objects.graph.settle()
    if book.catch_up():
        objects.graph.settle()
    return AddressBook(objects, book, snapshot)
