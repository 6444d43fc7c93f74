"""A fake Kubernetes API server, in this process or as one of its own.

``with ApiServer(cluster) as server:`` serves ``cluster`` at ``server.url``. Several servers may share a cluster.
``python -m tests.world.apiserver --port 0 --load objects.yaml`` prints its URL and serves until SIGTERM.
"""

import argparse
import contextlib
import signal
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.world.cluster import Cluster
from tests.world.connection import Connection
from tests.world.faults import Faults
from tests.world.pki import KeyPair
from tests.world.requests import RecordedRequest

if TYPE_CHECKING:
    from tests.world.rbac import Rules

PATIENCE_S = 30.0
"""How long the ``wait_for_*`` methods wait before they fail."""


def tls_context(pair: KeyPair, client_ca: Path | None = None, *, require_client: bool = True) -> ssl.SSLContext:
    """A server's context. With ``client_ca`` clients must show a certificate of that CA (or may, when not required)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    if client_ca:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED if require_client else ssl.CERT_OPTIONAL
    return context


class ApiServer:
    """One API server of a cluster. Starts at once; ``close`` (or leaving the ``with``) ends every thread.

    ``tls`` may be exchanged while it runs: connections made from then on use the new one. ``frozen_rv`` is the newest
    resourceVersion this server knows of, as of one that lags behind etcd; None means it is up to date.
    """

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        token: str = "",
        user: str = "pyconfd",
    ) -> None:
        self.cluster = cluster or Cluster()
        self.host, self.tls, self.token, self.user = host, tls, token, user
        self.faults = Faults(self._wake)
        self.requests: list[RecordedRequest] = []
        self.frozen_rv: int | None = None
        self.hangs_at_accept = False
        self.rules: Rules | None = None
        """What RBAC lets everybody do; None lets everybody do everything."""
        self.bookmarks_asked = 0
        self._watches: Counter[str] = Counter()
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._fillers: list[socket.socket] = []
        # Bound and never listening: keeps the port for this server while it refuses.
        self._reservation = _bound(host, port)
        self.port: int = self._reservation.getsockname()[1]
        self.listen()

    @property
    def url(self) -> str:
        """``http://`` or ``https://``, host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Life

    def listen(self) -> None:
        """Accept connections (again)."""
        self._stop_listening()
        self.hangs_at_accept = False
        self._listener = _bound(self.host, self.port)
        self._listener.listen(128)
        self._acceptor = threading.Thread(
            target=self._accept, args=(self._listener,), name="fake-api-accept", daemon=True
        )
        self._acceptor.start()
        self._wake()

    def refuse(self) -> None:
        """Refuse new connections and cut those there are, as a process that died; ``listen`` brings it back."""
        self._stop_listening()
        self.cut_connections()

    def hang_at_accept(self) -> None:
        """Accept new connections and never read from them, not even a TLS handshake; ``listen`` ends it."""
        self.hangs_at_accept = True

    def blackhole(self) -> None:
        """Drop connection attempts, which run into their timeout, as behind a firewall; ``listen`` ends it."""
        self.refuse()
        self._listener = _bound(self.host, self.port)
        self._listener.listen(0)
        for _ in range(2):  # the backlog's one place and the one Linux adds
            filler = socket.socket(self._listener.family)
            filler.setblocking(False)
            filler.connect_ex((self.host, self.port))
            self._fillers.append(filler)

    def cut_connections(self) -> None:
        """End every connection now."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close()
        self._wake()

    def close(self) -> None:
        """Refuse, cut, and wait for every thread to end."""
        self.refuse()
        with self._lock:
            threads = [connection.thread for connection in self._connections]
        for thread in threads:
            thread.join(PATIENCE_S)
        self._reservation.close()

    def _stop_listening(self) -> None:
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()
        if self._listener:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
            if self._acceptor:
                self._acceptor.join(PATIENCE_S)
            self._listener.close()
        self._listener = self._acceptor = None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            connection = Connection(raw, self)
            with self._lock:
                self._connections.add(connection)
            connection.thread.start()

    # Set and ask while it runs

    def freeze(self) -> None:
        """From now on know nothing newer, as a server that lags behind; ``thaw`` ends it."""
        self.frozen_rv = self.cluster.rv

    def thaw(self) -> None:
        """Know everything again; running watches get what they missed."""
        self.frozen_rv = None
        self._wake()

    def send_bookmarks(self) -> None:
        """Every running watch that allows bookmarks gets one, with the cluster's resourceVersion."""
        self.bookmarks_asked += 1
        self._wake()

    def watches(self, resource: str = "") -> int:
        """How many watches run, of one resource or in all."""
        with self._lock:
            return self._watches[resource] if resource else sum(self._watches.values())

    @property
    def connections(self) -> int:
        """How many connections are open."""
        with self._lock:
            return len(self._connections)

    def seen(self, resource: str = "", verb: str = "") -> list[RecordedRequest]:
        """The requests so far, of one resource and verb or all, oldest first."""
        with self._lock:
            return [each for each in self.requests if each.resource.startswith(resource) and verb in {"", each.verb}]

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = float("inf")) -> bool:
        """Wait for something that this server or its cluster changes; whether it came about."""
        deadline = time.monotonic() + timeout_s
        with self.cluster.changed:
            while not condition():
                if time.monotonic() > deadline:
                    return False
                self.cluster.changed.wait(0.5)
        return True

    def wait_for_watches(self, *resources: str, timeout_s: float = PATIENCE_S) -> None:
        """Raises: TimeoutError: where not all of these resources are being watched in time."""
        if not self.wait_until(lambda: all(self.watches(resource) for resource in resources), timeout_s):
            raise TimeoutError(f"watched on {self.url}: {dict(self._watches)}, wanted {resources}")

    def wait_for_request(
        self, resource: str = "", verb: str = "", *, count: int = 1, timeout_s: float = PATIENCE_S
    ) -> RecordedRequest:
        """The ``count``-th such request, as soon as it came. Raises: TimeoutError."""
        if not self.wait_until(lambda: len(self.seen(resource, verb)) >= count, timeout_s):
            raise TimeoutError(f"{self.url} got {len(self.seen(resource, verb))} of {count} {verb} {resource}")
        return self.seen(resource, verb)[count - 1]

    # For its connections

    def record(self, request: RecordedRequest) -> None:
        """Record a request for assertions."""
        with self._lock:
            self.requests.append(request)
        self._wake()

    def forget(self, connection: Connection) -> None:
        """A connection ended."""
        with self._lock:
            self._connections.discard(connection)
        self._wake()

    @contextlib.contextmanager
    def counted_watch(self, resource: str) -> Iterator[None]:
        """Count a watch while it runs."""
        with self._lock:
            self._watches[resource] += 1
        self._wake()
        try:
            yield
        finally:
            with self._lock:
                self._watches[resource] -= 1
            self._wake()

    def _wake(self) -> None:
        with self.cluster.changed:
            self.cluster.changed.notify_all()


def _bound(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the URL, and serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m tests.world.apiserver")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any")
    parser.add_argument("--load", type=Path, action="append", default=[], help="a YAML or JSON file of objects")
    options = parser.parse_args(arguments)
    cluster = Cluster()
    for path in options.load:
        cluster.load(path)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with ApiServer(cluster, host=options.host, port=options.port) as server:
        print(server.url, flush=True)
        over.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
