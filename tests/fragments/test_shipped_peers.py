"""Stick tables that two haproxies share, as the shipped fragments and ``[vip] peers_port`` have it."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from pyconfd.haproxy.runtime.sockets import ask
from pyconfd.settings import resolve
from pyconfd.vip.topology import StickPeer, stick_peers
from tests.fragments.shipped import HAPROXY, render_shipped
from tests.fragments.test_shipped_live import balancer, get, http_server, running, service, wait_for
from tests.world.haproxy import free_port

HOST = "shop.example.com"
NODES = """[vip]
peers_port = 1024
[[vip.nodes]]
name = "lb1"
addresses = ["192.0.2.11", "2001:db8::11"]
[[vip.nodes]]
name = "lb2"
addresses = ["2001:db8::12"]
"""
needs_haproxy = pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path that is short enough for sockets."""
    made = Path(mkdtemp(prefix="pyconfd-test-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


def test_the_peers_are_the_nodes_of_the_settings() -> None:
    vip = resolve({"config": "f"}, {}, lambda _: NODES).settings.vip
    assert stick_peers(vip, "lb2.example.com") == (
        StickPeer("lb1", "192.0.2.11:1024", own=False),
        StickPeer("lb2", "[2001:db8::12]:1024", own=True),
    )
    assert stick_peers(vip, "elsewhere") == stick_peers(replace(vip, peers_port=0), "lb1") == ()


def test_without_peers_or_stickiness_there_is_nothing_of_them() -> None:
    domains = dict([service(HOST, "http", [8080])])
    text = render_shipped(domains, {}, "/f").text
    assert "peer" not in text
    assert "stick on" not in text
    alone = render_shipped(domains, {"sticky": "30m"}, "/f").text
    assert "stick-table type ipv6 size 100k expire 30m\n" in alone
    assert "localpeer" not in alone


@pytest.mark.haproxy
@needs_haproxy
def test_whoever_takes_over_knows_which_client_belongs_to_which_server_even_a_draining_one(folder: Path) -> None:
    places = {name: f"127.0.0.1:{free_port()}" for name in ("lb1", "lb2")}
    with ExitStack() as stack:
        pods = [stack.enter_context(running(http_server(f"pod{number}"))) for number in (1, 2)]

        def start(name: str, shop: tuple[str, dict[str, Any]]) -> int:
            own = folder / name
            own.mkdir()
            peers = [StickPeer(one, place, one == name) for one, place in places.items()]
            more: dict[str, Any] = {"peers": peers, "sticky": "30m", "runtime_socket": str(own / "haproxy.sock")}
            return stack.enter_context(balancer([shop], own, **more))["http"]

        first = start("lb1", service(HOST, "http", pods))
        served = get(first, HOST)[1].split()[0]
        domain, shop = service(HOST, "http", pods)
        kept = int(served.removeprefix("pod")) - 1
        shop["endpoints"][kept] = replace(shop["endpoints"][kept], state="draining")
        second = start("lb2", (domain, shop))
        socket = str(folder / "lb2" / "haproxy.sock")
        wait_for("the entry of the peer", partial(has_entry, socket, f"be-{shop['key']}"))
        assert {get(second, HOST)[1].split()[0] for _ in range(4)} == {served}


def has_entry(socket: str, table: str) -> bool:
    return "key=::ffff:127.0.0.1" in ask(socket, f"show table {table}")
