"""The command that tests fragments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyconfd.cli.calling import outside, resolved
from pyconfd.cli.choices import as_json as _json
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_text
from pyconfd.cli.program import SettingsCommand, teach
from pyconfd.errors import ConfigurationError, Problem
from pyconfd.testing import report

if TYPE_CHECKING:  # what is behind it is loaded when a command needs it
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyconfd.cli.reports import TrialRound
    from pyconfd.testing.report import Result

_COLOURS = {"ok": "green", "failed": "red", "place": "yellow"}


@click.command(
    "test",
    cls=SettingsCommand,
    short_help="Test fragments.",
    help=teach(
        "Run the tests beside the fragments: objects in; expectations on the text, and on whether a change goes live or"
        " takes a reload. Each rendering has to pass `haproxy -c`, and be the same for the same objects in another"
        " order.\n\nPATH is a test file (*.test.toml) or a directory of fragments; without one it is templates.dir.",
        examples={
            "pyconfd test /etc/pyconfd": "the tests beside these fragments, and in the folder tests",
            "pyconfd test --watch .": "again after each save, with what it changed",
            "pyconfd test --update .": "write files of expected text anew",
            "pyconfd test --junit report.xml .": "for continuous integration",
        },
        exits={
            Exit.OK: "all passed",
            Exit.FAILED: "a test failed",
            Exit.TEMPORARY: "haproxy cannot be asked",
            Exit.USAGE: "the command line is wrong",
            Exit.CONFIGURATION: "settings, tests or fixtures are wrong, or there are no tests",
        },
    ),
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path())
@click.option("--only", default="", metavar="TEXT", help="Run the tests with this in their name.")
@click.option("--update", is_flag=True, help="Write the files of equals_file anew; read the difference afterwards.")
@click.option("--watch", is_flag=True, help="Run again after each edit and show what it changed, until Ctrl-C.")
@_json
@click.option("--junit", metavar="FILE", type=click.Path(dir_okay=False), help="Write the results as JUnit XML too.")
@click.pass_context
def run_tests(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    only: str,
    junit: str | None,
    *,
    as_json: bool,
    update: bool,
    watch: bool,
    **_: object,
) -> int:
    """Run tests of fragments."""
    if watch and (update or junit or as_json):
        raise click.UsageError("--watch goes with none of --update, --junit and --json", ctx)
    app = outside(ctx).app()
    if watch:
        return _watch(app.watch_tests(resolved(ctx), paths, only=only))
    results = []
    for result in app.run_tests(resolved(ctx), paths, only=only, update=update):
        results.append(result)
        if not as_json:
            _print(result)
    if as_json:
        print_json(report.as_values(results))
    else:
        _print_summary(results)
    if junit is not None:
        try:
            Path(junit).write_text(report.as_junit(results), "utf-8")
        except OSError as error:
            raise ConfigurationError(Problem(junit, f"cannot be written: {error.strerror}")) from error
    return Exit.OK if all(result.passed for result in results) else Exit.FAILED


def _watch(rounds: Iterable[TrialRound]) -> int:
    try:
        for each in rounds:
            for problem in each.problems:
                print_text(f"{click.style('cannot be tested', fg='red')} {problem}")
            for name, lines in _told_once(each.changes):
                print_text(click.style(f"changed: {name}", fg="cyan"))
                _print_lines(lines)
            for result in each.results:
                _print(result)
            if each.results:
                _print_summary(each.results)
            print_text("")
    except KeyboardInterrupt:
        return Exit.OK
    return Exit.OK


def _told_once(changes: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return what changed, each part in the first test that shows it: one edit changes what nearly all tests render."""
    told: set[tuple[str, ...]] = set()
    same = 0
    for name, lines in changes.items():
        new: list[str] = []
        for part in _parts(lines):
            edits = tuple(line for line in part if line.startswith(("+", "-")))
            if edits not in told:
                told.add(edits)
                new += part
        if new:
            yield name, tuple(new)
        else:
            same += 1
    if same:
        yield f"the same in {same} more test{'s' if same != 1 else ''}", ()


def _parts(lines: Sequence[str]) -> Iterator[list[str]]:
    """Return the parts of a unified diff without its headers, which name nothing."""
    part: list[str] = []
    for line in lines:
        if line.startswith(("--- ", "+++ ")):
            continue
        if line.startswith("@@") and part:
            yield part
            part = []
        part.append(line)
    if part:
        yield part


def _print(result: Result) -> None:
    for kind, text in report.as_lines(result):
        if kind == "detail":
            _print_lines((text,))
        elif kind in {"ok", "failed"}:
            print_text(f"{click.style(kind.ljust(6), fg=_COLOURS[kind])} {text}")
        else:
            print_text(f"  {click.style(text, fg=_COLOURS.get(kind))}")


def _print_lines(lines: Sequence[str]) -> None:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in lines:
        print_text(f"    {click.style(line, fg=colours.get(line[:1]))}")


def _print_summary(results: Sequence[Result]) -> None:
    failed = any(not result.passed for result in results)
    print_text(click.style(report.summary(results), fg="red" if failed else "green", bold=True))
