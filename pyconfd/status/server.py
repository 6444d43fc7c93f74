"""The HTTP server for metrics and health: one thread, one request for each connection, only GET and HEAD.

Nothing that a client does, or does not do, keeps others waiting: heads are read with a limit of size and time, and
when too many connections are open the oldest one is cut.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Self

import structlog

from pyconfd.model.status import Status
from pyconfd.status.listen import Listen, bind, parse_listen
from pyconfd.status.pages import EXPLAIN, Answer, Explain, Pages, no_explanation, plain

log = structlog.get_logger(__name__)

HEAD_LIMIT_BYTES = 8192
REQUEST_TIMEOUT_S = 5.0
MAX_CONNECTIONS = 64
EXPLAIN_TIMEOUT_S = 30.0
"""An explanation reads the whole configuration and asks HAProxy: seconds where both are large."""

_STOP_TIMEOUT_S = 10.0
_ACCEPT_PAUSE_S = 0.1
_DRAIN_LIMIT_BYTES = 1024 * 1024
_END = b"\r\n\r\n"


class StatusServer:
    """Serves :class:`Pages` on ``listen`` from a thread of its own between :meth:`start` and :meth:`stop`.

    ``status`` is called in that thread and must be quick; it gives an immutable value. ``explain`` may take its time:
    it is called in another one, for one client after the other.
    """

    def __init__(
        self,
        listen: str,
        status: Callable[[], Status],
        *,
        explain: Explain = no_explanation,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """Read ``listen``.

        Raises:
            ConfigurationError: ``listen`` is not ``host:port``.
        """
        self._listen = parse_listen(listen)
        self._pages = Pages(status, explain)
        self._explainers: ThreadPoolExecutor | None = None
        self._timeout_s = request_timeout_s
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._running = threading.Event()
        self._connections: dict[asyncio.Task[None], socket.socket] = {}
        self.address = ""
        """``host:port`` with the real port, "" while stopped."""

    def start(self) -> None:
        """Listen and answer; when it returns the first request can be sent.

        Raises:
            TransientError: the address cannot be listened on now; the message says why and what to set.
        """
        listener = bind(self._listen)
        self.address = str(Listen(self._listen.host, listener.getsockname()[1]))
        self._running.clear()
        self._explainers = ThreadPoolExecutor(1, "explain")
        self._thread = threading.Thread(target=self._run, args=(listener,), name="status", daemon=True)
        self._thread.start()
        self._running.wait()
        log.info("status_page.started", url=f"http://{self.address}/")

    def stop(self) -> None:
        """Close the listener and every connection; does nothing if it does not run."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None or loop is None or stopping is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop ended by itself
            loop.call_soon_threadsafe(stopping.set)
        thread.join(_STOP_TIMEOUT_S)
        if self._explainers is not None:
            self._explainers.shutdown(wait=False, cancel_futures=True)
        self._thread = None
        self.address = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, listener: socket.socket) -> None:
        try:
            asyncio.run(self._serve(listener))
        finally:
            self._running.set()

    async def _serve(self, listener: socket.socket) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        with listener:
            self._listen_again(listener)
            self._running.set()
            await self._stopping.wait()
            self._loop.remove_reader(listener)
            tasks = list(self._connections)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _listen_again(self, listener: socket.socket) -> None:
        if self._loop and self._stopping and not self._stopping.is_set():
            self._loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Take one connection; a callback and no coroutine, since cancelling that one could lose what it took."""
        loop = asyncio.get_running_loop()
        try:
            client, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # the client is already gone, or no file descriptor is left
            loop.remove_reader(listener)
            loop.call_later(_ACCEPT_PAUSE_S, self._listen_again, listener)
            return
        client.setblocking(False)
        if len(self._connections) >= MAX_CONNECTIONS:
            next(iter(self._connections)).cancel()
        task = loop.create_task(self._talk(client))
        self._connections[task] = client
        task.add_done_callback(self._close)

    def _close(self, task: asyncio.Task[None]) -> None:
        """Close a connection whose task ended, also one that was cancelled before its first step."""
        self._connections.pop(task).close()

    async def _talk(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError, TimeoutError):  # the client went away, or is too slow to be told anything
            async with asyncio.timeout(self._timeout_s) as limit:
                head = await _head(client)
                if not head:
                    return
                if EXPLAIN.encode() in head.partition(b"\r\n")[0]:
                    limit.reschedule(loop.time() + EXPLAIN_TIMEOUT_S)
                    answer, with_body = await loop.run_in_executor(self._explainers, self._routed, head)
                    limit.reschedule(loop.time() + self._timeout_s)
                else:
                    answer, with_body = self._routed(head)
                await loop.sock_sendall(client, answer.head() + (answer.body if with_body else b""))
                client.shutdown(socket.SHUT_WR)
                await _drain(client)

    def _routed(self, head: bytes) -> tuple[Answer, bool]:
        """Return the answer and whether its body is wanted."""
        if len(head) > HEAD_LIMIT_BYTES:
            return plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too large"), True
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return plain(HTTPStatus.BAD_REQUEST, "this is not an HTTP/1 request"), True
        method, target, version = words
        if method not in ("GET", "HEAD"):
            refused = plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD")
            return Answer(refused.status, refused.content_type, refused.body, (("Allow", "GET, HEAD"),)), True
        hosts = [value.strip() for name, _, value in (line.partition(":") for line in lines) if name.lower() == "host"]
        refusal = self._host_refused(hosts, version)
        path, _, query = target.partition("?")
        answer = refusal or self._pages.answer(path, query)
        return answer, method == "GET"

    def _host_refused(self, hosts: list[str], version: str) -> Answer | None:
        """Refuse names that are not this machine's own: a web page elsewhere may point its name at 127.0.0.1."""
        if len(hosts) > 1 or (not hosts and version != "HTTP/1.0"):
            return plain(HTTPStatus.BAD_REQUEST, "exactly one Host header is needed")
        if not hosts or not self._listen.loopback:
            return None
        name = hosts[0].lower()
        name = name[: name.find("]") + 1] if name.startswith("[") else name.partition(":")[0]
        if name.strip("[]") in {"localhost", "127.0.0.1", "::1", self._listen.host.lower()}:
            return None
        return plain(HTTPStatus.FORBIDDEN, "this page answers only to localhost, 127.0.0.1 and [::1]")


async def _head(client: socket.socket) -> bytes:
    """Return the request up to its empty line; more than the limit where it is too long; nothing if it never ends."""
    loop = asyncio.get_running_loop()
    got = b""
    while _END not in got and len(got) <= HEAD_LIMIT_BYTES:
        chunk = await loop.sock_recv(client, HEAD_LIMIT_BYTES)
        if not chunk:
            return b""
        got += chunk
    head, end, _ = got.partition(_END)
    return head if end else got


async def _drain(client: socket.socket) -> None:
    """Read what the client still sends: closing over unread bytes would take the answer away from it."""
    loop = asyncio.get_running_loop()
    left = _DRAIN_LIMIT_BYTES
    while left > 0 and (chunk := await loop.sock_recv(client, 65536)):
        left -= len(chunk)
