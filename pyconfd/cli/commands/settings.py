"""``pyconfd settings``: every setting, its value and where it comes from."""

import click

from pyconfd.cli.command import CommandContext, command, json_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_notes, print_text
from pyconfd.settings import show


@command(
    examples={
        "pyconfd settings": "what would be used now",
        "pyconfd settings --toml > pyconfd.toml": "the same as a commented file",
        "pyconfd settings --defaults --toml": "a file to begin with",
    },
    exits={Exit.OK: "the settings are good"},
)
@json_option
@click.option("--defaults", is_flag=True, help="Look at no source; show the defaults.")
@click.option("--toml", is_flag=True, help="Print a commented TOML file.")
@click.option("--markdown", is_flag=True, help="Print the reference of all settings (docs/settings.md).")
def settings(context: CommandContext, *, as_json: bool, defaults: bool, toml: bool, markdown: bool) -> int:
    """Show every setting, its value and where it is from.

    Show every setting, its value and where it comes from. A flag wins over the environment, that over the file.
    """
    if sum((as_json, toml, markdown)) > 1:
        raise click.UsageError("--json, --toml and --markdown exclude each other")
    resolved = show.defaults() if defaults or markdown else context.resolve()
    if markdown:
        print_text("\n".join(show.as_markdown()))
    elif toml:
        print_text("\n".join(show.as_toml(resolved)))
    elif as_json:
        print_text(show.as_json(resolved))
    else:
        lines = show.as_text(
            resolved,
            title=lambda text: click.style(text, bold=True),
            changed=lambda text: click.style(text, fg="cyan"),
        )
        print_text("\n".join(lines))
        print_notes(resolved.notes)
    return Exit.OK
