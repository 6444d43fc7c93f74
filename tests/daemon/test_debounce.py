from hypothesis import given
from hypothesis import strategies as st

from pyconfd.daemon.debounce import Debounce


def test_waits_for_quiet() -> None:
    debounce = Debounce(quiet_s=1, cap_s=10)
    debounce.changed(100.0)
    debounce.changed(100.5)

    assert not debounce.take(101.4)
    assert debounce.take(101.5)
    assert debounce.due_at() is None


def test_at_once_does_not_wait() -> None:
    debounce = Debounce(quiet_s=1, cap_s=10)
    debounce.changed(100.0, at_once=True)

    assert debounce.take(100.0)


@given(st.lists(st.floats(0.001, 0.9), min_size=1, max_size=200))
def test_a_steady_stream_is_applied_within_the_cap(gaps: list[float]) -> None:
    debounce = Debounce(quiet_s=1.0, cap_s=5.0)
    now, first = 0.0, None
    for gap in gaps:
        if first is None:
            first = now
        debounce.changed(now)
        due_at = debounce.due_at()
        assert due_at is not None
        assert due_at <= first + 5.0
        now += gap
        if debounce.take(now):
            first = None
