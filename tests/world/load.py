"""Busy keep-alive clients in a process of their own; each request is remembered with its times and who answered.

``python -m tests.world.load PORT CLIENTS PAUSE HOST...`` asks until its standard input ends, then prints one request
a line: when it was sent and answered (seconds of the monotonic clock, which all processes share), the pod, what failed.
"""

import json
import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Self

PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Request:
    """``pod`` is the header ``X-Pod`` of the answer; ``failure`` is "" where the answer was whole and said 200."""

    sent: float
    answered: float
    host: str
    pod: str
    failure: str = ""


class _Client:
    """Asks for one host after the other, over one connection as long as that lasts."""

    def __init__(self, port: int, hosts: Sequence[str], first: int) -> None:
        self._port = port
        self._hosts = cycle((*hosts[first:], *hosts[:first]))
        self._host = ""
        self._received = b""
        self.connection: socket.socket | None = None
        self.sent = 0.0
        self.next_at = 0.0

    def send(self) -> str:
        """Send a request, on a new connection where there is none; return what failed."""
        self._received = b""
        self._host = next(self._hosts)
        self.sent = time.monotonic()
        try:
            if self.connection is None:
                self.connection = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE_S)
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connection.sendall(f"GET / HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        except OSError as error:
            return str(error)
        return ""

    def receive(self) -> tuple[str, str, bool] | None:
        """Return pod, failure and whether the connection ends, once the answer is whole."""
        assert self.connection is not None
        try:
            chunk = self.connection.recv(65536)
        except OSError as error:
            return "", str(error), True
        if not chunk:
            return "", f"cut off after {len(self._received)} bytes", True
        self._received += chunk
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return None
        status, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if len(body) < int(headers.get("content-length", "0")):
            return None
        failure = "" if " 200 " in f"{status} " else status
        return headers.get("x-pod", ""), failure, headers.get("connection", "").lower() == "close"

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def line(self, pod: str, failure: str) -> str:
        return json.dumps([self.sent, time.monotonic(), self._host, pod, failure])


class _Asking:
    """All clients, in one loop."""

    def __init__(self, clients: list[_Client], pause_s: float) -> None:
        self._clients = len(clients)
        self._idle = clients
        self._pause_s = pause_s
        self._ended = False
        self._lines: list[str] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin, selectors.EVENT_READ)

    def run(self) -> list[str]:
        """Ask until standard input ends; return the lines to print."""
        looked_at = time.monotonic()
        while not (self._ended and len(self._idle) == self._clients):
            now = time.monotonic()
            if not self._ended:
                self._send(now)
            for key, _ in self._selector.select(min(self._pause_s, 0.05) if self._idle and not self._ended else 1.0):
                self._take(key)
            if now - looked_at > 1:
                looked_at = now
                self._give_up(now)
        for client in self._idle:
            client.close()
        return self._lines

    def _send(self, now: float) -> None:
        for client in [one for one in self._idle if one.next_at <= now]:
            self._idle.remove(client)
            failure = client.send()
            if failure or client.connection is None:
                self._done(client, "", failure, ends=True)
            else:
                self._selector.register(client.connection, selectors.EVENT_READ, client)

    def _take(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            self._ended = not os.read(sys.stdin.fileno(), 1)
            if self._ended:
                self._selector.unregister(sys.stdin)
            return
        answer = key.data.receive()
        if answer is not None:
            self._selector.unregister(key.fileobj)
            pod, failure, ends = answer
            self._done(key.data, pod, failure, ends=ends)

    def _give_up(self, now: float) -> None:
        for key in list(self._selector.get_map().values()):
            if key.data and now - key.data.sent > PATIENCE_S:
                self._selector.unregister(key.fileobj)
                self._done(key.data, "", f"no answer within {PATIENCE_S:g} s", ends=True)

    def _done(self, client: _Client, pod: str, failure: str, *, ends: bool) -> None:
        self._lines.append(client.line(pod, failure))
        if ends:
            client.close()
        client.next_at = time.monotonic() + self._pause_s
        self._idle.append(client)


def main(port: int, clients: int, pause_s: float, hosts: list[str]) -> None:
    """Ask until standard input ends, and print."""
    made = [_Client(port, hosts, number % len(hosts)) for number in range(clients)]
    sys.stdout.write("\n".join(_Asking(made, pause_s).run()))


class Load:
    """The clients; leaving the ``with`` ends them."""

    def __init__(self, port: int, *hosts: str, clients: int = 32, pause_s: float = 0.0) -> None:
        argv = [sys.executable, "-m", "tests.world.load", str(port), str(clients), str(pause_s), *hosts]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> list[Request]:
        """Wait for the last answers; return all requests in the order of their answers."""
        text, _ = self._process.communicate(timeout=2 * PATIENCE_S)
        return [Request(*json.loads(line)) for line in text.splitlines()]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
