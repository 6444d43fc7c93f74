import time
from collections.abc import Iterator

import pytest

from pyconfd.model.changes import Action, Change
from pyconfd.status.changes import duration, line_of

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
            "12:03:04 shop/web +2 servers, live 0.9 ms, no reload, generation 418",
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
            "12:03:04 reload waits for its turn (binds_changed: bind added); shop +1 server live 1.0 ms, generation 42",
        ),
        (
            Change(AT, 420, Action.DEFERRED, "", (), ("binds_changed",)),
            "12:03:04 reload waits for its turn (binds_changed), generation 420",
        ),
        (
            Change(AT, 421, Action.FILE, "", ("a comment",), (), 0.0001),
            "12:03:04 only the file (a comment) 0.1 ms, no reload, generation 421",
        ),
        (
            Change(AT, 421, Action.HELD, "", ("removal protection: 9 of 9 would go\n    -> pyconfd allow 3f",)),
            "12:03:04 held: removal protection: 9 of 9 would go -> pyconfd allow 3f; generation 421 serves",
        ),
        (
            Change(AT, 421, Action.REJECTED, "", ("a.tmpl line 3: wrong\n    -> mend it", "more"), ("check",)),
            "12:03:04 refused at check: a.tmpl line 3: wrong -> mend it (and 1 more); generation 421 serves",
        ),
        (
            Change(AT, 0, Action.FAILED, "", ("haproxy: is not running",), ("reload",)),
            "12:03:04 failed at reload: haproxy: is not running; nothing serves yet",
        ),
        (
            Change(AT, 421, Action.RELEASED, "3f9c", ("the endpoints are back",), (), 62.0),
            "12:03:04 held no more after 62.0 s: the endpoints are back (3f9c); generation 421 serves",
        ),
        (Change(AT, 421, Action.NOOP), "12:03:04 nothing to do, generation 421"),
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
