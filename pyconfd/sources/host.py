"""Adds the facts about this host to every Snapshot; a change of them is an event like any other of the cluster."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import structlog

from pyconfd.model.context import Refusal
from pyconfd.model.snapshot import HostFacts, Snapshot
from pyconfd.model.status import SourceHealth

log = structlog.get_logger(__name__)

EVERY_S = 1.0
_STOP_TIMEOUT_S = 10.0


class ClusterSource(Protocol):
    """Reads a cluster."""

    def start(self, notify: Callable[[], None]) -> None:
        """Begin to read; call ``notify`` from any thread whenever there may be a new Snapshot."""
        ...

    def snapshot(self) -> Snapshot | None:
        """Return the newest Snapshot, or None until everything was read once; the same one until it changes."""
        ...

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the objects that could not be decoded."""
        ...

    def health(self) -> SourceHealth:
        """Return the health of the API servers and the reads."""
        ...

    def relist(self) -> None:
        """List everything again soon."""
        ...

    def relisted(self) -> bool:
        """Return whether every resource was listed in full since the last :meth:`relist`."""
        ...

    def stop(self) -> None:
        """End all threads."""
        ...


class WrappedSource:
    """A source that adds something to another one: a subclass says what."""

    def __init__(self, source: ClusterSource) -> None:
        self._source = source

    def start(self, notify: Callable[[], None]) -> None:
        """Start the source."""
        self._source.start(notify)

    def snapshot(self) -> Snapshot | None:
        """Return the source's Snapshot."""
        return self._source.snapshot()

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the objects that could not be decoded."""
        return self._source.refusals()

    def health(self) -> SourceHealth:
        """Return the health of the source."""
        return self._source.health()

    def relist(self) -> None:
        """List everything again soon."""
        self._source.relist()

    def relisted(self) -> bool:
        """Return whether every resource was listed in full since the last :meth:`relist`."""
        return self._source.relisted()

    def stop(self) -> None:
        """Stop the source."""
        self._source.stop()


class HostAwareSource(WrappedSource):
    """A source whose Snapshots hold the facts about the host, which are read every ``every_s``.

    ``restored`` adds what this host has stored of what the cluster denies.
    """

    def __init__(
        self,
        source: ClusterSource,
        facts: Callable[[], HostFacts],
        *,
        restored: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
        every_s: float = EVERY_S,
    ) -> None:
        super().__init__(source)
        self._restored = restored
        self._gather = facts
        self._every_s = every_s
        self._facts = facts()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen: tuple[Snapshot, HostFacts, Snapshot] | None = None

    def start(self, notify: Callable[[], None]) -> None:
        """Start the source and read the host; ``notify`` is called whenever either changed."""
        super().start(notify)
        self._thread = threading.Thread(target=self._watch, args=(notify,), name="host-facts", daemon=True)
        self._thread.start()

    def _watch(self, notify: Callable[[], None]) -> None:
        while not self._stopping.wait(self._every_s):
            facts = self._gather()
            if facts != self._facts:
                gone, new = self._facts.addresses - facts.addresses, facts.addresses - self._facts.addresses
                if replace(facts, hour=self._facts.hour) != self._facts:
                    log.info("host.changed", addresses_gone=sorted(gone), addresses_new=sorted(new))
                self._facts = facts
                notify()

    def snapshot(self) -> Snapshot | None:
        """Return the state of cluster and host, or None until the cluster was read; the same one until it changes."""
        snapshot, facts, seen = self._source.snapshot(), self._facts, self._seen
        if snapshot is None:
            return None
        if seen is None or seen[0] is not snapshot or seen[1] is not facts:
            seen = (snapshot, facts, self._restored(replace(snapshot, host=facts)))
            self._seen = seen
        return seen[2]

    def stop(self) -> None:
        """Stop the source and the thread."""
        self._stopping.set()
        super().stop()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)
