"""What every command is made of: help with examples and exit codes, the settings as options, and its context."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pyconfd.cli.exits import Exit, show_error
from pyconfd.cli.options import CONFIG_OPTION, OPTIONS, flags_of, option_groups, with_values_for_booleans
from pyconfd.cli.output import print_notes
from pyconfd.errors import ConfigurationError
from pyconfd.settings import Resolved, Settings, resolve
from pyconfd.settings.setting import NotAcceptedError, accept
from pyconfd.settings.values import Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_F = TypeVar("_F", bound="Callable[..., Any]")

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
EXITS = {
    Exit.OK: "done",
    Exit.FAILED: "failed",
    Exit.USAGE: "the command line is wrong",
    Exit.TEMPORARY: "something is away: an API server, a directory, a program; try again when it is back",
    Exit.CONFIGURATION: "settings are wrong; all problems are listed",
}
"""The exit codes of every command, in words; most commands have better ones for some."""


class CommandContext:
    """What a command has beside its own arguments: the settings of this command line."""

    def __init__(self, ctx: click.Context) -> None:
        self._flags = flags_of(ctx)

    def resolve(self, **flags: object) -> Resolved:
        """Return the settings and where they come from; ``flags`` are set beside those of the command line."""
        return resolve({**self._flags, **flags}, os.environ)

    def settings(self, *, log_level: str = "WARNING") -> Settings:
        """Return the settings, print their notes, and log to standard error from this level on."""
        found = self.resolve()
        print_notes(found.notes)
        from pyconfd.status.logging import configure  # noqa: PLC0415 - --version and `settings` go without structlog

        configure(log_level, "text")
        return found.settings

    def settings_or_defaults(self) -> tuple[Settings, bool]:
        """Return the settings for a command that only looks, and whether the file cannot be used: then why is printed.

        The daemon goes on with what it read before the file was broken, and is most probably found where it always is.
        """
        try:
            return self.resolve().settings, False
        except ConfigurationError as error:
            if any(problem.place.startswith("--") for problem in error.problems):
                raise
            show_error(error, Exit.CONFIGURATION)
        try:
            return resolve(self._flags, os.environ, lambda _: "").settings, True
        except ConfigurationError:
            return Settings(), True

    def sets(self, *sections: str) -> bool:
        """Return whether the command line itself has a flag of one of these sections."""
        return any(path.partition(".")[0] in sections for path in self._flags)


class SettingsCommand(click.Command):
    """A command that takes every setting as an option; its function gets a CommandContext and the other parameters."""

    def __init__(self, *args: Any, shows_settings: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._own = list(self.params)
        self._shows_settings = shows_settings
        self.params = [*self._own, CONFIG_OPTION, *OPTIONS.values()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, after boolean flags without a value were given one."""
        return super().parse_args(ctx, with_values_for_booleans(args))

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function."""
        own = {parameter.name: ctx.params[parameter.name] for parameter in self._own if parameter.name}
        return ctx.invoke(self.callback, CommandContext(ctx), **own) if self.callback else None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, then those of the settings in their sections."""
        write_options(ctx, formatter, "Options", [*self._own, CONFIG_OPTION, self.get_help_option(ctx)])
        if self._shows_settings:
            for heading, options in option_groups():
                write_options(ctx, formatter, heading, options)
        else:
            formatter.write_paragraph()
            formatter.write_text("Every setting is an option here too: see `pyconfd run --help`.")


def exit_of_report(code: int, *, alive: bool, wrong: bool) -> int:
    """Return the exit code of a command that only looks; ``wrong``: the settings cannot be used."""
    return code if not wrong else Exit.FAILED if alive else Exit.CONFIGURATION


def write_options(
    ctx: click.Context, formatter: click.HelpFormatter, heading: str, options: Iterable[click.Parameter | None]
) -> None:
    """Write a section of the help."""
    records = [record for option in options if option and (record := option.get_help_record(ctx))]
    if records:
        with formatter.section(heading):
            formatter.write_dl(records, col_max=34)


def teach(what: str, *, examples: Mapping[str, str], exits: Mapping[Exit, str]) -> str:
    """Return the help of a command: what it does, examples (command to purpose), exit codes."""
    width = max(len(example) for example in examples)
    shown = [f"  {example:<{width}}  {purpose}".rstrip() for example, purpose in examples.items()]
    codes = [f"  {code:>3}  {meaning}" for code, meaning in sorted(exits.items())]
    return "\n".join([what, "", "\b", "Examples:", *shown, "", "\b", "Exit codes:", *codes])


def command(
    name: str = "",
    what: str = "",
    *,
    examples: Mapping[str, str] | None = None,
    exits: Mapping[Exit, str] | None = None,
    group: click.Group | None = None,
    cls: type[click.Command] | None = None,
    **attributes: Any,
) -> Callable[[Callable[..., int]], click.Command]:
    """Make a function a command, of the class SettingsCommand unless ``cls`` is another one.

    Its name and help are those of the function unless they are given; ``exits`` are added to :data:`EXITS`.
    """

    def made(function: Callable[..., int]) -> click.Command:
        own = name or function.__name__
        called = f"pyconfd {group.name} {own}" if group is not None else f"pyconfd {own}"
        about = what or inspect.getdoc(function) or ""
        text = teach(about, examples=examples or {called: ""}, exits={**EXITS, **(exits or {})})
        decorate = click.command(
            own, cls or SettingsCommand, help=text, context_settings=CONTEXT_SETTINGS, **attributes
        )
        found = decorate(function)
        if group is not None:
            group.add_command(found)
        return found

    return made


def command_group(
    name: str, what: str, *, examples: Mapping[str, str], exits: Mapping[Exit, str] | None = None
) -> click.Group:
    """Return a command that only has others."""
    text = teach(what, examples=examples, exits={**EXITS, **(exits or {})})
    return click.Group(name, help=text, context_settings=CONTEXT_SETTINGS)


SNAPSHOT_HELP = (
    "Read objects from what `kubectl get ... -o yaml|json` or `pyconfd record` wrote, and not from the cluster; - is"
    " the standard input; may be repeated."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the data as JSON, for programs.")
"""The option of every command that reports something."""


def snapshot_option(what: str, *, required: bool = False) -> Callable[[_F], _F]:
    """Return the option that names files with objects, or folders of such; ``what`` is its help."""
    kind = click.Path(exists=True, allow_dash=True)
    return click.option(
        "--snapshot", "snapshots", multiple=True, required=required, metavar="FILE", type=kind, help=what,
        callback=lambda _, __, paths: tuple(each for path in paths for each in _files_of(path)),
    )  # fmt: skip


def _files_of(path: str) -> list[str]:
    """Return a file, or the files with objects in a folder."""
    if not Path(path).is_dir():
        return [path]
    found = sorted(str(each) for each in Path(path).rglob("*") if each.suffix in {".yaml", ".yml", ".json"})
    if not found:
        raise click.BadParameter(f"there is no .yaml, .yml or .json file in {path}")
    return found


class DurationParameter(click.ParamType[float]):
    """A duration as settings have it: 90s, 30m, 2h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        try:
            seconds: float = accept(Duration, value)
        except NotAcceptedError as error:
            self.fail(str(error), param, ctx)
        return seconds


for_option = click.option(
    "--for",
    "for_s",
    type=DurationParameter(),
    metavar="TIME",
    help="How long: 90s, 30m, 2h. [default: until it is ended]",
)
