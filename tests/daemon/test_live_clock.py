from hypothesis import given
from hypothesis import strategies as st

from pyconfd.daemon.debounce import Debounce, LiveClock


def test_the_first_change_is_due_at_once_and_the_next_after_as_long_as_it_took() -> None:
    clock = LiveClock()
    assert clock.due_at() is None
    clock.changed(100.0)
    assert clock.take(100.0)
    clock.changed(100.25)
    clock.ended(100.0, 100.5)
    assert not clock.take(100.75)
    assert clock.due_at() == 101.0
    assert clock.take(101.0)
    assert clock.due_at() is None


def test_what_is_applied_otherwise_is_forgotten() -> None:
    clock = LiveClock()
    clock.changed(100.0)
    clock.forget()
    assert clock.due_at() is None


@given(st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.001, 0.5)), min_size=1, max_size=100))
def test_no_change_waits_longer_than_the_send_before_it_took(steps: list[tuple[float, float]]) -> None:
    clock, now, free_at = LiveClock(), 100.0, 100.0
    for gap_s, takes_s in steps:
        now += gap_s
        clock.changed(now)
        due_at = clock.due_at()
        assert due_at is not None
        assert due_at <= max(now, free_at) + 1e-6
        now = max(now, due_at)
        assert clock.take(now)
        clock.ended(now, now + takes_s)
        free_at = now + 2 * takes_s
        now += takes_s


@given(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=100))
def test_reloads_keep_their_distance_and_none_is_dropped(gaps: list[float]) -> None:
    debounce, now, last, waiting = Debounce(quiet_s=0.2, cap_s=2.0, interval_s=5.0), 0.0, None, False
    for gap_s in gaps:
        now += gap_s
        debounce.changed(now)
        waiting = True
        if debounce.take(now):
            assert last is None or now - last >= 5.0
            debounce.applied(now)
            last, waiting = now, False
    due_at = debounce.due_at()
    assert (due_at is not None) == waiting
    if due_at is not None:
        assert due_at <= max(now + 2.0, (last or 0.0) + 5.0)
        assert debounce.take(due_at)


def test_what_is_postponed_waits_that_long() -> None:
    debounce = Debounce(quiet_s=0.2, cap_s=2.0)
    debounce.changed(100.0, at_once=True)
    debounce.postpone(101.0)
    assert not debounce.take(100.5)
    assert debounce.take(101.0)
