"""``pyconfd pause`` and ``pyconfd resume``: freeze all applying."""

import time

import click

from pyconfd.cli.command import CommandContext, command, for_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text
from pyconfd.daemon.pause import Pause
from pyconfd.model.status import Paused
from pyconfd.printable import short_duration

_EXITS = {Exit.TEMPORARY: "the state directory cannot be written"}


@command(
    examples={
        "pyconfd pause --for 1h --reason 'moving racks'": "ends by itself",
        "pyconfd pause": "until pyconfd resume",
    },
    exits=_EXITS,
)
@for_option
@click.option("--reason", metavar="TEXT", default="", help="Why, for those who look at `pyconfd status`.")
def pause(context: CommandContext, for_s: float | None, reason: str) -> int:
    """Freeze all applying.

    HAProxy runs on as it is, whatever the cluster and the fragments say, until `pyconfd resume` or
    until the time is over. It outlives a restart of pyconfd.
    """
    now = time.time()
    Pause(context.settings().state_dir).begin(Paused(now, now + for_s if for_s else 0.0, reason))
    end = f"for {short_duration(for_s)}, or until" if for_s else "until"
    print_text(f"Nothing is applied {end} `pyconfd resume`; HAProxy serves on as it is. pyconfd status shows it.")
    return Exit.OK


@command(
    exits=_EXITS,
)
def resume(context: CommandContext) -> int:
    """End a pause.

    What has changed meanwhile is applied at once.
    """
    paused = Pause(context.settings().state_dir)
    former = paused.read(time.time())
    paused.end()
    if former is None:
        print_text("It was not paused.")
    else:
        print_text(f"Changes are applied again, after {short_duration(time.time() - former.since)}.")
    return Exit.OK
