import pytest

from pyconfd.sources.kubernetes.client import ServerOrder
from pyconfd.sources.kubernetes.failures import NEXT_SERVER, Failure

URLS = ("https://a", "https://b", "https://c")


def order() -> ServerOrder:
    return ServerOrder(URLS, failback_s=300)


def test_the_first_server_is_used_until_it_fails() -> None:
    servers = order()
    for second in range(100):
        servers.succeeded(0, second)
    assert servers.current == 0


@pytest.mark.parametrize("kind", sorted(NEXT_SERVER))
def test_the_next_server_after_a_failure_that_another_one_may_not_have(kind: Failure) -> None:
    servers = order()
    assert servers.failed(0, kind, "gone", 1)
    assert servers.current == 1
    assert servers.failed(1, kind, "gone", 2)
    assert servers.failed(2, kind, "gone", 3)
    assert servers.current == 0


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


def test_sticky_to_the_one_that_works() -> None:
    servers = order()
    servers.failed(0, Failure.UNREACHABLE, "refused", 0)
    servers.succeeded(0, 10)
    for second in range(10, 309):
        servers.succeeded(1, second)
        assert not servers.fail_back(second)
    assert servers.current == 1


def test_back_to_the_first_after_its_health_lasted() -> None:
    servers = order()
    servers.failed(0, Failure.UNREACHABLE, "refused", 0)
    servers.succeeded(0, 10)
    assert not servers.fail_back(309.9)
    assert servers.fail_back(310)
    assert servers.current == 0


def test_a_failed_probe_begins_the_waiting_anew() -> None:
    servers = order()
    servers.failed(0, Failure.UNREACHABLE, "refused", 0)
    servers.succeeded(0, 10)
    servers.failed(0, Failure.TIMEOUT, "hangs", 200)
    servers.succeeded(0, 230)
    assert not servers.fail_back(500)
    assert servers.fail_back(530)


def test_back_to_the_best_of_several() -> None:
    servers = order()
    servers.failed(0, Failure.TLS, "wrong CA", 0)
    servers.failed(1, Failure.TLS, "wrong CA", 0)
    servers.succeeded(1, 5)
    assert servers.fail_back(305)
    assert servers.current == 1


def test_states_show_age_as_time_of_day() -> None:
    servers = order()
    servers.failed(0, Failure.UNREACHABLE, "connection refused", 10)
    servers.succeeded(1, 15)
    first, second, third = servers.states(20, 1_000_000)
    assert (first.url, first.in_use, first.healthy) == ("https://a", False, False)
    assert (first.last_error, first.last_error_at, first.last_ok_at) == ("connection refused", 999_990, 0)
    assert (second.in_use, second.healthy, second.last_ok_at, second.last_error) == (True, True, 999_995, "")
    assert (third.in_use, third.healthy, third.last_error_at) == (False, False, 0)


def test_an_error_is_gone_from_the_state_when_the_server_works_again() -> None:
    servers = order()
    servers.failed(0, Failure.UNAUTHORIZED, "401", 1)
    assert servers.states(2, 2)[0].last_error == "401"
    servers.succeeded(0, 2)
    assert servers.states(2, 2)[0].last_error == ""


def test_what_concerns_one_resource_is_no_error_of_the_server() -> None:
    servers = order()
    servers.succeeded(0, 1)
    servers.failed(0, Failure.FORBIDDEN, "nodes is forbidden", 2)
    assert servers.states(2, 2)[0].last_error == ""


def test_an_order_needs_a_server() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ServerOrder((), failback_s=1)
