"""Which API server is used: in order, sticky, and back to the first one that is well."""

import pytest

from pyconfd.sources.kubernetes.client import ServerOrder
from pyconfd.sources.kubernetes.failures import NEXT_SERVER, Failure
from tests.sources.kubernetes.clocks import StandingClock

URLS = ("https://a", "https://b", "https://c")
LOST = Failure.UNREACHABLE


def order(clock: StandingClock | None = None) -> ServerOrder:
    return ServerOrder(URLS, failback_s=300, clock=clock or StandingClock())


@pytest.mark.parametrize("kind", sorted(NEXT_SERVER))
def test_the_next_server_after_a_failure_that_another_one_may_not_have(kind: Failure) -> None:
    servers = order()
    for index, after in ((0, 1), (1, 2), (2, 0)):
        servers.succeeded(index)
        assert servers.current == index
        assert servers.failed(index, kind, "gone")
        assert servers.current == after


@pytest.mark.parametrize("kind", sorted(set(Failure) - NEXT_SERVER))
def test_the_same_server_after_what_would_be_the_same_everywhere(kind: Failure) -> None:
    servers = order()
    assert not servers.failed(0, kind, "no")
    assert servers.current == 0


def test_failures_of_several_requests_move_on_once() -> None:
    servers = order()
    assert servers.failed(0, Failure.RESET, "reset")
    assert servers.failed(0, Failure.RESET, "reset")
    assert servers.failed(0, Failure.FORBIDDEN, "late answer of the former server")
    assert servers.current == 1


@pytest.mark.parametrize(
    ("events", "goes_back_at", "to"),
    [
        ([("lost", 0, 0), ("well", 0, 10)], 310, 0),
        ([("lost", 0, 0), ("lost", 1, 0), ("well", 1, 5)], 305, 1),
        ([("lost", 0, 0), ("well", 0, 10), ("lost", 0, 200), ("well", 0, 230)], 530, 0),
    ],
    ids=["after its health lasted", "to the best of several", "a failed probe starts the time again"],
)
def test_back_to_the_first(events: list[tuple[str, int, float]], goes_back_at: float, to: int) -> None:
    clock = StandingClock(0.0)
    servers = order(clock)
    for event, index, clock.now_s in events:
        if event == "lost":
            servers.failed(index, LOST, "refused")
        else:
            servers.succeeded(index)
    clock.now_s = goes_back_at - 0.1
    assert not servers.fail_back()
    clock.now_s = goes_back_at
    assert servers.fail_back()
    assert servers.current == to


def test_states_show_times_of_day_and_errors_until_the_server_works() -> None:
    clock = StandingClock(10.0, 1_000_010.0)
    servers = order(clock)
    servers.failed(0, LOST, "connection refused")
    clock.now_s = 15
    servers.succeeded(1)
    servers.failed(1, Failure.FORBIDDEN, "nodes is forbidden")  # that concerns one resource
    first, second, third = servers.states()
    assert (first.url, first.in_use, first.healthy) == ("https://a", False, False)
    assert (first.last_error, first.last_error_at, first.last_ok_at) == ("connection refused", 1_000_010, 0)
    assert (second.in_use, second.healthy, second.last_ok_at, second.last_error) == (True, True, 1_000_015, "")
    assert (third.in_use, third.healthy, third.last_error_at) == (False, False, 0)
    servers.failed(1, Failure.UNAUTHORIZED, "401")
    assert servers.states()[1].last_error == "401"
    servers.succeeded(1)
    assert servers.states()[1].last_error == ""


def test_an_order_needs_a_server() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ServerOrder((), failback_s=1, clock=StandingClock())
