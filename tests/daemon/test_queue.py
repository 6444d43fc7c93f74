"""The work queue, with a clock of the test's."""

from hypothesis import given
from hypothesis import strategies as st

from pyconfd.daemon.queue import DISRUPTIVE_FACTOR, WorkQueue


def queue(**changes: float) -> WorkQueue:
    return WorkQueue(**{"retry_min_s": 5.0, "retry_max_s": 30.0, **changes})


def test_the_earliest_of_several_times_counts() -> None:
    work = queue()
    work.add("a", 10.0)
    work.add("a", 8.0)
    work.add("a", 12.0)
    work.add("b", 9.0)
    assert work.next() == (8.0, "a")
    assert work.next(without=("a",)) == (9.0, "b")
    assert not work.pop(7.9, "a", "b")
    assert work.pop(8.5, "a", "b")
    assert work.is_waiting("b")
    assert not work.is_waiting("a")


def test_debounce_waits_for_quiet_and_no_longer_than_the_cap() -> None:
    work = queue()
    for now in (100.0, 100.5, 101.0):
        work.debounce("a", now, quiet_s=1.0, cap_s=1.8)
    assert work.due_at("a") == 101.8
    work.debounce("b", 100.0, quiet_s=1.0, cap_s=10.0)
    work.add("b", 100.0)
    work.debounce("b", 100.0, quiet_s=1.0, cap_s=10.0)
    assert work.pop(100.0, "b"), "what is due stays due"


@given(st.lists(st.floats(0.001, 0.9), min_size=1, max_size=200))
def test_debounce_serves_a_steady_stream_within_the_cap(gaps: list[float]) -> None:
    work, now, first = queue(), 0.0, None
    for gap_s in gaps:
        first = now if first is None else first
        work.debounce("a", now, quiet_s=1.0, cap_s=5.0)
        assert (work.due_at("a") or 0.0) <= first + 5.0
        now += gap_s
        first = None if work.pop(now, "a") else first


@given(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=100))
def test_pace_keeps_the_distance_and_drops_nothing(gaps: list[float]) -> None:
    work, now, last, waiting = queue(), 0.0, None, False
    for gap_s in gaps:
        now += gap_s
        work.debounce("a", now, quiet_s=0.2, cap_s=2.0)
        waiting = True
        if work.pop(now, "a"):
            assert last is None or now - last >= 5.0
            work.pace(("a",), now + 5.0)
            last, waiting = now, False
    due_at = work.due_at("a")
    assert (due_at is not None) == waiting
    if due_at is not None:
        assert due_at <= max(now + 2.0, (last or 0.0) + 5.0)
        assert work.pop(due_at, "a")


@given(st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.001, 0.5)), min_size=1, max_size=100))
def test_pace_lets_nothing_wait_longer_than_the_send_before_it(steps: list[tuple[float, float]]) -> None:
    work, now, free_at = queue(), 100.0, 100.0
    for gap_s, takes_s in steps:
        now += gap_s
        work.add("a", now)
        due_at = work.due_at("a")
        assert due_at is not None
        assert due_at <= max(now, free_at) + 1e-6
        now = max(now, due_at)
        assert work.pop(now, "a")
        work.pace(("a",), now + 2 * takes_s)
        free_at = now + 2 * takes_s
        now += takes_s


def test_retries_double_until_they_succeed() -> None:
    work, pauses = queue(), []
    for _ in range(5):
        work.retry("a", 100.0)
        pauses.append((work.due_at("a") or 0.0) - 100.0)
    assert pauses == [5.0, 10.0, 20.0, 30.0, 30.0]
    work.succeeded("a")
    assert not work.is_waiting("a")
    work.retry("a", 100.0)
    assert work.due_at("a") == 105.0


def test_a_disruptive_attempt_is_repeated_rarely() -> None:
    work, pauses = queue(), []
    for _ in range(7):
        work.retry("a", 0.0, disruptive=True)
        pauses.append(work.due_at("a"))
    assert pauses[:2] == [30.0, 60.0]
    assert pauses[-1] == 30.0 * DISRUPTIVE_FACTOR
