import os
from pathlib import Path

import pytest

from pyconfd.daemon.pause import FILE_NAME, Pause
from pyconfd.errors import TransientError
from pyconfd.haproxy.history.pins import PinFile
from pyconfd.model.status import Paused, Pin


def test_a_pause_holds_until_it_is_ended(tmp_path: Path) -> None:
    pause = Pause(str(tmp_path / "state"))
    assert pause.read(10.0) is None
    pause.begin(Paused(10.0, reason="moving racks"))
    assert Pause(str(tmp_path / "state")).read(1e9) == Paused(10.0, 0.0, "moving racks")
    pause.end()
    assert pause.read(10.0) is None
    pause.end()


def test_a_pause_with_an_end_ends_by_itself(tmp_path: Path) -> None:
    pause = Pause(str(tmp_path))
    pause.begin(Paused(10.0, 20.0))
    assert pause.read(19.9) == Paused(10.0, 20.0)
    assert pause.read(20.0) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"since": "x"}'])
def test_a_damaged_file_is_a_pause(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    paused = Pause(str(tmp_path)).read(10.0)
    assert paused is not None
    assert "damaged" in paused.reason
    assert paused.since == (tmp_path / FILE_NAME).stat().st_mtime


def test_an_unreadable_file_is_a_pause_and_cannot_be_ended(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    paused = Pause(str(tmp_path)).read(10.0)
    assert paused is not None
    assert "cannot be read" in paused.reason
    with pytest.raises(TransientError):
        Pause(str(tmp_path)).end()
    with pytest.raises(TransientError):
        Pause(str(tmp_path)).begin(Paused(1.0))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a moment")
def test_who_may_not_pause_or_pin_is_told_who_may(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(TransientError, match="run it as root or as pyconfd"):
            Pause(str(tmp_path)).begin(Paused(1.0))
        with pytest.raises(TransientError, match="run it as root or as pyconfd"):
            PinFile(str(tmp_path)).begin(Pin("a", 1, "b", 1.0))
    finally:
        os.seteuid(0)
