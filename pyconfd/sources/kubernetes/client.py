"""Requests to the API servers: over one connection pool for each server, at the server that works.

:class:`Connection` sends requests to one server, bounded in time and size; :class:`ApiServers` has the connections of
all reflectors of a source, and decides which server is used.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from enum import StrEnum
from types import MappingProxyType
from urllib.parse import urlencode

import msgspec
import structlog
import urllib3
import urllib3.exceptions

from pyconfd import __version__
from pyconfd.errors import Problem, TransientError, first_line
from pyconfd.model.status import ApiServerState, CredentialState
from pyconfd.printable import clean
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.failures import NEXT_SERVER, ApiError, Failure, failure_of_status
from pyconfd.system.clock import SystemClock
from pyconfd.system.http import KEEPALIVE, RETRYABLE, LineFramer, transport_failure

log = structlog.get_logger(__name__)

ANSWER_TIMEOUT_S = 10.0
"""How long a page of a list or a probe may be silent; what a watch or a whole list may take is in the settings."""
LIST_TOTAL_S = 180.0
"""How long one list request may take although bytes keep dripping in."""
MAX_LIST_BYTES = 1 << 30
_MAX_ERROR_BYTES = 64 << 10
_READ_BYTES = 1 << 20
_CONNECTIONS = 32
TEND_EVERY_S = 5.0
PROBE_EVERY_S = 30.0

Params = Mapping[str, str | int]
_NO_PARAMS: Params = MappingProxyType({})
_APPLY_TYPE = "application/apply-patch+yaml"


class Method(StrEnum):
    """What a request does to an object; ``APPLY`` is server-side apply, whose YAML may be JSON."""

    GET = "GET"
    CREATE = "POST"
    REPLACE = "PUT"
    APPLY = "PATCH"


class SilenceError(TransientError):
    """A watch sent nothing for the read time limit; it can continue from the same resourceVersion."""


class Connection:
    """One API server with one set of credentials; ``index`` is the server's place in the order.

    Every method raises :class:`ApiError`; after :meth:`interrupt` its kind is ``INTERRUPTED``.
    """

    def __init__(
        self, url: str, credentials: Credentials, settings: KubernetesSettings, clock: SystemClock, *, index: int = 0
    ) -> None:
        self.url = url
        self.index = index
        self._credentials = credentials
        self._connect_timeout_s = settings.connect_timeout_s
        self._read_timeout_s = settings.read_timeout_s
        self._answer_timeout_s = min(ANSWER_TIMEOUT_S, settings.read_timeout_s)
        self._clock = clock
        self._interrupted = False
        self._lock = threading.Lock()
        self._responses: set[urllib3.BaseHTTPResponse] = set()
        self._date = ""
        self._pools = credentials.pool_manager(url)
        self._pools.connection_pool_kw |= {"maxsize": _CONNECTIONS, "socket_options": KEEPALIVE}

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
        return self._read(path, params, self._answer_timeout_s if params.get("limit") else self._read_timeout_s)

    def send(self, method: Method, path: str, body: bytes | None = None, params: Params = _NO_PARAMS) -> bytes:
        """Get one object, or write it: create it in the collection at ``path``, replace it, or apply a part of it.

        Return the object as it is then. A write may be sent twice where the connection breaks, so an object that is
        created should have a name of its own.
        """
        return self._read(path, params, self._answer_timeout_s, method=method, body=body)

    def probe(self) -> None:
        """Ask the server whether it is ready; one that forbids the question is."""
        try:
            self._read("/readyz", {}, self._answer_timeout_s, json=False)
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
        """Cut off every answer, now and later; callable from any thread. What has no head yet ends by its time limit.

        To close a pool would close idle connections only: a thread that reads a watch would go on reading.
        """
        with self._lock:
            self._interrupted = True
            for response in self._responses:
                _shut_down(response)

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
            if not self._interrupted:
                raise ApiError(Failure.BAD_ANSWER, self.url + path, str(error)) from None
        except (urllib3.exceptions.HTTPError, OSError):
            # Half a line is dropped with the connection; the next watch continues after the last whole one.
            pass
        if self._interrupted:
            raise self._interruption(path)

    def _read(
        self,
        path: str,
        params: Params,
        timeout_s: float,
        *,
        json: bool = True,
        method: Method = Method.GET,
        body: bytes | None = None,
    ) -> bytes:
        with self._opened(path, params, timeout_s, json=json, method=method, body=body) as response:
            deadline_s = self._clock.monotonic() + LIST_TOTAL_S
            answer = bytearray()
            try:
                while data := response.read1(_READ_BYTES):
                    answer += data
                    if len(answer) > MAX_LIST_BYTES or self._clock.monotonic() > deadline_s:
                        message = f"the answer does not end: {len(answer)} bytes until now"
                        raise ApiError(Failure.BAD_ANSWER, self.url + path, message)
                # Returns the connection to the pool, and raises where less came than was announced.
                answer += response.read()
            except RETRYABLE as error:
                raise self._failure(path, error, f" after {len(answer)} bytes") from None
            return bytes(answer)

    @contextlib.contextmanager
    def _opened(
        self,
        path: str,
        params: Params,
        timeout_s: float,
        *,
        json: bool = True,
        method: Method = Method.GET,
        body: bytes | None = None,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        response = self._request(path, params, timeout_s, method, body)
        with self._lock:
            self._responses.add(response)
            if self._interrupted:
                _shut_down(response)
        try:
            self._date = response.headers.get("Date", "")
            encoding = response.headers.get("Content-Encoding", "").strip()
            content_type = response.headers.get("Content-Type", "")
            if response.status != 200 and (method is Method.GET or response.status != 201):
                kind = failure_of_status(response.status)
                message = f"HTTP {response.status}: {_message_of(self._beginning(response))}"
                if kind is Failure.UNAUTHORIZED:
                    self._credentials.refused(self.url, message)
                elif response.status < 500:
                    self._credentials.accepted(self.url)
                raise ApiError(
                    kind,
                    self.url + path,
                    message,
                    status=response.status,
                    retry_after_s=_retry_after_s(response),
                )
            self._credentials.accepted(self.url)
            wrong = ""
            if encoding.lower() not in {"", "identity"}:
                # A few MB of gzip can hold some GB, and the request did not accept it.
                wrong = f"Content-Encoding {clean(encoding, 80)}, which was not asked for"
            elif json and content_type.partition(";")[0].strip().lower() != "application/json":
                begin = clean(self._beginning(response), 80)
                wrong = f"{clean(content_type, 80) or 'no content type'} instead of JSON: {begin}"
            if wrong:
                message = f"HTTP {response.status} with {wrong}"
                raise ApiError(Failure.BAD_ANSWER, self.url + path, message, status=response.status)
            yield response
        finally:
            with self._lock:
                self._responses.discard(response)
            response.close()

    def _request(
        self, path: str, params: Params, timeout_s: float, method: Method, body: bytes | None
    ) -> urllib3.BaseHTTPResponse:
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"pyconfd/{__version__}",
        }
        # For each request: a token of a plugin or a service account expires while the connection lives.
        if authorization := self._credentials.authorization():
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = _APPLY_TYPE if method is Method.APPLY else "application/json"
        url = f"{self.url}{path}" + (f"?{urlencode(params)}" if params else "")
        for attempt in (1, 2):
            if self._interrupted:
                raise self._interruption(path)
            try:
                return self._pools.request(
                    method.value,
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
            except RETRYABLE as error:
                raise self._failure(path, error) from None
        raise AssertionError("the second attempt returned or raised")

    def _beginning(self, response: urllib3.BaseHTTPResponse) -> bytes:
        body = bytearray()
        with contextlib.suppress(*RETRYABLE):
            while len(body) < _MAX_ERROR_BYTES and (data := response.read1(_MAX_ERROR_BYTES)):
                body += data
        return bytes(body)

    def _failure(self, path: str, error: Exception, when: str = "") -> ApiError:
        if self._interrupted:
            return self._interruption(path)
        kind, message = transport_failure(error)
        return ApiError(Failure(kind), self.url + path, message + when)

    def _interruption(self, path: str) -> ApiError:
        return ApiError(Failure.INTERRUPTED, self.url + path, "the request was interrupted")


def _shut_down(response: urllib3.BaseHTTPResponse) -> None:
    # It has ended already; or it is TLS inside of a proxy's TLS, whose wrapper in urllib3 has no such method.
    with contextlib.suppress(OSError, RuntimeError, ValueError, AttributeError):
        response.shutdown()


class _Status(msgspec.Struct):
    message: str | None = None
    reason: str | None = None


def _message_of(body: bytes) -> str:
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return clean(body, 80) or "(no text)"
    return clean(status.message or status.reason or "", 300) or clean(body, 80)


def _retry_after_s(response: urllib3.BaseHTTPResponse) -> float | None:
    try:
        return urllib3.Retry().get_retry_after(response)
    except (urllib3.exceptions.InvalidHeader, OverflowError, ValueError):
        return None


_NOT_OF_THE_SERVER = frozenset({Failure.FORBIDDEN, Failure.NOT_FOUND, Failure.EXPIRED, Failure.INTERRUPTED})
"""Failures of one resource, or of none; they are shown with the resource."""


@dataclass
class _Server:
    state: ApiServerState
    healthy_since_s: float | None = None
    connection: Connection | None = None
    logged: Failure | None = None


class ApiServers:
    """The API servers of one cluster, shared by all reflectors; every method may be called from any thread.

    One is in use: the first that works, until it fails in a way that another server may not, and back to the first that
    was healthy for ``failback_s``. 401, 403, 410 and 429 would be the same everywhere.
    """

    def __init__(self, settings: KubernetesSettings, credentials: Credentials, clock: SystemClock) -> None:
        self._settings = settings
        self._credentials = credentials
        self._clock = clock
        self._servers = [_Server(ApiServerState(url)) for url in credentials.urls]
        self._probe_every_s = min(PROBE_EVERY_S, settings.failback_s / 4)
        self._probed_s = clock.monotonic()
        self._lock = threading.Lock()
        self._closed = False
        self.current = 0
        """The index of the server in use."""

    def __len__(self) -> int:
        return len(self._servers)

    def connection(self) -> Connection:
        """Return the connection to the server in use.

        Raises:
            ApiError: of kind CREDENTIALS: there is no connection without them; INTERRUPTED after :meth:`close`.
        """
        return self._connection(self.current)

    def succeeded(self, index: int) -> None:
        """Record that a server answered."""
        server = self._servers[index]
        with self._lock:
            if server.healthy_since_s is None:
                server.healthy_since_s = self._clock.monotonic()
            server.state = replace(server.state, healthy=True, last_ok_at=self._clock.now(), last_error="")
            recovered, server.logged = server.logged is not None, None
        if recovered:
            log.info("api_server.recovered", server=server.state.url)

    def failed(self, index: int, failure: ApiError) -> bool:
        """Record a failure and return whether the server in use is now another one than ``index``.

        The failures of several requests to one server move on once, not once for each of them.
        """
        if failure.kind is Failure.UNAUTHORIZED and self._credentials.renew():
            self.interrupt()
        server, message = self._servers[index], first_line(failure.problems)
        with self._lock:
            if failure.kind not in _NOT_OF_THE_SERVER:
                server.state = replace(server.state, last_error=message, last_error_at=self._clock.now())
            if failure.kind not in NEXT_SERVER:
                return index != self.current
            is_news, server.logged = server.logged is not failure.kind, failure.kind
            server.state = replace(server.state, healthy=False)
            server.healthy_since_s = None
            moves = index == self.current
            if moves:
                self.current = (index + 1) % len(self._servers)
            now = self.current
        if is_news:
            log.warning("api_server.failed", server=server.state.url, kind=failure.kind.value, error=message)
        if moves and now != index:
            # Reflectors that still watch the former server list again at the next one: a resourceVersion may be
            # older there, and one Snapshot should not mix what two servers know.
            self._close(index)
            if is_news:
                self._log_switch(index, now, "failure")
        return index != now

    def interrupt(self) -> None:
        """Cut off every request; the next ones use new connections."""
        for index in range(len(self._servers)):
            self._close(index)

    def close(self) -> None:
        """Cut off every request and allow no more."""
        with self._lock:
            self._closed = True
        self.interrupt()

    def tend(self) -> bool:
        """Do what no request would do: reload changed credentials, probe the servers, fail back.

        Return whether credentials were loaded.
        """
        loads = self._credentials.loads
        if self._credentials.refresh():
            self.interrupt()
        are_new = self._credentials.loads != loads
        now_s = self._clock.monotonic()
        if now_s - self._probed_s < self._probe_every_s:
            return are_new
        self._probed_s = now_s
        in_use = self.current
        for index in range(len(self._servers)):
            if index != in_use:
                self._probe(index)
            else:
                # An API server looks at a token when a watch is opened, and that may last for minutes after its end.
                with contextlib.suppress(ApiError):
                    self._connection(index).probe()
        self.fail_back()
        return are_new

    def fail_back(self) -> None:
        """Go back to the first server that was healthy for long enough."""
        with self._lock:
            before, now_s = self.current, self._clock.monotonic()
            for index, server in enumerate(self._servers[:before]):
                if server.healthy_since_s is not None and now_s - server.healthy_since_s >= self._settings.failback_s:
                    self.current = index
                    break
            after = self.current
        if after != before:
            self._close(before)
            self._log_switch(before, after, "failback")

    def states(self) -> tuple[ApiServerState, ...]:
        """Return the state of each server."""
        with self._lock:
            return tuple(replace(each.state, in_use=index == self.current) for index, each in enumerate(self._servers))

    def credential_states(self) -> tuple[CredentialState, ...]:
        """Return each certificate and token with its expiry."""
        return self._credentials.states()

    def credential_problems(self) -> tuple[Problem, ...]:
        """Return what is wrong with them, each with its file and what to type."""
        return self._credentials.problems()

    def _probe(self, index: int) -> None:
        try:
            self._connection(index).probe()
        except ApiError as failure:
            self.failed(index, failure)
        else:
            self.succeeded(index)

    def _connection(self, index: int) -> Connection:
        server = self._servers[index]
        with self._lock:
            if self._closed:
                raise ApiError(Failure.INTERRUPTED, server.state.url, "the source is stopped")
            if server.connection is not None:
                return server.connection
        # Outside the lock: credentials may have to run a plugin, and status must not wait for it.
        made = Connection(server.state.url, self._credentials, self._settings, self._clock, index=index)
        with self._lock:
            if server.connection is None and not self._closed:
                server.connection = made
            kept = server.connection or made
        if self._closed or kept is not made:
            made.close()
        return kept

    def _close(self, index: int) -> None:
        server = self._servers[index]
        with self._lock:
            connection, server.connection = server.connection, None
        if connection is not None:
            connection.close()

    def _log_switch(self, before: int, now: int, reason: str) -> None:
        former, newer = self._servers[before].state.url, self._servers[now].state.url
        log.info("api_server.switched", former=former, now=newer, reason=reason)
