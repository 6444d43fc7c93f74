"""Which backend a request gets, who loses a match, and that a change touches only its own paths."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.derived import Graph, Source
from pyconfd.model.snapshot import Key
from pyconfd.presets.routing.table import (
    ConflictedRule,
    PlainRoutingTable,
    VirtualHostPath,
    entry_of,
    never_blocked,
    path_of,
    place_of,
)
from pyconfd.presets.routing.types import PathKind, RouteMatch, RouteRule, ValueCondition
from tests.derived.checking import CheckedCalls, items_of
from tests.presets.routing.requests import (
    VIRTUAL_HOST,
    Request,
    Table,
    by_rules,
    exact,
    prefix,
    rule,
    table,
    through_maps,
)

CANARY = (ValueCondition("x-canary", "yes"),)
VERSION = (ValueCondition("v", "[0-9]+", regex=True),)

PATHS = [
    rule(exact("/foo"), "exact"),
    rule(prefix("/foo"), "foo"),
    rule(prefix("/foo/bar/"), "bar"),
    rule(prefix("/aaa"), "aaa"),
    rule(prefix("/aaa/bbb"), "bbb"),
    rule(exact("/slash/"), "slash"),
    rule(exact("/"), "root"),
]


@pytest.mark.parametrize(
    ("path", "backend"),
    [
        ("/foo", "exact"),
        ("/foo/", "foo"),
        ("/foo/x", "foo"),
        ("/foobar", ""),
        ("/foo/bar", "bar"),
        ("/foo/bar/", "bar"),
        ("/foo/bar/x", "bar"),
        ("/foo/barx", "foo"),
        ("/aaa/bb", "aaa"),
        ("/aaa/bbb", "bbb"),
        ("/aaaccc", ""),
        ("/slash/", "slash"),
        ("/slash", ""),
        ("/", "root"),
        ("/x", ""),
        ("/FOO", ""),
    ],
)
def test_exact_paths_come_first_then_the_longest_prefix_by_elements(path: str, backend: str) -> None:
    assert through_maps(table(*PATHS), Request(path)) == backend


def test_another_virtual_host_has_none_of_the_paths() -> None:
    assert through_maps(table(*PATHS), Request("/foo"), "other.example.com") == ""


CONDITIONS = [
    rule(prefix("/"), "all"),
    rule(RouteMatch(path="/", method="POST"), "post"),
    rule(RouteMatch(path="/", headers=CANARY), "canary"),
    rule(RouteMatch(path="/", headers=(*CANARY, ValueCondition("x-team", "a"))), "team"),
    rule(RouteMatch(path="/", query=VERSION), "version"),
    rule(RouteMatch(path="/api", method="GET"), "reading"),
    rule(RouteMatch(PathKind.EXACT, "/api/x", headers=CANARY), "x"),
    rule(RouteMatch(PathKind.REGEX, "/img/[a-z]+[.]png"), "png"),
]


@pytest.mark.parametrize(
    ("request_", "backend"),
    [
        (Request("/"), "all"),
        (Request("/", "POST", {"x-canary": "yes"}), "post"),
        (Request("/", headers={"x-canary": "yes"}), "canary"),
        (Request("/", headers={"x-canary": "yes", "x-team": "a"}), "team"),
        (Request("/", query={"v": "12"}), "version"),
        (Request("/", query={"v": "12b"}), "all"),
        (Request("/api/y"), "reading"),
        (Request("/api/y", "POST"), "post"),
        (Request("/api/y", "PUT"), "all"),
        (Request("/api/x", headers={"x-canary": "yes"}), "x"),
        (Request("/api/x", "PUT", {"x-canary": "yes"}), "x"),
        (Request("/api/x"), "reading"),
        (Request("/img/a.png"), "png"),
        (Request("/img/a.png/b"), "all"),
        (Request("/img/9.png", "POST"), "post"),
    ],
)
def test_conditions_that_fail_lead_to_the_next_rule_and_then_to_shorter_paths(request_: Request, backend: str) -> None:
    assert through_maps(table(*CONDITIONS), request_) == backend


TWO_QUERIES = (*VERSION, ValueCondition("q", "a"))
EVERYTHING = Request("/a/b", "GET", {"x-canary": "yes", "x-team": "a"}, {"v": "1", "q": "a"})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (exact("/a/b"), RouteMatch(path="/a/b", method="GET", headers=CANARY)),
        (prefix("/a/b"), RouteMatch(path="/a", method="GET", headers=CANARY)),
        (RouteMatch(PathKind.REGEX, "/a/.*"), RouteMatch(path="/a", method="GET")),
        (RouteMatch(path="/a", method="GET"), RouteMatch(path="/a", headers=CANARY, query=TWO_QUERIES)),
        (RouteMatch(path="/a", headers=CANARY), RouteMatch(path="/a", query=VERSION)),
        (RouteMatch(path="/a", headers=CANARY), RouteMatch(path="/a", query=TWO_QUERIES)),
        (
            RouteMatch(path="/a", headers=(*CANARY, ValueCondition("x-team", "a"))),
            RouteMatch(path="/a", headers=CANARY, query=TWO_QUERIES),
        ),
        (RouteMatch(path="/a", query=TWO_QUERIES), RouteMatch(path="/a", query=VERSION)),
        (RouteMatch(path="/a", query=VERSION), prefix("/a")),
    ],
)
@pytest.mark.parametrize("older", ["first", "second"])
def test_the_order_of_what_matches_is_that_of_the_gateway_api(
    first: RouteMatch, second: RouteMatch, older: str
) -> None:
    rules = [rule(match, name, day=1 if name == older else 2) for match, name in ((first, "first"), (second, "second"))]
    assert through_maps(table(*rules), EVERYTHING) == "first"


def test_of_different_matches_of_one_kind_the_oldest_object_comes_first() -> None:
    rules = [
        rule(RouteMatch(path="/a", headers=CANARY), "young", day=2),
        rule(RouteMatch(path="/a", headers=(ValueCondition("x-team", "a"),)), "old", day=1),
    ]
    assert through_maps(table(*rules), EVERYTHING) == "old"
    first = rules[0]._replace(precedence=-1)
    assert through_maps(table(first, rules[1]), EVERYTHING) == "young"


@pytest.mark.parametrize(
    ("regex", "path"),
    [
        ("/foo/[0-9]+", "/foo"),
        ("^/foo/bar/.*$", "/foo/bar"),
        ("/foo/?x", ""),
        ("/foo", ""),
        ("/a/x|/b/y", ""),
        (".*", ""),
        ("/a/b*/c", "/a"),
    ],
)
def test_a_regular_expression_stands_at_its_literal_elements(regex: str, path: str) -> None:
    assert place_of(RouteMatch(PathKind.REGEX, regex)) == (PathKind.PREFIX, path)


def test_of_equal_matches_the_oldest_object_has_it_and_the_order_of_conditions_is_none() -> None:
    both = (*CANARY, ValueCondition("x-team", "a"))
    old = rule(RouteMatch(path="/a/", headers=both), "old", day=1)
    young = rule(RouteMatch(path="/a", headers=both[::-1]), "young", day=2)
    other = rule(RouteMatch(path="/a", headers=CANARY), "other", day=3)
    made = table(young, other, old)
    assert [(each.rule, each.winner) for each in made.lost] == [(young, old)]
    assert made.has_won(old)
    assert made.has_won(other)
    assert not made.has_won(young)


def test_the_next_claimant_gets_what_the_owner_gives_up() -> None:
    old, young = rule(prefix("/"), "old", day=1), rule(prefix("/"), "young", day=2)
    made = table(old, young)
    made.change(young)
    assert (made.entries, made.lost) == ({"young": (entry_of(VIRTUAL_HOST, place_of(prefix("/"))),)}, [])


def test_what_is_blocked_goes_to_nobody_of_its_kind() -> None:
    old, young = rule(prefix("/"), "old", day=1), rule(prefix("/"), "young", day=2)
    made = Table(old, young, blocked=lambda _, __, ___: lambda each: "reserved" if each.backend == "old" else "")
    assert [(lost.rule, lost.winner, lost.why) for lost in made.lost] == [(old, None, "reserved")]
    assert through_maps(made, Request("/")) == "young"


def test_plain_paths_are_listed_by_object_and_virtual_host() -> None:
    first, second = rule(exact("/a"), "web", name="one"), rule(prefix("/a"), "web", day=2, name="two")
    late, foreign = rule(exact("/a"), "late", day=3, name="two"), rule(exact("/b"), "web", name="three")
    later = rule(exact("/a"), "later", day=3, name="two", number=1)
    graph = Graph()
    source = Source[object, RouteRule](graph, "rules")
    taken = {path_of(foreign): "demo/other has it"}
    plain = PlainRoutingTable("test", source, never_blocked, lambda _, path, __: taken.get(path, ""))
    source.replace(dict(enumerate([later, late, foreign, second, first])))
    graph.settle()

    one, two, three = (Key("demo", name) for name in ("one", "two", "three"))
    assert {key: [path for path, _ in found] for key, found in plain.won.items.items()} == {
        one: [path_of(first)],
        two: [path_of(second)],
    }
    assert {key: [lost for _, each in found for lost in each] for key, found in plain.lost.items.items()} == {
        two: [ConflictedRule(late, first), ConflictedRule(later, first)],
        three: [ConflictedRule(foreign, None, "demo/other has it")],
    }
    assert dict(plain.virtual_hosts.items) == {VIRTUAL_HOST: 2}


def test_headers_come_before_query_parameters() -> None:
    asked = Request("/", headers={"x-canary": "yes"}, query={"v": "1"})
    both = [
        rule(RouteMatch(path="/", query=(*VERSION, ValueCondition("w", "1"))), "query", day=1),
        rule(RouteMatch(path="/", headers=CANARY), "headers", day=2),
    ]
    [group] = table(*both).groups[VIRTUAL_HOST].values()
    assert [each.backend for each in group.rules] == ["headers", "query"]
    assert through_maps(table(*both), asked) == "headers"


def test_only_what_falls_to_a_changed_path_is_made_again() -> None:
    made = table(*CONDITIONS, *PATHS[1:3])
    calls = CheckedCalls(made.graph)
    made.change(*CONDITIONS, *PATHS[1:2], rule(prefix("/foo/bar/"), "other"))
    assert calls.made == [
        ("test: decisions on paths", VirtualHostPath(VIRTUAL_HOST, place_of(prefix("/foo/bar")))),
        ("test: map entries", VirtualHostPath(VIRTUAL_HOST, place_of(prefix("/foo/bar")))),
    ]


PATH = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3).map(lambda words: "/" + "/".join(words))
HEADERS = st.sampled_from([(), (), CANARY, (*CANARY, ValueCondition("x-team", "a"))])
MATCHES = st.builds(
    RouteMatch,
    st.sampled_from([PathKind.EXACT, PathKind.PREFIX]),
    PATH,
    st.sampled_from(["", "", "GET", "POST"]),
    HEADERS,
    st.sampled_from([(), (), VERSION]),
)
OBJECTS = st.lists(st.tuples(st.integers(1, 5), st.lists(MATCHES, max_size=4)), max_size=6)
REQUESTS = st.builds(
    Request,
    PATH,
    st.sampled_from(["GET", "POST", "PUT"]),
    st.sampled_from([{}, {"x-canary": "yes"}, {"x-canary": "yes", "x-team": "a"}]),
    st.sampled_from([{}, {"v": "1"}]),
)


def _objects(
    given_: Sequence[tuple[int, Sequence[RouteMatch]]], prefix_: str = "o"
) -> dict[object, tuple[RouteRule, ...]]:
    return {
        f"o{number}": tuple(
            rule(match, f"{prefix_}{number}-{place}", day=day, name=f"o{number}", number=place)
            for place, match in enumerate(matches)
        )
        for number, (day, matches) in enumerate(given_)
    }


@settings(max_examples=120, deadline=None)
@given(OBJECTS, st.lists(REQUESTS, min_size=1, max_size=8))
def test_maps_and_groups_find_what_the_rules_say(
    given_: Sequence[tuple[int, Sequence[RouteMatch]]], requests: Sequence[Request]
) -> None:
    objects = _objects(given_)
    made = table(*(each for found in objects.values() for each in found))
    rules = [each for found in objects.values() for each in found]
    for request in requests:
        assert through_maps(made, request) == by_rules(rules, request)


@settings(max_examples=120, deadline=None)
@given(OBJECTS, OBJECTS)
def test_a_changed_table_is_that_of_the_new_objects(
    before: Sequence[tuple[int, Sequence[RouteMatch]]], after: Sequence[tuple[int, Sequence[RouteMatch]]]
) -> None:
    old, new = (
        [each for found in some.values() for each in found] for some in (_objects(before), _objects(after, "n"))
    )
    made = table(*old)
    calls = CheckedCalls(made.graph)
    made.change(*new)
    calls.settled()
    assert items_of(made.graph) == items_of(table(*new).graph)
    made.change(*old)
    assert items_of(made.graph) == items_of(table(*old).graph)
