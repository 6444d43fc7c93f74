"""The collector does not run while somebody waits, runs again afterwards, and looks at what is old once an hour."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from pyconfd.model.garbage import THAW_S, survivors_frozen, without_collector


class Cycle:
    """Garbage as soon as nobody has it."""

    def __init__(self) -> None:
        self.own = self


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Iterator[Clock]:
    made = Clock()
    with without_collector(), survivors_frozen(made):
        yield made


def is_looked_at(obj: object) -> bool:
    return any(each is obj for each in gc.get_objects())


def test_it_is_off_inside_and_on_after_the_outermost() -> None:
    with without_collector():
        assert not gc.isenabled()
        with without_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_on_again_after_an_exception() -> None:
    with pytest.raises(ValueError, match="broken"), without_collector():
        raise ValueError("broken")
    assert gc.isenabled()


def test_it_is_on_again_after_two_that_overlap() -> None:
    first, second = without_collector(), without_collector()  # as two threads may have it
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_who_had_switched_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_is_there_is_not_looked_at() -> None:
    old = Cycle()
    with survivors_frozen():
        assert not is_looked_at(old)


def test_what_survives_a_full_collection_is_not_looked_at_again(clock: Clock) -> None:
    kept = Cycle()
    assert is_looked_at(kept)
    gc.collect()
    assert not is_looked_at(kept)


def test_a_younger_collection_freezes_nothing(clock: Clock) -> None:
    kept = Cycle()
    gc.collect(1)
    assert is_looked_at(kept)


def test_garbage_goes_with_the_next_collection(clock: Clock) -> None:
    found = weakref.ref(Cycle())
    gc.collect()
    assert found() is None


def test_what_was_frozen_and_is_garbage_now_goes_within_the_hour(clock: Clock) -> None:
    kept = Cycle()
    gc.collect()
    found = weakref.ref(kept)
    del kept
    clock.now = THAW_S - 1
    gc.collect()
    assert found() is not None
    clock.now = THAW_S
    gc.collect()
    assert found() is None
    later = Cycle()
    clock.now = 2 * THAW_S - 1
    gc.collect()
    assert not is_looked_at(later)


def test_behind_it_full_collections_freeze_nothing() -> None:
    with survivors_frozen():
        pass
    kept = Cycle()
    gc.collect()
    assert is_looked_at(kept)
