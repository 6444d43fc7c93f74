"""What the cluster said of addresses that leave."""

from pyconfd.model.snapshot import Departures
from pyconfd.sources.kubernetes.cache import Cache
from pyconfd.sources.kubernetes.decode import Deleted, Upserted, key_of
from tests.presets import objects


def test_an_address_is_remembered_after_it_went_and_forgotten_when_it_is_ready_again() -> None:
    cache = Cache()
    leaving = objects.slice_("a", objects.endpoint("192.0.2.1", ready=False, terminating=True))
    cache.apply(Upserted(leaving))
    cache.apply(Deleted(key_of(leaving), "9"))
    assert "192.0.2.1" in cache.departures
    cache.apply(Upserted(objects.slice_("b", objects.endpoint("192.0.2.1"))))
    assert "192.0.2.1" not in cache.departures


def test_only_the_newest_are_remembered() -> None:
    departures = Departures()
    for number in range(Departures.MOST + 1):
        departures.leaves(str(number))
    assert "0" not in departures
    assert "1" in departures
    assert str(Departures.MOST) in departures
