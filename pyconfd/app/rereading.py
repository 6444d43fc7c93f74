"""``pyconfd reload``: has the daemon read its settings again and waits for the verdict; ``systemctl reload`` runs it.

The daemon leaves the verdict in its runtime directory: a broken file of settings may name no page to ask.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from pyconfd.errors import ConfigurationError, Problem, RejectedInput, TransientError
from pyconfd.settings import Settings
from pyconfd.status.report import read_report
from pyconfd.system.files import replace_shared

log = structlog.get_logger(__name__)

FILE_NAME = "settings-read.json"
WAIT_S = 150.0
"""Before it reads them the daemon ends its turn: a check (60 s), a reload and the one that undoes it (30 s each)."""
POLL_S = 0.05


class Verdict(msgspec.Struct, frozen=True):
    """What process ``pid`` made of its settings when it began to read them at ``begun`` (``time.monotonic()``)."""

    pid: int
    begun: float
    problems: tuple[Problem, ...] = ()


def keep(settings: Settings, verdict: Verdict) -> None:
    """Write the verdict for who asked; never raise: the settings are in force all the same."""
    try:
        replace_shared(str(Path(settings.runtime_dir) / FILE_NAME), msgspec.json.encode(verdict))
    except (OSError, TransientError) as error:
        log.warning("settings.verdict_not_written", error=str(error))


def reload(
    settings: Settings,
    pid: int = 0,
    *,
    pause: Callable[[float], None] = time.sleep,
    send: Callable[[int, int], None] = os.kill,
) -> str:
    """Have the daemon (``pid``, 0 to look for it) read its settings again; return a sentence once they are in force.

    Raises:
        ConfigurationError: it refuses them, and goes on with the former ones.
        RejectedInput: no daemon runs.
        TransientError: it may not be told, ends, or says nothing in time.
    """
    if not pid:
        report = read_report(settings)
        pid = report.status.pid if report.status is not None and report.running else 0
    if not pid:
        raise RejectedInput(
            Problem("pyconfd", "no daemon runs that could read its settings", "systemctl start pyconfd")
        )
    begun = time.monotonic()
    _tell(pid, signal.SIGHUP, send)
    while time.monotonic() < begun + WAIT_S:
        verdict = _read(settings)
        if verdict is not None and verdict.pid == pid and verdict.begun >= begun:
            if verdict.problems:
                raise ConfigurationError(*verdict.problems)
            return "The settings were read again and are in force."
        _tell(pid, 0, send)
        pause(POLL_S)
    raise TransientError(Problem(f"pid {pid}", f"no verdict after {WAIT_S:.0f} s", "journalctl -u pyconfd"))


def _tell(pid: int, number: int, send: Callable[[int, int], None]) -> None:
    try:
        send(pid, number)
    except PermissionError as error:
        raise TransientError(
            Problem(f"pid {pid}", "this user may not signal it", "systemctl reload pyconfd")
        ) from error
    except ProcessLookupError as error:
        raise TransientError(Problem(f"pid {pid}", "the daemon has ended", "journalctl -u pyconfd")) from error


def _read(settings: Settings) -> Verdict | None:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((Path(settings.runtime_dir) / FILE_NAME).read_bytes(), type=Verdict)
    return None
