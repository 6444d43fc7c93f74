"""Successors of a mapping are what a dict would be, and know what they were made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.snapshot import Key
from pyconfd.model.versioned import VersionedDict, differing, versioned

KEYS = [Key("ns", f"name-{number}") for number in range(8)]


MANY = {Key("ns", f"name-{number:03}-many"): 0 for number in range(300)}
"""More than one shard has; some stand between those of KEYS."""


@pytest.mark.parametrize("beside", [{}, MANY], ids=["few", "many"])
@given(st.lists(st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(0, 3))))
def test_it_is_what_a_dict_would_be_after_any_changes(
    beside: dict[Key, int], rounds: list[dict[Key, int | None]]
) -> None:
    previous = VersionedDict(beside)
    expected = dict(beside)
    for changes in rounds:
        now = previous.replaced(changes, lambda key: key.name)
        for key, value in changes.items():
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        assert list(now.items()) == sorted(expected.items())
        assert {key: now.get(key) for key in KEYS} == {key: expected.get(key) for key in KEYS}
        assert [key in now for key in KEYS] == [key in expected for key in KEYS]
        assert len(now) == len(expected)
        assert now.replaced(dict(now)) is now
        assert set(differing(previous, now)) == {key for key in KEYS if previous.get(key) is not now.get(key)}
        previous = now


def test_a_successor_names_what_was_replaced_and_leaves_the_former_as_it_was() -> None:
    first = VersionedDict({"a": 1, "b": 2})
    second = first.with_values({"b": 3})
    third = second.with_values({"a": 4})
    assert dict(first) == {"a": 1, "b": 2}
    assert dict(third) == {"a": 4, "b": 3}
    assert list(second.changed_since(first) or ()) == ["b"]
    assert list(third.changed_since(first) or ()) == ["b", "a"]
    assert first.changed_since(third) is None
    assert third.with_values({}) is third


def test_what_differs_is_known_a_few_successors_back() -> None:
    made = [VersionedDict({"a": 0, "b": 0})]
    for number in range(1, 10):
        made.append(made[-1].with_values({"a": number}) if number != 5 else made[-1].with_changes({"c": 1}, ["b"]))
    assert made[9].touched_since(made[0]) is None
    assert set(made[9].touched_since(made[1]) or ()) == {"a", "b", "c"}
    assert made[9].changed_since(made[1]) is None
    assert list(made[9].changed_since(made[5]) or ()) == ["a"]
    assert made[9].touched_since(made[9]) == {}
    assert set(differing(made[1], made[9])) == {"a", "b", "c"}


def test_equal_is_what_has_equal_items_whatever_it_was_made_of() -> None:
    first = VersionedDict({"a": [1], "b": [2]})
    for other, expected in (
        (first.with_values({"a": [1]}), True),
        (first.with_values({"a": [3]}), False),
        (first.with_changes({"c": [3]}, ["b"]), False),
        (first.with_changes({"c": [3]}, []), False),
        ({"b": [2], "a": [1]}, True),
        ({"a": [1], "c": [2]}, False),
        (VersionedDict({"b": [2], "a": [1]}), True),
        (["a", "b"], False),
    ):
        assert ((first == other), (other == first)) == (expected, expected)
    came_and_went = first.with_changes({"c": [3]}, []).with_changes({"a": [1]}, ["c"])
    assert came_and_went == first
    came_back = first.with_changes({}, ["b"]).with_changes({"b": [2]}, [])
    assert came_back == first


def test_a_plain_mapping_is_copied_before_it_is_built_on() -> None:
    plain = {"a": 1}
    made = versioned(plain).with_values({"a": 2})
    plain["a"] = 5
    assert dict(made) == {"a": 2}
    assert versioned(made) is made


def test_places_are_those_of_the_keys_whatever_was_replaced() -> None:
    first = VersionedDict({"b": 1, "a": 2, "c": 3})
    assert [first.place(key) for key in "bac"] == [0, 1, 2]
    second = first.with_values({"a": 5})
    assert list(second.items()) == [("b", 1), ("a", 5), ("c", 3)]
    assert second.place("c") == 2


def test_it_cannot_be_changed() -> None:
    made = VersionedDict({"a": 1})
    for change in ("update", "pop", "clear", "setdefault", "__setitem__"):
        with pytest.raises(TypeError, match="cannot be changed"):
            getattr(made, change)("a", 2)
    assert made == {"a": 1}


def test_many_are_found_in_the_order_that_a_dict_has() -> None:
    many = {f"key-{number:04}": number for number in range(1, 1001)}
    made = VersionedDict(many)
    assert (list(made), list(made.values()), list(made.items())) == (list(many), [*many.values()], [*many.items()])
    assert sorted(made.in_any_order()) == [*many.values()]
    assert (made == many, made.copy(), repr(made), len(made)) == (True, many, repr(many), 1000)
    with pytest.raises(KeyError, match="key-0000"):
        made["key-0000"]
    assert ("key-0000" in made, made.get("key-0000"), made.get("key-0000", 7)) == (False, None, 7)


def test_a_successor_shares_what_it_does_not_replace() -> None:
    first = VersionedDict({number: object() for number in range(1000)})
    for second in (first.with_values({5: object()}), first.with_changes({2000: object()}, [7])):
        shared = sum(one is other for one, other in zip(first._shards, second._shards, strict=True))
        assert shared >= len(first._shards) - 2 >= 62
    assert first.with_values({5: object()})._keys is first._keys


@given(st.integers(200, 300), st.integers(200, 300))
def test_it_stays_a_dict_while_it_grows_and_shrinks(size: int, other: int) -> None:
    expected = {f"{number:04}": number for number in range(size)}
    wanted = {f"{number:04}": number for number in range(0, 2 * other, 2)}
    made = VersionedDict(expected).with_changes(wanted, expected.keys() - wanted.keys(), str)
    assert list(made.items()) == list(wanted.items())


LETTERS = "abcdefghijklmnopqrstuvwxyz"


@given(st.lists(st.dictionaries(st.sampled_from(LETTERS), st.none() | st.integers(300, 303), max_size=6), max_size=5))
def test_a_successor_with_other_keys_knows_what_it_differs_in(rounds: list[dict[str, int | None]]) -> None:
    previous: VersionedDict[str, int] = VersionedDict(dict.fromkeys(LETTERS[1::2], 300))
    for changes in rounds:
        gone = [key for key, value in changes.items() if value is None]
        now = previous.with_changes({key: value for key, value in changes.items() if value is not None}, gone, str)
        kept = {key: value for key, value in previous.items() if key not in changes}
        expected = kept | {key: value for key, value in changes.items() if value is not None}
        assert list(now.items()) == sorted(expected.items())
        assert set(differing(previous, now)) == {key for key in changes if previous.get(key) is not now.get(key)}
        assert now.changed_since(previous) is None or list(now) == list(previous)
        previous = now
