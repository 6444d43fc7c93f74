"""Whether HAProxy runs, from looks: a restart loop is no HAProxy that runs, and a reload is no outage."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.haproxy.process.presence import SETTLES_S, SETTLES_UNASKED_S, Presence

GONE = frozenset[int]()


def judged(*looks: tuple[float, Iterable[int], bool]) -> list[bool | None]:
    """Return what is thought after each look: its time, the processes, and whether one answered."""
    presence = Presence()
    found = []
    for at, pids, answers in looks:
        presence.see(frozenset(pids), at, answers=answers)
        found.append(presence.up)
    return found


def test_what_answers_at_the_first_look_runs() -> None:
    assert judged((0, {1, 2}, True)) == [True]


def test_what_is_not_there_is_down_at_once() -> None:
    assert judged((0, {1, 2}, True), (1, GONE, False)) == [True, False]
    assert judged((0, GONE, False)) == [False]


def test_a_start_counts_when_it_has_lasted() -> None:
    looks = [(0.0, GONE, False), (1.0, {5, 6}, True), (2.0, {5, 6}, True), (1.0 + SETTLES_S, {5, 6}, True)]
    assert judged(*looks) == [False, False, False, True]


def test_a_reload_is_no_outage() -> None:
    looks = [(0, {1, 2}, True), (3, {1, 2}, True), (3.1, {1, 2, 3}, False), (3.2, {1, 3}, True), (9, {1, 4}, True)]
    assert judged(*looks) == [True] * 5


def test_a_restart_that_answers_is_no_outage_and_the_next_one_at_once_is() -> None:
    settled = [(0, {1, 2}, True), (3, {1, 2}, True)]
    assert judged(*settled, (4, {5, 6}, True), (5, {5, 6}, True)) == [True] * 4
    assert judged(*settled, (4, {5, 6}, True), (5, {7, 8}, True)) == [True, True, True, False]
    assert judged(*settled, (4, {5, 6}, False)) == [True, True, False]


def test_a_start_that_reads_a_long_configuration_and_fails_is_never_up() -> None:
    up = [(0.0, {1, 2}, True), (3.0, GONE, False)]
    reading = [(4.0 + second, {9}, False) for second in range(30)]
    assert True not in judged(*up, *reading)[1:]


def test_without_a_socket_a_process_that_stays_is_believed_later() -> None:
    looks = [(0.0, GONE, False), (1.0, {5}, False), (5.0, {5}, False), (1.0 + SETTLES_UNASKED_S, {5}, False)]
    assert judged(*looks) == [False, False, False, True]


def test_sockets_that_become_forbidden_do_not_make_it_down_for_ever() -> None:
    presence = Presence()
    presence.see(frozenset({1, 2}), 0.0, answers=True)
    presence.see(GONE, 1.0, answers=False)
    for second in (2.0, 8.0, 2.0 + SETTLES_UNASKED_S):
        presence.see(frozenset({3, 4}), second, answers=False, may_ask=False)
    assert presence.up is True


def test_verified_reloads_without_a_master_one_after_the_other_are_no_outage() -> None:
    presence = Presence()
    presence.see(frozenset({1}), 0.0, answers=True)
    for number in (2, 3, 4):
        presence.replaced(frozenset({number}), number / 10)
        presence.see(frozenset({number}), number / 10 + 0.05, answers=True)
        assert presence.up is True


def test_a_verified_reload_after_an_outage_has_to_last_too() -> None:
    presence = Presence()
    presence.see(GONE, 0.0, answers=False)
    presence.replaced(frozenset({1, 2}), 1.0)
    presence.see(frozenset({1, 2}), 0.9 + SETTLES_S, answers=True)
    assert presence.up is False
    presence.see(frozenset({1, 2}), 1.0 + SETTLES_S, answers=True)
    assert (presence.up, presence.changed_at) == (True, 1.0 + SETTLES_S)


@given(st.lists(st.tuples(st.sampled_from(["gone", "starts", "answers"]), st.floats(0.05, 1.5)), max_size=60))
def test_a_restart_loop_is_never_up(looks: list[tuple[str, float]]) -> None:
    """102 starts of 100 ms each, whatever moments the looks fall into."""
    presence, now = Presence(), 10.0
    presence.see(GONE, now, answers=False)
    for number, (what, pause_s) in enumerate(looks):
        now += pause_s
        pids = GONE if what == "gone" else frozenset({100 + 2 * number, 101 + 2 * number})
        presence.see(pids, now, answers=what == "answers")
        assert presence.up is False


@pytest.mark.parametrize("answers", [True, False])
def test_the_time_of_an_outage_is_that_of_its_first_look(*, answers: bool) -> None:
    presence = Presence()
    presence.see(frozenset({1, 2}), 0.0, answers=True)
    presence.see(GONE, 5.0, answers=False)
    presence.see(frozenset({3, 4}), 6.0, answers=answers)
    presence.see(GONE, 7.0, answers=False)
    assert (presence.up, presence.changed_at) == (False, 5.0)
