"""Reads a predecessor's files, prints or writes what they are for pyconfd, and reports; behind ``pyconfd migrate``."""

import contextlib
import os
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import click

from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text
from pyconfd.errors import ConfigurationError, Problem
from pyconfd.migrate.migration import migrate
from pyconfd.migrate.report import Effect, InputFile, Migration, OutputText, System

_COLOURS = {Effect.TRANSLATED: "green", Effect.CHANGED: "cyan", Effect.NOTED: "yellow", Effect.LEFT: "red"}


def migrate_files(system: str, paths: Sequence[str], output_dir: str | None, *, force: bool) -> Exit:
    """Migrate files; print the texts, or write them below ``output_dir``; report to standard error.

    Raises:
        ConfigurationError: a file cannot be read or written, or is there already and ``force`` is not given.

    """
    migration = migrate(System(system), [InputFile(Path(path).name, _read(path)) for path in paths])
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
            _replace(directory / output.name, output.text)
        except OSError as error:
            place = str(directory / output.name)
            raise ConfigurationError(Problem(place, f"cannot be written: {error.strerror}")) from error
        click.echo(f"written  {directory / output.name}", err=True)


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:  # noqa: PTH123 - of a descriptor
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
        os.replace(beside, path)  # noqa: PTH105 - both are paths of one directory
    finally:
        with contextlib.suppress(OSError):
            Path(beside).unlink()  # there only if it was not renamed


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
