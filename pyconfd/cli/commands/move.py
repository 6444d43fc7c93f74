"""``pyconfd move``: what becomes of Ingresses that were written for another controller."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from pyconfd import wiring
from pyconfd.app.moving import IngressMove, Verdict, moves_of
from pyconfd.app.moving_objects import Left, Written, gateway_objects, objects_of
from pyconfd.cli.command import CommandContext, command, json_option, snapshot_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_notes, print_text
from pyconfd.errors import ConfigurationError, Problem
from pyconfd.model.snapshot import Key
from pyconfd.printable import clean_lines

_INGRESS_NGINX = ("nginx",)
"""The class that its documentation names."""


@command(
    examples={
        "kubectl get ingresses,ingressclasses,services,endpointslices,nodes -A -o yaml > mine.yaml": "",
        "pyconfd move --snapshot mine.yaml": "all Ingresses of class nginx, or of ingress.nginx_classes",
        "pyconfd move --snapshot mine.yaml --write moved": "objects for the Gateway API, too",
        "pyconfd try --snapshot mine.yaml --snapshot moved": "serve these on loopback",
    },
    exits={Exit.CHANGES: "something would be open that was closed"},
)
@snapshot_option("What `kubectl get ... -o yaml|json` or `pyconfd record` wrote; may be repeated.", required=True)
@click.option("--from", "origin", type=click.Choice(["nginx"]), default="nginx", help="The controller: ingress-nginx.")
@click.option(
    "--write", "folder", metavar="DIR", help="Write objects for the Gateway API into a folder, which must not exist."
)
@json_option
def move(context: CommandContext, snapshots: tuple[str, ...], origin: str, *, folder: str | None, as_json: bool) -> int:
    """Show what becomes of Ingresses of ingress-nginx.

    For each Ingress: whether pyconfd serves it the same, what differs, or why it is refused and what to write instead.
    Snippets are never executed; it says what they probably want. No cluster is asked, and nothing is written without
    --write: that writes a Gateway and one file of routes for each Ingress that is not refused, and says what they
    cannot have.
    """
    del origin
    settings = context.settings()
    snapshot, _ = wiring.snapshot_once(settings, snapshots)
    classes = settings.ingress.nginx_classes or _INGRESS_NGINX
    options = wiring.base_options(settings)
    moves, notes = moves_of(snapshot, options, classes)
    if folder is not None:
        keys = [each.key for each in moves if each.verdict is not Verdict.REFUSED]
        notes += tuple(_write(Path(folder), objects_of(snapshot, options, keys)))
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


def _write(folder: Path, found: Mapping[Key, Written | Left]) -> Iterator[str]:
    """Write objects, one file for each Ingress, and return what they cannot have."""
    files = {
        Path(key.namespace, f"{key.name}.yaml"): each.objects
        for key, each in found.items()
        if isinstance(each, Written)
    }
    try:
        folder.mkdir(parents=True)
        for path, objects in {Path("gateway.yaml"): gateway_objects(), **files}.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(yaml.safe_dump_all(objects, sort_keys=False), "utf-8")
    except OSError as error:
        remedy = "name a folder that does not exist yet"
        raise ConfigurationError(Problem(str(folder), f"cannot write: {error.strerror}", remedy)) from error
    yield f"{len(files)} of {len(found)} Ingresses are written to {folder}, with their Gateway"
    for key, each in found.items():
        shown = clean_lines("/".join(key))
        for note in (f"no objects for it: {each.why}",) if isinstance(each, Left) else each.differs:
            yield f"{shown}, as written: {clean_lines(note)}"


def _as_json(move: IngressMove) -> dict[str, Any]:
    return {"ingress": "/".join(move.key), "verdict": move.verdict, "notes": move.notes, "opened": move.opened}
