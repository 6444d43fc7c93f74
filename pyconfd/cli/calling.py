"""What every command needs before its call: the world outside and the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyconfd.cli.application import Outside
from pyconfd.cli.exits import Exit, show_error
from pyconfd.cli.options import flags_of
from pyconfd.cli.output import print_notes
from pyconfd.errors import ConfigurationError
from pyconfd.settings import Resolved, Settings, resolve

if TYPE_CHECKING:  # the reports of all commands, which one command has no use for
    import click

    from pyconfd.cli.reports import StatusReport, VipReport


def outside(ctx: click.Context) -> Outside:
    """Return what the commands reach beyond their arguments."""
    return ctx.obj if isinstance(ctx.obj, Outside) else Outside()


def resolved(ctx: click.Context) -> Resolved:
    """Return the settings and where they come from."""
    world = outside(ctx)
    return resolve(flags_of(ctx), world.environ, world.read)


def settings_of(ctx: click.Context) -> Settings:
    """Return the settings for a command that ends at once, and print their notes."""
    found = resolved(ctx)
    print_notes(found.notes)
    return found.settings


def settings_to_look_with(ctx: click.Context) -> tuple[Settings, bool]:
    """Return the settings for a command that only looks, and True where the file cannot be used: then why is printed.

    The daemon goes on with what it read before the file was broken, and is most probably found where it always is.
    """
    world = outside(ctx)
    flags = flags_of(ctx)
    try:
        return resolve(flags, world.environ, world.read).settings, False
    except ConfigurationError as error:
        if any(problem.place.startswith("--") for problem in error.problems):
            raise
        show_error(error, Exit.CONFIGURATION)
    try:
        return resolve(flags, world.environ, lambda _: "").settings, True
    except ConfigurationError:
        return Settings(), True


def exit_of_look(report: StatusReport | VipReport, *, wrong: bool) -> int:
    """Return the exit code of such a command; it tells of wrong settings too."""
    if wrong:
        return Exit.FAILED if report.alive else Exit.CONFIGURATION
    return report.exit_code


def settings_for_permissions(ctx: click.Context) -> Settings:
    """Return the settings as far as permissions depend on them: not on which pods the preset ``hosts`` takes."""
    world = outside(ctx)
    found = resolve({**flags_of(ctx), "hosts.master": "any"}, world.environ, world.read)
    print_notes(found.notes)
    return found.settings
