"""What the loop reads from when it publishes: the cluster, and whether this producer leads."""

from collections.abc import Callable
from dataclasses import replace

from pyconfd.daemon.ports import ClusterSource
from pyconfd.etcd.campaign import Campaign
from pyconfd.model.context import Refusal
from pyconfd.model.snapshot import Snapshot
from pyconfd.model.status import SourceHealth


class PublishingSource:
    """A source of Snapshots that also wakes the loop when this producer takes over or is replaced."""

    def __init__(self, cluster: ClusterSource, campaign: Campaign) -> None:
        self._cluster = cluster
        self._campaign = campaign

    def start(self, notify: Callable[[], None]) -> None:
        """Begin both."""
        self._cluster.start(notify)
        self._campaign.start(notify)

    def snapshot(self) -> Snapshot | None:
        """Return the newest Snapshot."""
        return self._cluster.snapshot()

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the objects that could not be decoded."""
        return self._cluster.refusals()

    def health(self) -> SourceHealth:
        """Return how the cluster and etcd do."""
        return replace(self._cluster.health(), etcd=self._campaign.states(), note=self._campaign.note())

    def relist(self) -> None:
        """Ask the cluster for full lists."""
        self._cluster.relist()

    def relisted(self) -> bool:
        """Return whether every resource was listed in full since the last :meth:`relist`."""
        return self._cluster.relisted()

    def stop(self) -> None:
        """End both."""
        self._campaign.stop()
        self._cluster.stop()
