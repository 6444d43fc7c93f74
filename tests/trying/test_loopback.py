"""Stand-ins answer whatever a load balancer may send to a pod; ports that are chosen are kept for who asked first."""

import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.sources.file import FollowedFiles
from pyconfd.status.listen import bind, parse_listen
from pyconfd.trying.loopback import Loopback
from tests.world.haproxy import free_port

CLUSTER = """\
kind: Endpoints
apiVersion: v1
metadata: {name: web, namespace: demo}
subsets:
- addresses:
  - {ip: 10.0.0.1, targetRef: {kind: Pod, name: web-1}}
  - {ip: "fd00::1", targetRef: {kind: Pod, name: web-6}}
"""


@pytest.fixture
def source(tmp_path: Path) -> FollowedFiles:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return FollowedFiles((str(tmp_path / "cluster.yaml"),))


@pytest.fixture
def loopback(tmp_path: Path, source: FollowedFiles) -> Iterator[Loopback]:
    with Loopback(tmp_path, source) as found:
        yield found


def say(place: tuple[str, int], *said: bytes) -> bytes:
    with socket.create_connection(place, 30) as connection:
        for each in said:
            connection.sendall(each)
        return connection.recv(4096)


GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ((GET,), b"demo/web-1"),
        ((GET[:1], GET[1:]), b"demo/web-1"),
        ((b"PING\r\n",), b"+PONG\r\n"),
        ((b"*1\r\n$4\r\nPING\r\n",), b"+PONG\r\n"),
        ((b"who\n",), b"demo/web-1\n"),
        ((b"\x00\x01binary",), b"demo/web-1\n"),
    ],
)
def test_it_answers_in_the_tongue_it_is_asked_in(loopback: Loopback, said: tuple[bytes, ...], answer: bytes) -> None:
    assert answer in say(loopback.server("10.0.0.1", 80), *said)


def test_it_speaks_tls_too(loopback: Loopback) -> None:
    host, port = loopback.server("10.0.0.1", 443)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(host, port, timeout=30, context=context)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert (answer.read(), answer.headers["X-Pod"]) == (b"demo/web-1\n", "demo/web-1")
    connection.close()


def test_each_pod_has_an_address_of_its_own_and_keeps_it(loopback: Loopback) -> None:
    one, other = loopback.server("10.0.0.1", 8080), loopback.server("10.0.0.2", 8080)
    six, second_port = loopback.server("fd00::1", 8080), loopback.server("10.0.0.1", 8081)
    assert len({one[0], other[0], six[0]}) == 3
    assert second_port[0] == one[0]
    assert all(place[0].startswith("127.") and place[0] != "127.0.0.1" for place in (one, other, six))
    assert loopback.server("10.0.0.1", 8080) == one
    assert loopback.owners["demo/web-6"][0].services == ("demo/web",)
    assert b"demo/web-1 port 8081" in say(second_port, b"who\n")


def test_a_port_is_free_held_against_others_and_shared_with_haproxy(loopback: Loopback) -> None:
    host, port = loopback.listener("", 80)
    assert host == "127.0.0.1"
    assert port >= 1024
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((host, port))
    with socket.socket() as haproxy:
        haproxy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        haproxy.bind((host, port))
        haproxy.listen()
        with socket.create_connection((host, port), 10):
            haproxy.accept()[0].close()
    assert loopback.listener("0.0.0.0", 80) == loopback.listener("::", 80) == (host, port)
    assert loopback.listener("192.0.2.1", 80) != (host, port)


def test_a_port_that_is_taken_is_passed_over(loopback: Loopback) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        wanted = taken.getsockname()[1]
        assert loopback.listener("", wanted)[1] != wanted


def test_nothing_is_left_of_it(tmp_path: Path, source: FollowedFiles) -> None:
    with Loopback(tmp_path, source) as loopback:
        place = loopback.server("10.0.0.1", 80)
        listener = loopback.listener("", 80)
        path = Path(loopback.socket("/run/x.sock"))
        path.touch()
        assert Path(loopback.certificate("/nonexistent.pem")).parent == tmp_path
        assert loopback.certificate(str(path)) == str(path)
    assert not path.parent.exists()
    for each in (place, listener):
        with socket.socket() as free:
            free.bind(each)


def test_a_port_is_kept_for_who_asked_first(tmp_path: Path, source: FollowedFiles) -> None:
    wanted = free_port()
    with Loopback(tmp_path, source) as one, Loopback(tmp_path, source) as two:
        assert one.port(wanted) == wanted
        assert two.port(wanted) != wanted
        with bind(parse_listen(f"127.0.0.1:{wanted}")):
            socket.create_connection(("127.0.0.1", wanted), timeout=10).close()
