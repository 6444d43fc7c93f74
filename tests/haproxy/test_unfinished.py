"""What a killed pyconfd leaves behind of a change that it had begun."""

import resource
from pathlib import Path

from pyconfd.haproxy.unfinished import Unfinished


def left_in(folder: Path, pid: int = 4711) -> bool:
    return Unfinished(str(folder)).was_left(pid)


def test_a_change_is_unfinished_until_the_file_says_what_it_is(tmp_path: Path) -> None:
    unfinished = Unfinished(str(tmp_path))
    assert not left_in(tmp_path)
    unfinished.begin(1, 4711)
    assert left_in(tmp_path)
    unfinished.end(1)
    assert not left_in(tmp_path)


def test_a_file_that_is_level_with_an_older_change_ends_nothing(tmp_path: Path) -> None:
    unfinished = Unfinished(str(tmp_path))
    unfinished.begin(1, 4711)
    unfinished.begin(2, 4711)
    unfinished.end(1)
    assert left_in(tmp_path)
    unfinished.end(2)
    assert not left_in(tmp_path)


def test_a_reload_ends_it_whatever_was_begun(tmp_path: Path) -> None:
    unfinished = Unfinished(str(tmp_path))
    unfinished.begin(1, 4711)
    unfinished.forget()
    assert not left_in(tmp_path)
    unfinished.begin(2, 4712)
    assert left_in(tmp_path, 4712)


def test_a_state_directory_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    unfinished = Unfinished(str(tmp_path / "absent"))
    unfinished.begin(1, 4711)
    unfinished.end(1)
    assert not left_in(tmp_path / "absent")


def test_a_file_that_says_nonsense_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "unfinished").write_bytes(b"\xff\xfe")
    assert not left_in(tmp_path)


def test_another_worker_is_none_that_was_being_changed(tmp_path: Path) -> None:
    Unfinished(str(tmp_path)).begin(1, 4711)
    assert not left_in(tmp_path, 4712)
    again = Unfinished(str(tmp_path))
    assert (again.was_left(4711), again.was_left(4711)) == (True, False)


def test_a_disk_that_is_too_full_for_the_number_leaves_a_change_that_is_unfinished(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
        Unfinished(str(tmp_path)).begin(1, 4711)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert left_in(tmp_path)
    assert left_in(tmp_path, 4712), "nobody knows which worker it was"
