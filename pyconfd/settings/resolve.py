"""Flag > environment > file > default: many sources in, one tree out, and where each value came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pyconfd import __version__
from pyconfd.errors import ConfigurationError, Problem
from pyconfd.settings.checks import contradictions, holds_key, remarks
from pyconfd.settings.kinds import PathText
from pyconfd.settings.sources import (
    DEFAULT,
    Candidate,
    Findings,
    Origin,
    ReadText,
    Source,
    config_path,
    from_environment,
    from_file,
    from_flags,
    load_file,
    read_text,
)
from pyconfd.settings.table import CONFIG_ENV, ENV_PREFIX, TABLE, build, value_of
from pyconfd.settings.tree import Settings
from pyconfd.settings.versions import is_newer

_NO_NAMES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings and how they came about.

    ``origins`` has every path of the table. ``notes`` are sentences for the log: combinations that work and may not be
    what was meant. ``config`` is the TOML file's path, ``config_found`` whether it was there. ``flags`` and
    ``environ`` (what of it counts) are kept to resolve again.
    """

    settings: Settings
    origins: Mapping[str, Origin]
    notes: tuple[str, ...] = ()
    config: str = ""
    config_found: bool = False
    flags: Mapping[str, object] = field(default_factory=lambda: _NO_NAMES, repr=False)
    environ: Mapping[str, str] = field(default_factory=lambda: _NO_NAMES, repr=False)


def resolve(flags: Mapping[str, object], environ: Mapping[str, str], read: ReadText = read_text) -> Resolved:
    """Resolve all settings.

    ``flags`` maps paths of the table (and ``config``) to text, or to several texts where a flag was repeated.

    Raises:
        ConfigurationError: with every problem of all sources.
    """
    found = Findings()
    path, named_by = config_path(flags, environ)
    document = load_file(path, named_by, read, found)
    candidates = [
        *from_file(path, document or {}, found),
        *from_environment(environ, found),
        *from_flags(flags, found),
    ]
    notes = _differing_names(candidates)
    candidates = _without_openssl_variable(candidates, read, notes)
    values, origins = _strongest(candidates)
    notes += _without_unknown(found, values["settings_version"])
    home = environ.get("HOME", "").rstrip("/")
    values = {name: _at_home(name, value, home) for name, value in values.items()}
    sound = {name: value for name, value in values.items() if name not in found.paths}
    problems = [*found.problems, *contradictions(sound, origins, read)]
    if problems:
        raise ConfigurationError(*problems)
    return Resolved(
        settings=build(values),
        origins=MappingProxyType(origins),
        notes=(*notes, *remarks(values, origins, read)),
        config=path,
        config_found=document is not None,
        flags=MappingProxyType(dict(flags)),
        environ=MappingProxyType(_relevant(environ)),
    )


def resolve_again(former: Resolved, read: ReadText = read_text) -> Resolved:
    """Resolve anew with the same flags and environment; the file may have changed.

    Raises:
        ConfigurationError: with every problem, or since the file has gone, which an editor that puts another in its
            place does too; the former settings stay good.
    """
    again = resolve(former.flags, former.environ, read)
    if former.config_found and not again.config_found:
        raise ConfigurationError(_gone(former.config))
    return again


def _gone(path: str) -> Problem:
    return Problem(path, "is not there any more", "put it back; to go on without it: systemctl restart pyconfd")


def overlaid(settings: Settings, document: Mapping[str, object], place: str) -> Settings:
    """Return ``settings`` with what ``document``, shaped like the TOML file, sets; ``place`` is for the problems.

    Raises:
        ConfigurationError: with every problem.
    """
    found = Findings()
    candidates = list(from_file(place, document, found))
    values = {path: value_of(settings, row) for path, row in TABLE.items()}
    given, origins = _strongest(candidates, values)
    _without_unknown(found, given["settings_version"])
    sound = {name: value for name, value in given.items() if name not in found.paths}
    problems = [*found.problems, *contradictions(sound, origins, read_text)]
    if problems:
        raise ConfigurationError(*problems)
    return build(given)


def _without_unknown(found: Findings, version: str) -> list[str]:
    """Take the unknown names out of the problems where ``version`` is a newer one; give what to say of each.

    Only names: a value that a known setting does not take stays a problem, since nobody knows what to do instead.
    """
    if not is_newer(version):
        return []
    found.problems[:] = [problem for problem in found.problems if problem not in found.unknown]
    return [
        f"{problem.place}: ignored, pyconfd {__version__} does not know it; the settings are written for {version}"
        for problem in found.unknown
    ]


def _differing_names(candidates: list[Candidate]) -> list[str]:
    """Return where a setting has different values under its two environment names."""
    by_path: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.env:
            by_path.setdefault(candidate.row.path, []).append(candidate)
    return [
        f"environment {both[1].env} and {both[0].env} differ; {both[1].env} counts"
        for both in by_path.values()
        if len(both) == len(("old", "new")) and both[0].value != both[1].value
    ]


def _without_openssl_variable(candidates: list[Candidate], read: ReadText, notes: list[str]) -> list[Candidate]:
    """Drop SSL_CERT_FILE where it is OpenSSL's variable rather than python-confd's.

    It counts when a key belongs to it: one from the flags or the environment, one in the file's settings that has no
    certificate there, or one in the very file. Otherwise it points OpenSSL to a CA bundle, as many systems do.
    """
    keys = [item for item in candidates if item.row.path == "kubernetes.ssl_key" and item.value]
    others = [item for item in candidates if item.row.path == "kubernetes.ssl_cert" and item.env != "SSL_CERT_FILE"]
    near_key = any(item.origin.source is not Source.FILE for item in keys)
    kept = []
    for item in candidates:
        openssl = item.env == "SSL_CERT_FILE" and not near_key and not (keys and not others)
        if not openssl or holds_key(item.value, read):
            kept.append(item)
        elif not any(other.origin.source is not Source.FILE for other in others):
            notes.append(
                "environment SSL_CERT_FILE: not used as the client certificate, since no key comes with it"
                " (OpenSSL reads a CA bundle from the same variable); if it is one, set SSL_KEY_FILE too"
            )
    return kept


def _strongest(
    candidates: list[Candidate], weakest: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Return the value of each setting from its strongest source, weakest first in ``candidates``; vars are merged.

    ``weakest`` is what holds where none gives a value, else the defaults.
    """
    values = {path: row.default for path, row in TABLE.items()} if weakest is None else dict(weakest)
    origins = dict.fromkeys(TABLE, DEFAULT)
    for item in candidates:
        path = item.row.path
        merged = isinstance(item.value, Mapping)
        values[path] = MappingProxyType({**values[path], **item.value}) if merged else item.value
        origins[path] = item.origin
    return values, origins


def _at_home(path: str, value: Any, home: str) -> Any:
    """Expand ``~/`` at the start of a path: systemd and TOML leave it as it is."""
    is_path = isinstance(TABLE[path].kind, PathText) and isinstance(value, str)
    return home + value[1:] if is_path and home and value.startswith("~/") else value


def _relevant(environ: Mapping[str, str]) -> dict[str, str]:
    names = {name for row in TABLE.values() for name in row.envs} | {CONFIG_ENV, "HOME"}
    return {name: text for name, text in environ.items() if name in names or name.startswith(ENV_PREFIX)}
