import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.haproxy.history.generations import GenerationEntry, kept

DAY = 86400.0


def entries(*bases: str, sound: tuple[int, ...] = ()) -> list[GenerationEntry]:
    """Give generations 1, 2, ... of these bases, a day apart."""
    return [
        GenerationEntry(number, number * DAY, basis, number in sound) for number, basis in enumerate(bases, start=1)
    ]


@pytest.mark.parametrize(
    ("known", "number", "days", "stay"),
    [
        ([], 3, 100, set()),
        (entries("a", "a", "a", "a"), 2, 100, {3, 4}),
        # the newest of each basis, so that an edit long ago can be undone after many live changes
        (entries("a", "a", "b", "b", "b", "b"), 2, 100, {2, 5, 6}),
        (entries("a", "b", "c", "d", "d", "d"), 2, 100, {3, 5, 6}),
        # by age, but for what a rollback and a boot need
        (entries("a", "b", "c", "c", "c"), 5, 1, {2, 4, 5}),
        (entries("a", "a", "a", "a", sound=(1, 2)), 5, 1, {2, 3, 4}),
        (entries("a", "a", "a", "a", sound=(4,)), 1, 1, {4}),
        # a clock that was set back makes nothing old
        ([GenerationEntry(1, 9 * DAY), GenerationEntry(2, DAY)], 5, 1, {1, 2}),
    ],
)
def test_what_stays(known: list[GenerationEntry], number: int, days: float, stay: set[int]) -> None:
    assert kept(known, number=number, for_s=days * DAY) == stay


def test_a_rollout_leaves_what_reloads_did() -> None:
    reloads = [GenerationEntry(number, number * DAY, "a", reasons=("binds_changed",)) for number in (1, 2, 3)]
    rollout = [
        GenerationEntry(number, 4 * DAY, "a", reasons=("servers_changed",) * (number % 2)) for number in range(4, 100)
    ]
    assert kept([*reloads, *rollout], number=2, for_s=100 * DAY) == {2, 3, 98, 99}


@given(
    st.lists(
        st.builds(
            GenerationEntry,
            st.integers(1, 1000),
            st.floats(0, 1e9),
            st.sampled_from("abc"),
            st.booleans(),
            reasons=st.sampled_from([(), ("servers_changed",), ("binds_changed",)]),
        ),
        min_size=1,
        unique_by=lambda entry: entry.number,
    ),
    st.integers(1, 5),
    st.floats(0, 1e9),
)
def test_nobody_is_left_without_a_way_back(known: list[GenerationEntry], number: int, for_s: float) -> None:
    stay = kept(known, number=number, for_s=for_s)
    newest = max(known, key=lambda entry: entry.number)
    assert newest.number in stay
    assert len(stay) <= 3 * number + 2
    left = [entry for entry in known if entry.number in stay]
    assert any(entry.basis != newest.basis for entry in left) == any(entry.basis != newest.basis for entry in known)
    assert any(entry.ran_well for entry in left) == any(entry.ran_well for entry in known)
    assert kept(left, number=number, for_s=for_s) == stay
