from pathlib import Path

import pytest

from pyconfd.errors import TransientError
from pyconfd.haproxy.history.pins import FILE_NAME, PinFile
from pyconfd.model.pin import Pin

PIN = Pin("ab", 41, "d" * 64, 10.0, "why")


def test_a_pin_holds_until_it_is_ended(tmp_path: Path) -> None:
    pins = PinFile(str(tmp_path / "state"))
    assert pins.read() is None
    pins.begin(PIN)
    assert PinFile(str(tmp_path / "state")).read() == PIN
    pins.end()
    assert pins.read() is None
    pins.end()


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"id": 1}'])
def test_a_damaged_file_is_a_pin(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    found = PinFile(str(tmp_path)).read()
    assert found is not None
    assert "damaged" in found.broken


def test_an_unreadable_file_is_a_pin_that_cannot_be_changed(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    found = PinFile(str(tmp_path)).read()
    assert found is not None
    assert "cannot be read" in found.broken
    with pytest.raises(TransientError):
        PinFile(str(tmp_path)).begin(PIN)
    with pytest.raises(TransientError):
        PinFile(str(tmp_path)).end()
