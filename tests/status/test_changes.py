import json
import os
import threading
from itertools import islice
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pyconfd.errors import TransientError
from pyconfd.model.changes import Action, Change
from pyconfd.status.changes import FILE_NAME, MAX_WAITING, ChangeLog, ChangeReader

LIMIT_S = 20.0


def change(number: int, **fields: object) -> Change:
    return Change(1000.0 + number, number, Action.LIVE, f"shop +{number} servers", **fields)  # type: ignore[arg-type]


def written(log: ChangeLog, *numbers: int) -> None:
    for number in numbers:
        log.record(change(number))
    assert log.flush()


def numbers(changes: object) -> list[int]:
    return [one.generation for one in changes]  # type: ignore[attr-defined]


class Pauses:
    """Does the next of ``steps`` at each pause, and fails a reader that waits for ever."""

    def __init__(self, *steps: object) -> None:
        self.steps = list(steps)

    def __call__(self, seconds: float) -> None:
        assert seconds > 0
        assert self.steps, "nothing more comes"
        self.steps.pop(0)()  # type: ignore[operator]


def test_recording_writes_nothing_until_the_tick(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path / "run")
    log.record(change(1))
    assert not (tmp_path / "run").exists()
    assert log.flush()
    assert log.flush(), "nothing more to write"
    (line,) = (tmp_path / "run" / FILE_NAME).read_text().splitlines()
    assert json.loads(line)["summary"] == "shop +1 servers"
    assert (tmp_path / "run" / FILE_NAME).stat().st_mode & 0o777 == 0o640


def test_a_reader_sees_what_was_and_what_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ChangeLog(tmp_path)
    written(log, 1, 2)
    pauses = Pauses(lambda: None, lambda: written(log, 3), lambda: written(log, 4, 5))
    monkeypatch.setattr("pyconfd.status.changes.sleep", pauses)
    with ChangeReader(tmp_path) as reader:
        assert numbers(reader.known()) == [1, 2]
        assert numbers(islice(reader.following(), 3)) == [3, 4, 5]


def test_a_reader_may_begin_before_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ChangeLog(tmp_path / "run")
    monkeypatch.setattr("pyconfd.status.changes.sleep", Pauses(lambda: None, lambda: written(log, 1)))
    with ChangeReader(tmp_path / "run") as reader:
        assert reader.known() == ()
        assert numbers(islice(reader.following(), 1)) == [1]


def test_a_file_that_grows_is_put_aside_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ChangeLog(tmp_path, max_bytes=1_000)
    steps = [(lambda number=number: written(log, number)) for number in range(1, 101)]
    monkeypatch.setattr("pyconfd.status.changes.sleep", Pauses(*steps))
    with ChangeReader(tmp_path) as reader:
        assert numbers(islice(reader.following(), 100)) == list(range(1, 101))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2_500
        known = numbers(reader.known())
        assert known == list(range(known[0], 101)), "both files, the older first"
        assert len(known) > 5


def test_a_new_runtime_directory_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ChangeLog(tmp_path)
    written(first, 1)

    def restarted() -> None:
        written(first, 2)
        (tmp_path / FILE_NAME).unlink()

    steps = (restarted, lambda: None, lambda: written(ChangeLog(tmp_path), 3))
    monkeypatch.setattr("pyconfd.status.changes.sleep", Pauses(*steps))
    with ChangeReader(tmp_path) as reader:
        assert numbers(islice(reader.following(), 3)) == [1, 2, 3]


def test_half_a_line_is_not_read_and_a_torn_one_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / FILE_NAME
    written(ChangeLog(tmp_path), 1)
    with path.open("ab") as file:
        file.write(b'{"at": 1, "gener')
    monkeypatch.setattr("pyconfd.status.changes.sleep", Pauses(lambda: written(ChangeLog(tmp_path), 2)))
    with ChangeReader(tmp_path) as reader:
        assert numbers(reader.known()) == [1]
        assert numbers(islice(reader.following(), 1)) == [2]


def test_what_cannot_be_written_is_kept_and_said_once(tmp_path: Path) -> None:
    blocked = tmp_path / "run"
    blocked.write_text("a file where the directory belongs")
    log = ChangeLog(blocked)
    log.record(change(1))
    with capture_logs() as logs:
        assert not log.flush()
        assert not log.flush()
    assert [entry["event"] for entry in logs] == ["changes_file.write_failed"]
    blocked.unlink()
    written(log, 2)
    with ChangeReader(blocked) as reader:
        assert numbers(reader.known()) == [1, 2]


def test_what_waits_is_bounded(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path)
    for number in range(MAX_WAITING + 5):
        log.record(change(number))
    log.flush()
    with ChangeReader(tmp_path) as reader:
        known = numbers(reader.known())
    assert known[-1] == MAX_WAITING + 4
    assert len(known) <= MAX_WAITING


def test_secrets_and_long_texts_stay_out(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path)
    log.record(change(1, details=("https://me:secret@a/ failed", "x" * 5_000, *("d" for _ in range(100)))))
    log.flush()
    text = (tmp_path / FILE_NAME).read_text()
    assert "secret" not in text
    assert len(text) < 2_000


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).symlink_to(tmp_path / FILE_NAME)
    with ChangeReader(tmp_path) as reader, pytest.raises(TransientError, match=FILE_NAME):
        reader.known()


def test_writer_and_reader_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total = 2_000
    log = ChangeLog(tmp_path, max_bytes=150_000)

    def write() -> None:
        for start in range(0, total, 10):
            written(log, *range(start, start + 10))
            os.sched_yield()

    writing = threading.Thread(target=write)
    monkeypatch.setattr("pyconfd.status.changes.sleep", lambda _: writing.join(0.001))
    with ChangeReader(tmp_path) as reader:
        writing.start()
        assert numbers(islice(reader.following(), total)) == list(range(total))
    writing.join(LIMIT_S)
    assert (tmp_path / f"{FILE_NAME}.1").exists(), "it was put aside meanwhile"
