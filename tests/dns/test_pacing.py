from hypothesis import given
from hypothesis import strategies as st

from pyconfd.dns.pacing import SLOT_S, next_slot, place, slot_number


@given(names=st.sets(st.text("abc", min_size=1), min_size=1, max_size=30), expected=st.integers(1, 40))
def test_nodes_that_know_each_other_have_slots_of_their_own(names: set[str], expected: int) -> None:
    places = [place(name, names, expected) for name in names]
    assert len({slot for slot, _ in places}) == len(names)
    assert {slots for _, slots in places} == {max(len(names), expected)}


@given(now=st.floats(0, 1e9), slots=st.integers(1, 40), data=st.data())
def test_the_next_slot_is_an_own_one_soon_and_never_the_same_twice(now: float, slots: int, data: st.DataObject) -> None:
    slot = data.draw(st.integers(0, slots - 1))
    found = next_slot(now, slot, slots, -1)
    assert now <= found <= now + slots * SLOT_S
    assert slot_number(found) % slots == slot
    assert slot_number(next_slot(found, slot, slots, slot_number(found))) == slot_number(found) + slots
