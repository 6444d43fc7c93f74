"""The status page: what each path answers, its HTTP server, and its life beside a loop.

The server takes one request for each connection, and only GET and HEAD. Nothing that a client does, or does not do,
keeps others waiting: heads are read with a limit of size and time, and when too many connections are open the oldest
one is cut.
"""

import contextlib
import html
import socket
import threading
import time
from collections.abc import Callable
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

_STOP_TIMEOUT_S = 10.0
_LAST_ANSWER_S = 1.0
_ACCEPT_PAUSE_S = 0.1
_DRAIN_LIMIT_BYTES = 1024 * 1024
_END = b"\r\n\r\n"


class StatusServer:
    """Serves :class:`StatusPages` on ``listen`` between :meth:`start` and :meth:`stop`, a thread for each connection.

    ``status`` must be quick; it is called by one thread at a time and returns an immutable value. ``explain`` may take
    its time, for one client after the other.
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
        self._timeout_s = request_timeout_s
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._lock, self._answering, self._explaining = threading.Lock(), threading.Lock(), threading.Lock()
        self.address = ""
        """``host:port`` with the real port, "" while stopped."""

    def start(self) -> None:
        """Listen and answer.

        Raises:
            TransientError: the address cannot be listened on now; the message says why and what to set.
        """
        self._listener = bind(self._listen)
        self.address = str(Listen(self._listen.host, self._listener.getsockname()[1]))
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), name="status", daemon=True)
        self._thread.start()
        log.info("status_page.started", url=f"http://{self.address}/")

    def stop(self) -> None:
        """Close the listener and every connection; does nothing if it does not run."""
        listener, self._listener = self._listener, None
        if listener is None or self._thread is None:
            return
        _shut_down(listener)  # which ends accept()
        self._thread.join(_STOP_TIMEOUT_S)
        with self._lock:
            connections = dict(self._connections)
        for client in connections:
            _shut_down(client)
        for thread in connections.values():
            thread.join(_LAST_ANSWER_S)
        self.address = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            while self._listener is listener:
                try:
                    client, _ = listener.accept()
                except OSError:
                    if self._listener is listener:  # the client is already gone, or no file descriptor is left
                        time.sleep(_ACCEPT_PAUSE_S)
                    continue
                thread = threading.Thread(target=self._talk, args=(client,), name="status", daemon=True)
                with self._lock:
                    if len(self._connections) >= MAX_CONNECTIONS:
                        oldest = next(iter(self._connections))
                        del self._connections[oldest]
                        _shut_down(oldest)
                    self._connections[client] = thread
                thread.start()

    def _talk(self, client: socket.socket) -> None:
        deadline = time.monotonic() + self._timeout_s
        # The client may go away, or be too slow to be told anything.
        with client, contextlib.suppress(OSError):
            head = _head(client, deadline)
            if head:
                explains = EXPLAIN.encode() in head.partition(b"\r\n")[0]
                with self._explaining if explains else self._answering:
                    answer, with_body = self._routed(head)
                deadline = time.monotonic() + self._timeout_s
                client.settimeout(self._timeout_s)
                client.sendall(answer.head() + (answer.body if with_body else b""))
                client.shutdown(socket.SHUT_WR)
                _drain(client, deadline)
        with self._lock:
            self._connections.pop(client, None)

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


def _shut_down(connection: socket.socket) -> None:
    """Wake the thread that waits for this socket; closing it would not."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _received(client: socket.socket, deadline: float, most: int) -> bytes:
    client.settimeout(max(0.001, deadline - time.monotonic()))
    return client.recv(most)


def _head(client: socket.socket, deadline: float) -> bytes:
    """Return the request up to its empty line; more than the limit where it is too long; nothing if it never ends."""
    got = b""
    while _END not in got and len(got) <= HEAD_LIMIT_BYTES:
        chunk = _received(client, deadline, HEAD_LIMIT_BYTES)
        if not chunk:
            return b""
        got += chunk
    head, end, _ = got.partition(_END)
    return head if end else got


def _drain(client: socket.socket, deadline: float) -> None:
    """Read what the client still sends: closing over unread bytes would take the answer away from it."""
    left = _DRAIN_LIMIT_BYTES
    while left > 0 and (chunk := _received(client, deadline, 65536)):
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
