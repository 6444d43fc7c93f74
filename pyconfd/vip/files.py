"""The files of the hook: track files, heartbeat, what it keeps across restarts; and its lines in the log.

Not with structlog, and not with :mod:`pyconfd.system.files`, which logs with it: that would double the memory of a
process that is never to be the one that is short of it.
"""

import json
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyconfd.vip.background import Background

MOST_LINES = 1000
_PRIORITIES = {"info": 6, "warning": 4, "error": 3}


class Log:
    """Events on standard error, as :mod:`pyconfd.status.logging` writes them: ``format`` is "text" or "json".

    A thread writes them: nobody waits for a reader. Where none reads, what comes after MOST_LINES is dropped.
    """

    def __init__(self, format: str) -> None:  # noqa: A002 - the name of the setting log.format
        self._as_json = format == "json"
        self._journal = bool(os.environ.get("JOURNAL_STREAM"))
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._background = Background("log")

    def __call__(self, level: str, event: str, **values: object) -> None:
        """Have one event written; a reader that is gone is nobody's trouble."""
        stamp = {} if self._journal else {"timestamp": datetime.now(UTC).isoformat(timespec="milliseconds")}
        if self._as_json:
            line = json.dumps(stamp | {"level": level, "event": event} | values, default=str, ensure_ascii=False)
        else:
            words = [*stamp.values(), level.upper().ljust(7), event]
            line = " ".join([*words, *(f"{key}={_value(value)}" for key, value in values.items())])
        if len(self._lines) >= MOST_LINES:
            self._dropped += 1
        else:
            self._lines.append(f"<{_PRIORITIES[level]}>{line}\n" if self._journal else f"{line}\n")
        self._background.put("log", self._write, time.monotonic())

    def close(self) -> None:
        """Write what is left, unless nobody reads."""
        self._background.close()

    def _write(self) -> str:
        with suppress(OSError, ValueError):
            while self._lines:
                sys.stderr.write(self._lines.popleft())
                if not self._lines and self._dropped:
                    dropped, self._dropped = self._dropped, 0
                    sys.stderr.write(f"{dropped} events were dropped here: nobody read them\n")
            sys.stderr.flush()
        return ""


def _value(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not any(char in ' "=' for char in text) else json.dumps(text)


class SmallFile:
    """A file whose content has always the same length, written in place: that needs no space on a full disk.

    keepalived takes notice when it is closed after writing. :meth:`write` gives False where it failed; it is tried
    again with the next call.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._written: bytes | None = None
        self.error = ""

    def write(self, content: bytes) -> bool:
        """Write what is not there yet."""
        if content == self._written:
            return True
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            try:
                complete = os.pwrite(descriptor, content, 0) == len(content)
            finally:
                os.close(descriptor)
        except OSError as error:
            self.error = error.strerror or str(error)
            return False
        self._written = content if complete else None
        self.error = "" if complete else "was written in part only"
        return complete


def boot_seconds() -> bytes:
    """Return the seconds since boot as the heartbeat holds them, always as many bytes."""
    return b"%16.2f\n" % time.clock_gettime(time.CLOCK_BOOTTIME)


def replace(path: str, content: bytes, *, durable: bool = False) -> str:
    """Replace a file at once; give "" or why not. ``durable``: a loss of power leaves the former or the new one."""
    beside = f"{path}.new"
    try:
        with open(beside, "wb") as stream:  # noqa: PTH123 - one call beside the rename
            stream.write(content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        os.rename(beside, path)  # noqa: PTH104 - one call, one effect
    except OSError as error:
        return error.strerror or str(error)
    return ""


def read_document(path: str) -> Mapping[str, Any]:
    """Return a JSON object; an empty one where there is none, or none that can be read."""
    try:
        found = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def tell_systemd(*lines: str) -> None:
    """Tell systemd, where it started this process. Source: sd_notify(3)."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if name[:1] in {"/", "@"}:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), "\0" + name[1:] if name[0] == "@" else name)
