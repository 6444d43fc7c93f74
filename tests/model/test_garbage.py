"""The collector does not run while somebody waits, and runs again afterwards whatever happened."""

import gc

import pytest

from pyconfd.model.garbage import without_collector


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


def test_who_had_switched_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with without_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
