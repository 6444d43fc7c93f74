"""Which API server to use: in order, sticky to the one that works, back to the first when it is well again."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyconfd.model.status import ApiServerState
from pyconfd.sources.kubernetes.failures import NEXT_SERVER, Failure

_NOT_OF_THE_SERVER = frozenset({Failure.FORBIDDEN, Failure.NOT_FOUND, Failure.EXPIRED, Failure.INTERRUPTED})
"""What concerns one resource, or nobody; it is shown with the resource."""


@dataclass(slots=True)
class _Server:
    url: str
    healthy: bool = False
    healthy_since_s: float | None = None
    last_ok_s: float | None = None
    last_error: str = ""
    last_error_s: float | None = None


class ServerOrder:
    """The policy alone; ``now_s`` is a monotonic time and whoever asks does the talking.

    A failure moves on to the next server (from the last one to the first) only if another server may do better;
    who is refused (401, 403), asked to wait (429) or out of date (410) stays.
    """

    def __init__(self, urls: Sequence[str], *, failback_s: float) -> None:
        if not urls:
            raise ValueError("an order of servers needs at least one")
        self._servers = [_Server(url) for url in urls]
        self._failback_s = failback_s
        self._current = 0

    def __len__(self) -> int:
        return len(self._servers)

    @property
    def current(self) -> int:
        """The index of the server in use."""
        return self._current

    def succeeded(self, index: int, now_s: float) -> bool:
        """Note that a server answered as it should; tell whether it had been unhealthy until now."""
        server = self._servers[index]
        recovered = not server.healthy
        server.last_ok_s = now_s
        server.last_error = ""
        if recovered:
            server.healthy = True
            server.healthy_since_s = now_s
        return recovered

    def failed(self, index: int, kind: Failure, message: str, now_s: float) -> bool:
        """Note a failure; tell whether the server in use is now another one than ``index``.

        The failures of several requests to one server move on once, not once for each of them.
        """
        server = self._servers[index]
        if kind not in _NOT_OF_THE_SERVER:
            server.last_error = message
            server.last_error_s = now_s
        if kind in NEXT_SERVER:
            server.healthy = False
            server.healthy_since_s = None
            if index == self._current:
                self._current = (index + 1) % len(self._servers)
        return index != self._current

    def to_probe(self) -> tuple[int, ...]:
        """Return the servers that are not in use: only a probe can tell how they are."""
        return tuple(index for index in range(len(self._servers)) if index != self._current)

    def fail_back(self, now_s: float) -> bool:
        """Go back to the first server that was healthy for long enough; tell whether the server in use changed.

        A server in use that is unwell gives way to none here: its next failure moves on by itself.
        """
        for index in range(self._current):
            since_s = self._servers[index].healthy_since_s
            if since_s is not None and now_s - since_s >= self._failback_s:
                self._current = index
                return True
        return False

    def states(self, now_s: float, wall_s: float) -> tuple[ApiServerState, ...]:
        """Return the state of each server; monotonic times become times of day by their age."""

        def wall(at_s: float | None) -> float:
            return 0.0 if at_s is None else wall_s - (now_s - at_s)

        return tuple(
            ApiServerState(
                url=server.url,
                in_use=index == self._current,
                healthy=server.healthy,
                last_ok_at=wall(server.last_ok_s),
                last_error=server.last_error,
                last_error_at=wall(server.last_error_s),
            )
            for index, server in enumerate(self._servers)
        )
