"""The commands that ask the loop that runs on this machine, and answer it: status, allow."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.model.status import Phase
from pyconfd.settings import Settings
from pyconfd.status import document
from pyconfd.status.report import read_report
from pyconfd.status.text import render_text
from pyconfd.wiring import Holds


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
    if held.phase is not Phase.HELD or held.hold_id != hold_id:
        now = f"what is held is {held.hold_id}" if held.hold_id else "nothing is held"
        raise RejectedInput(Problem("allow", f"no change is held as {hold_id!r}; {now}", "see pyconfd status"))
    try:
        Holds(settings.runtime_dir).allow(hold_id)
    except OSError as error:
        problem = Problem(settings.runtime_dir, f"cannot be written: {error.strerror}", "run it as root or as pyconfd")
        raise TransientError(problem) from error
    return f"The change {hold_id} will be applied within two seconds; pyconfd status shows it."
