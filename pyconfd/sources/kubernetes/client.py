"""Requests to the API servers: over one connection pool for each server, at the server that works.

:class:`Connection` sends requests to one server, bounded in time and size. :class:`ServerOrder` decides which server is
used: the first that works, and back to the first when it is well again. :class:`ApiServers` joins the two, for all
reflectors of a source.
"""

import contextlib
import socket
import ssl
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

import msgspec
import structlog
import urllib3
import urllib3.connection
import urllib3.exceptions
from kubernetes.client import rest

from pyconfd import __version__
from pyconfd.errors import TransientError, first_line
from pyconfd.model.status import ApiServerState, CredentialState
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.clock import SourceClock
from pyconfd.sources.kubernetes.credentials import Access, Credentials
from pyconfd.sources.kubernetes.failures import NEXT_SERVER, ApiError, Failure, failure_of_status, shown

log = structlog.get_logger(__name__)

ANSWER_TIMEOUT_S = 10.0
"""How long a page of a list or a probe may be silent; what a watch or a whole list may take is in the settings."""
LIST_TOTAL_S = 180.0
"""How long one list request may take although bytes keep dripping in."""
MAX_LIST_BYTES = 1 << 30
MAX_LINE_BYTES = 16 << 20
"""etcd holds objects up to 1.5 MB."""
_MAX_ERROR_BYTES = 64 << 10
_READ_BYTES = 1 << 20
_CONNECTIONS = 32
_KEEPALIVE: tuple[tuple[int, int, int], ...] = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 6000),
)
"""A quiet watch cannot tell a dead network from a quiet cluster: the kernels ask each other, and give up after 6 s."""

TEND_EVERY_S = 5.0
PROBE_EVERY_S = 30.0

Params = Mapping[str, str | int]
Retryable = (urllib3.exceptions.HTTPError, OSError, ValueError)
"""What urllib3 and the sockets under it raise; ValueError is a read of a TLS socket that was shut down meanwhile."""


class SilenceError(TransientError):
    """A watch sent nothing for the read time limit; it can continue from the same resourceVersion."""


class LineFramer:
    """Cuts a stream of bytes into lines; what follows the last newline is no line."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._pending_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, without blank ones.

        Raises:
            ValueError: a line is longer than the limit.
        """
        first, *rest_of_lines = data.split(b"\n")
        self._append(first)
        lines: list[bytes] = []
        for part in rest_of_lines:
            lines.append(b"".join(self._parts))
            self._parts = []
            self._pending_bytes = 0
            self._append(part)
        return [line for line in lines if line.strip()]

    def _append(self, part: bytes) -> None:
        self._pending_bytes += len(part)
        if self._pending_bytes > self._max_bytes:
            raise ValueError(f"a line is longer than {self._max_bytes} bytes")
        self._parts.append(part)


class _Sockets:
    """The sockets of one connection pool, so that another thread can shut them down.

    Closing a pool closes idle connections only; a thread that reads a watch would go on reading.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.are_shut = False

    def add(self, sock: socket.socket) -> None:
        with self._lock:
            self._open.add(sock)
            if self.are_shut:
                _shut(sock)

    def shut(self) -> None:
        with self._lock:
            self.are_shut = True
            for sock in self._open:
                _shut(sock)


def _shut(sock: socket.socket) -> None:
    # Closed already; or TLS inside of a proxy's TLS, whose wrapper in urllib3 has no such method.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sock.shutdown(socket.SHUT_RDWR)


def _pool_classes(sockets: _Sockets) -> dict[str, Any]:
    """Make pool classes whose connections enter their sockets; urllib3 passes them no argument to do it with."""

    class PlainConnection(urllib3.connection.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            sockets.add(self.sock)

    class TlsConnection(urllib3.connection.HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            sockets.add(self.sock)

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = PlainConnection

    class TlsPool(urllib3.HTTPSConnectionPool):
        ConnectionCls = TlsConnection

    return {"http": PlainPool, "https": TlsPool}


class Connection:
    """One API server with one set of credentials; ``index`` is the server's place in the order.

    Every method raises :class:`ApiError`; after :meth:`interrupt` its kind is ``INTERRUPTED``.
    """

    def __init__(self, access: Access, settings: KubernetesSettings, clock: SourceClock, *, index: int = 0) -> None:
        self.url = access.url
        self.index = index
        self._access = access
        self._connect_timeout_s = settings.connect_timeout_s
        self._read_timeout_s = settings.read_timeout_s
        self._answer_timeout_s = min(ANSWER_TIMEOUT_S, settings.read_timeout_s)
        self._clock = clock
        self._sockets = _Sockets()
        self._date = ""
        pools = rest.RESTClientObject(access.configuration).pool_manager
        pools.connection_pool_kw["maxsize"] = _CONNECTIONS
        pools.connection_pool_kw["socket_options"] = _KEEPALIVE
        if access.ssl_context is not None:
            pools.connection_pool_kw["ssl_context"] = access.ssl_context
        pools.pool_classes_by_scheme = _pool_classes(self._sockets)
        self._pools: urllib3.PoolManager = pools

    @property
    def server_time_s(self) -> float | None:
        """The server's clock at its last answer, in seconds since the epoch; None where it sent no date."""
        try:
            return parsedate_to_datetime(self._date).timestamp()
        except ValueError:
            return None

    def list_page(self, path: str, params: Params) -> bytes:
        """Return the body of one page of a list."""
        # A page comes at once. A list without a limit may be large, and its first byte late.
        return self._get(path, params, self._answer_timeout_s if params.get("limit") else self._read_timeout_s)

    def create(self, path: str, body: bytes, params: Params = MappingProxyType({})) -> None:
        """Create an object of the collection at ``path``.

        It may be sent twice where the connection breaks, so the object should have a name of its own.
        """
        with self._opened(path, params, self._answer_timeout_s, body=body) as response:
            response.read(_MAX_ERROR_BYTES)

    def probe(self) -> None:
        """Ask the server whether it is ready; one that forbids the question is."""
        try:
            self._get("/readyz", {}, self._answer_timeout_s, json=False)
        except ApiError as failure:
            if failure.kind in NEXT_SERVER or not failure.status:
                raise

    @contextlib.contextmanager
    def watch(self, path: str, params: Params) -> Iterator[Iterator[list[bytes]]]:
        """Open a watch; the iterator returns the lines that each arrival completed.

        The iteration ends when the server ends the watch or the connection breaks.

        Raises:
            ApiError: the watch could not be opened, or a line has no end.
            SilenceError: from the iteration: nothing came for the read time limit.
        """
        with self._opened(path, params, self._read_timeout_s) as response:
            yield self._lines(path, response)

    def interrupt(self) -> None:
        """Cut off every request, now and later; callable from any thread."""
        self._sockets.shut()

    def close(self) -> None:
        """Interrupt, and close the idle connections."""
        self.interrupt()
        self._pools.clear()

    def _lines(self, path: str, response: urllib3.BaseHTTPResponse) -> Iterator[list[bytes]]:
        framer = LineFramer()
        try:
            while data := response.read1(_READ_BYTES):
                if lines := framer.feed(data):
                    yield lines
        except urllib3.exceptions.ReadTimeoutError:
            raise SilenceError from None
        except ValueError as error:
            if not self._sockets.are_shut:
                raise ApiError(Failure.BAD_ANSWER, self.url + path, str(error)) from None
        except (urllib3.exceptions.HTTPError, OSError):
            # Half a line is dropped with the connection; the next watch continues after the last whole one.
            pass
        if self._sockets.are_shut:
            raise self._interrupted(path)

    def _get(self, path: str, params: Params, timeout_s: float, *, json: bool = True) -> bytes:
        with self._opened(path, params, timeout_s, json=json) as response:
            deadline_s = self._clock.monotonic() + LIST_TOTAL_S
            body = bytearray()
            try:
                while data := response.read1(_READ_BYTES):
                    body += data
                    if len(body) > MAX_LIST_BYTES or self._clock.monotonic() > deadline_s:
                        message = f"the answer does not end: {len(body)} bytes until now"
                        raise ApiError(Failure.BAD_ANSWER, self.url + path, message)
                # Returns the connection to the pool, and raises where less came than was announced.
                body += response.read()
            except Retryable as error:
                raise self._failure(path, error, f" after {len(body)} bytes") from None
            return bytes(body)

    @contextlib.contextmanager
    def _opened(
        self, path: str, params: Params, timeout_s: float, *, json: bool = True, body: bytes | None = None
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        response = self._request(path, params, timeout_s, body)
        try:
            self._date = response.headers.get("Date", "")
            encoding = response.headers.get("Content-Encoding", "").strip()
            content_type = response.headers.get("Content-Type", "")
            if response.status != (200 if body is None else 201):
                raise ApiError(
                    failure_of_status(response.status),
                    self.url + path,
                    f"HTTP {response.status}: {_message_of(self._beginning(response))}",
                    status=response.status,
                    retry_after_s=_retry_after_s(response.headers.get("Retry-After", ""), self._clock.time()),
                )
            wrong = ""
            if encoding.lower() not in {"", "identity"}:
                # A few MB of gzip can hold some GB, and the request did not accept it.
                wrong = f"Content-Encoding {shown(encoding)}, which was not asked for"
            elif json and content_type.partition(";")[0].strip().lower() != "application/json":
                begin = shown(self._beginning(response))
                wrong = f"{shown(content_type) or 'no content type'} instead of JSON: {begin}"
            if wrong:
                message = f"HTTP {response.status} with {wrong}"
                raise ApiError(Failure.BAD_ANSWER, self.url + path, message, status=response.status)
            yield response
        finally:
            response.close()

    def _request(self, path: str, params: Params, timeout_s: float, body: bytes | None) -> urllib3.BaseHTTPResponse:
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"pyconfd/{__version__}",
        }
        # For each request: a token of a plugin or a service account expires while the connection lives.
        if authorization := self._access.authorization():
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = "application/json"
        url = f"{self.url}{path}" + (f"?{urlencode(params)}" if params else "")
        for attempt in (1, 2):
            if self._sockets.are_shut:
                raise self._interrupted(path)
            try:
                return self._pools.request(
                    "GET" if body is None else "POST",
                    url,
                    headers=headers,
                    body=body,
                    timeout=urllib3.Timeout(connect=self._connect_timeout_s, read=timeout_s),
                    retries=False,
                    redirect=False,
                    preload_content=False,
                    decode_content=False,
                )
            except urllib3.exceptions.ProtocolError as error:
                # The server may have closed an idle connection in the moment it was used again: try a new one.
                self._pools.clear()
                if attempt == 2:
                    raise self._failure(path, error) from None
            except Retryable as error:
                raise self._failure(path, error) from None
        raise AssertionError("the second attempt returned or raised")

    def _beginning(self, response: urllib3.BaseHTTPResponse) -> bytes:
        body = bytearray()
        with contextlib.suppress(*Retryable):
            while len(body) < _MAX_ERROR_BYTES and (data := response.read1(_MAX_ERROR_BYTES)):
                body += data
        return bytes(body)

    def _failure(self, path: str, error: Exception, when: str = "") -> ApiError:
        if self._sockets.are_shut:
            return self._interrupted(path)
        kind, message = _kind_of(error)
        return ApiError(kind, self.url + path, message + when)

    def _interrupted(self, path: str) -> ApiError:
        return ApiError(Failure.INTERRUPTED, self.url + path, "the request was interrupted")


_KINDS: tuple[tuple[tuple[type[Exception], ...], Failure, str], ...] = (
    # urllib3 counts a refused connection as a kind of timeout, so it comes first.
    ((urllib3.exceptions.NewConnectionError,), Failure.UNREACHABLE, "cannot connect"),
    ((urllib3.exceptions.ConnectTimeoutError,), Failure.TIMEOUT, "no connection within the time limit"),
    ((urllib3.exceptions.ReadTimeoutError, TimeoutError), Failure.TIMEOUT, "no answer within the time limit"),
    ((urllib3.exceptions.SSLError, ssl.SSLError), Failure.TLS, "TLS"),
    ((urllib3.exceptions.ProxyError,), Failure.UNREACHABLE, "the proxy does not connect"),
    ((urllib3.exceptions.HTTPError, OSError), Failure.RESET, "the connection broke"),
)


def _kind_of(error: Exception) -> tuple[Failure, str]:
    for classes, kind, words in _KINDS:
        if isinstance(error, classes):
            reason = "" if kind is Failure.TIMEOUT else f": {shown(_innermost(error), 200)}"
            return kind, words + reason
    # A ValueError quotes what it did not like, which may be a header with a token.
    return Failure.RESET, f"the request or its answer cannot be made out ({type(error).__name__})"


def _innermost(error: BaseException) -> str:
    """Return the reason under urllib3's wrappings: the operating system's or OpenSSL's message."""
    for inner in (error.__cause__, error.__context__, *error.args):
        # What int() or a parser raised for half an answer explains nothing.
        if isinstance(inner, BaseException) and inner is not error and not isinstance(inner, ValueError):
            return _innermost(inner)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


class _Status(msgspec.Struct):
    message: str | None = None
    reason: str | None = None


def _message_of(body: bytes) -> str:
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return shown(body) or "(no text)"
    return shown(status.message or status.reason or "", 300) or shown(body)


def _retry_after_s(value: str, now_s: float) -> float | None:
    """Parse a Retry-After header: seconds, or a date."""
    if value.strip().isdecimal():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, at.replace(tzinfo=at.tzinfo or UTC).timestamp() - datetime.fromtimestamp(now_s, UTC).timestamp())


_NOT_OF_THE_SERVER = frozenset({Failure.FORBIDDEN, Failure.NOT_FOUND, Failure.EXPIRED, Failure.INTERRUPTED})
"""Failures of one resource, or of none; they are shown with the resource."""


class ServerOrder:
    """Which API server to use: in order, sticky to the one that works, back to the first when it is well again.

    It sends nothing. A failure moves on to the next server (from the last one to the first) only if another server may
    do better; 401, 403, 410 and 429 would be the same everywhere.
    """

    def __init__(self, urls: Sequence[str], *, failback_s: float, clock: SourceClock) -> None:
        if not urls:
            raise ValueError("an order of servers needs at least one")
        self._servers = [ApiServerState(url) for url in urls]
        self._healthy_since_s: list[float | None] = [None for _ in urls]
        self._failback_s = failback_s
        self._clock = clock
        self.current = 0

    def succeeded(self, index: int) -> None:
        """Record that a server answered."""
        if self._healthy_since_s[index] is None:
            self._healthy_since_s[index] = self._clock.monotonic()
        server = self._servers[index]
        self._servers[index] = replace(server, healthy=True, last_ok_at=self._clock.time(), last_error="")

    def failed(self, index: int, kind: Failure, message: str) -> bool:
        """Record a failure and return whether the server in use is now another one than ``index``.

        The failures of several requests to one server move on once, not once for each of them.
        """
        if kind not in _NOT_OF_THE_SERVER:
            now = self._clock.time()
            self._servers[index] = replace(self._servers[index], last_error=message, last_error_at=now)
        if kind in NEXT_SERVER:
            self._servers[index] = replace(self._servers[index], healthy=False)
            self._healthy_since_s[index] = None
            if index == self.current:
                self.current = (index + 1) % len(self._servers)
        return index != self.current

    def fail_back(self) -> bool:
        """Go back to the first server that was healthy for long enough; return whether the server in use changed."""
        now_s = self._clock.monotonic()
        for index, since_s in enumerate(self._healthy_since_s[: self.current]):
            if since_s is not None and now_s - since_s >= self._failback_s:
                self.current = index
                return True
        return False

    def states(self) -> tuple[ApiServerState, ...]:
        """Return the state of each server."""
        return tuple(replace(each, in_use=index == self.current) for index, each in enumerate(self._servers))


class ApiServers:
    """The API servers of one cluster, shared by all reflectors; every method may be called from any thread."""

    def __init__(self, settings: KubernetesSettings, credentials: Credentials, clock: SourceClock) -> None:
        self._settings = settings
        self._credentials = credentials
        self._clock = clock
        self._urls = credentials.urls
        self._order = ServerOrder(self._urls, failback_s=settings.failback_s, clock=clock)
        self._probe_every_s = min(PROBE_EVERY_S, settings.failback_s / 4)
        self._probed_s = clock.monotonic()
        self._lock = threading.Lock()
        self._connections: dict[int, Connection] = {}
        self._logged: dict[int, Failure] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._urls)

    @property
    def current(self) -> int:
        """The index of the server in use."""
        return self._order.current

    def connection(self) -> Connection:
        """Return the connection to the server in use.

        Raises:
            ApiError: of kind CREDENTIALS: there is no connection without them; INTERRUPTED after :meth:`close`.
        """
        return self._connection(self.current)

    def succeeded(self, connection: Connection) -> None:
        """Record that the server answered."""
        self._succeeded(connection.index)

    def failed(self, connection: Connection, failure: ApiError) -> bool:
        """Record a failure and return whether another server is in use than the one that failed."""
        if failure.kind is Failure.UNAUTHORIZED and self._credentials.renew():
            self._close_all()
        return self._failed(connection.index, failure)

    def interrupt(self) -> None:
        """Cut off every request; the next ones use new connections."""
        self._close_all()

    def close(self) -> None:
        """Cut off every request and allow no more."""
        with self._lock:
            self._closed = True
        self._close_all()

    def tend(self) -> None:
        """Do what no request would do: reload changed credentials, probe the servers not in use, fail back."""
        if self._credentials.refresh():
            self._close_all()
        now_s = self._clock.monotonic()
        if now_s - self._probed_s < self._probe_every_s:
            return
        self._probed_s = now_s
        in_use = self.current
        for index in range(len(self._urls)):
            if index != in_use:
                self._probe(index)
        with self._lock:
            before = self._order.current
            moved = self._order.fail_back()
            after = self._order.current
        if moved:
            self._close(before)
            log.info("api_server.switched", former=self._urls[before], now=self._urls[after], reason="failback")

    def states(self) -> tuple[ApiServerState, ...]:
        """Return the state of each server."""
        with self._lock:
            return self._order.states()

    def credential_states(self) -> tuple[CredentialState, ...]:
        """Return each certificate and token with its expiry."""
        return self._credentials.states()

    def _probe(self, index: int) -> None:
        try:
            self._connection(index).probe()
        except ApiError as failure:
            self._failed(index, failure)
        else:
            self._succeeded(index)

    def _connection(self, index: int) -> Connection:
        with self._lock:
            if self._closed:
                raise ApiError(Failure.INTERRUPTED, self._urls[index], "the source is stopped")
            connection = self._connections.get(index)
        if connection is not None:
            return connection
        # Outside the lock: credentials may have to run a plugin, and status must not wait for it.
        made = Connection(self._credentials.access(self._urls[index]), self._settings, self._clock, index=index)
        with self._lock:
            kept = self._connections.setdefault(index, made)
            if self._closed:
                del self._connections[index]
        if kept is not made or self._closed:
            made.close()
        return kept

    def _succeeded(self, index: int) -> None:
        with self._lock:
            self._order.succeeded(index)
            recovered = self._logged.pop(index, None) is not None
        if recovered:
            log.info("api_server.recovered", server=self._urls[index])

    def _failed(self, index: int, failure: ApiError) -> bool:
        if failure.kind is Failure.INTERRUPTED:
            return index != self.current
        message = first_line(failure.problems)
        with self._lock:
            before = self._order.current
            moved = self._order.failed(index, failure.kind, message)
            after = self._order.current
            is_news = failure.kind in NEXT_SERVER and self._logged.get(index) is not failure.kind
            if is_news:
                self._logged[index] = failure.kind
        if is_news:
            log.warning("api_server.failed", server=self._urls[index], kind=failure.kind.value, error=message)
        if before != after:
            # Reflectors that still watch the former server list again at the next one: a resourceVersion may be
            # older there, and one Snapshot should not mix what two servers know.
            self._close(before)
            if is_news:
                log.info("api_server.switched", former=self._urls[before], now=self._urls[after], reason="failure")
        return moved

    def _close(self, index: int) -> None:
        with self._lock:
            connection = self._connections.pop(index, None)
        if connection is not None:
            connection.close()

    def _close_all(self) -> None:
        for index in range(len(self._urls)):
            self._close(index)
