"""Facts about this host stand in every Snapshot; a change of them is an event by itself."""

import threading
from collections.abc import Callable

from pyconfd.model.context import Refusal
from pyconfd.model.host import HostFacts
from pyconfd.model.snapshot import Snapshot
from pyconfd.model.status import SourceHealth
from pyconfd.sources.host import HostAwareSource

PATIENCE_S = 20.0


class Cluster:
    """A source whose Snapshot a test sets."""

    def __init__(self) -> None:
        self.current: Snapshot | None = None

    def start(self, notify: Callable[[], None]) -> None:
        del notify

    def snapshot(self) -> Snapshot | None:
        return self.current

    def refusals(self) -> tuple[Refusal, ...]:
        return ()

    def health(self) -> SourceHealth:
        return SourceHealth()

    def relist(self) -> None:
        pass

    def stop(self) -> None:
        pass


def test_a_certificate_that_goes_is_an_event_and_changes_the_snapshot() -> None:
    facts = [HostFacts(certificates={"/ssl/a.pem": ""})]
    cluster, changed = Cluster(), threading.Event()
    source = HostAwareSource(cluster, lambda: facts[0], every_s=0.01)
    source.start(changed.set)
    try:
        assert source.snapshot() is None
        cluster.current = Snapshot("ny")
        before = source.snapshot()
        assert before == Snapshot("ny", host=facts[0])
        assert source.snapshot() is before
        assert not changed.is_set()
        facts[0] = HostFacts(certificates={})
        assert changed.wait(PATIENCE_S)
        assert source.snapshot() == Snapshot("ny", host=facts[0])
    finally:
        source.stop()
