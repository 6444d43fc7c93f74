"""Ports that ``pyconfd try`` chooses: nobody else who looks as it does gets them before they are listened on."""

import socket
from pathlib import Path

import pytest

from pyconfd.status.listen import bind, parse_listen
from pyconfd.trying.loopback import Loopback
from pyconfd.trying.owners import Owner
from tests.world.haproxy import free_port


def nobody(host: str, port: int) -> Owner:
    raise AssertionError(f"{host}:{port} is no server of this test")


@pytest.fixture
def wanted() -> int:
    return free_port()


def test_a_port_is_kept_for_who_asked_first(wanted: int, tmp_path: Path) -> None:
    with Loopback(tmp_path, nobody) as one, Loopback(tmp_path, nobody) as two:
        assert one.port(wanted) == wanted
        assert two.port(wanted) != wanted


def test_the_status_page_listens_on_a_port_that_is_kept_for_it(wanted: int, tmp_path: Path) -> None:
    with Loopback(tmp_path, nobody) as one, bind(parse_listen(f"127.0.0.1:{one.port(wanted)}")):
        socket.create_connection(("127.0.0.1", wanted), timeout=10).close()


def test_haproxy_listens_on_a_port_that_is_kept_for_it(wanted: int, tmp_path: Path) -> None:
    with Loopback(tmp_path, nobody) as one, socket.socket() as haproxy:
        haproxy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        haproxy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        haproxy.bind(("127.0.0.1", one.port(wanted)))
        haproxy.listen()
        socket.create_connection(("127.0.0.1", wanted), timeout=10).close()
