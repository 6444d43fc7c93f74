"""Settings for people and programs: the aligned list, JSON, a commented TOML file, the reference in Markdown.

The operator's own values (``templates.vars``) may hold secrets: their names are shown, their values never.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from typing import Any

from pyconfd import __version__
from pyconfd.presets.claiming import Rule
from pyconfd.settings.claims import Rules, rule_table
from pyconfd.settings.kinds import Variables
from pyconfd.settings.resolve import Resolved
from pyconfd.settings.sources import DEFAULT, Origin, Source
from pyconfd.settings.table import CONFIG_ENV, CONFIG_FLAG, DEFAULT_CONFIG, SECTIONS, TABLE, Row, rows_of, value_of
from pyconfd.settings.tables import Tables
from pyconfd.settings.tree import Settings

_VALUE_WIDTH = 44


def _plain(text: str) -> str:
    return text


def defaults() -> Resolved:
    """Return the settings of nobody: all defaults."""
    return Resolved(Settings(), dict.fromkeys(TABLE, DEFAULT))


def as_text(
    resolved: Resolved, title: Callable[[str], str] = _plain, changed: Callable[[str], str] = _plain
) -> Iterator[str]:
    """Return the list line by line, grouped by section: key, value, origin.

    ``title`` and ``changed`` decorate the section lines and the lines whose value is no default.
    """
    width = max(len(row.key) for row in TABLE.values())
    for section, about in SECTIONS.items():
        yield f"{title(f'[{section}]' if section else '(top of the file)')}  {about}"
        for row in rows_of(section):
            origin = resolved.origins[row.path]
            line = f"  {row.key:<{width}}  {_shown(resolved.settings, row):<{_VALUE_WIDTH}}  {origin}"
            yield line if origin.source is Source.DEFAULT else changed(line)
        yield ""
    if resolved.config:
        yield f"file: {resolved.config}" + ("" if resolved.config_found else " (not there)")
    yield from (f"note: {note}" for note in resolved.notes)
    yield "order: flag, environment, file, default; the first one that is given counts"


def _shown(settings: Settings, row: Row) -> str:
    return row.text(value_of(settings, row))


def as_json(resolved: Resolved) -> str:
    """Return one JSON object: ``config``, ``settings`` (by path: value, unit, source, place), ``notes``."""
    rows = {
        row.path: _json_row(row, value_of(resolved.settings, row), resolved.origins[row.path]) for row in TABLE.values()
    }
    config = {"path": resolved.config, "found": resolved.config_found}
    return json.dumps({"config": config, "settings": rows, "notes": list(resolved.notes)}, indent=2)


def _json_row(row: Row, value: Any, origin: Origin) -> dict[str, object]:
    if isinstance(row.kind, Variables):
        value = dict.fromkeys(sorted(value), "(not shown)")
    if isinstance(row.kind, Tables):
        value = [asdict(item) for item in value]
    if isinstance(row.kind, Rules):
        value = [rule_table(rule) for rule in value]
    return {"value": value, "unit": row.unit, "source": origin.source.value, "place": origin.place}


def toml_value(value: object) -> str:
    """Return a value of the tree (no table) in TOML."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(str(value), ensure_ascii=False)
        case _ if is_dataclass(value) and not isinstance(value, type):
            table = rule_table(value) if isinstance(value, Rule) else asdict(value)
            given = (f"{key} = {toml_value(item)}" for key, item in table.items() if item is not None)
            return f"{{ {', '.join(given)} }}"
        case tuple() | list():
            return f"[{', '.join(toml_value(item) for item in value)}]"
        case float():
            return repr(int(value)) if value.is_integer() else repr(value)
    return repr(value)


def as_toml(resolved: Resolved) -> Iterator[str]:
    """Return a commented TOML file line by line: what was set stands as it is, defaults are commented out."""
    yield "# Settings of pyconfd. Flags and environment variables win over this file."
    yield "# What is commented out is the default."
    for section in ("", *filter(None, SECTIONS)):
        yield ""
        if section:
            yield f"# {SECTIONS[section]}"
            yield f"[{section}]"
        for row in rows_of(section):
            yield from _toml_row(row, value_of(resolved.settings, row), resolved.origins[row.path])


def _toml_row(row: Row, value: Any, origin: Origin) -> Iterator[str]:
    unit = ", in seconds" if row.unit else ""
    words = f" ({', '.join(row.kind.words)})" if row.kind.words else ""
    yield f"# {row.about}{words}{unit}" + (f"; empty: {row.empty}" if row.empty else "")
    if isinstance(row.kind, Variables):
        names = row.kind.text(value)
        yield f"# {row.key} = {{ NAME = VALUE }}" + (f"  # values are not shown: {names}" if names else "")
    else:
        written = value or __version__ if row.path == "settings_version" else value
        is_set = origin.source is not Source.DEFAULT or row.path == "settings_version"
        yield ("" if is_set else "# ") + f"{row.key} = {toml_value(written)}"


_PREFACE = f"""\
# Settings

This page is printed by `pyconfd settings --markdown`; `make docs` writes it.

A setting comes from a flag, else from the environment, else from the TOML file, else it has its default. They can be
mixed freely. `pyconfd settings` shows each value and where it comes from; `pyconfd settings --toml` writes a commented
file to begin with.

- **File**: `{CONFIG_FLAG} FILE`, else `{CONFIG_ENV}`, else `{DEFAULT_CONFIG}` if it exists. `section.key` is a key of
  its table `[section]`. SIGHUP makes the daemon read it again.
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
        for row in rows_of(section):
            choices = () if isinstance(row.default, bool) else row.kind.words
            words = f" ({', '.join(f'`{word}`' for word in choices)})" if choices else ""
            meaning = f"{row.about[0].upper()}{row.about[1:]}.{words}".replace("|", "\\|")
            yield f"| `{row.path}` | {_markdown_default(row)} | {meaning} | {_other_names(row)} |"


def _other_names(row: Row) -> str:
    """Return the names that do not follow from the path, and whether the flag may be repeated."""
    derived = {f"--{row.path.replace('.', '-').replace('_', '-')}", f"PYCONFD_{row.path.replace('.', '_').upper()}"}
    others = [name for name in (*row.flags, row.env, row.old_env) if name and name not in derived]
    return ", ".join((*(f"`{name}`" for name in others), *(["repeatable"] if row.kind.repeatable else [])))


def _markdown_default(row: Row) -> str:
    text = row.kind.text(row.default)
    return f"`{text}`{' seconds' if row.unit else ''}" if text else f"empty: {row.empty}"
