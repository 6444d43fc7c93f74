"""``pyconfd try``: serve a file's objects on loopback."""

from contextlib import closing

from pyconfd.app.trying import try_snapshot
from pyconfd.cli.command import CommandContext, command, snapshot_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text


@command(
    "try",
    examples={
        "kubectl get services,endpointslices,endpoints,nodes -A -o yaml > mine.yaml": "",
        "pyconfd try --snapshot mine.yaml": "with the shipped fragments",
        "pyconfd try --snapshot mine.yaml --template-dir ./fragments": "with yours",
        "pyconfd try --snapshot mine.yaml --config pyconfd.toml": "with your settings",
    },
    exits={
        Exit.OK: "it was ended with Ctrl-C",
        Exit.TEMPORARY: "haproxy cannot be run, or ended by itself",
        Exit.CONFIGURATION: "settings or the file are wrong; all problems are listed",
    },
)
@snapshot_option("What `kubectl get ... -o yaml|json` or `pyconfd record` wrote; may be repeated.", required=True)
def try_(context: CommandContext, snapshots: tuple[str, ...]) -> int:
    """Serve a file's objects on loopback, with stand-ins for pods.

    Serve what `kubectl get` printed on this machine's loopback: a real haproxy, your fragments or the shipped ones, and
    for each pod a stand-in that answers with the pod's name. It says which URL reaches which Service, and why others
    are not there. Edits of the file and of the fragments apply while it runs. It needs no root, binds only to
    127.0.0.0/8, connects to nothing else, and leaves nothing behind; Ctrl-C ends it.
    """
    with closing(try_snapshot(context.resolve(), snapshots)) as lines:
        for line in lines:
            print_text(line)
    return Exit.OK
