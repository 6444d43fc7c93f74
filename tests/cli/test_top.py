"""``pyconfd top``: the page's first screen in lines that fit, whatever strangers wrote."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyconfd.cli.commands.top import lines_of, sparkline
from pyconfd.model.status import BackendDown, LiveStatus
from pyconfd.status.page_data import PageData
from tests.status.conftest import NOW, SAMPLE
from tests.status.serving import served

HOSTILE = "be-\x1b]0;owned\x07\x1b[2J[bold]\u202e"
DOWN = replace(SAMPLE, live=LiveStatus(down=(BackendDown(HOSTILE, 1, NOW),), down_total=1))


def overview() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PageData().overview(lambda: DOWN))
    return found


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12), (200, 60)])
def test_no_line_is_wider_than_the_window_and_no_control_character_is_in_it(width: int, height: int) -> None:
    lines = lines_of(overview(), width, NOW, height)
    assert len(lines) <= max(height, 16)
    assert all(line.cell_len <= width and line.plain.isprintable() for line in lines)


def test_the_first_screen_of_a_terminal_has_what_matters() -> None:
    lines = [line.plain for line in lines_of(overview(), 80, NOW, 24)]
    assert len(lines) <= 24
    assert "1 backend is without a server that is up" in lines[0]
    assert "  $ pyconfd status" in lines
    assert any("[bold]" in line for line in lines), "markup of strangers is text"
    assert any(line.startswith("WHAT IS WRONG NOW (") for line in lines)
    assert "WHAT CHANGED LAST" in lines


def test_what_is_old_is_not_shown_as_if_it_were_so_now() -> None:
    lines = [line.plain for line in lines_of(overview(), 80, NOW, 24, trouble="no answer", read_at=NOW - 60)]
    assert lines[0] == "? Not known now: no answer. All below is 1 m old."


def test_a_terminal_without_unicode_gets_ascii() -> None:
    assert all(line.plain.isascii() for line in lines_of(overview(), 80, NOW, is_ascii=True) if "\\u" not in line.plain)


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [((), 5, ""), ((0.0, 0.0), 5, "__"), ((1.0, None, 4.0), 5, "- #"), ((9.0, 1.0, 4.0), 2, "-#"), ((1.0,), 0, "")],
)
def test_bars_show_the_newest_values(values: tuple[float | None, ...], width: int, bars: str) -> None:
    assert sparkline(values, width, is_ascii=True) == bars


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Path]:
    with served(lambda: DOWN) as page:
        file = tmp_path / "pyconfd.toml"
        file.write_text(f'runtime_dir = "{tmp_path}"\n[status]\nlisten = "{page.address}"\n')
        yield file


def test_in_a_pipe_it_prints_once(settings: Path) -> None:
    argv = [sys.executable, "-m", "pyconfd", "top", "--config", str(settings)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "WHAT CHANGED LAST" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_terminal_that_cannot_move_its_cursor_gets_it_once(settings: Path) -> None:
    outer, inner = pty.openpty()
    argv = [sys.executable, "-m", "pyconfd", "top", "--config", str(settings)]
    process = subprocess.Popen(argv, stdin=inner, stdout=inner, stderr=inner, env={**os.environ, "TERM": "dumb"})
    os.close(inner)
    seen, end = b"", time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        seen += _read(outer)
    process.kill()
    seen += _read(outer)
    os.close(outer)
    assert (process.wait(), b"WHAT CHANGED LAST" in seen, b"\x1b" in seen) == (0, True, False)


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
@pytest.mark.parametrize("colour", [True, False], ids=["colour", "NO_COLOR"])
def test_a_key_ends_it_in_a_terminal_and_leaves_that_as_it_was(settings: Path, key: bytes, *, colour: bool) -> None:
    outer, inner = pty.openpty()
    given = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    given |= {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", "PYTHONUTF8": "1"}
    given |= {} if colour else {"NO_COLOR": "1"}
    # Ctrl-C becomes a signal by the terminal that is the controlling one.
    argv = ["setsid", "--ctty", sys.executable, "-m", "pyconfd", "top", "--config", str(settings)]
    process = subprocess.Popen(argv, stdin=inner, stdout=inner, stderr=inner, env=given)
    os.close(inner)
    seen, end = b"", time.monotonic() + 60
    while b"WHAT CHANGED LAST" not in seen:
        assert time.monotonic() < end, seen
        seen += _read(outer)
    os.write(outer, key)
    while process.poll() is None:
        assert time.monotonic() < end, seen
        seen += _read(outer)
    seen += _read(outer)
    os.close(outer)
    assert process.returncode == 0, seen
    assert b"\x1b[?1049h" in seen
    assert b"\x1b[?1049l" in seen
    assert (b"\x1b[1;31m" in seen) is colour
    assert b"\x1b]0;" not in seen


def _read(descriptor: int) -> bytes:
    if not select.select([descriptor], [], [], 0.2)[0]:
        return b""
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end is closed
        return b""
