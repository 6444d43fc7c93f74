"""Logs: files of JSON lines that another process still writes, and the logging of this one."""

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of the lines that are whole: the last one may be half written; other lines are left out."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]


@contextmanager
def logging_restored() -> Iterator[None]:
    """Restore the logging that was there before."""
    root, ours = logging.getLogger(), logging.getLogger("pyconfd")
    before, hook = (root.handlers[:], root.level, ours.level), threading.excepthook
    yield
    threading.excepthook = hook
    structlog.reset_defaults()
    root.handlers[:], level, our_level = before
    root.setLevel(level)
    ours.setLevel(our_level)
