"""The command that serves a file on loopback."""

from contextlib import closing

import click

from pyconfd.cli.calling import outside, resolved
from pyconfd.cli.choices import snapshot
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text
from pyconfd.cli.program import SettingsCommand, teach


@click.command(
    "try",
    cls=SettingsCommand,
    short_help="Serve a file's objects on loopback, with stand-ins for pods.",
    help=teach(
        "Serve what `kubectl get` printed on this machine's loopback: a real haproxy, your fragments or the shipped"
        " ones, and for each pod a stand-in that answers with the pod's name. It says which URL reaches which Service,"
        " and why others are not there. Edits of the file and of the fragments apply while it runs. It needs no root,"
        " binds only to 127.0.0.0/8, connects to nothing else, and leaves nothing behind; Ctrl-C ends it.",
        examples={
            "kubectl get services,endpointslices,endpoints,nodes -A -o yaml > mine.yaml": "",
            "pyconfd try --snapshot mine.yaml": "with the shipped fragments",
            "pyconfd try --snapshot mine.yaml --template-dir ./fragments": "with yours",
            "pyconfd try --snapshot mine.yaml --config pyconfd.toml": "with your settings",
        },
        exits={
            Exit.OK: "it was ended with Ctrl-C",
            Exit.TEMPORARY: "haproxy cannot be run, or ended by itself",
            Exit.USAGE: "the command line is wrong",
            Exit.CONFIGURATION: "settings or the file are wrong; all problems are listed",
        },
    ),
)
@snapshot("What `kubectl get ... -o yaml|json` or `pyconfd record` wrote; may be repeated.", required=True)
@click.pass_context
def try_snapshot(ctx: click.Context, /, snapshots: tuple[str, ...], **_: object) -> int:
    """Serve files on loopback."""
    with closing(outside(ctx).app().try_snapshot(resolved(ctx), snapshots)) as lines:
        for line in lines:
            print_text(line)
    return Exit.OK
