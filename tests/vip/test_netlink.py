"""The kernel's events in a namespace of its own: addresses, the carrier, and an event socket that overflows."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.vip.bed import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no namespaces: {missing()}")

PRELUDE = """
import os, select, socket, subprocess, sys, time
from pyconfd.app.explaining import no_route
from pyconfd.vip.checks import users_of
from pyconfd.vip.netlink import DefaultRoute, Link, RouteEntry, default_route, listeners, reset_connections, route_to
def ip(*words, **more): subprocess.run(["ip", *words], check=True, **more)
def told(link, condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        if select.select([link.fileno()], [], [], 1)[0]:
            link.read()
ip("link", "add", "eth0", "type", "veth", "peer", "name", "far")
ip("link", "set", "far", "up"); ip("link", "set", "eth0", "up")
"""


def run(code: str) -> None:
    found = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", PRELUDE + code],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr


def test_addresses_come_and_go_and_are_taken_off() -> None:
    run(
        """
link = Link("eth0")
for address, prefix in (("192.0.2.10", 24), ("2001:db8::10", 64)):
    ip("addr", "add", f"{address}/{prefix}", "dev", "eth0")
    told(link, lambda: link.addresses.get(address) == prefix)
    link.remove(address)
    link.remove(address)
    assert address not in Link("eth0").addresses
ip("addr", "add", "192.0.2.99/24", "dev", "far")
ip("addr", "add", "192.0.2.11/24", "dev", "eth0")
told(link, lambda: "192.0.2.11" in link.addresses)
assert "192.0.2.99" not in link.addresses
"""
    )


def test_a_neighbour_is_reached_while_the_kernel_knows_where_it_is() -> None:
    run(
        """
link = Link("eth0")
ip("addr", "add", "192.0.2.11/24", "dev", "eth0")
ip("addr", "add", "2001:db8::11/64", "dev", "eth0", "nodad")
for address in ("192.0.2.12", "2001:db8::12"):
    assert not link.reaches(address)
    for state, there in (("stale", True), ("failed", False), ("permanent", True)):
        ip("neigh", "replace", address, "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", state)
        assert link.reaches(address) == there, (address, state)
    ip("neigh", "del", address, "dev", "eth0")
    assert not link.reaches(address)
"""
    )


def test_the_carrier_and_an_interface_created_again_are_followed() -> None:
    run(
        """
link = Link("eth0")
told(link, lambda: link.carrier)
ip("link", "set", "far", "down")
told(link, lambda: not link.carrier)
ip("link", "del", "eth0")
told(link, lambda: link.index == 0)
ip("link", "add", "eth0", "type", "veth", "peer", "name", "far")
ip("link", "set", "far", "up"); ip("link", "set", "eth0", "up")
told(link, lambda: link.index and link.carrier)
"""
    )


def test_after_a_flood_that_overflows_the_socket_everything_is_read_again() -> None:
    run(
        """
link = Link("eth0")
link._events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
lines = [f"addr {what} 10.{n >> 8}.{n & 255}.1/32 dev far" for n in range(500) for what in ("add", "del")]
ip("-batch", "-", input="\\n".join(lines).encode())
ip("addr", "add", "192.0.2.10/24", "dev", "eth0")
told(link, lambda: link.resyncs > 0)
assert link.addresses.get("192.0.2.10") == 24
ip("addr", "del", "192.0.2.10/24", "dev", "eth0")
told(link, lambda: "192.0.2.10" not in link.addresses)
"""
    )


def test_ports_that_are_listened_on() -> None:
    run(
        """
ip("link", "set", "lo", "up")
before = listeners().keys()
one = socket.create_server(("127.0.0.1", 4321)); two = socket.create_server(("::1", 4322), family=socket.AF_INET6)
assert listeners().keys() - before == {4321, 4322}
one.close()
assert 4321 not in listeners()
"""
    )


def test_connections_to_lost_addresses_are_reset() -> None:
    run(
        """
def connected(family, source, target):
    server = socket.create_server((target, 0), family=family, dualstack_ipv6=target == "::")
    address = "192.0.2.10" if target == "::" else target
    while True:  # the kernel adds the route of an IPv6 address a little later
        try:
            client = socket.create_connection((address, server.getsockname()[1]), 5, (source, 0))
            break
        except OSError:
            assert time.monotonic() < deadline
    return client, server.accept()[0], server
ip("link", "set", "lo", "up")
ip("addr", "add", "192.0.2.10/32", "dev", "lo"); ip("addr", "add", "2001:db8::10/128", "dev", "lo", "nodad")
deadline = time.monotonic() + 30
lost = [
    connected(socket.AF_INET, "127.0.0.1", "192.0.2.10"), connected(socket.AF_INET6, "::1", "2001:db8::10"),
    connected(socket.AF_INET6, "127.0.0.1", "::"),
]
kept = connected(socket.AF_INET, "127.0.0.1", "127.0.0.1")
ip("addr", "del", "192.0.2.10/32", "dev", "lo"); ip("addr", "del", "2001:db8::10/128", "dev", "lo")
reset_connections({"192.0.2.10", "2001:db8::10", "192.0.2.11"})
for client, accepted, _ in lost:
    for end, expected in ((accepted, ConnectionAbortedError), (client, ConnectionResetError)):
        try:
            end.recv(1)
        except expected:
            continue
        raise AssertionError("no reset")
kept[0].sendall(b"x")
assert kept[1].recv(1) == b"x"
routes = subprocess.run(["ip", "route", "show", "table", "local"], capture_output=True, text=True).stdout
assert "192.0.2.10" not in routes
"""
    )


def test_a_listener_is_haproxys_by_its_user() -> None:
    run(
        """
def listen(user, port):
    code = f"import os, socket, sys; os.setuid({user}); s = socket.create_server(('127.0.0.1', {port}));"
    process = subprocess.Popen(
        [sys.executable, "-c", code + "print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    return process
ip("link", "set", "lo", "up")
own, other = listen(1234, 4321), listen(1235, 4322)
os.setresuid(1236, 1236, 1236)
assert (listeners()[4321], listeners()[4322]) == ({1234}, {1235})
assert users_of(own.pid) == {0, 1234}
assert users_of(os.getpid()) == {0, 1234, 1235, 1236}, "those of its children too"
assert users_of(99999999) == {0}
"""
    )


def test_the_way_out_and_where_it_is_from() -> None:
    run(
        """
assert default_route(4) is None and default_route(6) is None
ip("addr", "add", "10.1.1.2/24", "dev", "eth0"); ip("addr", "add", "fd00::2/64", "dev", "eth0", "nodad")
ip("route", "add", "default", "via", "10.1.1.1")
ip("-6", "route", "add", "default", "via", "fd00::1", "proto", "ra")
assert default_route(4) == DefaultRoute(4, "10.1.1.1", learned=False)
assert default_route(6) == DefaultRoute(6, "fd00::1", learned=True)
assert route_to("10.200.5.1") == RouteEntry(0, "10.1.1.1", learned=False)
assert no_route("10.200.5.1") == "this machine has no route to 10.200.5.1 but the default one, by 10.1.1.1"
ip("route", "add", "10.200.0.0/16", "via", "10.1.1.3")
assert route_to("10.200.5.1") == RouteEntry(16, "10.1.1.3", learned=False)
assert no_route("10.200.5.1") == no_route("fd00::9") == no_route("pods.example.com") == ""
ip("route", "del", "default")
assert no_route("192.0.2.1") == "this machine has no route to 192.0.2.1"
"""
    )
