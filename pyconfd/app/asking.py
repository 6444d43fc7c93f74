"""The commands that ask the loop that runs on this machine, and answer it: status, watch, allow."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pyconfd.app.holds import Holds
from pyconfd.daemon.pause import Pause
from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.model.changes import Change
from pyconfd.model.hold import ADOPTION
from pyconfd.settings import Settings
from pyconfd.status import document
from pyconfd.status.change_text import line_of
from pyconfd.status.changes import ChangeReader
from pyconfd.status.report import read_report
from pyconfd.status.text import render_text


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What the daemon says, or what it left behind."""

    alive: bool
    status: Mapping[str, Any] | None
    text: str
    exit_code: int


def status(settings: Settings) -> StatusReport:
    """Ask the daemon, or read what it left."""
    report = read_report(settings)
    values = msgspec.json.decode(document.encode(report.status)) if report.status else None
    return StatusReport(report.running, values, render_text(report, colour=sys.stdout.isatty()), report.exit_code)


FIRST_SHOWN = 10
"""The changes of the past that are shown before those that come, unless it is said from where on."""


@dataclass(frozen=True, slots=True)
class Watched:
    """One change: a line for a person, and its values."""

    text: str
    values: Mapping[str, Any]


def watch(
    settings: Settings, since: int | None = None, *, pause: Callable[[float], None] = time.sleep
) -> Iterator[Watched]:
    """Return the last changes, or those after the generation ``since``, and then each that comes, for ever.

    Raises:
        TransientError: what the daemon writes cannot be read.
    """
    with ChangeReader(settings.runtime_dir, pause=pause) as reader:
        known = reader.known()
        yield from map(_watched, known[-FIRST_SHOWN:] if since is None else _after(known, since))
        yield from map(_watched, reader.following())


def _after(known: tuple[Change, ...], since: int) -> tuple[Change, ...]:
    return tuple(change for change in known if change.generation > since)


def _watched(change: Change) -> Watched:
    return Watched(line_of(change), msgspec.to_builtins(change))


def allow(settings: Settings, hold_id: str) -> str:
    """Let a held change through once.

    Raises:
        RejectedInput: the daemon does not run, holds nothing, or holds another change.
        TransientError: the permission cannot be written.
    """
    report = read_report(settings)
    held = report.status if report.running else None
    if held is None:
        raise RejectedInput(Problem("allow", "no daemon runs that could hold a change", "see pyconfd status"))
    if not hold_id or held.hold_id != hold_id:
        now = f"what is held is {held.hold_id}" if held.hold_id else "nothing is held"
        raise RejectedInput(Problem("allow", f"no change is held as {hold_id!r}; {now}", "see pyconfd status"))
    if hold_id == ADOPTION:
        raise RejectedInput(Problem("allow", "what HAProxy serves is not let go by an ID", "pyconfd adopt"))
    try:
        Holds(settings.runtime_dir).allow(hold_id)
    except OSError as error:
        problem = Problem(settings.runtime_dir, f"cannot be written: {error.strerror}", "run it as root or as pyconfd")
        raise TransientError(problem) from error
    # Not what the status says: somebody may have paused it a moment ago.
    if Pause(settings.state_dir).read(report.now):
        return f"The change {hold_id} will be applied when applying is resumed: pyconfd resume."
    return f"The change {hold_id} will be applied within two seconds; pyconfd status shows it."
