"""A service that is asked by external authentication, with answers that go wrong in each way."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Behaviour = Callable[[socket.socket, "Question"], bool]
"""Answers a question on its connection, and returns whether that goes on."""
_MEGABYTE = b"x" * (1 << 20)


@dataclass
class Question:
    """What the service was asked; names of headers in lower case."""

    line: str
    headers: Mapping[str, list[str]]


@dataclass
class AuthServer:
    """Listens on ``port`` and has ``behave`` answer; ``connections`` are those that questions came by."""

    listener: socket.socket
    behave: Behaviour
    asked: list[Question] = field(default_factory=list)
    connections: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def waits_for(self, number: int) -> bool:
        """Return whether so many questions came within some seconds."""
        until = time.monotonic() + 10
        while len(self.asked) < number and time.monotonic() < until:
            time.sleep(0.01)
        return len(self.asked) == number

    def drop_by_drop(self, connection: socket.socket, _: Question) -> bool:
        """Send a header for ever."""
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-User: ")
        while not self.is_over.wait(0.02):
            connection.sendall(b"x")
        return False

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            received, is_first = b"", True
            while True:
                while b"\r\n\r\n" not in received:
                    more = connection.recv(65536)
                    if not more:
                        return
                    received += more
                head, _, received = received.partition(b"\r\n\r\n")
                self.connections += is_first
                is_first = False
                line, *fields = head.decode("latin-1").split("\r\n")
                headers: dict[str, list[str]] = {}
                for name, _, value in (each.partition(":") for each in fields):
                    headers.setdefault(name.lower(), []).append(value.strip())
                self.asked.append(Question(line, headers))
                if not self.behave(connection, self.asked[-1]):
                    return


def answering(status: int, *fields: str, body: bytes = b"ok") -> Behaviour:
    """Return what answers each question with a status and lines of headers."""
    lines = [f"HTTP/1.1 {status} Any", *fields, f"Content-Length: {len(body)}", "", ""]

    def behave(connection: socket.socket, _: Question) -> bool:
        connection.sendall("\r\n".join(lines).encode() + body)
        return True

    return behave


def large_body(connection: socket.socket, _: Question) -> bool:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-User: alice\r\nContent-Length: 10485760\r\n\r\n")
    for _part in range(10):
        connection.sendall(_MEGABYTE)
    return True


def large_header(connection: socket.socket, _: Question) -> bool:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-User: ")
    for _part in range(10):
        connection.sendall(_MEGABYTE)
    return False


def garbage(connection: socket.socket, _: Question) -> bool:
    connection.sendall(b"\x00\x01SSH-2.0-nothing\r\n\r\n\r\n200 OK\r\n")
    return False


def reset(connection: socket.socket, _: Question) -> bool:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Us")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def switching(connection: socket.socket, _: Question) -> bool:
    connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
    return True


def interim(connection: socket.socket, question: Question) -> bool:
    connection.sendall(b"HTTP/1.1 103 Early Hints\r\nX-User: mallory\r\n\r\n")
    return answering(200, "X-User: alice")(connection, question)


@contextmanager
def auth_server() -> Iterator[AuthServer]:
    """Yield a service that lets everybody in as alice."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        server = AuthServer(listener, answering(200, "X-User: alice"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.is_over.set()
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
