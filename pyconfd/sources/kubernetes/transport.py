"""Requests to one API server: bounded in time and size, checked, and cut off from another thread at will."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3
import urllib3.connection
import urllib3.exceptions
from kubernetes.client import rest

from pyconfd import __version__
from pyconfd.errors import TransientError
from pyconfd.sources.kubernetes.clock import Clock
from pyconfd.sources.kubernetes.credentials import Access
from pyconfd.sources.kubernetes.failures import NEXT_SERVER, ApiError, Failure, failure_of_status, shown

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

Params = Mapping[str, str | int]
Retryable = (urllib3.exceptions.HTTPError, OSError, ValueError)
"""What urllib3 and the sockets under it raise; ValueError is a read of a TLS socket that was shut down meanwhile."""


class SilenceError(TransientError):
    """A watch gave nothing for its read time limit; it may go on from the same resourceVersion."""


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


class _Cutter:
    """The requests in flight, each with what shuts its socket down."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cuts: dict[object, Callable[[], object]] = {}
        self.is_cut = False

    @contextlib.contextmanager
    def watching(self, cut: Callable[[], object]) -> Iterator[None]:
        token = object()
        with self._lock:
            self._cuts[token] = cut
            if self.is_cut:
                _quietly(cut)
        try:
            yield
        finally:
            with self._lock:
                del self._cuts[token]

    def cut_all(self) -> None:
        with self._lock:
            self.is_cut = True
            for cut in self._cuts.values():
                _quietly(cut)


def _quietly(cut: Callable[[], object]) -> None:
    # The socket may be closed already, and that is all that is wanted; ValueError and RuntimeError are urllib3's words.
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        cut()


def _shutdown_of(sock: socket.socket) -> Callable[[], None]:
    return lambda: sock.shutdown(socket.SHUT_RDWR)


def _pool_classes(cutter: _Cutter) -> dict[str, Any]:
    """Make pool classes whose connections can be cut off while they wait for the head of an answer."""

    class PlainConnection(urllib3.connection.HTTPConnection):
        def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
            with cutter.watching(_shutdown_of(self.sock)):
                return super().getresponse()

    class TlsConnection(urllib3.connection.HTTPSConnection):
        def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
            with cutter.watching(_shutdown_of(self.sock)):
                return super().getresponse()

    class PlainPool(urllib3.HTTPConnectionPool):
        ConnectionCls = PlainConnection

    class TlsPool(urllib3.HTTPSConnectionPool):
        ConnectionCls = TlsConnection

    return {"http": PlainPool, "https": TlsPool}


class Connection:
    """One API server with one set of credentials.

    Every method raises :class:`ApiError`; after :meth:`interrupt` its kind is ``INTERRUPTED``.
    """

    def __init__(self, access: Access, *, connect_timeout_s: float, read_timeout_s: float, clock: Clock) -> None:
        self.url = access.url
        self._access = access
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._clock = clock
        self._cutter = _Cutter()
        self._date = ""
        pools = rest.RESTClientObject(access.configuration).pool_manager
        pools.connection_pool_kw["maxsize"] = _CONNECTIONS
        pools.connection_pool_kw["socket_options"] = _KEEPALIVE
        if access.ssl_context is not None:
            pools.connection_pool_kw["ssl_context"] = access.ssl_context
        pools.pool_classes_by_scheme = _pool_classes(self._cutter)
        self._pools: urllib3.PoolManager = pools

    @property
    def server_time_s(self) -> float | None:
        """What time the server said it was at its last answer, in seconds since the epoch; None where it did not."""
        try:
            return parsedate_to_datetime(self._date).timestamp()
        except ValueError:
            return None

    def list_page(self, path: str, params: Params) -> bytes:
        """Return the body of one page of a list."""
        paged = bool(params.get("limit"))
        timeout_s = min(ANSWER_TIMEOUT_S, self._read_timeout_s) if paged else self._read_timeout_s
        return self._get(path, params, timeout_s)

    def create(self, path: str, body: bytes, params: Params = MappingProxyType({})) -> None:
        """Create an object of the collection at ``path``.

        It may be sent twice where the connection breaks, so the object should have a name of its own.
        """
        with self._opened(path, params, min(ANSWER_TIMEOUT_S, self._read_timeout_s), body=body) as response:
            response.read(_MAX_ERROR_BYTES)

    def probe(self) -> None:
        """Ask the server whether it is ready; a server that only refuses to say so is."""
        try:
            self._get("/readyz", {}, min(ANSWER_TIMEOUT_S, self._read_timeout_s), json=False)
        except ApiError as failure:
            if failure.kind in NEXT_SERVER or not failure.status:
                raise

    @contextlib.contextmanager
    def watch(self, path: str, params: Params) -> Iterator[Iterator[list[bytes]]]:
        """Open a watch; it gives the lines that each arrival completed.

        The iteration ends when the server ends the watch or the connection breaks.

        Raises:
            ApiError: the watch could not be opened, or a line has no end.
            SilenceError: from the iteration: nothing came for the read time limit.
        """
        with self._opened(path, params, self._read_timeout_s) as response:
            yield self._lines(path, response)

    def interrupt(self) -> None:
        """Cut off every request, now and later; callable from any thread."""
        self._cutter.cut_all()

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
            if not self._cutter.is_cut:
                raise ApiError(Failure.BAD_ANSWER, self._place(path), str(error)) from None
        except (urllib3.exceptions.HTTPError, OSError):
            # Half a line is dropped with the connection; the next watch goes on after the last whole one.
            pass
        if self._cutter.is_cut:
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
                        raise ApiError(Failure.BAD_ANSWER, self._place(path), message)
                # Gives the connection back; and the last word on whether all that was promised came.
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
            with self._cutter.watching(response.shutdown):
                self._date = response.headers.get("Date", "")
                encoding = response.headers.get("Content-Encoding", "").strip()
                if response.status != (200 if body is None else 201):
                    raise self._refusal(path, response)
                if encoding.lower() not in {"", "identity"}:
                    # A few MB of gzip hold some GB, and nobody asked for it.
                    message = f"HTTP {response.status} with Content-Encoding {shown(encoding)}, nobody asked for that"
                    raise ApiError(Failure.BAD_ANSWER, self._place(path), message, status=response.status)
                content_type = response.headers.get("Content-Type", "")
                if json and content_type.partition(";")[0].strip().lower() != "application/json":
                    raise self._not_json(path, response, content_type)
                yield response
        finally:
            response.close()

    def _request(
        self, path: str, params: Params, timeout_s: float, body: bytes | None = None
    ) -> urllib3.BaseHTTPResponse:
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"pyconfd/{__version__}",
        }
        if authorization := self._access.authorization():
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = "application/json"
        url = f"{self.url}{path}" + (f"?{urlencode(params)}" if params else "")
        for attempt in (1, 2):
            if self._cutter.is_cut:
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
                # The server may have closed a kept connection in the moment it was used again; a new one tells.
                self._pools.clear()
                if attempt == 2:
                    raise self._failure(path, error) from None
            except Retryable as error:
                raise self._failure(path, error) from None
        raise AssertionError("the second attempt returned or raised")

    def _refusal(self, path: str, response: urllib3.BaseHTTPResponse) -> ApiError:
        kind = failure_of_status(response.status)
        message = f"HTTP {response.status}: {_message_of(self._beginning(response))}"
        return ApiError(
            kind,
            self._place(path),
            message,
            status=response.status,
            retry_after_s=_retry_after_s(response.headers.get("Retry-After", ""), self._clock.time()),
        )

    def _not_json(self, path: str, response: urllib3.BaseHTTPResponse, content_type: str) -> ApiError:
        begin = shown(self._beginning(response))
        message = f"HTTP 200 with {shown(content_type) or 'no content type'} instead of JSON: {begin}"
        return ApiError(Failure.BAD_ANSWER, self._place(path), message, status=200)

    def _beginning(self, response: urllib3.BaseHTTPResponse) -> bytes:
        body = bytearray()
        with contextlib.suppress(*Retryable):
            while len(body) < _MAX_ERROR_BYTES and (data := response.read1(_MAX_ERROR_BYTES)):
                body += data
        return bytes(body)

    def _failure(self, path: str, error: Exception, when: str = "") -> ApiError:
        if self._cutter.is_cut:
            return self._interrupted(path)
        kind, message = _kind_of(error)
        return ApiError(kind, self._place(path), message + when)

    def _interrupted(self, path: str) -> ApiError:
        return ApiError(Failure.INTERRUPTED, self._place(path), "the request was cut off")

    def _place(self, path: str) -> str:
        return f"{self.url}{path}"


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
    """Return the reason under urllib3's wrappings: the operating system's or OpenSSL's own words."""
    for inner in (error.__cause__, error.__context__, *error.args):
        # What int() or a parser said about half an answer tells nobody anything.
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
    """Read a Retry-After header: seconds, or a date."""
    if value.strip().isdecimal():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, at.replace(tzinfo=at.tzinfo or UTC).timestamp() - datetime.fromtimestamp(now_s, UTC).timestamp())
