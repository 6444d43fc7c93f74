"""What the loop reads from when it publishes: the cluster, and how this producer stands among its peers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from pyconfd.daemon.ports import ClusterSource
from pyconfd.model.context import Refusal
from pyconfd.model.snapshot import Snapshot
from pyconfd.model.status import ApiServerState, SourceHealth


class Candidate(Protocol):
    """Stands for election among the producers."""

    def start(self, notify: Callable[[], None]) -> None:
        """Stand; call ``notify`` from any thread when the standing changed, or what is published."""
        ...

    def note(self) -> str:
        """Say in words how it stands."""
        ...

    def states(self) -> tuple[ApiServerState, ...]:
        """Return how the endpoints of etcd do."""
        ...

    def stop(self) -> None:
        """Stand down."""
        ...


class PublishingSource:
    """A source of Snapshots that also wakes the loop when this producer takes over or is replaced."""

    def __init__(self, cluster: ClusterSource, candidate: Candidate) -> None:
        self._cluster = cluster
        self._candidate = candidate

    def start(self, notify: Callable[[], None]) -> None:
        """Begin both."""
        self._cluster.start(notify)
        self._candidate.start(notify)

    def snapshot(self) -> Snapshot | None:
        """Return the newest Snapshot."""
        return self._cluster.snapshot()

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the objects that could not be decoded."""
        return self._cluster.refusals()

    def health(self) -> SourceHealth:
        """Return how the cluster and etcd do."""
        return replace(self._cluster.health(), etcd=self._candidate.states(), note=self._candidate.note())

    def relist(self) -> None:
        """Ask the cluster for full lists."""
        self._cluster.relist()

    def relisted(self) -> bool:
        """Return whether every resource was listed in full since the last :meth:`relist`."""
        return self._cluster.relisted()

    def stop(self) -> None:
        """End both."""
        self._candidate.stop()
        self._cluster.stop()
