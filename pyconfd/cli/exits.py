"""The exit codes. Those from 64 on are of ``sysexits.h``, so that no one of them is taken for another."""

import sys
import traceback
from enum import IntEnum
from types import TracebackType

import click

from pyconfd.errors import ConfigurationError, Problem, PyconfdError, TransientError
from pyconfd.printable import clean, clean_lines
from pyconfd.system.secrecy import redacted


class Exit(IntEnum):
    """What the program ends with."""

    OK = 0
    FAILED = 1
    CHANGES = 2
    """Only of ``plan``, ``diff`` and ``move``."""
    NOT_RUNNING = 3
    """Only of ``status``."""
    QUARANTINED = 4
    """Only of ``check``."""
    USAGE = 64
    BUG = 70
    TEMPORARY = 75
    CONFIGURATION = 78
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


def exit_code_of(error: PyconfdError) -> Exit:
    """Return the exit code that says what may help: other settings, another try, or other input."""
    if isinstance(error, ConfigurationError):
        return Exit.CONFIGURATION
    return Exit.TEMPORARY if isinstance(error, TransientError) else Exit.FAILED


_HEADINGS = {
    Exit.CONFIGURATION: "pyconfd cannot use its settings",
    Exit.TEMPORARY: "it cannot be done now; try again when the cause is gone",
    Exit.FAILED: "failed; the running configuration is unchanged",
}


def show_error(error: PyconfdError, code: Exit) -> None:
    """Print what is wrong to the standard error."""
    count = len(error.problems)
    heading = _HEADINGS[code] + (f" ({count} problems):" if count > 1 else ":")
    click.echo(click.style(heading, fg="red", bold=True), err=True)
    for problem in error.problems or (Problem("", str(error) or type(error).__name__),):
        place = click.style(clean(problem.place), bold=True) + ": " if problem.place else ""
        click.echo(f"  {place}{clean_lines(redacted(problem.message))}", err=True)
        if problem.remedy:
            click.echo(f"      -> {clean_lines(redacted(problem.remedy))}", err=True)


class Boundary:
    """The outermost block of the program: what leaves it becomes a message and an exit code."""

    def __enter__(self) -> None:
        """Enter."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, PyconfdError):
            code = exit_code_of(error)
            show_error(error, code)
            raise SystemExit(int(code)) from None
        if isinstance(error, click.Abort | KeyboardInterrupt):
            raise SystemExit(int(Exit.INTERRUPTED)) from None
        if isinstance(error, click.ClickException):
            error.show()
            is_usage = isinstance(error, click.UsageError)
            raise SystemExit(int(Exit.USAGE if is_usage else error.exit_code)) from None
        if isinstance(error, Exception):
            sys.stderr.write(redacted("".join(traceback.format_exception(error))))
            sys.stderr.write("This is a bug in pyconfd; please report it with the lines above.\n")
            raise SystemExit(int(Exit.BUG)) from None
