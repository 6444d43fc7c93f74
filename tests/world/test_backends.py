import contextlib
import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.world.apiserver import tls_context
from tests.world.backends import Backend, Backends
from tests.world.haproxy import wait_until
from tests.world.pki import CertificateAuthority


@pytest.fixture
def pods() -> Iterator[Backends]:
    with Backends() as backends:
        yield backends


def _get(pod: Backend) -> tuple[int, str, str]:
    client = http.client.HTTPConnection(pod.address, pod.port, timeout=30)
    try:
        client.request("GET", "/")
        response = client.getresponse()
        return response.status, response.read().decode(), response.headers["X-Pod"]
    finally:
        client.close()


def test_a_kept_alive_connection_serves_many_requests_and_bodies(pods: Backends) -> None:
    pod = pods.add("app-0")
    client = http.client.HTTPConnection(pod.address, pod.port, timeout=30)
    for body in (b"", b"x" * 100_000, b"\r\n\r\n"):
        client.request("POST", "/", body=body)
        assert client.getresponse().read() == b"app-0\n"
    client.close()
    assert (pod.requests, pod.accepted) == (3, 1)


def test_one_pod_stops_and_starts_again(pods: Backends) -> None:
    stopped, other = pods.add("app-0", "127.1.0.1"), pods.add("app-1", "127.1.0.2")
    with socket.create_connection((stopped.address, stopped.port), timeout=30) as kept:
        kept.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert kept.recv(65536)
        pods.stop("app-0")
        with pytest.raises(ConnectionRefusedError):
            _get(stopped)
        kept.settimeout(30)
        with contextlib.suppress(ConnectionResetError):
            assert kept.recv(65536) == b""
    assert _get(other)[0] == 200
    pods.start("app-0")
    assert _get(stopped) == (200, "app-0\n", "app-0")


def test_a_graceful_stop_leaves_open_connections(pods: Backends) -> None:
    pod = pods.add("app-0", "127.1.0.1")
    with socket.create_connection((pod.address, pod.port), timeout=30) as kept:
        kept.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert kept.recv(65536)
        pods.stop("app-0", graceful=True)
        kept.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert kept.recv(65536).endswith(b"app-0\n")
        with pytest.raises(ConnectionRefusedError):
            _get(pod)


@pytest.mark.parametrize("command", [b"PING\r\n", b"*1\r\n$4\r\nPING\r\n"])
def test_redis_answers_ping(pods: Backends, command: bytes) -> None:
    pod = pods.add("redis-0")
    with socket.create_connection((pod.address, pod.port), timeout=30) as sock:
        sock.sendall(command)
        assert sock.recv(100) == b"+PONG\r\n"
        sock.sendall(b"info replication\r\n")
        assert b"role:master" in sock.recv(100)


def test_who_is_not_accepted_yet_when_they_end_is_cut() -> None:
    with Backends() as pods, socket.socket() as client:
        pod = pods.add("app-0")
        client.connect((pod.address, pod.port))
        pods.stop("app-0")
        client.settimeout(20)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_who_has_not_said_yet_that_it_speaks_tls_is_cut_with_the_others(tmp_path: Path) -> None:
    tls = tls_context(CertificateAuthority(tmp_path).server())
    with socket.socket() as client:
        with Backends() as pods:
            pod = pods.add("app-0", tls=tls)
            client.connect((pod.address, pod.port))
            wait_until(lambda: pod.connections, "it is accepted")
        client.settimeout(20)
        assert client.recv(1) == b""
