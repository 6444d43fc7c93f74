"""``pyconfd render``: print the configuration, and the files beside it."""

import difflib
from collections.abc import Sequence

import click

from pyconfd import wiring
from pyconfd.app.dry_run import EmptyBalancer, dry_run
from pyconfd.cli.command import SNAPSHOT_HELP, CommandContext, command, snapshot_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_configuration, print_notes, print_refused, print_text
from pyconfd.errors import ConfigurationError, Problem
from pyconfd.model.rendering import FileKind, OutputFile, Piece
from pyconfd.printable import clean
from pyconfd.settings import Settings

_EXITS = {Exit.FAILED: "a fragment has an error"}


@command(
    examples={
        "pyconfd render --api-servers https://10.31.12.49:6443": "from the cluster",
        "kubectl get svc,endpointslices,endpoints -A -o yaml > dump": "",
        "pyconfd render --snapshot dump --template-dir .": "offline",
        "pyconfd render --fragment 02-http.tmpl": "one fragment's text",
    },
    exits=_EXITS,
)
@snapshot_option(SNAPSHOT_HELP)
@click.option("--fragment", metavar="NAME", help="Print only the text that this fragment gives.")
@click.option("--files", is_flag=True, help="Print the maps too; of certificates only their names.")
def render(context: CommandContext, snapshots: tuple[str, ...], fragment: str | None, *, files: bool) -> int:
    """Print what would be written; change nothing.

    Render the fragments and print the configuration; nothing is written and HAProxy is not asked.
    """
    return _render(context.settings(), snapshots, fragment, files=files)


@command(
    examples={"pyconfd view": "prints the configuration"},
    exits=_EXITS,
    hidden=True,
)
def view(context: CommandContext) -> int:
    """Do what haproxy-kubefigurator called `view`: `pyconfd render` now."""
    print_notes(("view is `pyconfd render` now",))
    return _render(context.settings(), (), None, files=False)


def _render(settings: Settings, snapshots: tuple[str, ...], fragment: str | None, *, files: bool) -> Exit:
    """Print the rendering; without haproxy what the targets' templates give."""
    once = dry_run(settings, snapshots, EmptyBalancer())
    rendering = once.rendering
    pieces, beside = rendering.pieces, rendering.files
    if not wiring.serves_haproxy(settings):
        pieces, beside = (
            tuple(Piece(target.settings.name, text) for target, text in wiring.render_targets(settings, once.context)),
            (),
        )
    print_notes(once.notes)
    print_refused(once.refused)
    if fragment is None:
        print_configuration("".join(piece.text for piece in pieces))
    else:
        print_configuration(_piece(pieces, fragment))
    if files:
        _print_files(beside)
    return Exit.OK


def _piece(pieces: Sequence[Piece], fragment: str) -> str:
    texts = {piece.fragment: piece.text for piece in pieces}
    if fragment not in texts:
        close = difflib.get_close_matches(fragment, texts, n=1)
        remedy = f"did you mean {close[0]}?" if close else f"there are: {', '.join(texts) or 'none'}"
        raise ConfigurationError(Problem("--fragment", f"there is no fragment {fragment!r}", remedy))
    return texts[fragment]


def _print_files(files: Sequence[OutputFile]) -> None:
    """Print the files beside a configuration; of certificates only that they are there."""
    for file in files:
        print_text("")
        if file.kind is FileKind.CERTIFICATE:
            print_text(f"# --- {clean(file.path)} (certificate, {len(file.content.encode())} bytes, not shown)")
        else:
            print_text(f"# --- {clean(file.path)}")
            print_configuration(file.content, newline=not file.content.endswith("\n"))
