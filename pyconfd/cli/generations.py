"""The commands about the past: ``history``, ``diff``, ``rollback``, ``unpin``."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from pyconfd.cli.calling import outside, settings_of
from pyconfd.cli.choices import as_json as _json
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_difference, print_json, print_notes, print_text
from pyconfd.cli.program import SettingsCommand, teach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyconfd.cli.reports import HistoryRow, PinReport
    from pyconfd.haproxy.difference import Difference

_USAGE = {Exit.USAGE: "the command line is wrong", Exit.CONFIGURATION: "settings are wrong; all problems are listed"}
_AWAY = "this user may not read or write the state directory"
_NOT_YET = "it is written down and does not serve yet; or this user may not write the state directory"
_SHOWN = 20
_CHANGES_SHOWN = 2


@click.command(
    cls=SettingsCommand,
    short_help="List the generations: what changed, when and how.",
    help=teach(
        "List the generations that are kept, newest first: number, time, digest, how it was applied (live, or by a"
        " reload and why), and in words what changed since the one before it in the list: fragments, settings,"
        " services, servers. `*` serves, `p` is pinned.",
        examples={
            "pyconfd history": f"the newest {_SHOWN}",
            "pyconfd history --all": "all that are kept",
            "pyconfd history --json": "for programs, with every change",
        },
        exits={Exit.OK: "shown", Exit.TEMPORARY: _AWAY, **_USAGE},
    ),
)
@click.option("--all", "everything", is_flag=True, help="All that are kept.")
@_json
@click.pass_context
def history(ctx: click.Context, /, *, as_json: bool, everything: bool, **_: object) -> int:
    """Print the history."""
    rows = outside(ctx).app().history(settings_of(ctx), 0 if everything else _SHOWN)
    if as_json:
        print_json([_row_as_json(row) for row in rows])
    elif rows:
        print_text("\n".join(_table(rows)))
    else:
        print_text("No generation was applied yet.")
    return Exit.OK


def _row_as_json(row: HistoryRow) -> dict[str, Any]:
    return {
        "number": row.number,
        "applied_at": row.applied_at,
        "digest": row.digest,
        "how": row.how,
        "reasons": list(row.reasons),
        "since": row.since,
        "edits": [asdict(edit) for edit in row.edits],
        "difference": _difference_as_json(row.difference) if row.difference else None,
        "basis": row.basis,
        "ran_well": row.ran_well,
        "serving": row.serving,
        "pinned": row.pinned,
    }


def _difference_as_json(difference: Difference) -> dict[str, Any]:
    return dict(json.loads(json.dumps(asdict(difference))))


def _table(rows: Sequence[HistoryRow]) -> list[str]:
    head = ("", "number", "applied", "digest", "how", "what changed")
    cells = [head, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return [click.style(lines[0], bold=True), *lines[1:]]


def _cells(row: HistoryRow) -> tuple[str, ...]:
    mark = ("*" if row.serving else "") + ("p" if row.pinned else "")
    when = datetime.fromtimestamp(row.applied_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    sentences = (*map(str, row.edits), *(row.difference.sentences if row.difference else ()))
    more = len(sentences) - _CHANGES_SHOWN
    said = "; ".join(sentences[:_CHANGES_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    how = f"{row.how} ({', '.join(row.reasons)})" if row.reasons else row.how
    first = "nothing before it is kept" if not row.since else "only comments, blanks or the order of sections"
    return mark, str(row.number), when, row.digest[:8], how, said or first


@click.command(
    cls=SettingsCommand,
    short_help="Show what differs between two generations.",
    help=teach(
        "Show what differs from generation A to generation B: in words (fragments, settings, services and servers that"
        " were added, removed or changed), and as a unified diff. Without B it is what serves; without A the one"
        " before B. Passwords are not shown.",
        examples={
            "pyconfd diff": "the last change",
            "pyconfd diff 41": "since generation 41",
            "pyconfd diff 41 44": "from one to the other",
        },
        exits={
            Exit.OK: "they are the same",
            Exit.CHANGES: "they differ",
            Exit.FAILED: "there is no such generation",
            Exit.TEMPORARY: _AWAY,
            **_USAGE,
        },
    ),
)
@click.argument("before", metavar="[A]", type=int, required=False)
@click.argument("after", metavar="[B]", type=int, required=False)
@_json
@click.pass_context
def diff(ctx: click.Context, /, before: int | None, after: int | None, *, as_json: bool, **_: object) -> int:
    """Print a difference."""
    report = outside(ctx).app().diff(settings_of(ctx), before, after)
    code = Exit.CHANGES if report.sentences or report.text or report.notes else Exit.OK
    if as_json:
        named = {"from": report.before, "to": report.after, "edits": [asdict(edit) for edit in report.edits]}
        print_json({**named, **_difference_as_json(report.difference), "text": report.text})
        return code
    print_notes(report.notes)
    print_text(click.style(f"From generation {report.before} to {report.after}:", bold=True))
    for sentence in report.sentences or ("nothing differs but comments, blanks or the order of sections",):
        print_text(f"  {sentence}")
    if report.text:
        print_text("")
        print_difference(report.text)
    return code


@click.command(
    cls=SettingsCommand,
    short_help="Go back to former fragments and settings, and pin them.",
    help=teach(
        "Bring back the fragments and settings of a generation, by default of the newest that had others than those"
        " now, and pin them: edits on disk wait until `pyconfd unpin`. Endpoints stay live: the pods of now are served,"
        " not those of then. The pin outlives restarts; where no pyconfd runs, its next start begins with it."
        "\n\nEndpoint changes make generations too: going back does not undo those.",
        examples={
            "pyconfd rollback": "undo the last edit that came to serve",
            "pyconfd rollback 41 --reason 'checkout is broken'": "see pyconfd history",
        },
        exits={
            Exit.OK: "it serves, or will at the next start",
            Exit.FAILED: "there is no such generation, or it is pinned and cannot be made to serve",
            Exit.TEMPORARY: _NOT_YET,
            **_USAGE,
        },
    ),
)
@click.argument("number", metavar="[N]", type=int, required=False)
@click.option("--reason", metavar="TEXT", default="", help="Why, for those who look at `pyconfd status`.")
@_json
@click.pass_context
def rollback(ctx: click.Context, /, number: int | None, reason: str, *, as_json: bool, **_: object) -> int:
    """Go back."""
    _say(outside(ctx).app().rollback(settings_of(ctx), number, reason=reason), as_json=as_json)
    return Exit.OK


@click.command(
    cls=SettingsCommand,
    short_help="End a pin: take the fragments on disk again.",
    help=teach(
        "End what `pyconfd rollback` pinned: the fragments and settings on disk serve again.",
        examples={"pyconfd unpin": ""},
        exits={
            Exit.OK: "what is on disk serves, or will at the next start; or nothing was pinned",
            Exit.FAILED: "what is on disk cannot be made to serve; what served still serves",
            Exit.TEMPORARY: _NOT_YET,
            **_USAGE,
        },
    ),
)
@_json
@click.pass_context
def unpin(ctx: click.Context, /, *, as_json: bool, **_: object) -> int:
    """End a pin."""
    _say(outside(ctx).app().unpin(settings_of(ctx)), as_json=as_json)
    return Exit.OK


def _say(report: PinReport, *, as_json: bool) -> None:
    if as_json:
        print_json({"said": report.said, "pinned": report.pinned or None, "serving": report.serving or None})
    else:
        print_text(report.said)


COMMANDS: tuple[click.Command, ...] = (history, diff, rollback, unpin)
