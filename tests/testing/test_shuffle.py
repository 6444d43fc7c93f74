import random

from hypothesis import given
from hypothesis import strategies as st

from pyconfd.fragments import directory
from pyconfd.model.snapshot import Resource
from pyconfd.sources.file import read_snapshot
from pyconfd.testing.shuffle import shuffled

SNAPSHOT, _ = read_snapshot(f"{directory()}/tests/cluster.yaml")


@given(st.integers())
def test_a_shuffled_snapshot_says_the_same(seed: int) -> None:
    other = shuffled(SNAPSHOT, random.Random(seed).shuffle)
    for resource in Resource:
        one, another = getattr(SNAPSHOT, resource.field), getattr(other, resource.field)
        assert one.keys() == another.keys()
    for key, piece in SNAPSHOT.endpointslices.items():
        assert sorted(map(repr, piece.endpoints or ())) == sorted(map(repr, other.endpointslices[key].endpoints or ()))


def test_some_order_differs() -> None:
    orders = {tuple(shuffled(SNAPSHOT, random.Random(seed).shuffle).services) for seed in range(20)}
    assert len(orders) > 1
