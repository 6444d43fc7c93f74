"""The status page beside a loop: what each path answers, over HTTP."""

import contextlib
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from urllib.parse import urlsplit

import structlog

from pyconfd.errors import Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.model.status import Status
from pyconfd.status.document import Freshness, StatusReport, decode, encode, liveness, readiness
from pyconfd.status.listen import Listen, bind, parse_listen
from pyconfd.status.metrics import CONTENT_TYPE, exposition, registry_of
from pyconfd.status.page_access import OPEN, PageAccess
from pyconfd.status.page_data import ROUTE_LIST, PageData
from pyconfd.status.route_metrics import HostsByBackend, RouteFiguresByBackend, route_exposition
from pyconfd.status.text import render_text
from pyconfd.status.web import CONTENT_SECURITY_POLICY, chosen, etag_of, is_known, packed, page_file

log = structlog.get_logger(__name__)

Explain = Callable[[str], bytes | None]
"""Returns the JSON that answers the query of ``/explain``, None where this loop reads no objects."""

EXPLAIN, ROUTES = "/explain", "/metrics/routes"
MAX_CONNECTIONS = 64
REQUEST_TIMEOUT_S = 5.0

_PLAIN = "text/plain; charset=utf-8"
_JSON = "application/json"

_PAGES = """\
/metrics, /metrics/routes  for Prometheus
/healthz, /readyz          alive and making progress; synced and applied
/status.json               everything
/explain?q=NAME            why something is not there; without q all that is refused
"""

Answer = tuple[HTTPStatus, str, bytes]
"""Code, content type and body."""


def no_explanation(query: str) -> None:
    """Explain nothing: this loop reads no objects."""
    del query


def _plain(status: HTTPStatus, text: str) -> Answer:
    return status, _PLAIN, f"{text}\n".encode()


def _viewed(view: Callable[[str], bytes], query: str) -> Answer:
    try:
        return HTTPStatus.OK, _JSON, view(query)
    except PyconfdError as error:
        code = HTTPStatus.BAD_REQUEST if isinstance(error, RejectedInput) else HTTPStatus.SERVICE_UNAVAILABLE
        return _plain(code, str(error))


class StatusPage:
    """Nothing listens before :meth:`serve`; while its address cannot be had, :meth:`problems` tries again.

    ``explain`` answers ``/explain``, and ``route_figures`` and ``route_hosts`` (None: no hosts) return what
    ``/metrics/routes`` shows: they may take their time; everything else is quick. ``data`` is what the page for people
    shows.
    """

    def __init__(self) -> None:
        self.explain: Explain = no_explanation
        self.route_figures: Callable[[], RouteFiguresByBackend] = dict
        self.route_hosts: Callable[[], HostsByBackend | None] = lambda: None
        self.data = PageData()
        self.views: Mapping[str, Callable[[str], bytes]] = {}
        """What answers other paths of the page for people, each on request only, by its query."""
        self.address = ""
        """``host:port`` with the real port, "" while nothing listens."""
        self._listen: Listen | None = None
        self._access = OPEN
        self._server: _PageServer | None = None
        self._problems: tuple[Problem, ...] = ()
        self._told = frozenset[str]()
        """What of it the loop was told last, as it is among the problems of its status."""
        self._explaining, self._answering, self._listing = threading.Lock(), threading.Lock(), threading.Lock()
        self._viewing = threading.Lock()

    def serve(self, listen: str, status: Callable[[], Status], access: PageAccess = OPEN) -> None:
        """Listen on HOST:PORT, now or as soon as that is possible; ``status`` is called by one thread at a time."""
        self._listen, self._status_of_loop, self._access = parse_listen(listen), status, access
        self._registry = registry_of(self._status)
        for problem in self.problems():
            log.error("status_page.failed", place=problem.place, problem=problem.message, remedy=problem.remedy)

    def problems(self) -> tuple[Problem, ...]:
        """Try to listen unless it does; return why it cannot, or which of its files could not be read again."""
        if self._server is None:
            self._try_to_listen()
        if self._server is not None:
            self._problems = self._access.problems()
        self._told = frozenset(map(str, self._problems))
        return self._problems

    def _try_to_listen(self) -> None:
        if self._listen is not None:
            try:
                self._access.check()
                listener = bind(self._listen)
            except TransientError as error:
                self._problems = error.problems
            else:
                self.address = str(Listen(self._listen.host, listener.getsockname()[1]))
                self._server = _PageServer(listener, self._answer, self._listen, self._access)
                log.info("status_page.started", url=f"{self._access.scheme}://{self.address}/")

    def stop(self) -> None:
        """Close the listener and every connection."""
        server, self._server, self._listen, self.address = self._server, None, None, ""
        if server is not None:
            server.stop()

    def _status(self) -> Status:
        """Return the status of the loop with what is true of the page's files now: the loop asks each second only."""
        status, now = self._status_of_loop(), tuple(map(str, self._access.problems()))
        gone = self._told.difference(now)
        others = [each for each in status.problems if each not in gone]
        credentials = (*status.source.credentials, *self._access.credentials())
        return replace(
            status,
            problems=tuple(dict.fromkeys((*others, *now))),
            source=replace(status.source, credentials=credentials),
        )

    def _answer(self, path: str, query: str) -> Answer:
        if (file := page_file(path)) is not None:
            return HTTPStatus.OK, *file
        locks = {EXPLAIN: self._explaining, ROUTES: self._explaining, ROUTE_LIST: self._listing}
        if (view := self.views.get(path)) is not None:
            with self._viewing:
                return _viewed(view, query)
        with locks.get(path, self._answering):
            return self._page(path, query)

    def _page(self, path: str, query: str) -> Answer:  # noqa: PLR0911 - one for each page
        """Return the page at ``path``; ``/explain`` alone heeds a query."""
        match path:
            case "/explain":
                explained = self.explain(query)
                if explained is None:
                    return _plain(HTTPStatus.NOT_FOUND, "this pyconfd reads no cluster, so it has nothing to explain")
                return HTTPStatus.OK, _JSON, explained
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE, exposition(self._registry)
            case "/metrics/routes":
                return HTTPStatus.OK, CONTENT_TYPE, route_exposition(self.route_figures(), self.route_hosts())
            case "/healthz" | "/readyz":
                health = (liveness if path == "/healthz" else readiness)(self._status())
                return _plain(HTTPStatus.OK if health.good else HTTPStatus.SERVICE_UNAVAILABLE, health.reason)
            case "/status.json":
                return HTTPStatus.OK, _JSON, encode(self._status())
            case "/page.json":
                return HTTPStatus.OK, _JSON, self.data.overview(self._status)
            case "/routes.json":
                with self._answering:
                    status = self._status()
                return HTTPStatus.OK, _JSON, self.data.routes(status)
            case "/status.txt":
                status = decode(encode(self._status()))  # without secrets
                text = render_text(StatusReport(Freshness.LIVE, status.now, status))
                return HTTPStatus.OK, _PLAIN, f"{text}\n{_PAGES}".encode()
        pages = "/ /status.txt /metrics /metrics/routes /healthz /readyz /status.json /explain"
        return _plain(HTTPStatus.NOT_FOUND, f"no such page; there are {pages}")


class _PageServer(ThreadingMixIn, TCPServer):
    """A thread for each connection. Of too many connections one is cut, so silent clients keep nobody waiting.

    It is one without the token where there is one, of the address that has most of these, the oldest: who has no token,
    or opens hundreds, cuts off nobody else.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self, listener: socket.socket, answer: Callable[[str, str], Answer], listen: Listen, access: PageAccess
    ) -> None:
        super().__init__(listener.getsockname(), _PageHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.answer, self.listen, self.access = answer, listen, access
        self._lock = threading.Lock()
        self._open: dict[socket.socket, str] = {}
        """The client's address, "" once the token was shown."""
        self._thread = threading.Thread(target=self.serve_forever, args=(60.0,), name="status", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        _shut_down(self.socket)  # wakes serve_forever(), which looks for shutdown() only once a minute
        self.shutdown()
        self.server_close()
        with self._lock:
            for client in self._open:
                _shut_down(client)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= MAX_CONNECTIONS:
                ((most, _),) = Counter(filter(None, self._open.values())).most_common(1) or (("", 0),)
                cut = next(each for each, address in self._open.items() if address == most)
                _shut_down(cut)
                del self._open[cut]
            self._open[request] = client_address[0]
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Secure the connection in its own thread, so that nobody waits for a slow handshake of another."""
        context = self.access.tls()
        if context is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(_PageHandler.timeout)
        with self._lock:
            # This takes the socket out of the request: until it is known by its new object nobody may cut it.
            secured = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            if request in self._open:  # else it was cut, and its handshake fails
                self._open[secured] = self._open.pop(request)
        try:
            secured.do_handshake()
            super().finish_request(secured, client_address)
        finally:
            self.shutdown_request(secured)

    def admitted(self, connection: socket.socket) -> None:
        """Record that a connection showed the token that is needed."""
        with self._lock:
            if connection in self._open and self.access.needs_token:
                self._open[connection] = ""

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request, client_address
        error = sys.exception()
        if not isinstance(error, OSError):  # a client that went away is none
            log.error("status_page.crashed", exc_info=error)


class _PageHandler(BaseHTTPRequestHandler):
    """Answers one GET or HEAD."""

    server: _PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "pyconfd", ""
    timeout = REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        code, content_type, body = self._host_refused() or self._answered()
        etag = etag_of(body)
        if is_known(code, etag, self.headers.get("If-None-Match", "")):
            code, body = HTTPStatus.NOT_MODIFIED, b""
        compressed = packed(body, self.headers.get("Accept-Encoding", ""))
        self.send_response(code)
        if code == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Bearer realm="pyconfd"')
        for name, value in (
            ("Content-Type", content_type),
            ("Cache-Control", "no-store"),
            ("ETag", etag),
            ("Vary", "Accept, Accept-Encoding"),
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
            ("Referrer-Policy", "no-referrer"),
            ("Connection", "close"),
        ):
            self.send_header(name, value)
        if compressed is not None:
            body = compressed
            self.send_header("Content-Encoding", "gzip")
        if code is not HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name that the base class calls

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Log nothing."""

    def _answered(self) -> Answer:
        try:
            url = urlsplit(self.path)
        except ValueError:
            return self._token_refused() or _plain(HTTPStatus.BAD_REQUEST, "this is no URL")
        path = chosen(url.path, self.headers.get("Accept", ""))
        # The files of the page have nothing of the cluster; its script asks for the token.
        if page_file(path) is None:
            if (refused := self._token_refused()) is not None:
                return refused
            self.server.admitted(self.connection)
        return self.server.answer(path, url.query)

    def _host_refused(self) -> Answer | None:
        """Refuse names that are not this machine's own: a web page elsewhere may point its name at 127.0.0.1."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) > 1 or (not hosts and self.request_version != "HTTP/1.0"):
            return _plain(HTTPStatus.BAD_REQUEST, "exactly one Host header is needed")
        if not hosts or not self.server.listen.loopback:
            return None
        name = hosts[0].strip().lower()
        name = name[: name.find("]") + 1] if name.startswith("[") else name.partition(":")[0]
        if name.strip("[]") in {"localhost", "127.0.0.1", "::1", self.server.listen.host.lower()}:
            return None
        return _plain(HTTPStatus.FORBIDDEN, "this page answers only to localhost, 127.0.0.1 and [::1]")

    def _token_refused(self) -> Answer | None:
        if self.server.access.admits(self.headers.get_all("Authorization", [])):
            return None
        return _plain(HTTPStatus.UNAUTHORIZED, "send the token of status.token_file: Authorization: Bearer TOKEN")


def _shut_down(connection: socket.socket) -> None:
    """Wake the thread that waits for this socket; closing it would not."""
    with contextlib.suppress(OSError):
        # Not that of an SSLSocket, which goes on in the clear from then on.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
