"""``pyconfd watch``: each change as it is applied.

haproxy-kubefigurator had a command of this name that publishes; with flags of etcd or of Kubernetes it does so still.
"""

import json

import click
import msgspec

from pyconfd.cli.command import CommandContext, command, json_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_notes, print_text
from pyconfd.model.changes import Change
from pyconfd.status.changes import ChangeReader, line_of

FIRST_SHOWN = 10
"""The changes of the past that are shown before those that come, unless --since is given."""


@command(
    examples={
        "pyconfd watch": "in a second terminal, while you change something",
        "pyconfd watch --since 418": "all that came after generation 418",
        "pyconfd watch --json": "for programs: one object a line",
    },
    exits={Exit.OK: "it was ended with Ctrl-C", Exit.TEMPORARY: "what the daemon writes cannot be read"},
)
@click.option(
    "--since",
    type=click.IntRange(min=0),
    metavar="GENERATION",
    help="Begin with the changes after this generation, as far as they are kept.",
)
@json_option
def watch(context: CommandContext, since: int | None, *, as_json: bool) -> int:
    """Print each change as it is applied.

    Print each change as it is applied: what, how fast, whether it took a reload and why, which generation it made; and
    what was refused. It begins with the last ten, may be started before the daemon and ends with Ctrl-C.
    """
    if since is None and context.sets("etcd", "kubernetes"):
        from pyconfd.cli.commands.etcd import publish_until_stopped  # noqa: PLC0415 - the whole daemon

        print_notes(("watch is `pyconfd publish` now",))
        return publish_until_stopped(context.resolve())
    try:
        with ChangeReader(context.settings().runtime_dir) as reader:
            known = reader.known()
            for change in known[-FIRST_SHOWN:] if since is None else known:
                if since is None or change.generation > since:
                    _print(change, as_json=as_json)
            for change in reader.following():
                _print(change, as_json=as_json)
    except KeyboardInterrupt:
        return Exit.OK
    return Exit.OK


def _print(change: Change, *, as_json: bool) -> None:
    print_text(json.dumps(msgspec.to_builtins(change), ensure_ascii=False) if as_json else line_of(change))
