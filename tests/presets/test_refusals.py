"""What is refused in several collections, as one tuple."""

from typing import Any, NamedTuple

from pyconfd.derived import Graph, SameParts, Source
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.presets.refusals import JoinedRefusals


class Item(NamedTuple):
    refused: tuple[Refusal, ...]


def refusal(name: str) -> Refusal:
    return Refusal(ObjectRef("Service", "shop", name), "field", "", RefusalReason.INVALID_VALUE, "wrong")


def test_refusals_of_items_of_any_form_are_one_tuple() -> None:
    graph = Graph()
    single, several, having = (Source[int, Any](graph, name) for name in ("single", "several", "having"))
    joined = JoinedRefusals(single, several, having)
    graph.settle()
    assert joined.all() == ()
    single.replace({1: refusal("a")})
    several.replace({1: (refusal("b"), refusal("c")), 2: ()})
    having.replace({1: Item((refusal("d"),)), 2: Item(())})
    graph.settle()
    found = joined.all()
    assert sorted(each.ref.name for each in found) == ["a", "b", "c", "d"]

    having.replace({2: Item((refusal("e"),))})
    graph.settle()
    assert len(joined.all()) == 5
    having.replace({2: None})
    graph.settle()
    assert sorted(joined.all()) == sorted(found)
    same = joined.all()
    several.replace({3: ()})
    graph.settle()
    assert joined.all() is same


def test_what_was_made_of_the_same_parts_is_the_same_object() -> None:
    known, a, b = SameParts[list[object]](), object(), object()
    first = known.made((a, b), lambda: [a, b])
    assert known.made((a, b), list) is first
    assert known.made((a,), lambda: [a]) == [a]
    assert known.made((b,), lambda: [b]) == [b]
