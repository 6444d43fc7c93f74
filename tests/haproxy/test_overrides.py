"""States that operators set: ``overrides.json`` whole or not at all, shared by daemon and commands."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import structlog

from pyconfd.errors import TransientError
from pyconfd.haproxy.runtime.overrides import (
    FILE_NAME,
    Override,
    OverrideStore,
    with_overrides,
)
from pyconfd.model.operations import AddServer, Command, RemoveServer, ServerState, SetState, SetWeight

DRAIN = Override("shop", "a", ServerState.DRAIN, 10.0, 20.0, 15.0)
MAINT = Override("shop", "b", ServerState.MAINT, 10.0)


@contextmanager
def written(store: OverrideStore, *overrides: Override) -> Iterator[None]:
    with store.edited() as stored:
        stored |= {one.key: one for one in overrides}
    yield


def test_what_is_written_is_read_by_another_process(tmp_path: Path) -> None:
    state_dir = str(tmp_path / "state")
    reader = OverrideStore(state_dir)
    assert reader.refresh() == {}
    with written(OverrideStore(state_dir), DRAIN, MAINT):
        assert reader.refresh() == {DRAIN.key: DRAIN, MAINT.key: MAINT}
        assert reader.refresh() is reader.refresh()
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


@pytest.mark.parametrize("content", ["", "{", "{}", '[{"backend": 3}]', "\udcff"])
def test_a_damaged_file_counts_as_empty_and_is_said_once(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_bytes(content.encode(errors="surrogateescape"))
    store = OverrideStore(str(tmp_path))
    with structlog.testing.capture_logs() as logs:
        assert store.refresh() == {}
        assert store.refresh() == {}
    assert [line["event"] for line in logs] == ["state_file.unreadable"]
    with written(store, DRAIN):
        assert OverrideStore(str(tmp_path)).refresh() == {DRAIN.key: DRAIN}


def test_two_do_not_write_at_once(tmp_path: Path) -> None:
    first, second = OverrideStore(str(tmp_path)), OverrideStore(str(tmp_path))
    with first.edited() as stored:
        stored[DRAIN.key] = DRAIN
        with pytest.raises(TransientError, match="another pyconfd is writing"), second.edited(wait_s=0.05):
            raise AssertionError
    assert second.refresh() == {DRAIN.key: DRAIN}


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(TransientError, match="cannot be written"), OverrideStore(str(tmp_path / "state")).edited():
        raise AssertionError


def test_what_a_command_wrote_meanwhile_counts_for_more(tmp_path: Path) -> None:
    daemon, command = OverrideStore(str(tmp_path)), OverrideStore(str(tmp_path))
    with written(command, DRAIN, MAINT):
        daemon.refresh()
    later = replace(DRAIN, until=99.0)
    with written(command, later):
        daemon.update({DRAIN.key: None, MAINT.key: replace(MAINT, missing_since=1.0)})
    assert daemon.known == {DRAIN.key: later, MAINT.key: replace(MAINT, missing_since=1.0)}
    assert command.refresh() == daemon.known


KNOWN = {
    one.key: one
    for one in (Override("b", "a", ServerState.MAINT, 1.0), Override("b", "old", ServerState.DRAIN, 1.0, until=5.0))
}
ADDED = AddServer("b", "a", "10.0.0.1:80", ("weight", "10"))


@pytest.mark.parametrize(
    ("command", "executed"),
    [
        (SetWeight("b", "a", 20), (SetWeight("b", "a", 20),)),
        (SetState("b", "a", ServerState.READY), (SetState("b", "a", ServerState.MAINT),)),
        (SetState("b", "c", ServerState.READY), (SetState("b", "c", ServerState.READY),)),
        (SetState("b", "old", ServerState.READY), (SetState("b", "old", ServerState.READY),)),
        (RemoveServer("b", "a"), (RemoveServer("b", "a"),)),
        (ADDED, (ADDED, SetState("b", "a", ServerState.MAINT))),
    ],
)
def test_an_update_leaves_overrides_in_force(command: Command, executed: tuple[Command, ...]) -> None:
    assert with_overrides([command], KNOWN, 1000.0) == executed
    assert with_overrides([command], {}, 1000.0) == (command,)
