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

This page is written by `pyconfd settings --markdown`; `make docs` writes it anew.

A setting comes from a flag, else from the environment, else from the TOML file, else it has its default. They can be
mixed freely. `pyconfd settings` shows each value and where it comes from; `pyconfd settings --toml` writes a commented
file to begin with.

- **File**: `{CONFIG_FLAG} FILE`, else `{CONFIG_ENV}`, else `{DEFAULT_CONFIG}` if it exists. A section below is a
  table of that file. Sending SIGHUP to the daemon reads it again.
- **Environment**: each setting as `PYCONFD_...`, and the options of python-confd under their old names too. If both
  are set, `PYCONFD_...` counts, and a note says so if they differ. An empty variable counts as not set, but
  `PYCONFD_STATUS_LISTEN=` switches the page off. A name that begins with `PYCONFD_` and is no setting is an error
  (those that Kubernetes makes for a Service `pyconfd` are not).
- **Values**: booleans are `true`/`false` (as text also `yes`/`no`, `on`/`off`, `1`/`0`); durations are seconds, or
  text with a unit (`500ms`, `30s`, `5m`, `1h`); lists are arrays in TOML, and parted by commas or spaces elsewhere;
  commands are split as a shell would quote them, but no shell runs. `~/` at the start of a path is the home directory.
- **Versions**: `settings_version = "1.2.0"` says for which pyconfd the settings are written. An older one ignores the
  names in them that it does not know, and says so in its log and in `pyconfd settings`; without it they are mistakes.
  A value that a known setting does not take is a mistake in any case.
- **Mistakes** are told all at once, each with its place and what was most likely meant; the exit code is 78.

## Coming from python-confd

All eleven options have their old flags, environment names and meanings. What differs, on purpose:

- Flags and environment may be mixed: the old program ignored the environment as soon as one flag was given.
- `--ignore-proxy-env false` is false, `REFRESH_INTERVAL=15` is a number, and `SSL_CA_FILE=False` switches verification
  off as `--ssl-ca False` does (the old program took any text for true, crashed, and looked for a file `False`).
- `SSL_CA_FILE` need not be set, and there may be spaces in `APISERVERS` and a slash at the end of a URL.
- `SSL_CERT_FILE` is also OpenSSL's name for a CA bundle. It counts as the client certificate only if a key comes with
  it; `PYCONFD_SSL_CERT` leaves no doubt.
- Changes are watched, so `--interval` matters only with `--kubernetes-mode poll`.
- The default of `haproxy.conf` is `{Settings().haproxy.conf}`, which pyconfd's own user can write;
  `--haproxy-conf /etc/haproxy/haproxy.cfg` is the old place.
- Without `--haproxy-reload-cmd` pyconfd finds out how to reload (`haproxy.reload_method`); the old program ran
  `/etc/init.d/haproxy reload`. Without `--haproxy-chk-cmd` it checks as haproxy's own unit would run.
- `--api-servers` without a value is an error that says so.
"""


def as_markdown() -> Iterator[str]:
    """Return the reference of all settings line by line."""
    yield from _PREFACE.splitlines()
    for section, about in SECTIONS.items():
        yield ""
        yield f"## `[{section}]`: {about}" if section else f"## Top of the file: {about}"
        for row in rows_of(section):
            yield ""
            yield f"### `{row.path}`"
            yield ""
            yield f"{row.about[0].upper()}{row.about[1:]}."
            yield ""
            flags = ", ".join(f"`{flag} {row.kind.metavar}`" for flag in row.flags)
            yield f"- Flag: {flags}" + ("; may be repeated" if row.kind.repeatable else "")
            names = f"`{row.env}`" + (f", `{row.old_env}` (python-confd's name)" if row.old_env else "")
            yield f"- Environment: {names}"
            yield f"- Default: {_markdown_default(row)}"


def _markdown_default(row: Row) -> str:
    text = row.kind.text(row.default)
    return f"`{text}`{' seconds' if row.unit else ''}" if text else f"empty: {row.empty}"
