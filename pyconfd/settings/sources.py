"""Where values come from: the TOML file, the environment and the flags, each read into one flat list of candidates."""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pyconfd.errors import Problem
from pyconfd.settings.kinds import NotAcceptedError, shown
from pyconfd.settings.table import (
    CONFIG_ENV,
    CONFIG_FLAG,
    DEFAULT_CONFIG,
    ENV_PREFIX,
    SECTIONS,
    SPELLINGS,
    TABLE,
    Row,
    folded,
    rows_of,
)


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong so far, and the paths of the settings that it concerns."""

    problems: list[Problem] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    unknown: list[Problem] = field(default_factory=list)
    """Those of ``problems`` that say that a name is no setting."""

    def add_unknown(self, problem: Problem) -> None:
        """Remember a name that is no setting."""
        self.unknown.append(problem)
        self.problems.append(problem)


ReadText = Callable[[str], str]
"""Gives the text of a file; raises OSError, or ValueError where it is not UTF-8."""

_BYTE_ORDER_MARK = "\ufeff"
_SERVICE_LINK = re.compile(r"PYCONFD_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")
"""What Kubernetes puts into every pod of a namespace that has a Service named ``pyconfd`` or ``pyconfd-...``."""


class Source(StrEnum):
    """The kinds of places that values come from, weakest first."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from; ``place`` is what to look for: a flag, a variable, a file with section and key."""

    source: Source
    place: str = "default"

    def __str__(self) -> str:
        return self.place


DEFAULT = Origin(Source.DEFAULT)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value that a source gives to a setting; ``env`` is the environment variable that it is from, or ""."""

    row: Row
    origin: Origin
    value: Any
    env: str = ""


def read_text(path: str) -> str:
    """Return the text of a file."""
    return Path(path).read_text(encoding="utf-8")


def config_path(flags: Mapping[str, object], environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the path of the TOML file and what named it: "" for the default path, which may be absent."""
    flag = flags.get("config")
    if isinstance(flag, str) and flag.strip():
        return flag.strip(), CONFIG_FLAG
    named = environ.get(CONFIG_ENV, "").strip()
    return (named, f"environment {CONFIG_ENV}") if named else (DEFAULT_CONFIG, "")


def load_file(path: str, named_by: str, read: ReadText, found: Findings) -> Mapping[str, object] | None:
    """Return the tables of the TOML file; None where there is none, or where it cannot be read (a problem then)."""
    try:
        text = read(path)
        if text.startswith(_BYTE_ORDER_MARK):
            found.problems.append(
                Problem(path, "begins with a byte order mark, as editors of Windows write it", "save it without")
            )
            return None
        return tomllib.loads(text)
    except FileNotFoundError:
        if Path(path).is_symlink():
            leads = shown(str(Path(path).readlink()))
            found.problems.append(Problem(path, f"is a link to {leads}, which is not there", "mend the link"))
        elif named_by:
            found.problems.append(Problem(named_by, f"there is no file {shown(path)}", "write it, or name another one"))
    except OSError as error:
        remedy = f"each user of pyconfd reads it: chmod 0644 {path}" if isinstance(error, PermissionError) else ""
        found.problems.append(Problem(path, f"cannot be read: {error.strerror or error}", remedy))
    except UnicodeDecodeError as error:
        found.problems.append(Problem(path, f"is not UTF-8 (byte {error.start})", "save it as UTF-8"))
    except (ValueError, RecursionError) as error:
        where = re.search(r"\(at (.*)\)$", str(error))
        place = f"{path}: {where[1]}" if where else path
        what = str(error).removesuffix(f" {where[0]}" if where else "")
        found.problems.append(Problem(place, f"is not TOML: {what}", "texts need quotes, and each key stands once"))
    return None


def from_file(path: str, document: Mapping[str, object], found: Findings) -> Iterator[Candidate]:
    """Return what a TOML document sets."""
    for name, value in document.items():
        if name in TABLE:
            yield from _parsed(TABLE[name], Origin(Source.FILE, f"{path}: {name}"), value, found)
        elif not name or name not in SECTIONS:
            top = [*filter(None, SECTIONS), *(row.key for row in rows_of(""))]
            found.add_unknown(_unknown(f"{path}: {_key(name)}", name, top, ""))
        elif not isinstance(value, Mapping):
            message = f"expected a table, got {shown(value)}"
            found.problems.append(
                Problem(f"{path}: {name}", message, f"begin the section with [{name}] on a line of its own")
            )
        else:
            yield from _from_section(path, name, value, found)


def _from_section(path: str, section: str, table: Mapping[str, object], found: Findings) -> Iterator[Candidate]:
    for key, value in table.items():
        place = f"{path}: [{section}] {_key(key)}"
        row = TABLE.get(f"{section}.{key}")
        if row is None:
            found.add_unknown(_unknown(place, key, [row.key for row in rows_of(section)], section))
        else:
            yield from _parsed(row, Origin(Source.FILE, place), value, found)


def _key(name: str) -> str:
    """Return a key of a file for a message."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name) else shown(name)


def from_environment(environ: Mapping[str, str], found: Findings) -> Iterator[Candidate]:
    """Return what the environment sets, the stronger name last; an empty variable counts as unset for most kinds."""
    for row in TABLE.values():
        for name in reversed(row.envs):
            text = environ.get(name, "").strip()
            if text or (name in environ and row.kind.empty_variable):
                yield from _parsed(row, Origin(Source.ENVIRONMENT, f"environment {name}"), text, found, name)
    known = {row.env for row in TABLE.values()} | {CONFIG_ENV}
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX) and name not in known and not _SERVICE_LINK.fullmatch(name):
            found.add_unknown(_unknown_variable(name, known))


def from_flags(flags: Mapping[str, object], found: Findings) -> Iterator[Candidate]:
    """Return what the command line sets: by path, text or (repeated) several texts."""
    for row in TABLE.values():
        given = flags.get(row.path)
        texts = (given,) if isinstance(given, str) else given
        if not isinstance(texts, Sequence) or not texts:
            continue
        joined = row.kind.joiner.join(str(text) for text in texts).strip()
        if row.path == "templates.vars":
            for text in texts:
                yield from _variable(row, str(text), found)
        else:
            yield from _parsed(row, Origin(Source.FLAG, row.flags[0]), joined, found)


def _variable(row: Row, text: str, found: Findings) -> Iterator[Candidate]:
    """Return one ``--var NAME=VALUE``: the shell has taken the quotes off, so the value is taken as it is."""
    name, sign, value = text.partition("=")
    if sign and name.isidentifier():
        yield from _parsed(row, Origin(Source.FLAG, row.flags[0]), {name: value}, found)
    else:
        found.paths.add(row.path)
        message = f"expected NAME=VALUE, the name of letters, digits and _, got {shown(name)}"
        found.problems.append(Problem(row.flags[0], message))


def _parsed(row: Row, origin: Origin, value: object, found: Findings, env: str = "") -> Iterator[Candidate]:
    try:
        yield Candidate(row, origin, row.kind.parse(value), env)
    except NotAcceptedError as error:
        found.paths.add(row.path)
        found.problems.append(Problem(origin.place, str(error), _closest_word(row, value)))


def _closest_word(row: Row, value: object) -> str:
    if not isinstance(value, str):
        return ""
    words = {word.lower(): word for word in row.kind.words}
    close = difflib.get_close_matches(value.lower(), words, n=1)
    return f"did you mean {words[close[0]]}?" if close else ""


def _unknown(place: str, name: str, siblings: list[str], section: str) -> Problem:
    """Return the problem of an unknown key, with the setting that was most likely meant."""
    meant = SPELLINGS.get(folded(f"{section}_{name}")) or SPELLINGS.get(folded(name))
    close = difflib.get_close_matches(name.lower(), siblings, n=1, cutoff=0.6)
    if meant:
        row = TABLE[meant]
        here = row.section == section
        remedy = f"did you mean {row.key}?" if here else f"did you mean {row.key} in {_section(row.section)}?"
    elif close:
        remedy = f"did you mean {close[0]}?"
    elif far := difflib.get_close_matches(folded(name), list(SPELLINGS), n=1, cutoff=0.75):
        row = TABLE[SPELLINGS[far[0]]]
        remedy = f"did you mean {row.key} in {_section(row.section)}?"
    else:
        remedy = "`pyconfd settings` lists all settings"
    return Problem(place, "is not a setting", remedy)


def _section(name: str) -> str:
    return f"[{name}]" if name else "the top of the file"


def _unknown_variable(name: str, known: set[str]) -> Problem:
    meant = SPELLINGS.get(folded(name.removeprefix(ENV_PREFIX)))
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.7)
    remedy = "`pyconfd settings` lists all settings; names that start with PYCONFD_ are reserved for them"
    if meant or close:
        remedy = f"did you mean {TABLE[meant].env if meant else close[0]}?"
    return Problem(f"environment {shown(name)[1:-1]}", "is not a setting", remedy)
