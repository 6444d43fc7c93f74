import shutil
from pathlib import Path

import pytest

from pyconfd.errors import TransientError
from pyconfd.system.state_file import StateLock


def test_a_lock_whose_directory_was_removed_is_taken_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    lock = StateLock(str(state))
    lock.acquire()
    shutil.rmtree(state)
    lock.acquire()
    with pytest.raises(TransientError, match="another pyconfd"):
        StateLock(str(state)).acquire()
    lock.release()


def test_a_lock_whose_file_was_removed_is_not_held_by_two(tmp_path: Path) -> None:
    """Two writers would take each other's reload for a failure, and roll back."""
    first, second = StateLock(str(tmp_path)), StateLock(str(tmp_path))
    first.acquire()
    (tmp_path / "lock").unlink()
    second.acquire()
    with pytest.raises(TransientError, match="another pyconfd"):
        first.acquire()
    second.release()
    first.acquire()
    first.release()
