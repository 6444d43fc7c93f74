"""The status page: what each path answers, its HTTP server, and its life beside a loop.

The server has one thread, takes one request for each connection, and only GET and HEAD. Nothing that a client does, or
does not do, keeps others waiting: heads are read with a limit of size and time, and when too many connections are open
the oldest one is cut.
"""

import asyncio
import contextlib
import html
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.model.status import Status
from pyconfd.status.document import Freshness, StatusReport, decode, encode, liveness, readiness
from pyconfd.status.listen import Listen, bind, parse_listen
from pyconfd.status.metrics import CONTENT_TYPE, exposition, registry_of
from pyconfd.status.text import render_text

log = structlog.get_logger(__name__)

Explain = Callable[[str], bytes | None]
"""Gives the JSON that answers the query of ``/explain``, None where there is nobody to answer."""

EXPLAIN = "/explain"

_PLAIN = "text/plain; charset=utf-8"
_HTML = "text/html; charset=utf-8"
_JSON = "application/json"

_INDEX = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>pyconfd: {title}</title>
<meta name="color-scheme" content="light dark"><meta name="viewport" content="width=device-width"></head>
<body><pre>{text}</pre>
<p><a href="/metrics">/metrics</a> for Prometheus &middot; <a href="/healthz">/healthz</a> alive and making progress
&middot; <a href="/readyz">/readyz</a> synced and applied
&middot; <a href="/status.json">/status.json</a> everything
&middot; <a href="/explain">/explain</a> all that is refused, ?q=NAME why something is not there</p>
</body></html>
"""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One HTTP answer; ``headers`` come on top of those that every answer has."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    def head(self) -> bytes:
        """Return the status line and the headers with the empty line after them."""
        headers = (
            ("Content-Type", self.content_type),
            ("Content-Length", str(len(self.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
            ("Connection", "close"),
            *self.headers,
        )
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}", *(f"{name}: {value}" for name, value in headers)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def plain(status: HTTPStatus, text: str) -> HttpAnswer:
    """Return a one-line text."""
    return HttpAnswer(status, _PLAIN, f"{text}\n".encode())


def no_explanation(query: str) -> None:
    """Explain nothing: this loop reads no objects."""
    del query


class StatusPages:
    """The pages; each call asks ``status`` once."""

    def __init__(self, status: Callable[[], Status], explain: Explain = no_explanation) -> None:
        self._status = status
        self._explain = explain
        self._registry = registry_of(status)

    def answer(self, path: str, query: str = "") -> HttpAnswer:  # noqa: PLR0911 - one for each page
        """Return the page at ``path``; ``/explain`` alone heeds a query, and alone may take a while."""
        match path:
            case "/explain":
                explained = self._explain(query)
                if explained is None:
                    return plain(HTTPStatus.NOT_FOUND, "this pyconfd reads no cluster, so it has nothing to explain")
                return HttpAnswer(HTTPStatus.OK, _JSON, explained)
            case "/metrics":
                return HttpAnswer(HTTPStatus.OK, CONTENT_TYPE, exposition(self._registry))
            case "/healthz":
                verdict = liveness(self._status())
            case "/readyz":
                verdict = readiness(self._status())
            case "/status.json":
                return HttpAnswer(HTTPStatus.OK, _JSON, encode(self._status()))
            case "/":
                return self._index()
            case _:
                return plain(
                    HTTPStatus.NOT_FOUND, "no such page; there are / /metrics /healthz /readyz /status.json /explain"
                )
        return plain(HTTPStatus.OK if verdict.good else HTTPStatus.SERVICE_UNAVAILABLE, verdict.reason)

    def _index(self) -> HttpAnswer:
        status = decode(encode(self._status()))  # without secrets
        text = render_text(StatusReport(Freshness.LIVE, status.now, status))
        page = _INDEX.format(title=html.escape(status.phase.value), text=html.escape(text))
        return HttpAnswer(HTTPStatus.OK, _HTML, page.encode())


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
    """Serves :class:`StatusPages` on ``listen`` from a thread of its own between :meth:`start` and :meth:`stop`.

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
        self._pages = StatusPages(status, explain)
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

    def _routed(self, head: bytes) -> tuple[HttpAnswer, bool]:
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
            return HttpAnswer(refused.status, refused.content_type, refused.body, (("Allow", "GET, HEAD"),)), True
        hosts = [value.strip() for name, _, value in (line.partition(":") for line in lines) if name.lower() == "host"]
        refusal = self._host_refused(hosts, version)
        path, _, query = target.partition("?")
        answer = refusal or self._pages.answer(path, query)
        return answer, method == "GET"

    def _host_refused(self, hosts: list[str], version: str) -> HttpAnswer | None:
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


class StatusPage:
    """Nothing listens before :meth:`serve`. ``explain`` answers ``/explain``."""

    def __init__(self) -> None:
        self.explain: Explain = no_explanation
        self._server: StatusServer | None = None
        self._problems: tuple[Problem, ...] = ()

    def serve(self, server: StatusServer) -> None:
        """Begin to listen, now or as soon as that is possible."""
        self._server = server
        for problem in self.problems():
            log.error("status_page.failed", place=problem.place, problem=problem.message, remedy=problem.remedy)

    def problems(self) -> tuple[Problem, ...]:
        """Try to listen unless it does; say why it cannot."""
        if self._server is not None and not self._server.address:
            try:
                self._server.start()
            except TransientError as error:
                self._problems = error.problems
            else:
                self._problems = ()
        return self._problems

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.stop()
