"""Which API server is used: in order, sticky, and back to the first one that is well."""

import pytest

from pyconfd.sources.kubernetes.client import ServerOrder
from pyconfd.sources.kubernetes.failures import NEXT_SERVER, Failure

URLS = ("https://a", "https://b", "https://c")
LOST = Failure.UNREACHABLE


def order() -> ServerOrder:
    return ServerOrder(URLS, failback_s=300)


@pytest.mark.parametrize("kind", sorted(NEXT_SERVER))
def test_the_next_server_after_a_failure_that_another_one_may_not_have(kind: Failure) -> None:
    servers = order()
    for index, after in ((0, 1), (1, 2), (2, 0)):
        servers.succeeded(index, 0)
        assert servers.current == index
        assert servers.failed(index, kind, "gone", 1)
        assert servers.current == after


@pytest.mark.parametrize("kind", sorted(set(Failure) - NEXT_SERVER))
def test_the_same_server_after_what_would_be_the_same_everywhere(kind: Failure) -> None:
    servers = order()
    assert not servers.failed(0, kind, "no", 1)
    assert servers.current == 0


def test_failures_of_several_requests_move_on_once() -> None:
    servers = order()
    assert servers.failed(0, Failure.RESET, "reset", 1)
    assert servers.failed(0, Failure.RESET, "reset", 1)
    assert servers.failed(0, Failure.FORBIDDEN, "late answer of the former server", 1)
    assert servers.current == 1


@pytest.mark.parametrize(
    ("lost", "well", "goes_back_at", "to"),
    [
        ([(0, 0)], [(0, 10)], 310, 0),
        ([(0, 0), (1, 0)], [(1, 5)], 305, 1),
        ([(0, 0)], [(0, 10), (0, -200), (0, 230)], 530, 0),
    ],
    ids=["after its health lasted", "to the best of several", "a failed probe starts the time again"],
)
def test_back_to_the_first(
    lost: list[tuple[int, float]], well: list[tuple[int, float]], goes_back_at: float, to: int
) -> None:
    """A negative time in ``well`` is a failure."""
    servers = order()
    for index, at in lost:
        servers.failed(index, LOST, "refused", at)
    for index, at in well:
        if at < 0:
            servers.failed(index, LOST, "refused", -at)
        else:
            servers.succeeded(index, at)
    assert not servers.fail_back(goes_back_at - 0.1)
    assert servers.fail_back(goes_back_at)
    assert servers.current == to


def test_states_show_times_of_day_and_errors_until_the_server_works() -> None:
    servers = order()
    servers.failed(0, LOST, "connection refused", 10)
    servers.succeeded(1, 15)
    servers.failed(1, Failure.FORBIDDEN, "nodes is forbidden", 16)  # that concerns one resource
    first, second, third = servers.states(20, 1_000_000)
    assert (first.url, first.in_use, first.healthy) == ("https://a", False, False)
    assert (first.last_error, first.last_error_at, first.last_ok_at) == ("connection refused", 999_990, 0)
    assert (second.in_use, second.healthy, second.last_ok_at, second.last_error) == (True, True, 999_995, "")
    assert (third.in_use, third.healthy, third.last_error_at) == (False, False, 0)
    servers.failed(1, Failure.UNAUTHORIZED, "401", 21)
    assert servers.states(22, 22)[1].last_error == "401"
    servers.succeeded(1, 23)
    assert servers.states(24, 24)[1].last_error == ""


def test_an_order_needs_a_server() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ServerOrder((), failback_s=1)
