"""The API servers in use: one connection for each, moved on, failed back and renewed as the policy says."""

import threading
from dataclasses import dataclass

import structlog

from pyconfd.errors import first_line
from pyconfd.model.status import ApiServerState, CredentialState
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.clock import Clock
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.failures import NEXT_SERVER, ApiError, Failure
from pyconfd.sources.kubernetes.servers import ServerOrder
from pyconfd.sources.kubernetes.transport import Connection

TEND_EVERY_S = 5.0
PROBE_EVERY_S = 30.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """The connection to use now, and which server it belongs to."""

    index: int
    connection: Connection


class ApiServers:
    """Shared by all reflectors of a source; every method may be called from any thread."""

    def __init__(self, settings: KubernetesSettings, credentials: Credentials, clock: Clock) -> None:
        self._settings = settings
        self._credentials = credentials
        self._clock = clock
        self._urls = credentials.urls
        self._order = ServerOrder(self._urls, failback_s=settings.failback_s)
        self._probe_every_s = min(PROBE_EVERY_S, settings.failback_s / 4)
        self._probed_s = clock.monotonic()
        self._lock = threading.Lock()
        self._connections: dict[int, Connection] = {}
        self._said: dict[int, Failure] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._urls)

    @property
    def current(self) -> int:
        """The index of the server in use."""
        with self._lock:
            return self._order.current

    def lease(self) -> Lease:
        """Return the connection to the server in use.

        Raises:
            ApiError: of kind CREDENTIALS: there is no connection without them; INTERRUPTED after :meth:`close`.
        """
        index = self.current
        return Lease(index, self._connection(index))

    def succeeded(self, lease: Lease) -> None:
        """Note that the server answered."""
        self._succeeded(lease.index)

    def failed(self, lease: Lease, failure: ApiError) -> bool:
        """Note a failure; tell whether another server is in use than the one that failed."""
        if failure.kind is Failure.UNAUTHORIZED and self._credentials.renew():
            self._drop_all()
        return self._failed(lease.index, failure)

    def interrupt(self) -> None:
        """Cut off every request; the next ones go over new connections."""
        self._drop_all()

    def close(self) -> None:
        """Cut off every request and allow no more."""
        with self._lock:
            self._closed = True
        self._drop_all()

    def tend(self) -> None:
        """Look after what no request would notice: changed files, servers that are well again."""
        if self._credentials.refresh():
            self._drop_all()
        now_s = self._clock.monotonic()
        if now_s - self._probed_s < self._probe_every_s:
            return
        self._probed_s = now_s
        with self._lock:
            to_probe = self._order.to_probe()
        for index in to_probe:
            self._probe(index)
        with self._lock:
            before = self._order.current
            moved = self._order.fail_back(self._clock.monotonic())
            after = self._order.current
        if moved:
            self._drop(before)
            log.info("api_server.switched", former=self._urls[before], now=self._urls[after], reason="failback")

    def states(self) -> tuple[ApiServerState, ...]:
        """Return the state of each server."""
        with self._lock:
            return self._order.states(self._clock.monotonic(), self._clock.time())

    def credential_states(self) -> tuple[CredentialState, ...]:
        """Return each certificate and token with its expiry."""
        return self._credentials.states()

    def _probe(self, index: int) -> None:
        try:
            self._connection(index).probe()
        except ApiError as failure:
            if failure.kind is not Failure.INTERRUPTED:
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
        access = self._credentials.access(self._urls[index])
        made = Connection(
            access,
            connect_timeout_s=self._settings.connect_timeout_s,
            read_timeout_s=self._settings.read_timeout_s,
            clock=self._clock,
        )
        with self._lock:
            kept = self._connections.setdefault(index, made)
            if self._closed:
                del self._connections[index]
        if kept is not made or self._closed:
            made.close()
        return kept

    def _succeeded(self, index: int) -> None:
        with self._lock:
            self._order.succeeded(index, self._clock.monotonic())
            recovered = self._said.pop(index, None) is not None
        if recovered:
            log.info("api_server.recovered", server=self._urls[index])

    def _failed(self, index: int, failure: ApiError) -> bool:
        if failure.kind is Failure.INTERRUPTED:
            return index != self.current
        message = first_line(failure.problems)
        with self._lock:
            before = self._order.current
            moved = self._order.failed(index, failure.kind, message, self._clock.monotonic())
            after = self._order.current
            is_news = failure.kind in NEXT_SERVER and self._said.get(index) is not failure.kind
            if is_news:
                self._said[index] = failure.kind
        if is_news:
            log.warning("api_server.failed", server=self._urls[index], kind=failure.kind.value, error=message)
        if before != after:
            # Whoever still watches the former server lists again at the next one: all see one server's versions.
            self._drop(before)
            if is_news:
                log.info("api_server.switched", former=self._urls[before], now=self._urls[after], reason="failure")
        return moved

    def _drop(self, index: int) -> None:
        with self._lock:
            connection = self._connections.pop(index, None)
        if connection is not None:
            connection.close()

    def _drop_all(self) -> None:
        with self._lock:
            connections = list(self._connections.values())
            self._connections.clear()
        for connection in connections:
            connection.close()
