import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.settings import ReadMode
from pyconfd.sources.kubernetes.cycle import (
    BACKOFF_MAX_S,
    BACKOFF_MIN_S,
    Cycle,
    Failed,
    Interrupted,
    List,
    Listed,
    Outcome,
    Pause,
    Step,
    Watch,
    WatchEnded,
    WatchSilent,
    backoff_s,
)
from pyconfd.sources.kubernetes.failures import Failure


def highest(_: float, high: float) -> float:
    return high


def cycle(*, mode: ReadMode = ReadMode.WATCH, servers: int = 1) -> Cycle:
    return Cycle(mode=mode, interval_s=30, page_size=500, servers=servers, uniform=highest)


def watching(*, servers: int = 1) -> Cycle:
    made = cycle(servers=servers)
    made.after(Listed("7"))
    return made


def after(made: Cycle, *outcomes: Outcome) -> Step:
    """Feed outcomes, with every pause waited for before the next."""
    for outcome in outcomes[:-1]:
        made.after(outcome)
        made.passed()
    return made.after(outcomes[-1])


def test_a_list_in_pages_then_a_watch_from_there() -> None:
    made = cycle()
    assert made.step == List(500)
    assert made.after(Listed("7")) == Watch("7", 480)


def test_the_server_is_asked_to_end_watches_after_4_to_8_minutes() -> None:
    seen: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        seen.append((low, high))
        return low

    made = Cycle(mode=ReadMode.WATCH, interval_s=30, page_size=500, servers=1, uniform=uniform)
    assert made.after(Listed("7")) == Watch("7", 240)
    assert seen == [(240, 480)]


def test_a_watch_goes_on_from_the_last_event() -> None:
    made = watching()
    made.advance("9")
    made.advance("")
    assert made.after(WatchEnded(progress=True, lasted_s=300)) == Watch("9", 480)


def test_a_watch_that_ends_at_once_without_a_word_is_no_busy_loop() -> None:
    made = watching()
    steps = []
    for _ in range(8):
        steps.append(made.after(WatchEnded(progress=False, lasted_s=0)))
        made.passed()
    assert all(isinstance(step, Pause) and step.delay_s >= BACKOFF_MIN_S for step in steps)
    assert [step.delay_s for step in steps if isinstance(step, Pause)] == [1, 2, 4, 8, 16, 30, 30, 30]
    assert Pause(8, List(500)) in steps


def test_silence_means_reconnect_from_the_same_version() -> None:
    assert watching().after(WatchSilent(progress=True)) == Watch("7", 480)
    assert watching().after(WatchSilent(progress=False)) == Watch("7", 480)


def test_silence_for_ever_means_list() -> None:
    assert after(watching(), WatchSilent(progress=False), WatchSilent(progress=False)) == List(500)
    made = watching()
    made.after(WatchSilent(progress=False))
    made.advance("8")
    assert made.after(WatchSilent(progress=True)) == Watch("8", 480)
    assert made.after(WatchSilent(progress=False)) == Watch("8", 480)


def test_410_of_a_watch_means_list_at_once_but_not_for_ever() -> None:
    made = watching()
    assert made.after(Failed(Failure.EXPIRED, broken=True)) == List(500)
    assert made.after(Listed("8")) == Watch("8", 480)
    assert made.after(Failed(Failure.EXPIRED, broken=True)) == Pause(2, List(500))


def test_410_while_paging_means_once_more_without_a_limit() -> None:
    made = cycle()
    assert made.after(Failed(Failure.EXPIRED)) == List(0)
    assert made.after(Failed(Failure.EXPIRED)) == Pause(1, List(500))


def test_watch_denied_means_polling_and_trying_again() -> None:
    made = watching()
    assert made.after(Failed(Failure.FORBIDDEN)) == Pause(30, List(500))
    made.passed()
    assert made.after(Listed("8")) == Watch("8", 480)


def test_list_denied_backs_off() -> None:
    made = cycle()
    assert made.after(Failed(Failure.FORBIDDEN)) == Pause(1, List(500))
    made.passed()
    assert made.after(Failed(Failure.UNAUTHORIZED)) == Pause(2, List(500))


def test_files_of_this_machine_are_looked_at_again_soon() -> None:
    made = cycle()
    for _ in range(10):
        made.after(Failed(Failure.CREDENTIALS))
        made.passed()
    assert made.after(Failed(Failure.CREDENTIALS)) == Pause(5, List(500))


def test_polling_lists_each_interval() -> None:
    made = cycle(mode=ReadMode.POLL)
    assert made.after(Listed("7")) == Pause(30, List(500))
    assert made.passed() == List(500)


def test_after_a_move_the_next_server_is_listed_at_once_each_one_once() -> None:
    made = cycle(servers=3)
    failed = Failed(Failure.UNREACHABLE, moved=True)
    assert made.after(failed) == List(500)
    assert made.after(failed) == List(500)
    assert made.after(failed) == Pause(4, List(500), until_back=True)
    made.passed()
    assert made.after(failed) == List(500)


def test_a_server_lost_while_watching_means_a_list_at_the_next() -> None:
    assert watching(servers=2).after(Failed(Failure.UNREACHABLE, moved=True)) == List(500)


def test_the_only_server_lost_while_watching_means_a_watch_from_the_same_version_later() -> None:
    assert watching().after(Failed(Failure.UNREACHABLE)) == Pause(1, Watch("7", 480), until_back=True)


def test_a_stream_that_cannot_be_trusted_means_a_list() -> None:
    assert watching().after(Failed(Failure.BAD_ANSWER, broken=True)) == Pause(1, List(500), until_back=True)


def test_who_was_told_how_long_to_wait_does_not_come_sooner() -> None:
    failed = Failed(Failure.SERVER_ERROR, retry_after_s=17)
    assert cycle().after(failed) == Pause(17, List(500), until_back=False)
    assert watching().after(failed) == Pause(17, Watch("7", 480), until_back=False)


def test_interrupted() -> None:
    assert watching().after(Interrupted(relist=False)) == Watch("7", 480)
    assert watching().after(Interrupted(relist=True)) == List(500)
    assert cycle().after(Interrupted(relist=False)) == List(500)


def test_retry_after_is_honoured_within_reason() -> None:
    assert cycle().after(Failed(Failure.THROTTLED, retry_after_s=17)) == Pause(17, List(500))
    assert cycle().after(Failed(Failure.THROTTLED, retry_after_s=1e9)) == Pause(300, List(500))


@pytest.mark.parametrize(("failures", "longest"), [(1, 1), (2, 2), (3, 4), (6, 30), (10_000, 30)])
def test_back_off_doubles_up_to_half_a_minute(failures: int, longest: float) -> None:
    assert backoff_s(failures, None, highest) == longest
    assert backoff_s(failures, None, lambda low, _: low) == longest / 2


OUTCOMES = st.one_of(
    st.builds(Listed, st.text("0123456789", min_size=1)),
    st.builds(WatchEnded, st.booleans(), st.floats(0, 1000)),
    st.builds(WatchSilent, st.booleans()),
    st.builds(Interrupted, st.booleans()),
    st.builds(
        Failed, st.sampled_from(Failure), st.none() | st.floats(0, 1e6), moved=st.booleans(), broken=st.booleans()
    ),
)


@given(st.sampled_from(ReadMode), st.integers(1, 4), st.lists(OUTCOMES, max_size=40))
def test_never_more_requests_in_a_row_without_a_pause_than_there_are_ways_out(
    mode: ReadMode, servers: int, outcomes: list[Outcome]
) -> None:
    made = Cycle(mode=mode, interval_s=30, page_size=500, servers=servers, uniform=highest)
    unpaused = 0
    for outcome in outcomes:
        fitting = outcome
        if isinstance(made.step, List) and isinstance(outcome, WatchEnded | WatchSilent):
            fitting = Failed(Failure.SERVER_ERROR, moved=servers > 1)
        if isinstance(made.step, Watch) and isinstance(outcome, Listed):
            fitting = Failed(Failure.EXPIRED, broken=True)
        step = made.after(fitting)
        if isinstance(step, Pause):
            assert BACKOFF_MIN_S <= step.delay_s <= 300
            unpaused = 0
            made.passed()
        elif isinstance(fitting, Failed):
            unpaused += 1
        elif not isinstance(fitting, Listed):
            unpaused = 0
        assert unpaused <= 2 * servers + 2
    assert BACKOFF_MAX_S == 30
