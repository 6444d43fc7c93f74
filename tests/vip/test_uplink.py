"""When a carrier that came back is trusted."""

from hypothesis import given
from hypothesis import strategies as st

from pyconfd.vip.uplink import FLAPS_WITHIN_S, LONGEST_DISTRUST_S, Damping


def test_a_carrier_that_was_never_lost_is_trusted() -> None:
    assert Damping(1.0).see(True, 5.0)


def test_each_further_loss_doubles_the_time() -> None:
    damping, now = Damping(1.0), 0.0
    for patience in (1.0, 2.0, 4.0):
        assert not damping.see(False, now)
        assert not damping.see(True, now + 0.125)
        assert not damping.see(True, now + 0.0625 + patience)
        now += 0.125 + patience
        assert damping.see(True, now)


def test_losses_are_forgotten_after_a_while() -> None:
    damping = Damping(1.0)
    for now in (0.0, 1.0, 2.0, 3.0):
        damping.see(now % 2 == 1.0, now)
    damping.see(True, 4.0)
    now = 4.0 + FLAPS_WITHIN_S
    assert damping.see(True, now)
    damping.see(False, now)
    damping.see(True, now)
    assert damping.see(True, now + 1.0)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.001, 100.0)), max_size=30))
def test_a_steady_carrier_is_trusted_in_the_end_and_a_lost_one_never(seen: list[tuple[bool, float]]) -> None:
    damping, now = Damping(1.0), 0.0
    for carrier, wait in seen:
        now += wait
        assert not (damping.see(carrier, now) and not carrier)
    damping.see(True, now)
    assert damping.see(True, now + LONGEST_DISTRUST_S)
