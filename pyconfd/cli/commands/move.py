"""``pyconfd move``: what becomes of Ingresses that were written for another controller."""

from collections import Counter
from typing import Any

import click

from pyconfd import wiring
from pyconfd.app.moving import IngressMove, Verdict, moves_of
from pyconfd.cli.command import CommandContext, command, json_option, snapshot_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_notes, print_text
from pyconfd.printable import clean_lines

_INGRESS_NGINX = ("nginx",)
"""The class that its documentation names."""


@command(
    examples={
        "kubectl get ingresses,ingressclasses,services,endpointslices,nodes -A -o yaml > mine.yaml": "",
        "pyconfd move --snapshot mine.yaml": "all Ingresses of class nginx, or of ingress.nginx_classes",
    },
    exits={Exit.CHANGES: "something would be open that was closed"},
)
@snapshot_option("What `kubectl get ... -o yaml|json` or `pyconfd record` wrote; may be repeated.", required=True)
@click.option("--from", "origin", type=click.Choice(["nginx"]), default="nginx", help="The controller: ingress-nginx.")
@json_option
def move(context: CommandContext, snapshots: tuple[str, ...], origin: str, *, as_json: bool) -> int:
    """Show what becomes of Ingresses of ingress-nginx.

    For each Ingress: whether pyconfd serves it the same, what differs, or why it is refused and what to write instead.
    Snippets are never executed; it says what they probably want. Nothing is written and no cluster is asked.
    """
    del origin
    settings = context.settings()
    snapshot, _ = wiring.snapshot_once(settings, snapshots)
    classes = settings.ingress.nginx_classes or _INGRESS_NGINX
    moves, notes = moves_of(snapshot, wiring.base_options(settings), classes)
    opened = sum(bool(each.opened) for each in moves)
    code = Exit.CHANGES if opened else Exit.OK
    print_notes(notes)
    if as_json:
        print_json({"ingresses": [_as_json(each) for each in moves], "opened": opened, "notes": notes})
        return code
    for each in moves:
        print_text(f"{each.verdict:9}  {clean_lines('/'.join(each.key))}")
        for note in each.notes:
            print_text(f"           {clean_lines(note)}")
        for note in each.opened:
            print_text(f"           OPEN THAT WAS CLOSED: {clean_lines(note)}")
    counts = Counter(each.verdict for each in moves)
    total = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
    print_text(f"{len(moves)} Ingresses: {total}; {opened} open that were closed")
    return code


def _as_json(move: IngressMove) -> dict[str, Any]:
    return {"ingress": "/".join(move.key), "verdict": move.verdict, "notes": move.notes, "opened": move.opened}
