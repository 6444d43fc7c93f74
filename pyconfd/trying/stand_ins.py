"""Small servers that stand in for pods, many of them in one thread; each answers with its name.

``with StandIns() as pods: pods.add("app1-0", "127.1.0.1")``. Every pod has a loopback address of its own and, unless
told otherwise, they share one port, as the pods of a Service do.
"""

import asyncio
import re
import socket
import ssl
import threading
from collections import deque
from collections.abc import Coroutine
from typing import Any, Self

from pyconfd.trying.sniffing import SniffingServer

_HEAD_END = b"\r\n\r\n"
_PATIENCE_S = 30.0
_KEPT_HEADS = 100


class StandIn:
    """One pod. The counters may be read from any thread; the rest is set through ``StandIns``."""

    def __init__(self, name: str, address: str, port: int, tls: ssl.SSLContext | None) -> None:
        self.name, self.address, self.port = name, address, port
        self.tls = tls
        self.requests = 0
        """Answered so far."""
        self.accepted = 0
        """Connections so far."""
        self.heads: deque[bytes] = deque(maxlen=_KEPT_HEADS)
        """The last request heads, as they came."""
        self.delay_s = 0.0
        """Wait this long before each answer; may be set while it runs."""
        self.code = "200 OK"
        """The status line's rest; may be set while it runs."""
        self.open: set[asyncio.Transport] = set()
        self.server: asyncio.Server | SniffingServer | None = None

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self.open)

    def answer(self, *, close: bool) -> bytes:
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


class _Http(asyncio.Protocol):
    def __init__(self, backend: StandIn) -> None:
        self._backend = backend
        self._buffer = b""
        self._waiting: list[asyncio.TimerHandle] = []
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a stream is expected")
        self._transport = transport
        self._backend.accepted += 1
        self._backend.open.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._backend.open.discard(self._transport)
        for handle in self._waiting:
            handle.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while self._transport and _HEAD_END in self._buffer:
            head, _, rest = self._buffer.partition(_HEAD_END)
            length = _content_length(head)
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        backend = self._backend
        lowered = head.lower()
        close = b"\r\nconnection: close" in lowered or b" http/1.0" in lowered.split(b"\r\n", 1)[0]
        backend.heads.append(head)
        if backend.delay_s:
            loop = asyncio.get_running_loop()
            self._waiting = [
                handle for handle in self._waiting if not handle.cancelled() and handle.when() > loop.time()
            ]
            self._waiting.append(loop.call_later(backend.delay_s, self._send, close))
        else:
            self._send(close)

    def _send(self, close: bool) -> None:
        self._backend.requests += 1
        self._transport.write(self._backend.answer(close=close))
        if close:
            self._transport.close()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


class _Redis(_Http):
    """Answers PING, inline or as RESP, as ``tcp-check`` of a load balancer sends it; INFO says it is a master."""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n" in self._buffer:
            line, _, self._buffer = self._buffer.partition(b"\r\n")
            word = line.strip().upper()
            if word == b"PING":
                self._reply(b"+PONG\r\n")
            elif word.startswith(b"INFO"):
                self._reply(b"$13\r\nrole:master\r\n\r\n")
            elif word == b"QUIT":
                self._reply(b"+OK\r\n")
                self._transport.close()
            elif word and not word.startswith((b"*", b"$")) and word != b"REPLICATION":
                self._reply(b"-ERR unknown command\r\n")

    def _reply(self, reply: bytes) -> None:
        self._backend.requests += 1
        self._transport.write(reply)


_REQUEST = re.compile(rb"[A-Z]+ \S+ HTTP/1\.[01]\r?\n")
_REDIS = re.compile(rb"(\*\d+\r\n|PING\b|INFO\b|QUIT\b)", re.IGNORECASE)
_BEGINNING = re.compile(rb"[\t\r -~]*")
_FIRST_LINE_BYTES = 8192


class _Any(_Redis):
    """Answers HTTP and redis, and everything else with a line of its name; what it is shows in the first line."""

    _speaks: type[_Http] | None = None

    def data_received(self, data: bytes) -> None:
        if self._speaks is None:
            first = self._buffer + data
            if len(first) < _FIRST_LINE_BYTES and _BEGINNING.fullmatch(first):
                self._buffer = first
                return
            self._buffer, data = b"", first
            kinds = ((_REQUEST, _Http), (_REDIS, _Redis))
            self._speaks = next((kind for pattern, kind in kinds if pattern.match(first)), _Any)
        if self._speaks is _Any:
            self._reply(f"{self._backend.name}\n".encode())
        else:
            self._speaks.data_received(self, data)


class StandIns:
    """Pods on loopback addresses, served by one thread. ``close`` (or leaving the ``with``) ends them all."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        """The shared port; 0 until the first pod is added, then a free one."""
        self.pods: dict[str, StandIn] = {}
        self._protocols: dict[str, type[_Http]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-pods", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self, name: str, address: str = "127.0.0.1", port: int | None = None, *, tls: ssl.SSLContext | None = None
    ) -> StandIn:
        """Add a pod that answers HTTP (with ``tls`` HTTPS). Raises: OSError: where the address or port is not free."""
        return self._add(name, address, port, tls, _Http)

    def add_redis(self, name: str, address: str = "127.0.0.1", port: int | None = None) -> StandIn:
        """Add a pod that answers PING. Raises: OSError."""
        return self._add(name, address, port, None, _Redis)

    def add_any(self, name: str, address: str, port: int, *, tls: ssl.SSLContext | None = None) -> StandIn:
        """Add a pod that answers HTTP, redis, or any line; with ``tls`` over TLS too. Raises: OSError."""
        return self._add(name, address, port, tls, _Any)

    def _add(
        self, name: str, address: str, port: int | None, tls: ssl.SSLContext | None, protocol: type[_Http]
    ) -> StandIn:
        if name in self.pods:
            raise ValueError(f"there is a pod {name} already")
        backend = StandIn(name, address, self.port if port is None else port, tls)
        self._protocols[name] = protocol
        self._run(self._open(backend))
        if port is None:
            self.port = backend.port
        self.pods[name] = backend
        return backend

    def stop(self, name: str, *, graceful: bool = False) -> None:
        """Let a pod refuse connections; its open ones are cut; graceful: those live on until their client ends."""
        self._run(self._close(self.pods[name], graceful=graceful))

    def start(self, name: str) -> None:
        """Let a stopped pod serve again, at the same address and port."""
        self._run(self._open(self.pods[name]))

    def remove(self, name: str) -> None:
        """Stop it and forget it."""
        self.stop(name)
        del self.pods[name]

    def counts(self) -> dict[str, int]:
        """Return the requests answered so far, by pod."""
        return {name: pod.requests for name, pod in self.pods.items()}

    def close(self) -> None:
        """Stop all and end the thread."""
        for pod in self.pods.values():
            self._run(self._close(pod, graceful=False))
        self._run(self._cut_handshakes())
        self._run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE_S)
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    @staticmethod
    async def _cut_handshakes() -> None:
        """End what is between a connection and its first byte over TLS; nobody else knows of it."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _rounds()

    async def _open(self, backend: StandIn) -> None:
        if backend.server:
            return
        protocol = self._protocols[backend.name]
        if protocol is _Any:
            family = socket.AF_INET6 if ":" in backend.address else socket.AF_INET
            listener = socket.socket(family, socket.SOCK_STREAM)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((backend.address, backend.port))
            except OSError:
                listener.close()
                raise
            backend.port = listener.getsockname()[1]
            backend.server = SniffingServer(listener, lambda: protocol(backend), backend.tls)
            return
        backend.server = await asyncio.get_running_loop().create_server(
            lambda: protocol(backend), backend.address, backend.port, ssl=backend.tls, backlog=4096, reuse_address=True
        )
        backend.port = backend.server.sockets[0].getsockname()[1]

    @staticmethod
    async def _close(backend: StandIn, *, graceful: bool) -> None:
        if isinstance(backend.server, asyncio.Server):
            for listener in backend.server.sockets:
                asyncio.get_running_loop().remove_reader(listener)
            # What was accepted just now is a connection two rounds of the loop later; a server that is closed before
            # would lose it, open for ever.
            await _rounds()
        if backend.server:
            backend.server.close()
            backend.server = None
        if not graceful:
            for transport in list(backend.open):
                transport.abort()
            # The loop calls connection_lost, which closes the sockets, in its next round.
            await _rounds()


async def _rounds() -> None:
    """Let the loop do what follows from what it does now."""
    for _ in range(4):
        await asyncio.sleep(0)
