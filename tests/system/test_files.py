import errno
import os
import stat
from pathlib import Path

import pytest

from pyconfd.errors import TransientError
from pyconfd.system.files import PREFIX, Installation, NewFile, problem_of, remove_stale, write_new
from tests.haproxy.bench import fill, small_disk

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def install(*files: NewFile) -> Installation:
    installation = Installation(files)
    installation.stage()
    installation.install()
    return installation


def leftovers(directory: Path) -> list[str]:
    return [entry.name for entry in directory.rglob(f"{PREFIX}*")]


def test_a_new_file_has_the_mode_it_was_given(tmp_path: Path) -> None:
    install(NewFile(str(tmp_path / "a"), b"new", mode=0o600)).finish()
    assert (tmp_path / "a").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert leftovers(tmp_path) == []


def test_an_existing_file_keeps_its_mode_and_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")
    target.chmod(0o604)
    before = target.stat().st_ino
    reader = target.open("rb")
    install(NewFile(str(target), b"new", mode=0o640)).finish()
    assert target.read_bytes() == b"new"
    assert reader.read() == b"old"  # who has it open keeps the whole former file
    reader.close()
    assert target.stat().st_ino != before
    assert stat.S_IMODE(target.stat().st_mode) == 0o604


@ROOT_ONLY
def test_a_new_file_gets_its_group_and_an_existing_one_keeps_owner_and_group(tmp_path: Path) -> None:
    for name, group in (("fresh", 65534), ("former", 0)):
        target = tmp_path / name
        if name == "former":
            target.write_bytes(b"old")
            os.chown(target, 65534, 65534)
        install(NewFile(str(target), b"new", group=group)).finish()
        assert target.stat().st_gid == 65534
    assert (tmp_path / "former").stat().st_uid == 65534


def test_a_link_stays_a_link_and_what_it_points_at_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real/a")
    install(NewFile(str(tmp_path / "link"), b"new")).finish()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a").read_bytes() == b"new"


def test_a_roll_back_restores_content_mode_and_absence(tmp_path: Path) -> None:
    old, fresh = tmp_path / "old", tmp_path / "fresh"
    old.write_bytes(b"old")
    inode = old.stat().st_ino
    installation = install(NewFile(str(fresh), b"x"), NewFile(str(old), b"new"))
    assert installation.roll_back() == ()
    assert old.read_bytes() == b"old"
    assert old.stat().st_ino == inode
    assert not fresh.exists()
    assert leftovers(tmp_path) == []


def test_a_failure_at_the_second_file_takes_nothing_from_the_first(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "directory").mkdir()
    installation = Installation([NewFile(str(tmp_path / "a"), b"new"), NewFile(str(tmp_path / "directory"), b"new")])
    with pytest.raises(TransientError, match="it is a directory"):
        installation.stage()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert leftovers(tmp_path) == []


def test_a_rename_that_fails_puts_the_earlier_ones_back(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    installation = Installation([NewFile(str(tmp_path / "a"), b"new"), NewFile(str(tmp_path / "b"), b"new")])
    installation.stage()
    (tmp_path / "b").mkdir()  # somebody makes a directory of that name in between
    with pytest.raises(TransientError) as caught:
        installation.install()
    assert caught.value.problems[0].place == str(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("kind", ["fifo", "missing directory", "file in the path"])
def test_impossible_targets_are_named_with_what_to_do(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    os.mkfifo(tmp_path / "fifo")
    target = {
        "fifo": tmp_path / "fifo",
        "missing directory": tmp_path / "missing" / "a",
        "file in the path": tmp_path / "file" / "a",
    }[kind]
    with pytest.raises(TransientError) as caught:
        install(NewFile(str(target), b"new"))
    assert caught.value.problems[0].place == str(target)
    assert leftovers(tmp_path) == []


@ROOT_ONLY
def test_a_full_disk_leaves_the_old_file_and_no_remains(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        (disk / "a").write_bytes(b"old")
        fill(disk / "ballast")
        with pytest.raises(TransientError, match="No space left") as caught:
            install(NewFile(str(disk / "a"), b"x" * 100_000))
        assert "free some space" in caught.value.problems[0].remedy
        assert (disk / "a").read_bytes() == b"old"
        assert leftovers(disk) == []


@ROOT_ONLY
def test_a_roll_back_needs_no_space(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as disk:
        (disk / "a").write_bytes(b"o" * 50_000)
        installation = install(NewFile(str(disk / "a"), b"n" * 50_000))
        fill(disk / "ballast")
        assert installation.roll_back() == ()
        assert (disk / "a").read_bytes() == b"o" * 50_000


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "guess").symlink_to("victim")
    with pytest.raises(FileExistsError):
        write_new(str(tmp_path / "guess"), b"x", mode=0o600)
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_stale_files_are_known_by_their_prefix(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}0011").write_bytes(b"")
    (tmp_path / f"{PREFIX}0022").mkdir()
    (tmp_path / f"{PREFIX}0022" / "x").write_bytes(b"")
    (tmp_path / ".other").write_bytes(b"")
    assert remove_stale([str(tmp_path), str(tmp_path / "missing")]) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == [".other"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENOENT, errno.EDQUOT])
def test_each_usual_error_has_a_remedy(number: int) -> None:
    assert problem_of("/x", OSError(number, os.strerror(number))).remedy


@pytest.mark.parametrize("link", ["maps", "maps/hosts.map"])
def test_no_link_leads_out_of_the_directory(tmp_path: Path, link: str) -> None:
    inside, outside = tmp_path / "files", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "hosts.map").write_text("mine")
    planted = inside / link
    planted.parent.mkdir(exist_ok=True)
    planted.symlink_to(outside if link == "maps" else outside / "hosts.map")
    with pytest.raises(TransientError, match="a symbolic link leads out of"):
        install(NewFile(str(inside / "maps" / "hosts.map"), b"new", within=str(inside)))
    assert (outside / "hosts.map").read_text() == "mine"
    assert [path.name for path in outside.iterdir()] == ["hosts.map"]


def test_a_directory_that_is_a_link_itself_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "files").symlink_to("real")
    install(NewFile(str(tmp_path / "files" / "a"), b"new", within=str(tmp_path / "files"))).finish()
    assert (tmp_path / "real" / "a").read_bytes() == b"new"
