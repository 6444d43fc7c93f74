"""What follows from each end of a list or a watch, and after which pause."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.settings import KubernetesSettings, ReadMode
from pyconfd.sources.kubernetes.failures import ApiError, BrokenWatchError, Failure
from pyconfd.sources.kubernetes.reflector import Followup, ListWatchPolicy, Verb

LIST, WATCH = Verb.LIST, Verb.WATCH


class Highest(Random):
    """No jitter: always the longest pause."""

    def uniform(self, a: float, b: float) -> float:
        return b


def policy(*, mode: ReadMode = ReadMode.WATCH, servers: int = 1) -> ListWatchPolicy:
    return ListWatchPolicy(KubernetesSettings(mode=mode, interval_s=30), servers=servers, jitter=Highest())


def failure(kind: Failure, retry_after_s: float | None = None) -> ApiError:
    return ApiError(kind, "", "", retry_after_s=retry_after_s)


def broken(kind: Failure) -> ApiError:
    return BrokenWatchError(kind, "", "")


Outcome = Callable[[ListWatchPolicy], Followup]


def listed(it: ListWatchPolicy) -> Followup:
    return it.listed()


def list_failed(error: ApiError, *, moved: bool = False, unpaged: bool = False) -> Outcome:
    return lambda it: it.list_failed(error, moved=moved, unpaged=unpaged)


def watch_failed(error: ApiError, *, moved: bool = False, lasted_s: float = 0.0) -> Outcome:
    return lambda it: it.watch_failed(error, moved=moved, lasted_s=lasted_s)


def ended(*, progress: bool = False, lasted_s: float = 0.0) -> Outcome:
    return lambda it: it.watch_ended(progress=progress, lasted_s=lasted_s)


def silent(*, progress: bool = False) -> Outcome:
    return lambda it: it.watch_silent(progress=progress)


GONE = failure(Failure.UNREACHABLE)
LOST = list_failed(GONE, moved=True)

CASES: dict[str, tuple[dict[str, Any], list[tuple[Outcome, Followup]]]] = {
    "a watch follows a list": ({}, [(listed, Followup(WATCH))]),
    "polling lists each interval": ({"mode": ReadMode.POLL}, [(listed, Followup(LIST, 30))]),
    "a watch that lasted is opened again at once": ({}, [(ended(lasted_s=300), Followup(WATCH))] * 3),
    "a watch that ends at once is no busy loop": (
        {},
        [(ended(), Followup(verb, delay)) for verb, delay in zip(
            [WATCH, WATCH, WATCH, LIST, LIST, LIST, LIST], [1, 2, 4, 8, 16, 30, 30], strict=True
        )],
    ),
    "short watches with events are watched on": (
        {}, [(ended(progress=True), Followup(WATCH, delay)) for delay in (1, 2, 4, 8, 16)]
    ),
    "silence means watch again": ({}, [(silent(progress=True), Followup(WATCH))] * 3),
    "silence for ever means list": (
        {}, [(silent(), Followup(WATCH)), (silent(), Followup(LIST)), (silent(), Followup(WATCH))]
    ),
    "progress ends the count of silences": (
        {},
        [(silent(), Followup(WATCH)), (ended(progress=True, lasted_s=9), Followup(WATCH)), (silent(), Followup(WATCH))],
    ),
    "410 of a watch means list at once, but not for ever": (
        {},
        [
            (watch_failed(broken(Failure.EXPIRED)), Followup(LIST)),
            (listed, Followup(WATCH)),
            (watch_failed(broken(Failure.EXPIRED)), Followup(LIST, 2)),
        ],
    ),
    "410 of a watch that lasted means list at once each time": (
        {}, [(watch_failed(broken(Failure.EXPIRED), lasted_s=300), Followup(LIST))] * 3
    ),
    "410 while paging means once without a limit": (
        {},
        [
            (list_failed(failure(Failure.EXPIRED)), Followup(Verb.LIST_UNPAGED)),
            (list_failed(failure(Failure.EXPIRED), unpaged=True), Followup(LIST, 1)),
        ],
    ),
    "a watch that is denied twice is replaced by polling": (
        {},
        [
            (watch_failed(GONE), Followup(WATCH, 1, until_back=True)),
            (watch_failed(failure(Failure.FORBIDDEN)), Followup(WATCH, 2)),
            (watch_failed(failure(Failure.FORBIDDEN)), Followup(LIST, 30)),
            (listed, Followup(WATCH)),
            (watch_failed(failure(Failure.FORBIDDEN)), Followup(LIST, 30)),
            (ended(lasted_s=9), Followup(WATCH)),
            (watch_failed(failure(Failure.FORBIDDEN)), Followup(WATCH, 1)),
            (watch_failed(GONE), Followup(WATCH, 2, until_back=True)),
            (watch_failed(failure(Failure.FORBIDDEN)), Followup(WATCH, 4)),
        ],
    ),
    "a denied list backs off": (
        {},
        [
            (list_failed(failure(Failure.FORBIDDEN)), Followup(LIST, 1)),
            (list_failed(failure(Failure.UNAUTHORIZED)), Followup(LIST, 2, until_back=True)),
            (listed, Followup(WATCH)),
            (list_failed(failure(Failure.FORBIDDEN)), Followup(LIST, 1)),
        ],
    ),
    "files of this machine are looked at again soon": (
        {},
        [
            (list_failed(failure(Failure.CREDENTIALS)), Followup(LIST, delay, until_back=True))
            for delay in (1, 2, 4, 5, 5, 5)
        ],
    ),
    "each server is listed once before a pause": (
        {"servers": 3},
        [(LOST, each) for each in (Followup(LIST), Followup(LIST), Followup(LIST, 4, until_back=True), Followup(LIST))],
    ),
    "a server lost while watching means list at the next": (
        {"servers": 2}, [(watch_failed(GONE, moved=True), Followup(LIST))]
    ),
    "the only server lost means watch on later": ({}, [(watch_failed(GONE), Followup(WATCH, 1, until_back=True))]),
    "a broken stream means list": (
        {}, [(watch_failed(broken(Failure.BAD_ANSWER)), Followup(LIST, 1, until_back=True))]
    ),
    "Retry-After is kept, within reason": (
        {},
        [
            (list_failed(failure(Failure.THROTTLED, 17)), Followup(LIST, 17)),
            (list_failed(failure(Failure.THROTTLED, 1e9)), Followup(LIST, 300)),
            (watch_failed(failure(Failure.SERVER_ERROR, 17)), Followup(WATCH, 17, until_back=False)),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_follows(name: str) -> None:
    options, steps = CASES[name]
    made = policy(**options)
    for outcome, expected in steps:
        assert outcome(made) == expected


OUTCOMES = st.tuples(
    st.sampled_from(Failure), st.none() | st.floats(0, 1e6), st.booleans(), st.booleans(), st.floats(0, 1000)
)


@given(st.sampled_from(ReadMode), st.integers(1, 4), st.integers(0, 99), st.lists(OUTCOMES, max_size=40))
def test_failures_never_follow_each_other_without_a_pause(
    mode: ReadMode, servers: int, seed: int, outcomes: list[tuple[Failure, float | None, bool, bool, float]]
) -> None:
    made = ListWatchPolicy(KubernetesSettings(mode=mode, interval_s=30), servers=servers, jitter=Random(seed))
    step, unpaused = Followup(LIST), 0
    for kind, retry_after_s, flag, moved, lasted_s in outcomes:
        failed = BrokenWatchError(kind, "", "") if flag else ApiError(kind, "", "", retry_after_s=retry_after_s)
        if step.verb is WATCH:
            step = made.watch_failed(failed, moved=moved, lasted_s=lasted_s)
        else:
            unpaged = step.verb is Verb.LIST_UNPAGED
            step = made.list_failed(failed, moved=moved and servers > 1, unpaged=unpaged)
        assert step.delay_s == 0 or 0.5 <= step.delay_s <= 300
        unpaused = 0 if step.delay_s else unpaused + 1
        assert unpaused <= 2 * servers + 2
