"""The command that prints each change as it goes live.

haproxy-kubefigurator had one of this name that publishes; with flags of etcd or of Kubernetes it does so still.
"""

import json

import click

from pyconfd.cli.calling import outside, settings_of
from pyconfd.cli.choices import as_json as _json
from pyconfd.cli.exits import Exit
from pyconfd.cli.options import flags_of
from pyconfd.cli.output import print_notes, print_text
from pyconfd.cli.program import SettingsCommand, teach
from pyconfd.cli.sharing import publishing

_PUBLISHES = ("etcd.", "kubernetes.")
"""Sections whose flags its users gave; none of them means anything to who only looks on."""


@click.command(
    cls=SettingsCommand,
    short_help="Print each change as it goes live.",
    help=teach(
        "Print each change as it goes live: what, how fast, whether it took a reload and why, what serves since; and"
        " what was refused. It begins with the last ten, may be started before the daemon and ends with Ctrl-C.",
        examples={
            "pyconfd watch": "in a second terminal, while you change something",
            "pyconfd watch --since 418": "all that came after generation 418",
            "pyconfd watch --json": "for programs: one object a line",
        },
        exits={
            Exit.OK: "it was ended with Ctrl-C",
            Exit.TEMPORARY: "what the daemon writes cannot be read",
            Exit.USAGE: "the command line is wrong",
            Exit.CONFIGURATION: "settings are wrong; all problems are listed",
        },
    ),
)
@click.option(
    "--since",
    type=click.IntRange(min=0),
    metavar="GENERATION",
    help="Begin with the changes after this generation, as far as they are kept.",
)
@_json
@click.pass_context
def watch(ctx: click.Context, /, since: int | None, *, as_json: bool, **_: object) -> int:
    """Print the changes."""
    if since is None and any(path.startswith(_PUBLISHES) for path in flags_of(ctx)):
        print_notes(("watch is `pyconfd publish` now",))
        return publishing(ctx, once=False)
    changes = outside(ctx).app().watch(settings_of(ctx), since)
    try:
        for change in changes:
            print_text(json.dumps(change.values, ensure_ascii=False) if as_json else change.text)
    except KeyboardInterrupt:
        return Exit.OK
    return Exit.OK
