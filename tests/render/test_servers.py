from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.render.filters import Server, server_id, servers
from pyconfd.render.invalid import InvalidValueError


def endpoint(pod: str, address: str, state: str = "ready") -> dict[str, Any]:
    return {"pod": pod, "address": address, "port": 80, "state": state}


def test_servers_have_names_targets_and_stable_ids() -> None:
    assert servers([endpoint("b", "fd00::1"), endpoint("a", "10.0.0.1")]) == [
        Server("a:10.0.0.1:80", "10.0.0.1:80", server_id("a:10.0.0.1:80"), draining=False),
        Server("b:fd00::1:80", "[fd00::1]:80", server_id("b:fd00::1:80"), draining=False),
    ]


def test_a_terminating_pod_drains_while_another_is_ready() -> None:
    found = servers([endpoint("a", "10.0.0.1", "draining"), endpoint("b", "10.0.0.2")])
    assert [server.draining for server in found] == [True, False]


def test_terminating_pods_serve_when_nothing_else_is_left() -> None:
    found = servers([endpoint("a", "10.0.0.1", "draining"), endpoint("b", "10.0.0.2", "draining")])
    assert [server.draining for server in found] == [False, False]


def test_weights_go_through_and_what_has_none_keeps_nothing_draining() -> None:
    weighted = [
        endpoint("a", "10.0.0.1") | {"weight": 0},
        endpoint("b", "10.0.0.2", "draining") | {"weight": 64},
    ]
    assert [(server.draining, server.weight) for server in servers(weighted)] == [(False, 0), (False, 64)]
    found = servers([*weighted, endpoint("c", "10.0.0.3")])
    assert [(server.draining, server.weight) for server in found] == [(False, 0), (True, 0), (False, 1)]


@given(st.lists(st.ip_addresses().map(str), max_size=8), st.randoms(use_true_random=False))
def test_order_and_duplicates_do_not_matter(addresses: list[str], random: Any) -> None:
    shuffled = [*addresses, *addresses]
    random.shuffle(shuffled)
    found = servers(endpoint("", address) for address in shuffled)
    assert found == servers(endpoint("", address) for address in addresses)
    assert len({server.id for server in found}) == len({server.name for server in found}) == len(set(addresses))


@pytest.mark.parametrize(
    "bad",
    [
        endpoint("a", "10.0.0.1", "redy"),
        endpoint("a", "10.0.0.1 backup"),
        endpoint("a", "10.0.0.1") | {"weight": 257},
        endpoint("a", "10.0.0.1") | {"weight": "1 backup"},
        {"pod": "a", "address": "10.0.0.1"},
    ],
)
def test_what_is_no_endpoint_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        servers([bad])
