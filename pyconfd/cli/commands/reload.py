"""``pyconfd reload``: have the daemon read its settings again; ``systemctl reload`` runs it."""

import os
import signal
import time

import click

from pyconfd.app.service import settings_result_file
from pyconfd.cli.command import CommandContext, command
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text
from pyconfd.errors import ConfigurationError, Problem, RejectedInput, TransientError
from pyconfd.status.document import read_report

WAIT_S = 150.0
"""Before it reads them the daemon ends its turn: a check (60 s), a reload and the one that undoes it (30 s each)."""
POLL_S = 0.05


@command(
    examples={"pyconfd reload": "", "systemctl reload pyconfd": "the same as a user who may not signal it"},
    exits={
        Exit.OK: "the settings are in force",
        Exit.FAILED: "no daemon runs",
        Exit.TEMPORARY: "it may not be signalled, or says nothing in time",
        Exit.CONFIGURATION: "the settings are refused; the former ones are still in force",
    },
)
@click.option("--pid", type=click.IntRange(min=1), metavar="PID", help="The daemon. [default: it is asked]")
def reload(context: CommandContext, pid: int | None) -> int:
    """Re-read the daemon's settings.

    Signal the daemon to re-read its settings, and wait until it has: what `systemctl reload pyconfd` runs. Rejected
    settings are printed, and the daemon keeps the previous ones.
    """
    settings, _ = context.settings_or_defaults()
    if not pid:
        report = read_report(settings)
        pid = report.status.pid if report.status is not None and report.running else 0
    if not pid:
        raise RejectedInput(
            Problem("pyconfd", "no daemon runs that could read its settings", "systemctl start pyconfd")
        )
    begun = time.monotonic()
    _signal(pid, signal.SIGHUP)
    while time.monotonic() < begun + WAIT_S:
        result = settings_result_file(settings).load()
        if result is not None and result.pid == pid and result.begun >= begun:
            if result.problems:
                raise ConfigurationError(*result.problems)
            print_text("The settings were read again and are in force.")
            return Exit.OK
        _signal(pid, 0)
        time.sleep(POLL_S)
    raise TransientError(Problem(f"pid {pid}", f"no result after {WAIT_S:.0f} s", "journalctl -u pyconfd"))


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except PermissionError as error:
        raise TransientError(
            Problem(f"pid {pid}", "this user may not signal it", "systemctl reload pyconfd")
        ) from error
    except ProcessLookupError as error:
        raise TransientError(Problem(f"pid {pid}", "the daemon has ended", "journalctl -u pyconfd")) from error
