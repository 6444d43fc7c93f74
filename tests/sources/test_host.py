"""Facts about this host stand in every Snapshot; a change of them is an event by itself."""

import threading
from collections.abc import Callable

from pyconfd.model.context import Refusal
from pyconfd.model.snapshot import HostFacts, Snapshot
from pyconfd.model.status import SourceHealth
from pyconfd.sources.host import HostAwareSource

ONE = HostFacts(addresses=frozenset({"127.0.0.1"}))
TWO = HostFacts(addresses=frozenset({"127.0.0.1", "192.0.2.1"}))


class Cluster:
    """A source that has a Snapshot when the test says so."""

    def __init__(self) -> None:
        self.current: Snapshot | None = None
        self.stopped = False

    def start(self, notify: Callable[[], None]) -> None:
        pass

    def snapshot(self) -> Snapshot | None:
        return self.current

    def refusals(self) -> tuple[Refusal, ...]:
        return ()

    def health(self) -> SourceHealth:
        return SourceHealth(synced=True)

    def relist(self) -> None:
        pass

    def relisted(self) -> bool:
        return True

    def stop(self) -> None:
        self.stopped = True


def test_a_change_of_the_host_is_an_event_and_is_in_the_next_snapshot() -> None:
    facts, changed = [ONE], threading.Event()
    cluster = Cluster()
    source = HostAwareSource(cluster, lambda: facts[0], every_s=0.01)
    source.start(changed.set)
    try:
        assert source.snapshot() is None
        cluster.current = Snapshot()
        first = source.snapshot()
        assert first is not None
        assert first.host == ONE
        assert source.snapshot() is first
        facts[0] = TWO
        assert changed.wait(20)
        second = source.snapshot()
        assert second is not None
        assert second.host == TWO
    finally:
        source.stop()
    assert cluster.stopped


def test_a_certificate_that_goes_is_an_event_and_changes_the_snapshot() -> None:
    facts = [HostFacts(certificates={"/ssl/a.pem": ""})]
    cluster, changed = Cluster(), threading.Event()
    cluster.current = Snapshot("ny")
    source = HostAwareSource(cluster, lambda: facts[0], every_s=0.01)
    source.start(changed.set)
    try:
        assert source.snapshot() == Snapshot("ny", host=facts[0])
        assert not changed.is_set()
        facts[0] = HostFacts(certificates={})
        assert changed.wait(20)
        assert source.snapshot() == Snapshot("ny", host=facts[0])
    finally:
        source.stop()
