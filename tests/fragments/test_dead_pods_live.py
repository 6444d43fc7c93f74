"""A real HAProxy with the shipped defaults, and a pod that dies: clients are served, and their failures find it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from pyconfd.fragments import directory
from pyconfd.haproxy.config.servers import Inherited, default_server_words, servers_of, why_not_addable
from pyconfd.haproxy.config.text import parse
from pyconfd.haproxy.runtime.sockets import ask
from tests.world.haproxy import HaproxyProcess, free_port, wait_until

pytestmark = pytest.mark.haproxy

SHIPPED = (Path(directory()) / "01-defaults.conf").read_text()
NEVER_LOOKS = SHIPPED.replace("inter 10s", "inter 1h").replace("fastinter 1s", "fastinter 100ms")
"""Once a server has passed its first checks, nothing but the failures of clients makes HAProxy look at it."""

ADDED = pytest.mark.parametrize("added", [False, True], ids=["of the file", "added"])


class Pod:
    """Counts what was asked; ``answer`` is what each connection is answered with, ``words`` its server has."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok") -> None:
        self.answer = answer
        self.asked = 0
        self.words = ""
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self._listener = socket.create_server(self._held.getsockname())
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with closing(connection):
                connection.settimeout(5)
                with suppress(OSError):
                    if connection.recv(4096):  # a check says nothing
                        self.asked += 1
                        connection.sendall(self.answer)

    def die(self) -> None:
        """Refuse every new connection; the port stays bound, so nobody else can answer there."""
        with suppress(OSError):  # dead already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def free(self) -> None:
        """Die, and leave the port to others."""
        self.die()
        self._held.close()


class Balanced:
    """HAProxy with one backend of ``pods``, which inherits from ``defaults`` of the shipped file."""

    def __init__(self, haproxy: HaproxyProcess, pods: list[Pod], defaults: str) -> None:
        self.socket, self.port, self.pods = haproxy.stats_socket, free_port(), list(pods)
        servers = "".join(f"    server s{number} {pod.address} {pod.words}\n" for number, pod in enumerate(pods))
        haproxy.conf.write_text(
            f"{NEVER_LOOKS}\nglobal\n    stats socket {haproxy.stats_socket} mode 600 level admin\n"
            f"frontend fe from {defaults}\n    bind 127.0.0.1:{self.port}\n    default_backend be\n"
            f"backend be from {defaults}\n{servers}"
        )
        haproxy.start()

    def add(self, name: str, pod: Pod) -> None:
        """Add a server over the socket, with what the shipped defaults give it."""
        self.pods.append(pod)
        (section,) = parse(f"backend be\n    server {name} {pod.address} {pod.words}\n")
        (server,) = servers_of(section, Inherited(server_words=shipped_words(NEVER_LOOKS)))
        assert why_not_addable(server, cookies=False) == ""
        for line in server.addition.socket_lines():
            assert not line.refused(ask(self.socket, line.text)), line.text

    def column(self, name: str) -> dict[str, str]:
        """Return one column of HAProxy's statistics, by server."""
        rows = [row.lstrip("# ").split(",") for row in ask(self.socket, "show stat").splitlines() if row]
        return {row[1]: row[rows[0].index(name)] for row in rows if row[0] == "be" and row[1] != "BACKEND"}

    def settled(self) -> None:
        """Wait until each server has passed as many checks as bring it back to the usual pace."""

        def passed() -> bool:
            state = ask(self.socket, "show servers state be").splitlines()
            return all(row.split()[12] == "4" for row in state if len(row.split()) > 12 and not row.startswith("#"))

        wait_until(passed, "all servers have passed their first checks")

    def get(self, method: str = "GET") -> bytes:
        """Return the first line that a client of its own reads."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as client:
            client.sendall(f"{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            return client.makefile("rb").readline()


def shipped_words(text: str) -> tuple[str, ...]:
    """Return the words for servers of the section that all others inherit from."""
    return next(default_server_words(section) for section in parse(text) if section.name == "base")


@contextmanager
def balanced(folder: Path, pods: list[Pod], defaults: str) -> Iterator[Balanced]:
    with HaproxyProcess(folder / "etc") as haproxy:
        bench = Balanced(haproxy, pods, defaults)
        yield bench
    for pod in bench.pods:
        pod.free()


@pytest.mark.parametrize("defaults", ["http-service", "https-service"])
@ADDED
def test_a_failed_connection_is_retried_and_finds_the_dead(defaults: str, added: bool, tmp_path: Path) -> None:
    alive, dead = Pod(), Pod()
    with balanced(tmp_path, [alive] if added else [alive, dead], defaults) as haproxy:
        if added:
            haproxy.add("s1", dead)
        haproxy.settled()
        assert set(haproxy.column("status").values()) == {"UP"}
        dead.die()
        assert {haproxy.get() for _ in range(4)} == {b"HTTP/1.1 200 OK\r\n"}
        assert int(haproxy.column("wredis")["s1"]) > 0

        def is_out() -> bool:
            assert haproxy.get() == b"HTTP/1.1 200 OK\r\n"
            return haproxy.column("status")["s1"] == "DOWN"

        # clients go on: HAProxy's task_schedule leaves a check that is just run as it is, so one failure may be lost
        wait_until(is_out, "the dead pod is out")
        assert haproxy.column("status")["s0"] == "UP"


@ADDED
def test_failed_connections_alone_take_nobody_out(added: bool, tmp_path: Path) -> None:
    alive, refusing = Pod(), Pod()
    refusing.words = f"port {alive.address.rpartition(':')[2]}"  # its checks go where somebody answers
    with balanced(tmp_path, [alive] if added else [alive, refusing], "http-service") as haproxy:
        if added:
            haproxy.add("s1", refusing)
        haproxy.settled()
        refusing.die()
        assert {haproxy.get() for _ in range(20)} == {b"HTTP/1.1 200 OK\r\n"}
        assert int(haproxy.column("hanafail")["s1"]) >= 5
        haproxy.settled()
        assert haproxy.column("chkdown")["s1"] == "0"


def test_an_added_pod_is_up_at_once_and_looked_at_within_a_second(tmp_path: Path) -> None:
    with balanced(tmp_path, [Pod()], "http-service") as haproxy:
        haproxy.add("s1", Pod())
        assert haproxy.column("status")["s1"].startswith("UP")
        haproxy.settled()


def test_errors_of_the_application_are_no_reason_to_look(tmp_path: Path) -> None:
    faulty = Pod(b"HTTP/1.1 500 Fault\r\nContent-Length: 0\r\n\r\n")
    with balanced(tmp_path, [faulty, Pod()], "http-service") as haproxy:
        haproxy.settled()
        assert b"HTTP/1.1 500 Fault\r\n" in {haproxy.get() for _ in range(20)}
        assert haproxy.column("hanafail")["s0"] == "0"
        assert set(haproxy.column("status").values()) == {"UP"}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_reached_a_pod_is_never_sent_again(method: str, tmp_path: Path) -> None:
    pods = [Pod(b""), Pod(b"")]
    with balanced(tmp_path, pods, "http-service") as haproxy:
        assert haproxy.get(method).startswith(b"HTTP/1.1 502")
    assert sum(pod.asked for pod in pods) == 1
