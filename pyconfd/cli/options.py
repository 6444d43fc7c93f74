"""The options of the command line, made from the table of settings."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import click
from click.shell_completion import CompletionItem

from pyconfd.settings.setting import FALSE_WORDS, TRUE_WORDS, Setting
from pyconfd.settings.table import CONFIG_ENV, CONFIG_FLAG, DEFAULT_CONFIG, SECTIONS, TABLE, settings_in

_CONFIG_PARAMETER = "config"


def _parameter(setting: Setting) -> str:
    return setting.path.replace(".", "__")


def _complete(
    setting: Setting, _ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the words of a setting, or leave paths to the shell."""
    if setting.form.path:
        return [CompletionItem(incomplete, type=setting.form.path)]
    return [CompletionItem(word) for word in setting.words if word.lower().startswith(incomplete.lower())]


def _option(setting: Setting) -> click.Option:
    default = setting.text(setting.default)
    default = default if setting.plain_text(setting.default) else setting.empty
    return click.Option(
        [_parameter(setting), *setting.flags],
        metavar=setting.metavar,
        multiple=setting.is_repeatable,
        default=None,
        shell_complete=partial(_complete, setting),
        help=f"{setting.about[0].upper()}{setting.about[1:]}. [{', '.join(setting.envs)}; default: {default}]",
    )


CONFIG_OPTION = click.Option(
    [_CONFIG_PARAMETER, CONFIG_FLAG],
    metavar="FILE",
    shell_complete=lambda _ctx, _parameter, incomplete: [CompletionItem(incomplete, type="file")],
    help=f"TOML file with settings. [{CONFIG_ENV}; default: {DEFAULT_CONFIG} if it exists]",
)

OPTIONS: Mapping[str, click.Option] = {path: _option(setting) for path, setting in TABLE.items()}
"""The option of each setting by its path; options have no state, so all commands share them."""

COMMON: tuple[str, ...] = tuple(path for path, setting in TABLE.items() if setting.old_env)
"""The settings that the help of the whole program shows: those that python-confd had."""

_SINGLE_DASH = frozenset(flag[1:] for setting in TABLE.values() for flag in setting.flags) | {"-version"}
_KUBE2LB_OUTPUT = TABLE["target.output"].flags[0]

_BOOLEAN_FLAGS = frozenset(flag for setting in TABLE.values() if setting.is_boolean for flag in setting.flags)


def with_values_for_booleans(arguments: Iterable[str]) -> list[str]:
    """Return the arguments as they are parsed here: single-dash flags as double-dash ones, booleans with a value."""
    given = _with_double_dashes(list(arguments))
    end = given.index("--") if "--" in given else len(given)
    words = TRUE_WORDS | FALSE_WORDS
    result = []
    for argument, following in itertools.pairwise([*given[:end], ""]):
        bare = argument in _BOOLEAN_FLAGS and following.lower() not in words
        result.append(f"{argument}=true" if bare else argument)
    return result + given[end:]


def _with_double_dashes(given: list[str]) -> list[str]:
    """Return the arguments with kube2lb's single-dash flags (``-kubecfg``, ``-notify=...``) as they are written here.

    Its ``-config`` named the output and not pyconfd's settings; it is taken so where ``-template`` stands beside it.
    Go's flags take one dash or two, so that ``--config`` is the output there too.
    """
    end = given.index("--") if "--" in given else len(given)
    bare = [argument.partition("=") for argument in given[:end]]
    as_kube2lb = any(name == "-template" for name, _, _ in bare)
    result = []
    for name, sign, value in bare:
        if name in {"-config", "--config"} and as_kube2lb:
            result.append(f"{_KUBE2LB_OUTPUT}{sign}{value}")
        elif name in _SINGLE_DASH:
            result.append(f"-{name}{sign}{value}")
        else:
            result.append(f"{name}{sign}{value}")
    return result + given[end:]


def flags_of(ctx: click.Context) -> dict[str, Any]:
    """Return what was set on the command line by path; behind the command's name wins over before it."""
    flags: dict[str, Any] = {}
    for parameters in (ctx.find_root().params, ctx.params):
        if parameters.get(_CONFIG_PARAMETER) is not None:
            flags["config"] = parameters[_CONFIG_PARAMETER]
        for path, setting in TABLE.items():
            value = parameters.get(_parameter(setting))
            if value is not None and value != ():
                flags[path] = value
    return flags


def option_groups() -> Iterator[tuple[str, list[click.Option]]]:
    """Return a heading and the options of each section."""
    for section, about in SECTIONS.items():
        heading = f"{section}: {about}" if section else about.capitalize()
        yield heading, [OPTIONS[setting.path] for setting in settings_in(section)]
