"""Settings for people and programs: the aligned list, JSON, a commented TOML file, the reference in Markdown.

The operator's own values (``templates.vars``) may hold secrets: their names are shown, their values never.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from pyconfd import __version__
from pyconfd.settings.checks import SettingOrigin, SettingSource
from pyconfd.settings.resolve import DEFAULT, Resolved
from pyconfd.settings.sections import Settings
from pyconfd.settings.setting import Setting
from pyconfd.settings.table import CONFIG_ENV, CONFIG_FLAG, DEFAULT_CONFIG, SECTIONS, TABLE, settings_in, value_of

_VALUE_WIDTH = 44


def _undecorated(text: str) -> str:
    return text


def defaults() -> Resolved:
    """Return the settings of nobody: all defaults."""
    return Resolved(Settings(), dict.fromkeys(TABLE, DEFAULT))


def as_text(
    resolved: Resolved, title: Callable[[str], str] = _undecorated, changed: Callable[[str], str] = _undecorated
) -> Iterator[str]:
    """Return the list line by line, grouped by section: key, value, origin.

    ``title`` and ``changed`` decorate the section lines and the lines whose value is no default.
    """
    width = max(len(setting.key) for setting in TABLE.values())
    for section, about in SECTIONS.items():
        yield f"{title(f'[{section}]' if section else '(top of the file)')}  {about}"
        for setting in settings_in(section):
            origin = resolved.origins[setting.path]
            text = setting.text(value_of(resolved.settings, setting))
            line = f"  {setting.key:<{width}}  {text:<{_VALUE_WIDTH}}  {origin}"
            yield line if origin.source is SettingSource.DEFAULT else changed(line)
        yield ""
    if resolved.config:
        yield f"file: {resolved.config}" + ("" if resolved.config_found else " (not there)")
    yield from (f"note: {note}" for note in resolved.notes)
    yield "order: flag, environment, file, default; the first one that is given counts"


def as_json(resolved: Resolved) -> str:
    """Return one JSON object: ``config``, ``settings`` (by path: value, unit, source, place), ``notes``."""
    settings = {
        path: {
            "value": _plain(value_of(resolved.settings, setting)),
            "unit": setting.unit,
            "source": resolved.origins[path].source.value,
            "place": resolved.origins[path].place,
        }
        for path, setting in TABLE.items()
    }
    config = {"path": resolved.config, "found": resolved.config_found}
    return json.dumps({"config": config, "settings": settings, "notes": list(resolved.notes)}, indent=2)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; a table lacks what it does not set."""
    if isinstance(value, Mapping):
        return dict.fromkeys(sorted(value), "(not shown)")
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    plain = msgspec.to_builtins(value)
    return {key: held for key, held in plain.items() if held is not None} if isinstance(plain, dict) else plain


def toml_value(value: Any) -> str:
    """Return a plain value in TOML."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml_value(held)}' for key, held in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() else repr(value)
    return json.dumps("" if value is None else value, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_toml(resolved: Resolved) -> Iterator[str]:
    """Return a commented TOML file line by line: what was set stands as it is, defaults are commented out."""
    yield "# Settings of pyconfd. Flags and environment variables win over this file."
    yield "# What is commented out is the default."
    for section in ("", *filter(None, SECTIONS)):
        yield ""
        if section:
            yield f"# {SECTIONS[section]}"
            yield f"[{section}]"
        for setting in settings_in(section):
            yield from _toml_lines(setting, value_of(resolved.settings, setting), resolved.origins[setting.path])


def _toml_lines(setting: Setting, value: Any, origin: SettingOrigin) -> Iterator[str]:
    unit = ", in seconds" if setting.unit else ""
    words = f" ({', '.join(setting.words)})" if setting.words else ""
    yield f"# {setting.about}{words}{unit}" + (f"; empty: {setting.empty}" if setting.empty else "")
    if isinstance(value, Mapping):
        names = ", ".join(sorted(value))
        yield f"# {setting.key} = {{ NAME = VALUE }}" + (f"  # values are not shown: {names}" if names else "")
    elif setting.path == "settings_version":
        yield f"{setting.key} = {toml_value(value or __version__)}"
    else:
        is_set = origin.source is not SettingSource.DEFAULT
        yield ("" if is_set else "# ") + f"{setting.key} = {toml_value(_plain(value))}"


_PREFACE = f"""\
# Settings

This page is printed by `pyconfd settings --markdown`; `make docs` writes it.

A setting comes from a flag, else from the environment, else from the TOML file, else it has its default. They can be
mixed freely. `pyconfd settings` shows each value and where it comes from; `pyconfd settings --toml` writes a commented
file to begin with.

- **File**: `{CONFIG_FLAG} FILE`, else `{CONFIG_ENV}`, else `{DEFAULT_CONFIG}` if it exists. `section.key`
  is a key of its table `[section]`. SIGHUP makes the daemon read it again.
- **Flag and environment**: `section.key_name` is `--section-key-name` and `PYCONFD_SECTION_KEY_NAME`, unless the
  last column names others. The options of python-confd have their old names too; if both variables are set,
  `PYCONFD_...` counts, and a note says so if they differ. An empty variable counts as not set, but
  `PYCONFD_STATUS_LISTEN=` switches the page off. A name that begins with `PYCONFD_` and is no setting is an error
  (those that Kubernetes makes for a Service `pyconfd` are not).
- **Values**: booleans are `true`/`false` (as text also `yes`/`no`, `on`/`off`, `1`/`0`); durations are seconds, or
  text with a unit (`500ms`, `30s`, `5m`, `1h`); lists are arrays in TOML, and separated by commas or spaces elsewhere;
  commands are split as a shell would quote them, but no shell runs. `~/` at the start of a path is the home directory.
- **Versions**: `settings_version = "1.2.0"` says for which pyconfd the settings are written. An older one ignores the
  names in them that it does not know, and says so in its log and in `pyconfd settings`; without it they are errors.
  A value that a known setting does not take is always an error.
- **Errors** are printed all at once, each with its place and what was most likely meant; the exit code is 78.

[Coming from python-confd](migrating/python-confd.md) has its eleven options and what differs.
"""

_TABLE_HEAD = ("| setting | default | what it is | flags and variables of other names |", "|---|---|---|---|")


def as_markdown() -> Iterator[str]:
    """Return the reference of all settings line by line."""
    yield from _PREFACE.splitlines()
    for section, about in SECTIONS.items():
        yield ""
        yield f"## `[{section}]`: {about}" if section else f"## Top of the file: {about}"
        yield ""
        yield from _TABLE_HEAD
        for setting in settings_in(section):
            choices = () if setting.is_boolean else setting.words
            words = f" ({', '.join(f'`{word}`' for word in choices)})" if choices else ""
            meaning = f"{setting.about[0].upper()}{setting.about[1:]}.{words}".replace("|", "\\|")
            text = setting.plain_text(setting.default)
            default = f"`{text}`{' seconds' if setting.unit else ''}" if text else setting.empty
            yield f"| `{setting.path}` | {default} | {meaning} | {_other_names(setting)} |"


def _other_names(setting: Setting) -> str:
    """Return the names that do not follow from the path, and whether the flag may be repeated."""
    flag = f"--{setting.path.replace('.', '-').replace('_', '-')}"
    derived = {flag, f"PYCONFD_{setting.path.replace('.', '_').upper()}"}
    others = [name for name in (*setting.flags, setting.env, setting.old_env) if name and name not in derived]
    return ", ".join((*(f"`{name}`" for name in others), *(["repeatable"] if setting.is_repeatable else [])))
