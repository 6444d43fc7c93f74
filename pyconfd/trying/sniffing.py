"""A listener that takes whatever a load balancer sends: TLS or not, behind a PROXY header or not."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import partial

_TLS_HANDSHAKE = 0x16
"""Source: RFC 8446, 5.1."""
_PROXY_V2 = b"\r\n\r\n\x00\r\nQUIT\n"
_PROXY_V1 = b"PROXY "
_PROXY_V1_BYTES = 107
"""Source: the PROXY protocol of HAProxy, 2.1 and 2.2."""
_BACKLOG = 1024


class SniffingServer:
    """Accepts on a bound socket and gives each connection to a protocol of ``factory``, over TLS where that is spoken.

    Everything happens in the event loop that it is made in.
    """

    def __init__(
        self, listener: socket.socket, factory: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> None:
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        self.sockets = (listener,)
        self._factory = factory
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._greeting: set[asyncio.Task[None]] = set()
        self._accepting = self._loop.create_task(self._accept(listener))

    def close(self) -> None:
        """Take no more connections; those that have begun go on."""
        self._accepting.cancel()
        for task in self._greeting:
            task.cancel()
        self.sockets[0].close()

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(listener)
            except OSError:
                await asyncio.sleep(0.1)  # out of descriptors: the next may be luckier
                continue
            task = self._loop.create_task(self._greet(connection))
            self._greeting.add(task)
            task.add_done_callback(partial(self._greeted, connection))

    def _greeted(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._greeting.discard(task)
        if task.cancelled():  # before it had begun: one that has, closes it itself
            connection.close()

    async def _greet(self, connection: socket.socket) -> None:
        try:
            first = await self._first_bytes(connection)
            if first[:1] == b"\r" or first.startswith(_PROXY_V1):
                await self._skip_proxy_header(connection)
                first = await self._first_bytes(connection)
            if not first:
                connection.close()
                return
            tls = self._tls if first[0] == _TLS_HANDSHAKE else None
            await self._loop.connect_accepted_socket(self._factory, connection, ssl=tls)
        except (OSError, asyncio.CancelledError, ssl.SSLError):
            connection.close()

    async def _first_bytes(self, connection: socket.socket) -> bytes:
        """Wait until something came, and leave it there."""
        connection.setblocking(False)
        while True:
            with contextlib.suppress(BlockingIOError):
                return connection.recv(_PROXY_V1_BYTES, socket.MSG_PEEK)
            readable = self._loop.create_future()
            self._loop.add_reader(connection.fileno(), _done, readable)
            try:
                await readable
            finally:
                self._loop.remove_reader(connection.fileno())

    async def _skip_proxy_header(self, connection: socket.socket) -> None:
        head = await self._exactly(connection, 16) if (await self._peek(connection)) == b"\r" else b""
        if head.startswith(_PROXY_V2):
            await self._exactly(connection, int.from_bytes(head[14:16], "big"))
            return
        while not head.endswith(b"\n") and len(head) < _PROXY_V1_BYTES:
            head += await self._exactly(connection, 1)

    async def _peek(self, connection: socket.socket) -> bytes:
        return (await self._first_bytes(connection))[:1]

    async def _exactly(self, connection: socket.socket, count: int) -> bytes:
        found = b""
        while len(found) < count:
            part = await self._loop.sock_recv(connection, count - len(found))
            if not part:
                raise ConnectionResetError
            found += part
        return found


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
