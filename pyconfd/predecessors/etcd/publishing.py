"""What the loop reads from when it publishes: the cluster, and whether this producer leads."""

from collections.abc import Callable
from dataclasses import replace

from pyconfd.model.status import SourceHealth
from pyconfd.predecessors.etcd.campaign import Campaign
from pyconfd.sources.host import ClusterSource, WrappedSource


class PublishingSource(WrappedSource):
    """A source of Snapshots that also wakes the loop when this producer takes over or is replaced."""

    def __init__(self, cluster: ClusterSource, campaign: Campaign) -> None:
        super().__init__(cluster)
        self._campaign = campaign

    def start(self, notify: Callable[[], None]) -> None:
        """Start the source, and take part in the election."""
        super().start(notify)
        self._campaign.start(notify)

    def health(self) -> SourceHealth:
        """Return the health of the cluster and of etcd."""
        return replace(super().health(), etcd=self._campaign.states(), note=self._campaign.note())

    def is_ours(self, *, wanted: bool) -> bool:
        """Return whether this producer leads, so that Events are for it to write."""
        del wanted
        return self._campaign.leadership.leads

    def stop(self) -> None:
        """Resign, and stop the source."""
        self._campaign.stop()
        super().stop()
