"""HTTP clients that count what a user would notice: a refused connection, a reset, an answer cut short."""

import socket
import threading
import time
from dataclasses import dataclass, field


@dataclass
class Tally:
    """What a client saw; ``failures`` are in words."""

    answers: int = 0
    reused: int = 0
    failures: list[str] = field(default_factory=list)


class Client(threading.Thread):
    """Asks ``port`` again and again until :meth:`stop`.

    With ``keep_alive`` a connection is used until the server announces its end with ``Connection: close``; an end
    that was not announced is a failure, as it is for a client that has just sent a request on it.
    """

    def __init__(
        self, port: int, *, keep_alive: bool, path: str = "/", host: str = "test", pause_s: float = 0.005
    ) -> None:
        super().__init__(daemon=True)
        self.tally = Tally()
        self._port = port
        self._keep_alive = keep_alive
        self._pause_s = pause_s
        self._ending = threading.Event()
        closing = "" if keep_alive else "Connection: close\r\n"
        self._request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{closing}\r\n".encode()
        self._connection: socket.socket | None = None
        self._used = False

    def run(self) -> None:
        """Ask until stopped."""
        while not self._ending.is_set():
            try:
                self._ask()
            except (OSError, ValueError) as error:
                reused = " on a reused connection" if self._used else ""
                self.tally.failures.append(f"{type(error).__name__}: {error}{reused}")
                self._disconnect()
            time.sleep(self._pause_s)
        self._disconnect()

    def stop(self) -> Tally:
        """End, and give what was seen."""
        self._ending.set()
        self.join(30)
        return self.tally

    def _ask(self) -> None:
        if self._connection is None:
            self._connection = socket.create_connection(("127.0.0.1", self._port), timeout=20)
            self._used = False
        self._connection.sendall(self._request)
        headers = self._answer(self._connection)
        self.tally.answers += 1
        self.tally.reused += self._used
        self._used = True
        if not self._keep_alive or headers.get("connection", "").lower() == "close":
            self._disconnect()

    def _answer(self, connection: socket.socket) -> dict[str, str]:
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._some(connection, received)
        head, _, body = received.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        if " 200 " not in f"{status} ":
            raise ValueError(status)
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        wanted = int(headers["content-length"])
        while len(body) < wanted:
            body += self._some(connection, body)
        return headers

    def _some(self, connection: socket.socket, before: bytes) -> bytes:
        chunk = connection.recv(65536)
        if not chunk:
            raise ValueError(f"cut off after {len(before)} bytes")
        return chunk

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._used = False
