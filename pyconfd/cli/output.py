"""Printing: text, refused objects, a plan and its diff, for people or as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any, assert_never

import click

from pyconfd.cli.exits import Exit
from pyconfd.haproxy.plan_text import described, reason_text, summarised, transcript
from pyconfd.model.plan import Noop, Plan, Reload, RuntimeUpdate
from pyconfd.model.rendering import FileKind, OutputFile
from pyconfd.printable import clean, clean_lines, escaped, escaped_json

if TYPE_CHECKING:  # msgspec, behind the model of Kubernetes, would be loaded for --version
    from collections.abc import Mapping, Sequence

    from pyconfd.cli.reports import PlanReport
    from pyconfd.model.context import Refusal
    from pyconfd.model.plan import Command


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
    """Print to standard error what was left out, and why."""
    if not refused:
        return
    count = "1 object was" if len(refused) == 1 else f"{len(refused)} objects or values were"
    click.echo(click.style(f"{count} left out; everything else went on:", fg="yellow"), err=True)
    for item in refused:
        value = f" {clean(item.value)}" if item.value else ""
        click.echo(f"  {_place(item)}{value}: {clean(item.detail)} [{item.reason.value}]", err=True)


def _place(item: Refusal) -> str:
    return f"{item.ref} {clean(item.field)}".rstrip()


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
    ]


def print_files(files: Sequence[OutputFile]) -> None:
    """Print the files beside a configuration; of certificates only that they are there."""
    for file in files:
        print_text("")
        if file.kind is FileKind.CERTIFICATE:
            print_text(f"# --- {clean(file.path)} (certificate, {len(file.content.encode())} bytes, not shown)")
        else:
            print_text(f"# --- {clean(file.path)}")
            print_configuration(file.content, newline=not file.content.endswith("\n"))


def _diff_line(raw: str) -> str:
    line = clean(raw.replace("\t", "        "))
    if line.startswith(("+++", "---")):
        return click.style(line, bold=True)
    colours = {"+": "green", "-": "red", "@": "cyan"}
    return click.style(line, fg=colours[line[0]]) if line[:1] in colours else line


def print_difference(text: str) -> None:
    """Print a unified diff, coloured."""
    for line in text.removesuffix("\n").split("\n"):
        print_text(_diff_line(line))


MOST_SHOWN = 100
"""Commands shown to a person; JSON has all."""


def _plan_as_json(plan: Plan) -> Mapping[str, Any]:
    match plan:
        case Noop():
            return {"kind": "noop", "reasons": [], "details": []}
        case RuntimeUpdate(commands, details):
            return {"kind": "live", "reasons": [], "details": list(details), "commands": list(transcript(commands))}
        case Reload():
            reasons = [reason.value for reason in plan.reasons]
            before = list(transcript(plan.live.commands)) if plan.live else []
            return {
                "kind": "reload",
                "reasons": reasons,
                "details": list(plan.details),
                "advice": list(plan.advice),
                "commands": before,
            }
    assert_never(plan)


def print_plan(report: PlanReport, *, as_json: bool) -> Exit:
    """Print a plan (how, why, and the diff) and give the exit code that says whether there is anything to do."""
    code = Exit.OK if isinstance(report.plan, Noop) else Exit.CHANGES
    if as_json:
        print_json(
            {
                "changes": code is Exit.CHANGES,
                "plan": _plan_as_json(report.plan),
                "diff": report.diff,
                "notes": list(report.notes),
                "refused": refused_as_json(report.refused),
            }
        )
        return code
    print_notes(report.notes)
    print_refused(report.refused)
    match report.plan:
        case Noop():
            print_text("Nothing to do: what is applied is what the cluster and the fragments ask for.")
        case RuntimeUpdate(commands, details):
            _print_live(commands, details)
        case Reload():
            _print_reload(report.plan)
    if report.diff and code is Exit.CHANGES:
        print_text("")
        print_difference(report.diff)
    return code


def _print_live(commands: Sequence[Command], details: Sequence[str]) -> None:
    if commands:
        print_text(click.style(f"HAProxy would be changed while it runs, no reload: {summarised(commands)}", bold=True))
        _print_commands(commands)
        return
    print_text(click.style("Only the file would change, HAProxy would stay as it is:", bold=True))
    _print_lines(details)


def _print_reload(plan: Reload) -> None:
    reason = ", ".join(reason_text(item) for item in plan.reasons)
    print_text(click.style(f"HAProxy would be reloaded: {reason}", bold=True))
    _print_lines(plan.details)
    if plan.advice:
        print_text(click.style("What would avoid it:", bold=True))
        _print_lines(plan.advice)
    if plan.live and plan.live.commands:
        print_text(click.style(f"Without waiting for the reload: {summarised(plan.live.commands)}", bold=True))
        _print_commands(plan.live.commands)


def _print_commands(commands: Sequence[Command]) -> None:
    _print_lines([described(command) for command in commands[:MOST_SHOWN]])
    if len(commands) > MOST_SHOWN:
        print_text(f"  and {len(commands) - MOST_SHOWN} more; --json has all")


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        print_text(f"  {clean(line)}")
