"""What the cluster said of addresses that leave."""

import pytest

from pyconfd.model.kubernetes import AnyObject
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import DELETION_COUNTS, RECORD_OF, Resource, Terminating
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
    assert ADDRESS in cache.terminating
    if listed:
        cache.replace([ready], ())
    else:
        cache.apply(Upserted(ready))
    assert ADDRESS not in cache.terminating


@pytest.mark.parametrize(
    ("resource", "is_noted"), [*((each, True) for each in DELETION_COUNTS), (Resource.PODS, False)]
)
def test_object_that_was_deleted_by_name_is_known_by_its_uid(resource: Resource, *, is_noted: bool) -> None:
    record = RECORD_OF[resource](ObjectMeta("web", "shop", uid="1"))
    cache = Cache()
    cache.replace([record], ())
    cache.replace([], ())
    assert "1" not in cache.terminating, "a list that lacks it says nothing"
    cache.apply(Upserted(record))
    cache.apply(Deleted(key_of(record), "9"))
    assert ("1" in cache.terminating) is is_noted


def test_only_the_newest_are_remembered() -> None:
    terminating = Terminating()
    for number in range(Terminating.MOST + 1):
        terminating.leaves(str(number))
    assert "0" not in terminating
    assert "1" in terminating
    assert str(Terminating.MOST) in terminating
