"""The engine: after any changes the items are those of a graph made of the same sources, and no call is superfluous."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from pyconfd.derived import (
    ALL,
    Collection,
    Derived,
    Graph,
    Grouped,
    Joined,
    Published,
    Read,
    Source,
    Spread,
    Tally,
    Value,
)
from tests.derived.checking import CheckedCalls, items_of, see_that_changes_are_told

# Services that ask for hosts, a list of hosts that nobody may have, and what a host costs.
Service = tuple[int, tuple[str, ...]]
"""Its age, and the hosts that it asks for."""


class World:
    """One collection of each kind."""

    def __init__(self) -> None:
        self.graph = graph = Graph()
        self.services = Source[str, Service](graph, "services")
        self.extra = Source[str, Service](graph, "extra")
        self.denied = Source[str, bool](graph, "denied")
        self.youngest = Value[int](graph, "youngest")
        self.youngest.set(9)
        self.all = Joined(self.extra, self.services, name="all")
        self.claims = Derived(self.all, self._claim, "claims")
        self.asked = Spread(self.claims, lambda _, claim: [(host, claim[0]) for host in claim[1]], "asked")
        self.hosts = Grouped(self.asked, lambda key, _: (key[1],), "hosts", rank=lambda key, age: (age, key[0]))
        self.owners = Derived(self.hosts, lambda _, __, asking: asking[0][0][0], "owners")
        self.served = Derived(self.claims, self._served, "served")
        self.summary = Derived(self.denied, lambda read, _, __: sorted(read.all(self.owners)), "summary")
        self.totals = Tally(self.served, lambda _, hosts: [("hosts", len(hosts)), ("services", 1)], "totals")
        self.calls = CheckedCalls(graph)

    def _claim(self, read: Read, _: str, service: Service) -> Service | None:
        age, hosts = service
        allowed = tuple(host for host in hosts if read(self.denied, host) is None)
        return (age, allowed) if allowed and age <= read.value(self.youngest) else None

    def _served(self, read: Read, name: str, claim: Service) -> tuple[str, ...]:
        return tuple(host for host in claim[1] if read(self.owners, host) == name)

    def change(self, step: "Step") -> None:
        self.services.replace(step[0])
        self.extra.replace(step[1])
        self.denied.replace(denials(step))
        self.graph.settle()
        self.calls.settled()

    def items(self) -> dict[str, dict[Any, Any]]:
        return items_of(self.graph)


def denials(step: "Step") -> dict[str, bool | None]:
    return {host: True if is_denied else None for host, is_denied in step[2].items()}


NAMES, HOSTS = ("web", "api", "db"), ("a", "b", "c")
Step = tuple[Mapping[str, Service | None], Mapping[str, Service | None], Mapping[str, bool]]
SERVICE = st.none() | st.tuples(st.integers(1, 3), st.lists(st.sampled_from(HOSTS), unique=True, max_size=3).map(tuple))
STEP = st.tuples(
    st.dictionaries(st.sampled_from(NAMES), SERVICE, max_size=3),
    st.dictionaries(st.sampled_from(NAMES), SERVICE, max_size=1),
    st.dictionaries(st.sampled_from(HOSTS), st.booleans(), max_size=2),
)


def fresh(steps: Sequence[Step]) -> World:
    """Return a world to which all is new that the steps led to."""
    world, state = World(), (dict[str, Any](), dict[str, Any](), dict[str, Any]())
    for step in steps:
        for known, changes in zip(state, step, strict=True):
            known.update(changes)
    world.change(state)
    return world


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=6))
def test_items_are_those_of_a_new_graph_and_no_call_was_superfluous(steps: list[Step]) -> None:
    world = World()
    for number, step in enumerate(steps, start=1):
        before = world.items()
        world.change(step)
        assert world.items() == fresh(steps[:number]).items()
        see_that_changes_are_told(before, world.graph)


def world_of(**services: Service) -> World:
    world = World()
    world.change((services, {}, {}))
    return world


def calls_after(world: World, step: Step) -> dict[str, set[Hashable]]:
    world.calls.made.clear()
    world.change(step)
    found = defaultdict(set)
    for name, key in world.calls.made:
        found[name].add(key)
    return dict(found)


def test_an_equal_item_wakes_nobody() -> None:
    world = world_of(web=(1, ("a",)), api=(2, ("a", "b")))
    kept = world.claims.items["web"]
    assert calls_after(world, ({"web": (1, ("a",))}, {}, {})) == {}
    assert calls_after(world, ({}, {}, {"c": True})) == {"summary": {"c"}}
    assert world.claims.items["web"] is kept


def test_only_readers_of_what_changed_are_called() -> None:
    world = world_of(web=(1, ("a",)), api=(2, ("a", "b")), db=(3, ("c",)))
    # Who had the host, and who gets it; not db.
    assert calls_after(world, ({"web": None}, {}, {})) == {"owners": {"a"}, "served": {"api"}}
    assert world.served.items == {"api": ("a", "b"), "db": ("c",)}
    assert world.totals.items == {"hosts": 3, "services": 2}
    assert calls_after(world, ({}, {}, {"c": True}))["claims"] == {"db"}


def test_what_was_missing_was_read_too() -> None:
    world = world_of(web=(2, ("a",)))
    assert calls_after(world, ({"api": (1, ("a",))}, {}, {}))["served"] == {"web", "api"}
    assert world.served.items == {"web": (), "api": ("a",)}


def test_readers_are_forgotten() -> None:
    world = world_of(web=(1, ("a", "b")), api=(2, ("b",)))
    world.change(({"web": (1, ("a",))}, {}, {}))
    assert calls_after(world, ({}, {}, {"b": True}))["claims"] == {"api"}
    world.change(({"web": None, "api": None}, {}, {"b": False}))
    # All of owners is read by the summary, and the value by all claims.
    left = [each.name for each in world.graph.collections if each._readers]
    assert left == ["youngest"]
    assert not any(each._reads for each in world.graph.collections if isinstance(each, Derived))


@pytest.mark.parametrize("many", [3, 20])
def test_only_those_of_many_readers_are_called_that_still_read(many: int) -> None:
    graph = Graph()
    rate, users = Source[str, int](graph, "rate"), Source[int, bool](graph, "users")
    costs = Derived(users, lambda read, _, pays: read(rate, "all") if pays else 0, "costs")
    users.replace(dict.fromkeys(range(many), True))
    rate.replace({"all": 1})
    graph.settle()
    users.replace({0: False, 1: None})
    graph.settle()
    before = costs.calls

    rate.replace({"all": 2})
    graph.settle()
    assert costs.calls == before + many - 2
    assert costs.items == {0: 0} | dict.fromkeys(range(2, many), 2)
    users.replace(dict.fromkeys(range(many)))
    graph.settle()
    assert not rate._readers


def test_groups_are_in_order_of_rank() -> None:
    world = world_of(web=(3, ("a",)), api=(1, ("a",)), db=(2, ("a",)))
    assert [key[0] for key, _ in world.hosts.items["a"]] == ["api", "db", "web"]
    world.change(({"api": (4, ("a", "b"))}, {}, {}))
    assert [key[0] for key, _ in world.hosts.items["a"]] == ["db", "web", "api"]
    plain = Grouped(world.services, lambda _, service: service[1], "plain")
    world.services.replace({"xy": (9, ("a",)), "aa": (9, ("a",))})
    world.graph.settle()
    assert [key for key, _ in plain.items["a"]] == ["aa", "xy"]  # a new collection sees what changes from then on


@given(st.lists(st.dictionaries(st.integers(0, 40), st.none() | st.integers(0, 3), max_size=4), max_size=4))
def test_big_groups_stay_in_order(rounds: list[dict[int, int | None]]) -> None:
    graph = Graph()
    numbers = Source[int, int](graph, "numbers")
    together = Grouped(numbers, lambda _, __: ("all", "all"), "together", rank=lambda key, item: (item, key))
    equals = Grouped(numbers, lambda _, __: ("all",), "equals in any order", rank=lambda _, item: item)
    first: dict[int, int | None] = {key: key % 4 for key in range(0, 40, 2)}
    for items in [first, *rounds]:
        numbers.replace(items)
        graph.settle()
        expected = sorted(numbers.items.items(), key=lambda pair: (pair[1], pair[0]))
        assert together.items.get("all", ()) == tuple(expected)
        assert tuple(sorted(equals.items.get("all", ()), key=lambda pair: (pair[1], pair[0]))) == tuple(expected)
        assert [item for _, item in equals.items.get("all", ())] == [item for _, item in expected]


def test_the_first_of_joined_collections_counts() -> None:
    world = world_of(web=(1, ("a",)))
    world.change(({}, {"web": (1, ("b",))}, {}))
    assert world.all.items["web"] == (1, ("b",))
    world.change(({}, {"web": None}, {}))
    assert world.all.items["web"] == (1, ("a",))


def test_who_reads_a_later_collection_is_told_so() -> None:
    graph = Graph()
    source = Source[str, int](graph, "source")
    collections: list[Collection[str, int]] = []
    first = Derived(source, lambda read, key, _: read(collections[0], key), "first")
    collections.append(Derived(source, lambda _, __, item: item, "second"))
    source.replace({"a": 1})
    with pytest.raises(ValueError, match="first reads second, which is made after it"):
        graph.settle()
    assert graph.is_broken
    with pytest.raises(RuntimeError, match="make another graph"):
        graph.settle()
    assert first.calls == 1


def test_a_name_is_used_once() -> None:
    graph = Graph()
    Source[str, int](graph, "source")
    with pytest.raises(ValueError, match="two collections 'source'"):
        Value[int](graph, "source")


def test_origins_are_items_of_sources_and_what_is_missing() -> None:
    world = world_of(web=(1, ("a",)), api=(2, ("a",)))

    def origins(collection: Collection[Any, Any], key: Hashable) -> set[tuple[str, Any]]:
        return {(node.name, what) for node, what in world.graph.origins(collection, key)}

    asked = {
        ("services", "web"), ("extra", "web"), ("services", "api"), ("extra", "api"), ("denied", "a"), ("youngest", ()),
    }  # fmt: skip
    assert origins(world.owners, "a") == asked
    assert origins(world.served, "web") == asked
    assert origins(world.totals, "hosts") == {("served", ALL)}


def test_published_mappings_are_replaced_and_in_order() -> None:
    world = world_of(web=(1, ("b",)), api=(2, ("a",)))
    owners, unordered = (
        Published[str, Any](world.owners),
        Published[str, Any](world.owners, rank=lambda host: {"a": 2, "b": 1}.get(host, 0)),
    )
    first = owners.mapping()
    assert list(first.items()) == [("a", "api"), ("b", "web")]
    assert list(unordered.mapping()) == ["b", "a"]
    assert dict(Published[str, Any](world.owners, key=str.upper).mapping()) == {"A": "api", "B": "web"}
    world.change(({"db": (1, ("a",))}, {}, {}))
    second = owners.mapping()
    assert (dict(first), dict(second)) == ({"a": "api", "b": "web"}, {"a": "db", "b": "web"})
    assert {*(second.changed_since(first) or ())} == {"a"}
    assert owners.mapping() is second
    world.change(({}, {}, {"c": True}))
    assert owners.mapping() is second
    # One that was not asked in each round.
    world.change(({"web": None}, {}, {}))
    world.change(({"web": (1, ("c", "b"))}, {}, {"c": False}))
    assert list(owners.mapping().items()) == [("a", "db"), ("b", "web"), ("c", "web")]


def test_what_a_published_key_stands_for_may_move_to_another_item() -> None:
    graph = Graph()
    bound = Source[tuple[str, int], str](graph, "bound")
    by_port = Published[int, str](bound, key=lambda at: at[1])
    for had, has in ("xa", "ab", "ba"):
        bound.replace({(had, 80): None, (has, 80): has})
        graph.settle()
    assert by_port.mapping() == {80: "a"}


def test_a_source_follows_a_mapping() -> None:
    graph = Graph()
    source, one = Source[str, list[int]](graph, "lists"), [1]
    source.follow({"a": one, "b": [2]})
    graph.settle()
    source.follow({"a": one, "c": [3]})
    graph.settle()
    assert (source.items, source.changed) == ({"a": [1], "c": [3]}, {"b": [2], "c": None})


def test_values_are_settings_and_what_is_made_of_them() -> None:
    graph = Graph()
    limit, services = Value[int](graph, "limit"), Source[str, int](graph, "services")
    twice = Derived(limit, lambda _, __, value: 2 * value, "twice")
    served = Derived(services, lambda read, _, number: number <= read.value(twice) or None, "served")
    limit.set(1)
    services.replace({"a": 2, "b": 4})
    graph.settle()
    assert served.items == {"a": True}
    limit.set(2)
    graph.settle()
    assert (served.items, served.changed) == ({"a": True, "b": True}, {"b": None})
    limit.set(3)
    limit.set(2)
    graph.settle()
    assert (limit.changed, served.changed) == ({}, {})
    assert {node.name for node, _ in graph.origins(served, "a")} == {"services", "limit"}


class FaultyWorld(World):
    """Functions fail for some keys of some collections: they raise, or they make nothing."""

    def __init__(self, failing: Mapping[str, frozenset[str]], *, raises: bool) -> None:
        super().__init__()
        self._failing, self._raises = failing, raises
        for each in (self.claims, self.owners, self.served):
            each.make = self._made(each.name, each.make)
        self.asked.spread = self._listed("asked", self.asked.spread)
        self.hosts.groups = self._listed("hosts", self.hosts.groups)
        self.totals.counts = self._listed("totals", self.totals.counts)

    def _fails(self, name: str, key: Any) -> bool:
        if not {key} & self._failing.get(name, frozenset()):
            return False
        if self._raises:
            raise LookupError(name)
        return True

    def _made(self, name: str, make: Any) -> Any:
        return lambda read, key, item: None if self._fails(name, key) else make(read, key, item)

    def _listed(self, name: str, function: Any) -> Any:
        def listed(key: Any, item: Any) -> Any:
            return [] if self._fails(name, key if isinstance(key, str) else key[0]) else function(key, item)

        return listed


FAILING = st.dictionaries(
    st.sampled_from(["claims", "owners", "served", "asked", "hosts", "totals"]),
    st.frozensets(st.sampled_from([*NAMES, *HOSTS]), min_size=1),
)


@settings(max_examples=300, deadline=None)
@given(FAILING, st.lists(STEP, min_size=1, max_size=5))
def test_what_raises_costs_its_items_only(failing: Mapping[str, frozenset[str]], steps: list[Step]) -> None:
    raising, without = FaultyWorld(failing, raises=True), FaultyWorld(failing, raises=False)
    for step in steps:
        for world in (raising, without):
            world.calls.forget()
            with capture_logs():
                world.change(step)
        assert raising.items() == without.items()
        named = {(node.name, key if isinstance(key, str) else key[0]) for node, key in raising.graph.faults}
        there = {
            (node.name, key if isinstance(key, str) else key[0])
            for node in (raising.claims, raising.owners, raising.served, raising.asked, raising.hosts, raising.totals)
            for key in node.of.items
        }
        assert named == {at for at in there if at[1] in failing.get(at[0], ())}


def test_what_raised_is_made_again_with_what_it_read() -> None:
    graph = Graph()
    source, divisors = Source[str, int](graph, "source"), Source[str, int](graph, "divisors")
    quotients = Derived(source, lambda read, key, item: item // (read(divisors, key) or 0), "quotients")
    roots = Derived(quotients, lambda _, __, item: item, "more")
    source.replace({"a": 6, "b": 8})
    divisors.replace({"b": 4})
    with capture_logs() as logged:
        graph.settle()
    assert [(each["event"], each["collection"], each["key"]) for each in logged] == [
        ("function.failed", "quotients", "a")
    ]
    assert (quotients.items, roots.items) == ({"b": 2}, {"b": 2})
    (((node, key), fault),) = graph.faults.items()
    assert (node, key, fault.of, fault.error) == (quotients, "a", source, "ZeroDivisionError")
    assert fault.place.startswith("test_derived.py:")
    calls = quotients.calls
    divisors.replace({"a": 3})
    graph.settle()
    assert (quotients.items, graph.faults, quotients.calls) == ({"b": 2, "a": 2}, {}, calls + 1)
    divisors.replace({"a": None})
    with capture_logs() as logged:
        graph.settle()
    assert logged == [], "the line is in the log"
    assert quotients.items == {"b": 2}, "what was there before would be known to this graph alone"
    source.replace({"a": None})
    graph.settle()
    assert graph.faults == {}


def test_what_raises_for_all_is_raised() -> None:
    graph = Graph()
    value = Value[int](graph, "value")
    Derived(value, lambda _, __, item: 1 // item, "inverse")
    value.set(0)
    with pytest.raises(ZeroDivisionError):
        graph.settle()
    assert graph.is_broken


def test_roots_are_the_objects_that_an_item_is_made_of() -> None:
    world = world_of(web=(1, ("a",)), api=(2, ("a",)), db=(1, ("b",)))
    assert set(world.graph.roots(world.owners, "a")) == {(world.services, "web"), (world.services, "api")}
    assert world.graph.roots(world.served, "db") == ((world.services, "db"),)


def test_a_value_that_is_equal_is_not_updated() -> None:
    graph = Graph()
    value = Value[list[int]](graph, "value")
    value.set([1])
    graph.settle()
    value.set([1])
    assert not value.is_due
    value.set([2])
    value.set([1])
    graph.settle()
    assert (value.items, value.changed) == ({(): [1]}, {})
