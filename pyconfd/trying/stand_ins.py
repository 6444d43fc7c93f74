"""Small servers that stand in for pods; each answers with its name, to HTTP, redis or anything else.

``with StandIns() as pods: pods.add("app1-0", "127.1.0.1")``. Every pod has a loopback address of its own and, unless
given another one, they share one port, as the pods of a Service do.
"""

import re
import select
import selectors
import socket
import ssl
import threading
from collections import deque
from contextlib import suppress
from io import BufferedReader
from typing import Self

_BACKLOG = 1024
_PATIENCE_S = 30.0
_KEPT_HEADS = 100
_FIRST_LINE_BYTES = 8192
_TLS_HANDSHAKE = b"\x16"
"""Source: RFC 8446, 5.1."""
_HEAD_END = b"\r\n\r\n"
_HTTP = re.compile(rb"[A-Z]+ \S+ HTTP/1\.[01]\r?\n")
_REDIS = re.compile(rb"(\*\d+\r\n|PING\b|INFO\b|QUIT\b)", re.IGNORECASE)
_TEXT = re.compile(rb"[\t\r\n -~]*\Z")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class StandIn:
    """One pod; ``delay_s`` and ``code`` may be set and the counters read while it runs."""

    def __init__(
        self, name: str, address: str, port: int, tls: ssl.SSLContext | None = None, *, plain_too: bool = False
    ) -> None:
        self.name, self.address, self.port = name, address, port
        self.tls, self.plain_too = tls, plain_too
        self.requests = 0
        """Answered so far."""
        self.accepted = 0
        """Connections so far."""
        self.heads: deque[bytes] = deque(maxlen=_KEPT_HEADS)
        """The last request heads, as they came."""
        self.delay_s = 0.0
        """Wait this long before each answer over HTTP."""
        self.code = "200 OK"
        """The status line's rest."""
        self.open: set[socket.socket] = set()
        self.listener: socket.socket | None = None

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self.open)

    def response(self, *, close: bool) -> bytes:
        """Return the whole response: the pod's name as the body and in ``X-Pod``."""
        body = f"{self.name}\n"
        lines = [
            f"HTTP/1.1 {self.code}",
            "Content-Type: text/plain",
            f"Content-Length: {len(body)}",
            f"X-Pod: {self.name}",
            *(["Connection: close"] if close else []),
        ]
        return "\r\n".join(lines).encode() + _HEAD_END + body.encode()


class StandIns:
    """Pods on loopback addresses: one thread accepts, one serves each connection. ``close`` ends them all."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        """The shared port; 0 until the first pod is added, then a free one."""
        self.pods: dict[str, StandIn] = {}
        self._changed = threading.Condition()
        """Guards what pods count, accept and have open."""
        self._selector = selectors.DefaultSelector()
        self._ended, self._end = socket.socketpair()
        self._selector.register(self._ended, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._accept, name="stand-ins", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self,
        name: str,
        address: str = "127.0.0.1",
        port: int | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        plain_too: bool = False,
    ) -> StandIn:
        """Add a pod; with ``tls`` it speaks that, or either. Raises: OSError: the address or port is not free."""
        if name in self.pods:
            raise ValueError(f"there is a pod {name} already")
        pod = StandIn(name, address, self.port if port is None else port, tls, plain_too=plain_too)
        self._listen(pod)
        if port is None:
            self.port = pod.port
        self.pods[name] = pod
        return pod

    def stop(self, name: str, *, graceful: bool = False) -> None:
        """Refuse connections to a pod; its open ones are cut; graceful: those live on until their client ends."""
        pod = self.pods[name]
        # Who accepts holds the lock too, so a connection is either cut here or refused.
        with self._changed:
            if pod.listener:
                self._selector.unregister(pod.listener)
                pod.listener.close()
                pod.listener = None
            if not graceful:
                for connection in pod.open:
                    _cut(connection)
                self._changed.wait_for(lambda: not pod.open, _PATIENCE_S)

    def start(self, name: str) -> None:
        """Start a stopped pod again, at the same address and port."""
        if not self.pods[name].listener:
            self._listen(self.pods[name])

    def remove(self, name: str) -> None:
        """Stop it and forget it."""
        self.stop(name)
        del self.pods[name]

    def counts(self) -> dict[str, int]:
        """Return the requests answered so far, by pod."""
        return {name: pod.requests for name, pod in self.pods.items()}

    def close(self) -> None:
        """Stop all."""
        self._end.close()
        self._thread.join(_PATIENCE_S)
        for name in self.pods:
            self.stop(name)
        self._selector.close()
        self._ended.close()

    def _listen(self, pod: StandIn) -> None:
        family = socket.AF_INET6 if ":" in pod.address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((pod.address, pod.port))
            listener.listen(_BACKLOG)
        except (OSError, OverflowError):
            listener.close()
            raise
        listener.setblocking(False)
        pod.port = listener.getsockname()[1]
        with self._changed:
            pod.listener = listener
            self._selector.register(listener, selectors.EVENT_READ, pod)

    def _accept(self) -> None:
        while True:
            for key, _events in self._selector.select():
                if key.data is None:
                    return
                self._accept_one(key.data)

    def _accept_one(self, pod: StandIn) -> None:
        with self._changed:
            if pod.listener is None:
                return
            try:
                connection, _ = pod.listener.accept()
            except BlockingIOError:
                return
            except OSError:
                self._changed.wait(0.1)  # out of descriptors: the next may be luckier
                return
            connection.setblocking(True)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pod.accepted += 1
            pod.open.add(connection)
            threading.Thread(target=self._serve, args=(pod, connection), name=pod.name, daemon=True).start()

    def _serve(self, pod: StandIn, connection: socket.socket) -> None:
        try:
            if pod.tls and (not pod.plain_too or connection.recv(1, socket.MSG_PEEK) == _TLS_HANDSHAKE):
                connection = secured = self._secured(pod, pod.tls, connection)
                secured.do_handshake()
            self._answer(pod, connection)
        except (OSError, ValueError):  # the client left, or speaks nothing that is known here
            pass
        finally:
            with self._changed:
                pod.open.discard(connection)
                connection.close()
                self._changed.notify_all()

    def _secured(self, pod: StandIn, tls: ssl.SSLContext, connection: socket.socket) -> ssl.SSLSocket:
        with self._changed:
            pod.open.discard(connection)
            secured = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            pod.open.add(secured)
        return secured

    def _answer(self, pod: StandIn, connection: socket.socket) -> None:
        """Read the first line, and go on with what it speaks until the client leaves."""
        with connection.makefile("rb") as received:
            # What is no text may have no line end to wait for.
            is_text = _TEXT.match(received.peek()) is not None
            first = received.readline(_FIRST_LINE_BYTES) if is_text else received.read1()
            if _HTTP.match(first):
                self._answer_http(pod, connection, received, first)
            elif _REDIS.match(first):
                self._answer_redis(pod, connection, received, first)
            else:
                while first:
                    self._send(pod, connection, f"{pod.name}\n".encode())
                    first = received.read1()

    def _answer_http(self, pod: StandIn, connection: socket.socket, received: BufferedReader, line: bytes) -> None:
        while line:
            head = line
            while (line := received.readline()).strip():
                head += line
            length = _LENGTH.search(head)
            received.read(int(length[1]) if length else 0)
            pod.heads.append(head.removesuffix(b"\r\n"))
            if not line or (pod.delay_s and _left_within(connection, pod.delay_s)):
                return
            lowered = head.lower()
            close = b"\r\nconnection: close" in lowered or b" http/1.0" in lowered.partition(b"\r\n")[0]
            self._send(pod, connection, pod.response(close=close))
            line = b"" if close else received.readline()

    def _answer_redis(self, pod: StandIn, connection: socket.socket, received: BufferedReader, line: bytes) -> None:
        """Answer PING, inline or as RESP, as ``tcp-check`` of a load balancer sends it; INFO says it is a master."""
        while line:
            word = line.strip().upper()
            if word == b"PING":
                self._send(pod, connection, b"+PONG\r\n")
            elif word.startswith(b"INFO"):
                self._send(pod, connection, b"$13\r\nrole:master\r\n\r\n")
            elif word == b"QUIT":
                self._send(pod, connection, b"+OK\r\n")
                return
            elif word and not word.startswith((b"*", b"$")) and word != b"REPLICATION":
                self._send(pod, connection, b"-ERR unknown command\r\n")
            line = received.readline()

    def _send(self, pod: StandIn, connection: socket.socket, answer: bytes) -> None:
        with self._changed:
            pod.requests += 1
        connection.sendall(answer)


def _left_within(connection: socket.socket, seconds: float) -> bool:
    """Wait; return whether the connection ended meanwhile, from either side."""
    waiting = select.poll()
    waiting.register(connection, select.POLLRDHUP)
    return bool(waiting.poll(seconds * 1000))


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        # Not SSLSocket.shutdown, which takes the object away under the thread that reads.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
