"""Which preset has a place to listen, where several ask for it."""

from collections.abc import Callable, Mapping

import pytest

from pyconfd.derived import Derived, Graph, Read, Source
from pyconfd.model.listener import Listener, Listeners
from pyconfd.model.reservation import Owner, Reservation
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.listener_ownership import SCOPE, ListenerClaim, ListenerOwners, name_of
from pyconfd.presets.preset import PresetOptions

POOL = AddressOptions(("192.0.2.1",))
Asked = tuple[str, str, str, int]
"""A preset, the object that asks (its namespace is its first letter), the address, and the day on which it was made."""


def at(address: str) -> Listener:
    return Listener.at(address, 80)


class Asking:
    """Presets that ask for port 80, and what each is told."""

    def __init__(self, *presets: str) -> None:
        graph = Graph()
        self.sources = {each: Source[str, ListenerClaim](graph, each) for each in presets}
        self.owners = ListenerOwners(graph, self.sources)
        self.told = {each: Derived(source, self._tell(each), f"told {each}") for each, source in self.sources.items()}
        self.graph = graph

    def _tell(self, preset: str) -> Callable[[Read, str, ListenerClaim], str]:
        return lambda read, _, claim: self.owners.holder(read, preset, claim.listener) or "free"

    def see(self, *asked: Asked, options: PresetOptions | None = None) -> dict[str, str]:
        """Return what each object is told."""
        for preset, name, address, day in asked:
            owner = Owner("Service", name[0], name, f"2026-01-0{day}")
            self.sources[preset].replace({name: ListenerClaim(at(address), owner)})
        self.owners.see(options or PresetOptions(addresses=POOL))
        self.graph.settle()
        return {name: told for each in self.told.values() for name, told in each.items.items()}


def taken_by(name: str, preset: str, place: str) -> str:
    return f"Service {name[0]}/{name} of preset {preset} listens on {place} already, and keeps it"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        # The older one has it, whatever the order of presets is.
        ([("one", "a", "*", 2), ("two", "b", "*", 1)], {"a": taken_by("b", "two", "0.0.0.0:80"), "b": "free"}),
        ([("one", "a", "*", 1), ("two", "b", "*", 2)], {"b": taken_by("a", "one", "0.0.0.0:80"), "a": "free"}),
        # Twins: by namespace and name.
        ([("one", "b", "*", 1), ("two", "a", "*", 1)], {"b": taken_by("a", "two", "0.0.0.0:80"), "a": "free"}),
        # One preset is not in its own way, and the oldest of its claims counts for all.
        ([("one", "a", "*", 1), ("one", "b", "*", 2)], {"a": "free", "b": "free"}),
        (
            [("one", "a", "*", 3), ("two", "b", "*", 2), ("one", "c", "*", 1)],
            {"a": "free", "b": taken_by("c", "one", "0.0.0.0:80"), "c": "free"},
        ),
        (
            [("one", "a", "*", 1), ("one", "b", "10.0.0.1", 2), ("two", "c", "10.0.0.2", 3)],
            {"a": "free", "b": "free", "c": taken_by("a", "one", "0.0.0.0:80")},
        ),
        # All addresses cover one; one does not take all.
        ([("one", "a", "*", 1), ("two", "b", "10.0.0.1", 2)], {"a": "free", "b": taken_by("a", "one", "0.0.0.0:80")}),
        ([("one", "a", "10.0.0.1", 1), ("two", "b", "*", 2)], {"a": "free", "b": "free"}),
        ([("one", "a", "10.0.0.1", 1), ("two", "b", "10.0.0.2", 2)], {"a": "free", "b": "free"}),
        ([("one", "a", "::", 1), ("two", "b", "10.0.0.1", 2)], {"a": "free", "b": taken_by("a", "one", "[::]:80")}),
        # An address that is not known may be any, both ways.
        ([("one", "a", "host", 1), ("two", "b", "10.0.0.1", 2)], {"a": "free", "b": taken_by("a", "one", "port 80")}),
        (
            [("one", "a", "10.0.0.1", 1), ("two", "b", "host", 2)],
            {"a": "free", "b": taken_by("a", "one", "10.0.0.1:80")},
        ),
        # An address of the pool is lost to the same, or to one that is not known, and not to all addresses.
        ([("one", "a", "*", 1), ("two", "b", "192.0.2.1", 2)], {"a": "free", "b": "free"}),
        ([("one", "a", "host", 1), ("two", "b", "192.0.2.1", 2)], {"a": "free", "b": taken_by("a", "one", "port 80")}),
        (
            [("one", "a", "192.0.2.1", 1), ("two", "b", "192.0.2.1", 2)],
            {"a": "free", "b": taken_by("a", "one", "192.0.2.1:80")},
        ),
        # Who lost takes nothing away from a third one.
        (
            [("one", "a", "*", 1), ("two", "b", "host", 2), ("three", "c", "::1", 3)],
            {"a": "free", "b": taken_by("a", "one", "0.0.0.0:80"), "c": "free"},
        ),
    ],
)
def test_who_has_a_place(asked: list[Asked], told: Mapping[str, str]) -> None:
    assert Asking("one", "two", "three").see(*asked) == told


def test_the_namespace_that_was_given_a_place_comes_before_an_older_claim() -> None:
    asking, asked = Asking("one", "two"), [("one", "a", "*", 1), ("two", "b", "*", 2)]

    def reserved(namespace: str) -> PresetOptions:
        reservation = Reservation(Owner("Service", namespace, "gone", "2026"))
        return PresetOptions(reservations={SCOPE: {name_of(at("*")): reservation}})

    assert asking.see(*asked, options=reserved("b")) == {"a": taken_by("b", "two", "0.0.0.0:80"), "b": "free"}
    assert asking.see(options=reserved("a")) == {"a": "free", "b": taken_by("a", "one", "0.0.0.0:80")}
    assert asking.see(options=reserved("z")) == {"a": "free", "b": taken_by("a", "one", "0.0.0.0:80")}


def test_what_fragments_or_another_program_have_nobody_is_given() -> None:
    asking, mine = Asking("one", "two"), Listeners({at("*"): "frontend mine"})
    options = PresetOptions(reserved=mine)
    assert asking.see(("one", "a", "*", 1), options=options) == {"a": "frontend mine listens on 0.0.0.0:80"}
    assert asking.see(options=PresetOptions()) == {"a": "free"}
    taken = PresetOptions(taken_listeners={at("*"): "nginx has it"})
    assert asking.see(options=taken) == {"a": "nginx has it"}
    assert asking.see(options=PresetOptions()) == {"a": "free"}
