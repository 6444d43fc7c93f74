"""``pyconfd allow``: let a held change through once."""

import click

from pyconfd.app.service import Holds
from pyconfd.cli.command import CommandContext, command
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text
from pyconfd.daemon.pause import Pause
from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.model.hold import ADOPTION
from pyconfd.status.document import read_report


@command(
    examples={"pyconfd allow 3f9c2b1a": "this change, and no later one"},
    exits={
        Exit.OK: "it will be applied",
        Exit.FAILED: "nothing is held under this ID",
        Exit.TEMPORARY: "the permission cannot be written",
    },
)
@click.argument("hold_id", metavar="ID")
def allow(context: CommandContext, hold_id: str) -> int:
    """Apply a held change once.

    Removal protection holds a change that would remove every endpoint, or suddenly too many. `pyconfd status` shows
    its ID.
    """
    settings = context.settings()
    report = read_report(settings)
    held = report.status if report.running else None
    if held is None:
        raise RejectedInput(Problem("allow", "no daemon runs that could hold a change", "see pyconfd status"))
    if not hold_id or held.hold_id != hold_id:
        now = f"what is held is {held.hold_id}" if held.hold_id else "nothing is held"
        raise RejectedInput(Problem("allow", f"no change is held as {hold_id!r}; {now}", "see pyconfd status"))
    if hold_id == ADOPTION:
        raise RejectedInput(
            Problem(
                "allow", "a configuration that pyconfd did not write is adopted, not allowed by an ID", "pyconfd adopt"
            )
        )
    try:
        Holds(settings.runtime_dir).allow(hold_id)
    except OSError as error:
        problem = Problem(settings.runtime_dir, f"cannot be written: {error.strerror}", "run it as root or as pyconfd")
        raise TransientError(problem) from error
    # Not what the status says: somebody may have paused it a moment ago.
    if Pause(settings.state_dir).read(report.now):
        print_text(f"The change {hold_id} will be applied when applying is resumed: pyconfd resume.")
    else:
        print_text(f"The change {hold_id} will be applied within two seconds; pyconfd status shows it.")
    return Exit.OK
