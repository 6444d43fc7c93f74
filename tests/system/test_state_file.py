"""One value in a file: what is lost when it cannot be read or written, and what is said about it."""

from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from pyconfd.errors import TransientError
from pyconfd.system.state_file import StateFile


class Value(msgspec.Struct):
    count: int


def test_a_value_survives(tmp_path: Path) -> None:
    path = tmp_path / "new" / "value.json"
    assert StateFile(path, Value).load() is None
    assert StateFile(path, Value, mode=0o600).save(Value(7))
    assert StateFile(path, Value).load() == Value(7)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["value.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"count": "x"}', b"\xff"])
def test_a_damaged_file_counts_as_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "value.json"
    path.write_bytes(content)
    file = StateFile(path, Value, effect="the count begins at 0")
    with pytest.raises(TransientError, match="is damaged"):
        file.read()
    with capture_logs() as logs:
        assert file.load() is None
    assert [(line["event"], line["effect"]) for line in logs] == [("state_file.unreadable", "the count begins at 0")]
    assert path.read_bytes() == content


def test_a_failed_write_keeps_the_former_value_and_is_logged_once(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    file = StateFile(folder / "value.json", Value, effect="it is lost at a restart")
    assert file.save(Value(1))
    folder.rename(tmp_path / "away")
    folder.write_text("a file")
    with capture_logs() as logs:
        assert [file.save(Value(2)), file.save(Value(2))] == [False, False]
    assert [line["event"] for line in logs] == ["state_file.unwritable"]
    assert file.problem is not None
    assert "it is lost at a restart" in file.problem.remedy
    folder.unlink()
    (tmp_path / "away").rename(folder)
    assert file.load() == Value(1)
    assert file.save(Value(2))
    assert file.problem is None


def test_removing_needs_no_file(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "value.json", Value)
    file.remove()
    file.write(Value(1))
    file.remove()
    assert list(tmp_path.iterdir()) == []
