"""Successors of a mapping are what a dict would be, and know what they were made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.snapshot import Key
from pyconfd.model.versioned import VersionedDict, differing, versioned

KEYS = [Key("ns", f"name-{number}") for number in range(8)]


@given(st.lists(st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(0, 3))))
def test_it_is_what_a_dict_would_be_after_any_changes(rounds: list[dict[Key, int | None]]) -> None:
    previous: VersionedDict[Key, int] = VersionedDict({})
    expected: dict[Key, int] = {}
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
    assert third.changed_since(first) is None
    assert third.with_values({}) is third


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
