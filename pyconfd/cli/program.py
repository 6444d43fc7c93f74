"""How commands look and end: grouped options, help with examples and exit codes, one way out."""

import sys
from typing import Any, NoReturn

import click

from pyconfd.cli.exits import Boundary, Exit
from pyconfd.cli.options import COMMON, CONFIG_OPTION, OPTIONS, option_groups, with_values_for_booleans

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
"""What all commands share."""


def teach(what: str, *, examples: dict[str, str], exits: dict[Exit, str]) -> str:
    """Return the help of a command: what it does, examples (command to purpose), exit codes."""
    width = max(len(example) for example in examples)
    shown = [f"  {example:<{width}}  {purpose}".rstrip() for example, purpose in examples.items()]
    codes = [f"  {code:>3}  {meaning}" for code, meaning in exits.items()]
    return "\n".join([what, "", "\b", "Examples:", *shown, "", "\b", "Exit codes:", *codes])


def _write_options(
    ctx: click.Context, formatter: click.HelpFormatter, heading: str, options: list[click.Option]
) -> None:
    records = [record for option in options if (record := option.get_help_record(ctx))]
    if records:
        with formatter.section(heading):
            formatter.write_dl(records, col_max=34)


class SettingsCommand(click.Command):
    """A command that takes every setting as an option; ``shows_settings`` puts them all into its help."""

    def __init__(self, *args: Any, shows_settings: bool = False, **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", CONTEXT_SETTINGS)
        super().__init__(*args, **kwargs)
        self._own = list(self.params)
        self._shows_settings = shows_settings
        self.params = [*self._own, CONFIG_OPTION, *OPTIONS.values()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, after boolean flags without a value were given one."""
        return super().parse_args(ctx, with_values_for_booleans(args))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then those of the settings in their sections."""
        own = [
            option
            for option in (*self._own, CONFIG_OPTION, self.get_help_option(ctx))
            if isinstance(option, click.Option)
        ]
        _write_options(ctx, formatter, "Options", own)
        if self._shows_settings:
            for heading, options in option_groups():
                _write_options(ctx, formatter, heading, options)
        else:
            formatter.write_paragraph()
            formatter.write_text("Every setting is an option here too: see `pyconfd run --help`.")


class Program(click.Group):
    """The whole program; without a command's name it is ``run``."""

    command_class = SettingsCommand

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = [*self.params, CONFIG_OPTION, *OPTIONS.values()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, after boolean flags without a value were given one."""
        return super().parse_args(ctx, with_values_for_booleans(args))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they were written down: the daily ones first."""
        del ctx
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options that python-confd had."""
        self.format_commands(ctx, formatter)
        _write_options(ctx, formatter, "Common settings", [CONFIG_OPTION, *(OPTIONS[path] for path in COMMON)])
        rest = [item for item in self.params if item.name == "version"] + [self.get_help_option(ctx)]
        _write_options(ctx, formatter, "Other options", [item for item in rest if isinstance(item, click.Option)])

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run a command line and exit; what goes wrong becomes a message and an exit code, never a bare traceback."""
        kwargs["standalone_mode"] = False
        with Boundary():
            code = super().main(*args, **kwargs)
            sys.exit(code if isinstance(code, int) else 0)
        raise AssertionError("sys.exit returned")  # pragma: no cover - for the type checker
