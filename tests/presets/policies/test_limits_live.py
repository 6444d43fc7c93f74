"""Limits by real HAProxies: of clients, routes and headers, and of two nodes that tell each other what they count."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyconfd.haproxy.runtime.sockets import ask
from pyconfd.vip.topology import StickPeer
from tests.presets.policies.stage import WAYS, PolicyStage, policy_stage
from tests.world.haproxy import free_port, wait_until

pytestmark = pytest.mark.haproxy
ways = pytest.mark.parametrize("way", WAYS)
OTHER = "198.51.100.8"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        yield found


def statuses(stage: PolicyStage, way: str, count: int, **more: Any) -> list[int]:
    return [stage.request(way, **more).status for _ in range(count)]


@ways
def test_the_limit_of_a_minute_is_each_clients_own(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"limit-rpm": "3"}))
    assert statuses(stage, way, 5) == [200, 200, 200, 429, 429]
    assert stage.request(way).headers["retry-after"] == ["60"]
    assert stage.request(way, client=OTHER).status == 200


@ways
def test_the_limit_of_a_second_ends_with_it(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"limit-rps": "1"}))
    wait_until(lambda: stage.request(way).status == 429, "a second request within a second")
    wait_until(lambda: stage.request(way).status == 200, "the next second")


@ways
def test_a_burst_is_let_through_beyond_the_limit_once(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"limit-rpm": "2", "limit-burst": "3"}))
    assert statuses(stage, way, 7) == [200] * 5 + [429] * 2


@ways
def test_both_periods_hold(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"limit-rpm": "3", "limit-rps": "1000000"}))
    assert statuses(stage, way, 4) == [200, 200, 200, 429]


@ways
def test_all_clients_of_a_route_together(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"limit-rpm": "2", "limit-by": "route"}))
    assert [stage.request(way, client=f"198.51.100.{each}").status for each in (1, 2, 3)] == [200, 200, 429]


@ways
def test_each_value_of_a_header(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"limit-rpm": "1", "limit-by": "header:X-Api-Key"}))
    keys: list[dict[str, str]] = [{"X-Api-Key": "a"}, {"x-api-key": "b"}, {"X-Api-Key": "a"}, {}, {}]
    assert [stage.request(way, headers=each).status for each in keys] == [200, 200, 429, 200, 429]
    # Nobody counts for another client by sending its address.
    assert stage.request(way, headers={"X-Api-Key": OTHER}).status == 200
    assert stage.request(way, client=OTHER).status == 200


def test_addresses_of_one_network_of_ipv6_are_one_client(stage: PolicyStage) -> None:
    stage.serving(WAYS["ingress"]({"limit-rpm": "1"}))
    clients = {"2001:db8:1:1::1": 200, "2001:db8:1:1:ffff::2": 429, "2001:db8:1:2::1": 200}
    assert {each: stage.request("ingress", client=each).status for each in clients} == clients


def test_a_mapped_address_counts_as_that_of_ipv4(stage: PolicyStage) -> None:
    stage.serving(WAYS["ingress"]({"limit-rpm": "1"}))
    clients = {"::ffff:198.51.100.7": 200, "::ffff:198.51.100.8": 200, "198.51.100.7": 429}
    assert {each: stage.request("ingress", client=each).status for each in clients} == clients


@ways
def test_limits_of_two_objects_count_apart(stage: PolicyStage, way: str) -> None:
    one, two = (WAYS[way]({"limit-rpm": "1"}, path=f"/{name}", name=name) for name in ("one", "two"))
    stage.serving(one, two)
    assert [stage.request(way, path).status for path in ("/one", "/two", "/one", "/two")] == [200, 200, 429, 429]


@ways
def test_requests_at_the_same_time(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"limit-connections": "1"}))
    with closing(stage.begin(way, "Content-Length: 3\r\nExpect: 100-continue", b"12")) as connection:
        assert connection.recv(12) == b"HTTP/1.1 100"  # the pod has it
        assert stage.request(way).status == 429
        assert stage.request(way, client=OTHER).status == 200
    wait_until(lambda: stage.request(way).status == 200, "it is the only one")


NODES = ("lb1", "lb2")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[PolicyStage, PolicyStage]]:
    """Two nodes that are peers."""
    places = {name: f"127.0.0.1:{free_port()}" for name in NODES}
    with ExitStack() as stack:
        found = []
        for name in NODES:
            folder = tmp_path / name
            folder.mkdir()
            peers = [StickPeer(each, place, each == name) for each, place in places.items()]
            socket = str(folder / "run.sock")
            found.append(stack.enter_context(policy_stage(folder, peers=peers, runtime_socket=socket)))
        yield found[0], found[1]


def counted(stage: PolicyStage, table: str) -> int:
    answer = ask(stage.variables["runtime_socket"], f"show table {table}")
    return sum(int(line.rpartition("gpc0_rate(60000)=")[2].split()[0]) for line in answer.split("\n") if "key=" in line)


@contextmanager
def _silent(process: int) -> Iterator[None]:
    """Stop a process: it takes connections, and answers nothing."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


@ways
def test_a_limit_is_that_of_both_nodes_together(pair: tuple[PolicyStage, PolicyStage], way: str) -> None:
    one, two = pair
    for stage in pair:
        stage.serving(WAYS[way]({"limit-rpm": "6"}))
    assert statuses(one, way, 4) == [200] * 4
    wait_until(lambda: counted(two, "limits-minute-lb1") == 4, "the peer has it")
    assert statuses(two, way, 4) == [200, 200, 429, 429]
    wait_until(lambda: counted(one, "limits-minute-lb2") == 2, "the peer has it")
    assert one.request(way).status == 429
    # A failover: whoever is left goes on with what both have counted.
    one.haproxy.stop()
    assert two.request(way).status == 429
    assert two.request(way, client=OTHER).status == 200


@ways
def test_a_node_whose_peer_is_lost_goes_on_with_both_counts(pair: tuple[PolicyStage, PolicyStage], way: str) -> None:
    one, two = pair
    for stage in pair:
        stage.serving(WAYS[way]({"limit-rpm": "6"}))
    assert statuses(one, way, 3) == [200] * 3
    wait_until(lambda: counted(two, "limits-minute-lb1") == 3, "the peer has it")
    one.haproxy.stop()
    # Whom the lost node has counted gets the rest of the limit, and anybody else the limit: no more, and no less.
    assert statuses(two, way, 5) == [200] * 3 + [429] * 2
    assert statuses(two, way, 7, client=OTHER) == [200] * 6 + [429]
    assert counted(two, "limits-minute-lb1") == 3


@ways
def test_a_node_whose_peer_is_silent_answers_and_tells_it_later(
    pair: tuple[PolicyStage, PolicyStage], way: str
) -> None:
    one, two = pair
    for stage in pair:
        stage.serving(WAYS[way]({"limit-rpm": "2"}))
    with _silent(one.haproxy.worker()):
        assert statuses(two, way, 3) == [200, 200, 429]
    wait_until(lambda: counted(one, "limits-minute-lb2") == 2, "the peer is told")
    assert one.request(way).status == 429


def test_a_new_node_learns_what_it_had_counted_itself(pair: tuple[PolicyStage, PolicyStage]) -> None:
    one, two = pair
    for stage in pair:
        stage.serving(WAYS["ingress"]({"limit-rpm": "2"}))
    assert statuses(one, "ingress", 3) == [200, 200, 429]
    wait_until(lambda: counted(two, "limits-minute-lb1") == 2, "the peer has it")
    one.serving(WAYS["ingress"]({"limit-rpm": "2"}))  # from the beginning, without a former worker
    wait_until(lambda: counted(one, "limits-minute-lb1") == 2, "the peer tells it")
    assert one.request("ingress").status == 429
