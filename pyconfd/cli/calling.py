"""What every command needs before its call: the world outside and the settings."""

import click

from pyconfd.cli.application import Outside
from pyconfd.cli.options import flags_of
from pyconfd.cli.output import print_notes
from pyconfd.settings import Resolved, Settings, resolve


def outside(ctx: click.Context) -> Outside:
    """Give what the commands reach beyond their arguments."""
    return ctx.obj if isinstance(ctx.obj, Outside) else Outside()


def resolved(ctx: click.Context) -> Resolved:
    """Give the settings and where they come from."""
    world = outside(ctx)
    return resolve(flags_of(ctx), world.environ, world.read)


def settings_of(ctx: click.Context) -> Settings:
    """Give the settings for a command that ends at once, and print their notes."""
    found = resolved(ctx)
    print_notes(found.notes)
    return found.settings


def settings_for_permissions(ctx: click.Context) -> Settings:
    """Give the settings as far as permissions depend on them: not on which pods the preset ``hosts`` takes."""
    world = outside(ctx)
    found = resolve({**flags_of(ctx), "hosts.master": "any"}, world.environ, world.read)
    print_notes(found.notes)
    return found.settings
