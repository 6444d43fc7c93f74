"""Read the counters of HAProxy in a thread of its own: with many backends an answer takes a while.

Source: HAProxy management manual, 9.3 (``show stat``).
"""

import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from pyconfd.haproxy.config.spares import NO_SPARES, Spares
from pyconfd.haproxy.runtime.sockets import NoAnswer, RuntimeSocket
from pyconfd.haproxy.runtime.statistics import number, rows_of
from pyconfd.model.spares import spare_kind
from pyconfd.model.status import Counts, Sample

EVERY_S = 1.0
SHARE = 0.01
"""Most of the time that is spent on reading ..."""
LONGEST_S = 10.0
"""... but after this pause it is read in any case: where processors are short an answer takes long for others' sake."""

_ASK = "show stat -1 3 -1 no-maint"
"""Frontends (1) and backends (2) only; ``no-maint`` has the state of a backend followed by ``(up/all servers)``."""
_COLUMNS = ("pxname", "svname", "status", "mode", "econ", "hrsp_5xx", "req_tot", "stot")
_SERVERS = re.compile(r"\((\d+)/(\d+)\)")


class TrafficWatch:
    """Hold the newest sample of traffic. ``paths`` returns the sockets to ask; it is called by the thread.

    ``spares`` returns the spares of a worker by its process, which have the names of the backends that they serve.

    Between :meth:`start` and :meth:`stop`; :meth:`newest` may be called from any thread.
    """

    def __init__(
        self,
        paths: Callable[[], Sequence[str]],
        spares: Callable[[int], Spares] = lambda _pid: NO_SPARES,
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self._paths = paths
        self._spares = spares
        self._every_s = every_s
        self._newest: Sample | None = None
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="haproxy-traffic", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()

    def newest(self) -> Sample | None:
        """Return the newest sample, None while no socket answers."""
        return self._newest

    def _run(self) -> None:
        connections: dict[str, RuntimeSocket] = {}
        pause_s = 0.0
        while not self._ends.wait(pause_s):
            began = time.monotonic()
            paths = self._paths()
            for path in connections.keys() - set(paths):
                connections.pop(path).close()
            found = [connections.setdefault(path, RuntimeSocket(path)) for path in paths]
            self._newest = _first_sample(found, self._spares)
            pause_s = max(self._every_s, min(LONGEST_S, (time.monotonic() - began) / SHARE))
        for connection in connections.values():
            connection.close()


def _first_sample(connections: Sequence[RuntimeSocket], spares: Callable[[int], Spares]) -> Sample | None:
    for connection in connections:
        with suppress(NoAnswer):
            worker, (answer,) = connection.ask([_ASK])
            return sample_of(spares(worker.pid).understood(_ASK, answer), time.monotonic(), worker.pid)
    return None


def sample_of(answer: str, at: float, worker: int) -> Sample:
    """Parse an answer to ``show stat``; one of another form has nothing."""
    clients, backends = Counts(), {}
    with suppress(ValueError):
        for proxy, kind, status, mode, *numbers in rows_of(answer, *_COLUMNS):
            refused, failed, requests, sessions = map(number, numbers)
            http = mode == "http"
            up, servers = map(int, found.groups()) if (found := _SERVERS.search(status)) else (0, 0)
            counts = Counts(requests if http else sessions, max(failed, refused) if http else refused, up, servers)
            if kind == "FRONTEND":
                clients += counts
            elif kind == "BACKEND" and (servers or not spare_kind(proxy)):
                backends[proxy] = counts
    return Sample(at, worker, clients, backends)
