"""Facts about this host are in every Snapshot; a change of them is an event by itself."""

import threading

import pytest

from pyconfd.model.snapshot import HostFacts, Snapshot
from pyconfd.sources.host import HostAwareSource
from tests.daemon.fakes import FakeSource

ONE = HostFacts(addresses=frozenset({"127.0.0.1"}), certificates={"/ssl/a.pem": ""})


@pytest.mark.parametrize(
    "changed",
    [
        HostFacts(addresses=frozenset({"127.0.0.1", "192.0.2.1"}), certificates={"/ssl/a.pem": ""}),
        HostFacts(addresses=frozenset({"127.0.0.1"}), certificates={}),
    ],
    ids=["an address", "a certificate"],
)
def test_a_change_of_the_host_is_an_event_and_is_in_the_next_snapshot(changed: HostFacts) -> None:
    facts, notified, cluster = [ONE], threading.Event(), FakeSource()
    source = HostAwareSource(cluster, lambda: facts[0], every_s=0.01)
    source.start(notified.set)
    try:
        assert source.snapshot() is None
        cluster.current = Snapshot("ny")
        first = source.snapshot()
        assert first == Snapshot("ny", host=ONE)
        assert source.snapshot() is first
        assert not notified.is_set()
        facts[0] = changed
        assert notified.wait(20)
        assert source.snapshot() == Snapshot("ny", host=changed)
    finally:
        source.stop()
    assert cluster.stopped
