"""What holds for every graph: its items are those of a new one, and no function is called of which nothing changed."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol, TypeVar

from pyconfd.derived import ALL, Derived, Graph, Read


class _HasGraph(Protocol):
    graph: Graph


_G = TypeVar("_G", bound=_HasGraph)


class CheckedCalls:
    """Watches all calls of a graph; ``made`` has what was called since it was last cleared, by collection."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.made: list[tuple[str, Hashable]] = []
        self._inputs: dict[tuple[str, Hashable], Any] = {}
        for each in graph.collections:
            if isinstance(each, Derived):
                self._watch(each)

    def _watch(self, node: Derived[Any, Any, Any]) -> None:
        make = node.make

        def watched(read: Read, key: Hashable, item: Any) -> Any:
            made = make(read, key, item)
            reads = list(zip(read.reads[::2], read.reads[1::2], strict=True))
            # A value counts as read by all calls of a collection.
            values = [(each, ()) for each in sorted(node._values, key=lambda each: each.number)]
            seen = [dict(at.items) if what is ALL else at.items.get(what) for at, what in [*reads, *values]]
            self.made.append((node.name, key))
            known = self._inputs.get((node.name, key))
            assert known != [item, reads, seen], f"{node.name} was made for {key}, though it reads nothing that changed"
            self._inputs[node.name, key] = [item, reads, seen]
            return made

        node.make = watched

    def settled(self) -> None:
        """Forget of what items were made that are gone; to be called after each round."""
        there = {each.name: each.of.items for each in self.graph.collections if isinstance(each, Derived)}
        self._inputs = {at: seen for at, seen in self._inputs.items() if at[1] in there[at[0]]}

    def forget(self) -> None:
        """Forget all: calls are not to be compared with earlier ones."""
        self._inputs.clear()


def items_of(graph: Graph) -> dict[str, dict[Any, Any]]:
    """Return all items, by collection."""
    return {each.name: dict(each.items) for each in graph.collections}


def see_that_changes_are_told(before: dict[str, dict[Any, Any]], graph: Graph) -> None:
    """Assert that ``changed`` is what differs from ``before``, and that equal items stayed the same objects."""
    for each in graph.collections:
        was = before[each.name]
        differing = {key for key in was.keys() | each.items.keys() if was.get(key) != each.items.get(key)}
        assert each.changed == {key: was.get(key) for key in differing}, each.name
        assert all(each.items[key] is was[key] for key in was.keys() & each.items.keys() - differing), each.name


def follow(new: Callable[[], _G], shows: Iterable[Callable[[_G], object]]) -> None:
    """Show one graph a state after the other, and each state to a new graph too.

    Assert that all items are those of the new one, that no call is superfluous, and that what changed is told.
    """
    followed = new()
    calls = CheckedCalls(followed.graph)
    for show in shows:
        before = items_of(followed.graph)
        show(followed)
        calls.settled()
        fresh = new()
        show(fresh)
        assert items_of(followed.graph) == items_of(fresh.graph)
        see_that_changes_are_told(before, followed.graph)
