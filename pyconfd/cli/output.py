"""Printing for people and as JSON: text, notes, refused objects, differences, tables."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING

import click

from pyconfd.cli.exits import Exit
from pyconfd.printable import clean, clean_lines, escaped, escaped_json

if TYPE_CHECKING:  # msgspec, behind the model of Kubernetes, would be loaded for --version
    from collections.abc import Sequence

    from pyconfd.model.context import Refusal


def _discard_output() -> None:
    """Point standard output to nowhere, so that the interpreter does not fail a second time on its way out."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_text(text: str, *, newline: bool = True, as_it_is: bool = False) -> None:
    """Print to standard output; a reader that has gone away (``| head``) ends the program quietly.

    Escape sequences are left out where it is no terminal, unless the text goes there ``as_it_is``.
    """
    colour = True if as_it_is else False if os.environ.get("NO_COLOR") else None
    try:
        click.echo(text, nl=newline, color=colour)
    except BrokenPipeError:
        _discard_output()
        raise click.exceptions.Exit(Exit.OUTPUT_CLOSED) from None
    except OSError as error:
        _discard_output()
        raise click.ClickException(f"the output cannot be written: {error.strerror or error}") from error


def print_configuration(text: str, *, newline: bool = False) -> None:
    """Print a configuration or a file of it: byte for byte, but on a terminal with control characters escaped."""
    if sys.stdout.isatty():
        text = "\n".join(escaped(line.replace("\t", "        ")) for line in text.split("\n"))
    print_text(text, newline=newline, as_it_is=True)


def print_json(value: object) -> None:
    """Print one JSON document."""
    print_text(escaped_json(json.dumps(value, indent=2, ensure_ascii=False)))


def print_notes(notes: Sequence[str]) -> None:
    """Print notes to standard error."""
    for note in notes:
        click.echo(f"{click.style('note:', fg='yellow')} {clean_lines(note)}", err=True)


def print_refused(refused: Sequence[Refusal]) -> None:
    """Print to standard error what was left out and why, and what else should be known of objects."""
    for note in (each for each in refused if each.reason.is_note):
        click.echo(click.style("note:", fg="yellow") + f" {note.ref}: {clean(note.detail)}", err=True)
    missing = [each for each in refused if not each.reason.is_note]
    if not missing:
        return
    count = "1 object was" if len(missing) == 1 else f"{len(missing)} objects or values were"
    click.echo(click.style(f"{count} left out; everything else went on:", fg="yellow"), err=True)
    for item in missing:
        value = f" {clean(item.value)}" if item.value else ""
        place = f"{item.ref} {clean(item.field)}".rstrip()
        click.echo(f"  {place}{value}: {clean(item.detail)} [{item.reason.value}]", err=True)


def refused_as_json(refused: Sequence[Refusal]) -> list[dict[str, str]]:
    """Return refusals for JSON."""
    return [
        {
            "object": str(item.ref),
            "field": item.field,
            "value": item.value,
            "reason": item.reason.value,
            "detail": item.detail,
        }
        for item in refused
        if not item.reason.is_note
    ]


def diff_line(raw: str) -> str:
    """Return a line of a unified diff, coloured and fit to be shown."""
    line = clean(raw.replace("\t", "        "))
    if line.startswith(("+++", "---")):
        return click.style(line, bold=True)
    colours = {"+": "green", "-": "red", "@": "cyan"}
    return click.style(line, fg=colours[line[0]]) if line[:1] in colours else line


def print_difference(text: str) -> None:
    """Print a unified diff, coloured."""
    for line in text.removesuffix("\n").split("\n"):
        print_text(diff_line(line))


def print_lines(lines: Sequence[str]) -> None:
    """Print lines below a heading."""
    for line in lines:
        print_text(f"  {clean(line)}")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows with their columns under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below a heading."""
    heading, *lines = aligned([head, *rows])
    print_text("\n".join([click.style(heading, bold=True), *lines]))
