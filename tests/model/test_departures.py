"""What the cluster said of addresses that leave."""

import pytest

from pyconfd.model.kubernetes import AnyObject
from pyconfd.model.snapshot import Departures
from pyconfd.sources.kubernetes.cache import Cache
from pyconfd.sources.kubernetes.decode import Deleted, Upserted, key_of
from tests.presets import objects, pods

ADDRESS = "192.0.2.1"


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    ("leaving", "ready"),
    [
        (
            objects.slice_("a", objects.endpoint(ADDRESS, ready=False, terminating=True)),
            objects.slice_("b", objects.endpoint(ADDRESS)),
        ),
        (pods.pod("a", ADDRESS, {}, deleted=True), pods.pod("b", ADDRESS, {})),
        (objects.node("a", ADDRESS, cordoned=True), objects.node("a", ADDRESS)),
    ],
)
def test_address_departs_until_it_is_ready_again(leaving: AnyObject, ready: AnyObject, *, listed: bool) -> None:
    cache = Cache()
    if listed:
        cache.replace([leaving], ())
    else:
        cache.apply(Upserted(leaving))
    cache.apply(Deleted(key_of(leaving), "9"))
    assert ADDRESS in cache.departures
    if listed:
        cache.replace([ready], ())
    else:
        cache.apply(Upserted(ready))
    assert ADDRESS not in cache.departures


def test_only_the_newest_are_remembered() -> None:
    departures = Departures()
    for number in range(Departures.MOST + 1):
        departures.leaves(str(number))
    assert "0" not in departures
    assert "1" in departures
    assert str(Departures.MOST) in departures
