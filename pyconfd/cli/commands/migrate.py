"""``pyconfd migrate``: turn a predecessor's files into pyconfd's."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import click

from pyconfd.cli.command import command
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text
from pyconfd.errors import ConfigurationError, Problem
from pyconfd.predecessors.migrate.migration import migrate as migrated
from pyconfd.predecessors.migrate.report import Effect, InputFile, Migration, OutputText, System

_SYSTEMS = [system.value for system in System]
_COLOURS = {Effect.TRANSLATED: "green", Effect.CHANGED: "cyan", Effect.NOTED: "yellow", Effect.LEFT: "red"}


@command(
    examples={
        "pyconfd migrate kube2lb haproxy.tpl run.sh": "print what they become",
        "pyconfd migrate kube2lb haproxy.tpl --output-dir new": "write it to a directory",
        "pyconfd migrate python-confd pyconfd.env 02-http.tmpl": "variables become pyconfd.toml",
        "pyconfd migrate python-confd keepalived.conf": "a commented-out [vip]",
    },
    exits={
        Exit.OK: "everything was translated",
        Exit.FAILED: "something could not be translated; it is named",
        Exit.CONFIGURATION: "a file cannot be read or written, or is there already",
    },
    cls=click.Command,
)
@click.argument("system", type=click.Choice(_SYSTEMS), metavar="SYSTEM")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, dir_okay=False))
@click.option("--output-dir", metavar="DIR", type=click.Path(file_okay=False), help="Write the files there.")
@click.option("--force", is_flag=True, help="Overwrite files that are there already.")
def migrate(system: str, files: tuple[str, ...], output_dir: str | None, *, force: bool) -> int:
    """Turn a predecessor's files into pyconfd's.

    Go templates become Jinja that renders the same; directives that HAProxy removed become their successors;
    environment files, units, command lines and manifests become pyconfd.toml; keepalived.conf becomes a proposal for
    [vip]. What became of each line goes to standard error. What could not be translated is named there by its line, and
    left marked in the output.

    SYSTEM is one of python-confd, kube2lb, haproxy-kubefigurator, kubernetes-haproxy, ads-infra-haproxy.
    """
    migration = migrated(System(system), [InputFile(Path(path).name, _read(path)) for path in files])
    if output_dir is None:
        _print(migration.outputs)
    else:
        _write(migration.outputs, Path(output_dir), force=force)
    _report(migration)
    return Exit.OK if migration.is_complete else Exit.FAILED


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfigurationError(Problem(path, f"cannot be read: {error.strerror}")) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(Problem(path, f"is not UTF-8 (byte {error.start})", "save it as UTF-8")) from error


def _print(outputs: Sequence[OutputText]) -> None:
    for output in outputs:
        if len(outputs) > 1:
            print_text(f"# --- {output.name}")
        print_text(output.text, newline=not output.text.endswith("\n"))


def _write(outputs: Sequence[OutputText], directory: Path, *, force: bool) -> None:
    existing = [] if force else [output.name for output in outputs if (directory / output.name).exists()]
    if existing:
        remedy = "nothing was written; name another directory, or overwrite with --force"
        raise ConfigurationError(*(Problem(str(directory / name), "is there already", remedy) for name in existing))
    for output in outputs:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / output.name).write_text(output.text, encoding="utf-8", newline="")
        except OSError as error:
            place = str(directory / output.name)
            raise ConfigurationError(Problem(place, f"cannot be written: {error.strerror}")) from error
        click.echo(f"written  {directory / output.name}", err=True)


def _report(migration: Migration) -> None:
    for file, found in groupby(migration.findings, key=lambda finding: finding.file):
        click.echo(click.style(file, bold=True), err=True)
        for finding in found:
            place = f"line {finding.line}: " if finding.line else ""
            effect = click.style(f"{finding.effect.value:<14}", fg=_COLOURS[finding.effect])
            click.echo(f"  {effect}  {place}{finding.message}", err=True)
    left = len(migration.of(Effect.LEFT))
    if left:
        things = "1 thing was" if left == 1 else f"{left} things were"
        click.echo(click.style(f"{things} not translated, as named above; write them by hand.", fg="red"), err=True)
    else:
        click.echo(click.style("Everything was translated.", fg="green"), err=True)
