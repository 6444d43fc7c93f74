import pytest

from pyconfd.haproxy.runtime.traffic_history import RECENT_S, SAMPLES, BackendTraffic, Reading, TrafficHistory
from pyconfd.model.route_figures import BOUNDS_S, Counts, quantile_s

NO_STEPS = (0,) * (len(BOUNDS_S) + 1)


def sums(good: int, bad: int = 0, connections: int = 0) -> Counts:
    return (0, good, 0, 0, bad, connections, 0, 0, 0, 0, 0)


def steps(**counts: int) -> Counts:
    found = list(NO_STEPS)
    for name, count in counts.items():
        found[int(name.removeprefix("s"))] = count
    return tuple(found)


def reading(clock_s: float, counted: dict[str, Counts], timed: dict[str, Counts] | None = None) -> Reading:
    return Reading(clock_s, counted, timed or {}, dict.fromkeys(counted, 0), frozenset(counted))


def test_the_ring_is_bounded_and_keeps_the_newest() -> None:
    history = TrafficHistory()
    for turn in range(3 * SAMPLES):
        history.count({"web": sums(10), "shop": sums(1, 2)}, {"web": steps(s0=10)})
        history.note(1000.0 + 30 * turn, reading(30.0 * turn, {}))
    found = history.samples()
    assert len(found) == SAMPLES
    assert found[-1].clock_s - found[0].clock_s == 3600
    assert found[-1].at == 1000.0 + 30 * (3 * SAMPLES - 1)
    assert sum(found[-1].requests) - sum(found[-2].requests) == 13
    assert found[-1].requests[-1] - found[-2].requests[-1] == 2
    assert found[-1].steps[0] - found[-2].steps[0] == 10


def test_reads_for_reloads_do_not_shorten_the_ring() -> None:
    history = TrafficHistory()
    for clock_s in (0.0, 1.0, 2.0, 30.0, 31.0):
        history.note(clock_s, reading(clock_s, {}))
    assert [each.clock_s for each in history.samples()] == [0.0, 30.0]


def test_recent_figures_are_differences_over_some_minutes() -> None:
    history = TrafficHistory()
    assert history.recent() == (0.0, {})
    history.note(0.0, reading(0.0, {"web": sums(100, 5)}, {"web": steps(s0=4, s9=1)}))
    assert history.recent().seconds == 0
    history.note(30.0, reading(30.0, {"web": sums(160, 6), "new": sums(3)}, {"web": steps(s0=8, s9=2)}))
    recent = history.recent()
    assert recent.seconds == 30
    assert recent.figures["web"].requests == (0, 60, 0, 0, 1)
    assert recent.figures["web"].steps == steps(s0=4, s9=1)
    assert recent.figures["new"].requests == (0, 3, 0, 0, 0)
    assert history.recent() is recent


@pytest.mark.parametrize(("turns", "seconds"), [(10, 300), (11, 330), (19, 570), (20, 300), (100, 300), (109, 570)])
def test_what_is_recent_never_covers_long(turns: int, seconds: int) -> None:
    history = TrafficHistory()
    for turn in range(turns + 1):
        history.note(0.0, reading(30.0 * turn, {"web": sums(turn)}))
    recent = history.recent()
    assert recent.seconds == seconds
    assert recent.seconds < 2 * RECENT_S
    assert recent.figures["web"].requests == (0, seconds // 30, 0, 0, 0)


def test_a_backend_that_went_is_not_shown_and_one_that_began_again_counts_from_there() -> None:
    history = TrafficHistory()
    history.note(0.0, reading(0.0, {"web": sums(100), "gone": sums(9)}))
    history.note(30.0, reading(30.0, {"web": sums(7, 200)}))
    assert {name: each.requests for name, each in history.recent().figures.items()} == {"web": (0, 7, 0, 0, 200)}


@pytest.mark.parametrize(
    ("counts", "share", "seconds"),
    [
        ((), 0.5, None),
        (NO_STEPS, 0.5, None),
        (steps(s0=10), 0.5, 0.0025),
        (steps(s0=10, s3=10), 0.5, 0.005),
        (steps(s0=10, s3=10), 0.75, 0.0375),
        (steps(s9=10), 0.99, 2.5 + 2.5 * 0.99),
        (steps(s0=1, s10=9), 0.99, 5.0),  # the others took longer than any bound
    ],
)
def test_quantiles_are_those_of_prometheus(counts: Counts, share: float, seconds: float | None) -> None:
    assert quantile_s(counts, share) == (seconds if seconds is None else pytest.approx(seconds))


def test_the_rates_of_one_backend_are_its_own_and_bounded() -> None:
    history, good = TrafficHistory(), 0
    assert history.of_backend("web") == []
    for turn in range(2 * SAMPLES):
        good += 60 if turn % 2 else 0
        counted = {"web": sums(good, turn), "idle": sums(7), **({"gone": sums(turn)} if turn < SAMPLES else {})}
        history.note(1000.0 + 30 * turn, reading(30.0 * turn, counted, {"web": steps(s0=good)}))
    found = history.of_backend("web")
    assert len(found) == SAMPLES - 1
    (before, last), (at, newest) = found[-2:]
    assert (before, at) == (1000.0 + 30 * (2 * SAMPLES - 2), 1000.0 + 30 * (2 * SAMPLES - 1))
    assert newest.requests == pytest.approx(61 / 30, rel=1e-3)
    assert newest.errors == pytest.approx(1 / 30, rel=1e-3)
    assert newest.p50 is not None
    assert 0 < newest.p50 <= BOUNDS_S[0]
    assert last.requests == pytest.approx(1 / 30, rel=1e-3)
    assert last.p50 is None
    assert {each.requests for _, each in history.of_backend("idle")} == {0.0}
    assert {each.requests for _, each in history.of_backend("gone")} == {0.0}
    assert {each.requests for _, each in history.of_backend("never")} == {0.0}


def test_what_nobody_asks_for_takes_no_memory() -> None:
    traffic = BackendTraffic()
    for turn in range(3 * SAMPLES):
        counted = {f"b{number}": sums(1) for number in range(10)} | {"web": sums(turn)}
        traffic.note(30.0 * turn, reading(30.0 * turn, counted))
    assert {name: len(ring) * ring.itemsize for name, ring in traffic._rings.items()} == {"web": 20 * (SAMPLES - 1)}
