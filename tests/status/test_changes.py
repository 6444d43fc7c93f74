import json
import os
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pyconfd.errors import TransientError
from pyconfd.model.changes import Action, Change
from pyconfd.status.changes import FILE_NAME, MAX_WAITING, ChangeLog, ChangeReader, duration, line_of

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
    monkeypatch.setattr("pyconfd.status.changes.sleep", Pauses(lambda: written(ChangeLog(tmp_path), 2, 3)))
    with ChangeReader(tmp_path) as reader:
        assert numbers(reader.known()) == [1]
        assert numbers(islice(reader.following(), 1)) == [3], "what was cut off takes the next with it"


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


AT = 43_384.0
"""12:03:04 of the first day."""


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            Change(AT, 418, Action.LIVE, "shop/web +2 servers", duration_s=0.0009),
            "12:03:04 shop/web +2 servers, runtime update 0.9 ms, generation 418",
        ),
        (
            Change(AT, 419, Action.RELOAD, "", ("frontend fe: 1 bind added",), ("binds_changed",), 0.214),
            "12:03:04 reload (binds_changed: frontend fe: 1 bind added) 214 ms, generation 419",
        ),
        (
            Change(AT, 1, Action.RELOAD, "", ("a", "b", "c", "d", "e"), ("global_changed", "text_changed"), 2.0),
            "12:03:04 reload (global_changed, text_changed: a; b; c; and 2 more) 2.0 s, generation 1",
        ),
        (
            Change(AT, 42, Action.DEFERRED, "shop +1 server", ("bind added",), ("binds_changed",), 0.001),
            (
                "12:03:04 reload waits for its turn (binds_changed: bind added);"
                " shop +1 server, runtime update 1.0 ms, generation 42"
            ),
        ),
        (
            Change(AT, 420, Action.DEFERRED, "", (), ("binds_changed",)),
            "12:03:04 reload waits for its turn (binds_changed), generation 420",
        ),
        (
            Change(AT, 421, Action.FILE, "", ("a comment",), (), 0.0001),
            "12:03:04 only the file (a comment) 0.1 ms, generation 421",
        ),
        (
            Change(AT, 421, Action.HELD, "", ("removal protection: 9 of 9 would go\n    -> pyconfd allow 3f",)),
            "12:03:04 held: removal protection: 9 of 9 would go -> pyconfd allow 3f; generation 421 runs on",
        ),
        (
            Change(AT, 421, Action.REJECTED, "", ("a.tmpl line 3: wrong\n    -> mend it", "more"), ("check",)),
            "12:03:04 rejected at check: a.tmpl line 3: wrong -> mend it (and 1 more); generation 421 runs on",
        ),
        (
            Change(AT, 0, Action.FAILED, "", ("haproxy: is not running",), ("reload",)),
            "12:03:04 failed at reload: haproxy: is not running; no configuration is applied yet",
        ),
        (
            Change(AT, 421, Action.RELEASED, "3f9c", ("the endpoints are back",), (), 62.0),
            "12:03:04 hold ended after 62.0 s: the endpoints are back (3f9c); generation 421 runs on",
        ),
        (Change(AT, 421, Action.NOOP), "12:03:04 nothing to do, generation 421"),
        (
            Change(AT, 418, Action.LIVE, "a +1 server", duration_s=0.001, causes=("Service shop/a", "Service shop/b")),
            "12:03:04 a +1 server, runtime update 1.0 ms, generation 418, by Service shop/a, Service shop/b",
        ),
        (
            Change(AT, 418, Action.FILE, causes=("Ingress shop/a", "Service shop/a", "Node a", "Node b")),
            "12:03:04 only the file 0.0 ms, generation 418, by Ingress shop/a, Service shop/a and 2 more",
        ),
    ],
)
def test_one_line(change: Change, expected: str) -> None:
    assert line_of(change) == expected


def test_nothing_of_a_stranger_reaches_the_terminal_as_it_is() -> None:
    line = line_of(Change(AT, 1, Action.LIVE, "shop\x1b[31m\nx +1 server"))
    assert "\x1b" not in line
    assert "\n" not in line


def test_durations() -> None:
    assert [duration(seconds) for seconds in (0.00004, 0.0099, 0.0141, 0.999, 61.26)] == [
        "0.0 ms",
        "9.9 ms",
        "14 ms",
        "999 ms",
        "61.3 s",
    ]
