"""Which API server is used: in order, sticky, and back to the first one that is well."""

import pytest

from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.client import ApiServers
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.failures import NEXT_SERVER, ApiError, Failure
from tests.sources.kubernetes.clocks import StandingClock

SETTINGS = KubernetesSettings(("http://a", "http://b", "http://c"), failback_s=300)


def made(clock: StandingClock | None = None) -> ApiServers:
    clock = clock or StandingClock()
    return ApiServers(SETTINGS, Credentials(SETTINGS, clock), clock)


def failure(kind: Failure, message: str = "") -> ApiError:
    return ApiError(kind, "", message)


LOST = failure(Failure.UNREACHABLE, "refused")


@pytest.mark.parametrize("kind", Failure)
def test_another_server_is_used_only_where_it_may_do_better(kind: Failure) -> None:
    servers = made()
    if kind not in NEXT_SERVER:
        assert not servers.failed(0, failure(kind))
        assert servers.current == 0
        return
    for index, after in ((0, 1), (1, 2), (2, 0)):
        servers.succeeded(index)
        assert servers.current == index
        assert servers.failed(index, failure(kind))
        assert servers.current == after


def test_failures_of_several_requests_move_on_once() -> None:
    servers = made()
    assert servers.failed(0, failure(Failure.RESET))
    assert servers.failed(0, failure(Failure.RESET))
    assert servers.failed(0, failure(Failure.FORBIDDEN)), "a late answer of the former server"
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
    servers = made(clock)
    for event, index, clock.now_s in events:
        if event == "lost":
            servers.failed(index, LOST)
        else:
            servers.succeeded(index)
    in_use = servers.current
    clock.now_s = goes_back_at - 0.1
    servers.fail_back()
    assert servers.current == in_use
    clock.now_s = goes_back_at
    servers.fail_back()
    assert servers.current == to


def test_states_show_times_of_day_and_errors_until_the_server_works() -> None:
    clock = StandingClock(10.0, 1_000_010.0)
    servers = made(clock)
    servers.failed(0, LOST)
    clock.now_s = 15
    servers.succeeded(1)
    servers.failed(1, failure(Failure.FORBIDDEN, "nodes is forbidden"))  # that concerns one resource
    first, second, third = servers.states()
    assert (first.url, first.in_use, first.healthy) == ("http://a", False, False)
    assert first.last_error.startswith("refused")
    assert (first.last_error_at, first.last_ok_at) == (1_000_010, 0)
    assert (second.in_use, second.healthy, second.last_ok_at, second.last_error) == (True, True, 1_000_015, "")
    assert (third.in_use, third.healthy, third.last_error_at) == (False, False, 0)
    servers.failed(1, failure(Failure.UNAUTHORIZED, "401"))
    assert servers.states()[1].last_error.startswith("401")
    servers.succeeded(1)
    assert servers.states()[1].last_error == ""
