"""Figures before and after a change, and whether they are an alarm."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.daemon.error_rates import counted, judge
from pyconfd.model.status import Counts, Sample

GOOD = Counts(1000, 2, 4, 4)


def of(backends: Mapping[str, Counts], clients: Counts | None = None, worker: int = 1) -> Sample:
    total = sum(backends.values(), start=Counts())
    return Sample(0.0, worker, clients or Counts(total.requests, total.failed), backends)


def sample(**backends: Counts) -> Sample:
    return of(backends)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        # failures leap up, of one service, or of all clients
        (sample(a=GOOD), sample(a=Counts(100, 90, 4, 4)), ["backend a: 90 % of 100 requests failed, 0 % before"]),
        (sample(a=GOOD), sample(a=Counts(100, 22, 4, 4)), ["backend a: 22 % of 100 requests failed, 0 % before"]),
        (sample(a=GOOD), of({"b": GOOD}, Counts(500, 400)), ["all clients: 80 % of 500 requests failed, 0 % before"]),
        # they were as bad before, or nearly
        (sample(a=Counts(1000, 900, 4, 4)), sample(a=Counts(100, 95, 4, 4)), []),
        (sample(a=Counts(1000, 200, 4, 4)), sample(a=Counts(100, 45, 4, 4)), []),
        (sample(a=GOOD), sample(a=Counts(100, 15, 4, 4)), []),
        # too few to say
        (sample(a=Counts(19, 0, 4, 4)), sample(a=Counts(1000, 900, 4, 4)), []),
        (sample(a=GOOD), sample(a=Counts(19, 19, 4, 4)), []),
        (sample(), sample(a=Counts(1000, 900, 4, 4)), []),
        (sample(a=GOOD), sample(a=Counts()), []),
        # a small service among big ones
        (sample(a=GOOD, b=GOOD), sample(a=Counts(100_000, 10, 4, 4), b=Counts(100, 90, 4, 4)), []),
        (
            sample(a=GOOD, b=GOOD),
            sample(a=Counts(1000, 10, 4, 4), b=Counts(100, 90, 4, 4)),
            ["backend b: 90 % of 100 requests failed, 0 % before"],
        ),
        # servers
        (sample(a=GOOD), sample(a=Counts(5, 0, 0, 4)), ["no server is up any more: a"]),
        (
            sample(a=GOOD, b=GOOD),
            sample(a=Counts(0, 0, 1, 4), b=Counts(0, 0, 2, 4)),
            ["3 of 8 servers are up, 8 of 8 before"],
        ),
        (sample(a=Counts(0, 0, 0, 4)), sample(a=Counts(0, 0, 0, 4)), []),
        (sample(a=GOOD), sample(a=Counts(0, 0, 3, 4)), []),
        # scaled down to nothing, or gone: that is the cluster's business
        (sample(a=GOOD), sample(a=Counts(0, 0, 0, 0)), []),
        (sample(a=GOOD), sample(), []),
        # one dead service of many is none
        (
            sample(**{f"b{n}": Counts(0, 0, 1, 1) for n in range(100)}),
            sample(**{f"b{n}": Counts(0, 0, int(n > 2), 1) for n in range(100)}),
            [],
        ),
        (
            sample(**{f"b{n}": Counts(0, 0, 1, 1) for n in range(100)}),
            sample(**{f"b{n}": Counts(0, 0, int(n > 4), 1) for n in range(100)}),
            ["no server is up any more: b0, b1, b2 and 2 more"],
        ),
    ],
)
def test_figures(before: Sample, after: Sample, found: list[str]) -> None:
    assert list(judge(before, after)) == found


def test_many_services_are_counted() -> None:
    names = "abcde"
    after = sample(**{name: Counts(100, 90 + number, 4, 4) for number, name in enumerate(names)})
    found = judge(sample(**dict.fromkeys(names, GOOD)), after)
    assert found[0].startswith("backend e: 94 %")
    assert found[3] == "and 2 more backends"


counts = st.builds(Counts, st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 9), st.just(9))
samples = st.dictionaries(st.sampled_from("abc"), counts).map(of)


@given(samples, samples)
def test_judging_never_fails_and_nothing_is_worse_than_itself(one: Sample, other: Sample) -> None:
    judge(one, other)
    assert judge(one, one) == ()


@given(counts, counts)
def test_counters_of_one_worker_are_subtracted_and_those_of_another_begin_again(one: Counts, more: Counts) -> None:
    later = one + more
    same = counted(sample(a=one), sample(a=later))
    assert (same.backends["a"].requests, same.backends["a"].failed) == (more.requests, more.failed)
    assert same.backends["a"].servers_up == later.servers_up
    other = of({"a": more}, worker=2)
    assert counted(sample(a=one), other) is other
    assert counted(None, other) is other


def test_counters_that_somebody_cleared_begin_again() -> None:
    assert counted(sample(a=Counts(100, 50)), sample(a=Counts(10, 1))).backends["a"] == Counts(10, 1)
