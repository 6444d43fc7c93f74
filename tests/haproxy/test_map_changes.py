"""A map that changes entry by entry ends as the new one, and only what differs is looked at."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.haproxy.config.changes import _single, differing_lines
from pyconfd.model.operations import AddMapEntries, ChangeMapEntries, Command, RemoveMapEntries

KEYS = st.lists(
    st.sampled_from([*(f"k{number}/" for number in range(30)), "a", "a-b", "ab", "gw_a|b.example.com/~x/"]), unique=True
)
MAPS = st.builds(
    lambda keys, values: "".join(f"{key} {values[number % len(values)]}\n" for number, key in enumerate(sorted(keys))),
    KEYS,
    st.lists(st.sampled_from(["x", "xy", "y"]), min_size=1, max_size=3),
)


def applied(content: str, commands: Sequence[Command]) -> dict[str, str]:
    entries = dict(line.split(" ", 1) for line in content.splitlines())
    for command in commands:
        match command:
            case AddMapEntries():
                assert not entries.keys() & dict(command.entries).keys()
                entries |= dict(command.entries)
            case ChangeMapEntries():
                assert entries.keys() >= dict(command.entries).keys()
                entries |= dict(command.entries)
            case RemoveMapEntries():
                for key in command.keys:
                    del entries[key]
    return entries


@settings(max_examples=300)
@given(MAPS, MAPS)
def test_single_changes_lead_from_one_map_to_the_other(old: str, new: str) -> None:
    if commands := _single("/maps/x.map", old, new):
        assert applied(old, commands) == applied(new, [])


@settings(max_examples=300)
@given(MAPS, MAPS)
def test_lines_outside_of_the_difference_are_the_same(old: str, new: str) -> None:
    before, after = differing_lines(old, new)
    rest = old.replace(before, "", 1) if before else old
    assert rest == (new.replace(after, "", 1) if after else new)


def test_one_entry_of_many_is_one_command() -> None:
    lines = [f"k{number:05d} x\n" for number in range(10_000)]
    old, new = "".join(lines), "".join([*lines[:5_000], "k04999/ y\n", *lines[5_001:]])
    assert _single("/maps/x.map", old, new) == [
        AddMapEntries("/maps/x.map", (("k04999/", "y"),)),
        RemoveMapEntries("/maps/x.map", ("k05000",)),
    ]
    assert sum(map(len, differing_lines(old, new))) < 100


def test_a_key_that_stands_elsewhere_too_has_the_map_replaced() -> None:
    assert _single("/maps/x.map", "a x\nb x\nc x\n", "a x\nb y\nb x\nc x\n") == []


def test_a_path_of_a_gateway_is_a_single_change() -> None:
    old, new = "gw_a|b.example.com/ be_1\n", "gw_a|b.example.com/ be_1\ngw_a|b.example.com/~x/ be_2\n"

    assert _single("/maps/x.map", old, new) == [AddMapEntries("/maps/x.map", (("gw_a|b.example.com/~x/", "be_2"),))]


def test_a_request_between_two_entries_never_finds_the_shorter_prefix_alone() -> None:
    """A new route has two paths: what is for one of them is answered by it, or as if there was none."""
    path, without, both = "/maps/path-prefixes.map", "a/ be\nc/ be\n", "a/ be\nb/ be-all\nb/1/ be-one\nc/ be\n"
    assert _single(path, without, both) == [AddMapEntries(path, (("b/1/", "be-one"), ("b/", "be-all")))]
    assert _single(path, both, without) == [RemoveMapEntries(path, ("b/", "b/1/"))]
    turned = "a/ be\nb/1/ be-one\nb/ be-all\nc/ be\n"
    assert _single(path, turned, without) == [RemoveMapEntries(path, ("b/", "b/1/"))]
    assert _single(path, without, turned) == [AddMapEntries(path, (("b/1/", "be-one"), ("b/", "be-all")))]
