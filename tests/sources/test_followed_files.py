import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.errors import ConfigurationError
from pyconfd.model.snapshot import Key
from pyconfd.sources.file import FollowedFiles
from tests.world.haproxy import wait_until

SERVICE = "kind: Service\napiVersion: v1\nmetadata: {name: NAME, namespace: demo}\n"


class Counted:
    def __init__(self, path: Path) -> None:
        self.source = FollowedFiles((str(path),), every_s=0.02)
        self._count = threading.Semaphore(0)
        self.source.start(self._count.release)
        assert self._count.acquire(timeout=30), "the first one is told too"

    def names(self) -> list[str]:
        return sorted(key.name for key in self.source.snapshot().services)

    def told(self) -> bool:
        return self._count.acquire(timeout=30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "a.yaml"
    found.write_text(SERVICE.replace("NAME", "one"))
    return found


@pytest.fixture
def followed(path: Path) -> Iterator[Counted]:
    found = Counted(path)
    yield found
    found.source.stop()


def test_an_edit_is_an_event(path: Path, followed: Counted) -> None:
    before = followed.source.snapshot()
    assert before is followed.source.snapshot()
    path.write_text(SERVICE.replace("NAME", "two"))
    assert followed.told()
    assert followed.names() == ["two"]
    path.write_text(SERVICE.replace("name: NAME", "name: [1]"))
    assert followed.told()
    assert len(followed.source.refusals()) == 1


def test_an_edit_that_leaves_time_and_size_is_seen_where_the_file_was_fresh(path: Path) -> None:
    """Two writes within one tick of the file system's clock; here the clock stands."""
    now_ns = time.time_ns() + 10**12
    os.utime(path, ns=(now_ns, now_ns))
    source, told = FollowedFiles((str(path),), every_s=0.02), threading.Semaphore(0)
    path.write_text(SERVICE.replace("NAME", "two"))
    os.utime(path, ns=(now_ns, now_ns))
    source.start(told.release)
    try:
        assert told.acquire(timeout=30), "the first one"
        assert told.acquire(timeout=30), "the edit"
        assert Key("demo", "two") in source.snapshot().services
    finally:
        source.stop()


def test_a_file_that_is_replaced_is_followed(path: Path, followed: Counted) -> None:
    other = path.with_suffix(".new")
    other.write_text(SERVICE.replace("NAME", "two"))
    other.replace(path)
    assert followed.told()
    assert Key("demo", "two") in followed.source.snapshot().services


def test_an_unreadable_file_changes_nothing_and_is_a_problem(path: Path, followed: Counted) -> None:
    path.write_text("kind: [")
    wait_until(followed.source.problems, "the problem is told")
    assert followed.names() == ["one"]
    path.unlink()
    wait_until(lambda: "cannot be read" in str(followed.source.problems()), "that it is gone is told")
    path.write_text(SERVICE.replace("NAME", "three"))
    assert followed.told()
    assert followed.names() == ["three"]
    assert followed.source.problems() == ()
    assert followed.source.health().synced


def test_files_that_cannot_be_read_at_the_start_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        FollowedFiles((str(tmp_path / "none.yaml"),))
