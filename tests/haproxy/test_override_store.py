"""overrides.json: whole or not at all, shared by daemon and commands."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import structlog

from pyconfd.errors import TransientError
from pyconfd.haproxy.override_store import FILE_NAME, OverrideStore, worker_of
from pyconfd.haproxy.overrides import Override, Source
from pyconfd.model.plan import ServerState

DRAIN = Override("shop", "a", ServerState.DRAIN, 10.0, 20.0, Source.COMMAND, "7@x", 15.0)
WEIGHT = Override("shop", "a", 50, 10.0)


@contextmanager
def written(store: OverrideStore, *overrides: Override) -> Iterator[None]:
    with store.edited() as stored:
        stored |= {one.key: one for one in overrides}
    yield


def test_what_is_written_is_read_by_another_process(tmp_path: Path) -> None:
    state_dir = str(tmp_path / "state")
    reader = OverrideStore(state_dir)
    assert reader.read() == {}
    with written(OverrideStore(state_dir), DRAIN, WEIGHT):
        assert reader.changed()
        assert reader.read() == {DRAIN.key: DRAIN, WEIGHT.key: WEIGHT}
        assert not reader.changed()
    path = tmp_path / "state" / FILE_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(entry.name for entry in path.parent.iterdir()) == [FILE_NAME, f"{FILE_NAME}.lock"]


def test_without_a_change_nothing_is_written(tmp_path: Path) -> None:
    store = OverrideStore(str(tmp_path))
    with written(store, DRAIN), store.edited() as stored:
        before = (tmp_path / FILE_NAME).stat().st_ino
        assert stored == {DRAIN.key: DRAIN}
    assert (tmp_path / FILE_NAME).stat().st_ino == before


def test_what_root_writes_belongs_to_whom_the_directory_belongs_to() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    with TemporaryDirectory() as state_dir:
        os.chown(state_dir, 12345, 12346)
        with written(OverrideStore(state_dir), DRAIN):
            for entry in Path(state_dir).iterdir():
                assert (entry.stat().st_uid, entry.stat().st_gid) == (12345, 12346)


@pytest.mark.parametrize(
    "content", ["", "{", '{"format": 1}', '{"format": 1, "overrides": [{"backend": 3}]}', "\udcff"]
)
def test_a_damaged_file_counts_as_empty_and_is_said_once(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_bytes(content.encode(errors="surrogateescape"))
    store = OverrideStore(str(tmp_path))
    with structlog.testing.capture_logs() as logs:
        assert store.read() == {}
        assert store.read() == {}
    assert [line["event"] for line in logs] == ["overrides.unreadable"]
    with written(store, DRAIN):
        assert store.read() == {DRAIN.key: DRAIN}


def test_what_a_newer_version_wrote_in_another_format_is_kept_aside(tmp_path: Path) -> None:
    newer = '{"format": 2, "overrides": []}'
    (tmp_path / FILE_NAME).write_text(newer)
    store = OverrideStore(str(tmp_path))
    with structlog.testing.capture_logs() as logs:
        assert store.read() == {}
    assert [line["error"] for line in logs] == ["format 2 is not 1"]
    with written(store, DRAIN):
        assert store.read() == {DRAIN.key: DRAIN}
    assert (tmp_path / f"{FILE_NAME}.unreadable").read_text() == newer


def test_two_do_not_write_at_once(tmp_path: Path) -> None:
    slept: list[float] = []
    first, second = OverrideStore(str(tmp_path)), OverrideStore(str(tmp_path), sleep=slept.append)
    with first.edited() as stored:
        stored[DRAIN.key] = DRAIN
        with pytest.raises(TransientError, match="another pyconfd is writing"), second.edited(wait_s=0.05):
            raise AssertionError
    assert slept
    assert second.read() == {DRAIN.key: DRAIN}


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(TransientError, match="cannot be written"), OverrideStore(str(tmp_path / "state")).edited():
        raise AssertionError


def test_a_worker_of_another_boot_is_another_one() -> None:
    assert worker_of(0) == ""
    assert worker_of(7).startswith("7@")
    assert worker_of(7) != worker_of(8)
