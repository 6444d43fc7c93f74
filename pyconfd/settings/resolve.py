"""Flag > environment > file > default: read each source, keep the strongest value, list every problem at once."""

import difflib
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyconfd import __version__
from pyconfd.errors import ConfigurationError, Problem
from pyconfd.settings.checks import (
    ReadText,
    SettingOrigin,
    SettingSource,
    contradictions,
    holds_authority,
    holds_key,
    remarks,
)
from pyconfd.settings.sections import VERSION_FORM, Settings
from pyconfd.settings.setting import ENV_PREFIX, NotAcceptedError, Setting, below_home, key_shown, meant, shown
from pyconfd.settings.table import (
    CONFIG_ENV,
    CONFIG_FLAG,
    DEFAULT_CONFIG,
    SECTIONS,
    SPELLINGS,
    TABLE,
    build,
    folded,
    settings_in,
    values_of,
)

DEFAULT = SettingOrigin(SettingSource.DEFAULT)
_BYTE_ORDER_MARK = "\ufeff"
_SERVICE_LINK = re.compile(r"PYCONFD_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")
"""What Kubernetes puts into every pod of a namespace that has a Service named ``pyconfd`` or ``pyconfd-...``."""
_MAY_BE_EMPTY = "status.listen"
"""An empty variable counts as not set, but this one switches the page off."""
_OPENSSL_VARIABLE = "SSL_CERT_FILE"
_ALL = "`pyconfd settings` lists all settings"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings and how they came about.

    ``origins`` has every path of the table. ``notes`` are sentences for the log: combinations that work and may not be
    what was meant. ``config`` is the TOML file's path, ``config_found`` whether it was there. ``flags`` and
    ``environ`` (what of it counts) are kept to resolve again.
    """

    settings: Settings
    origins: Mapping[str, SettingOrigin]
    notes: tuple[str, ...] = ()
    config: str = ""
    config_found: bool = False
    flags: Mapping[str, object] = field(default_factory=dict, repr=False)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class GivenValue:
    """A value that a source gives to a setting."""

    setting: Setting
    origin: SettingOrigin
    value: Any


class Sources:
    """What the sources give, weakest first, and what is wrong with it."""

    def __init__(self) -> None:
        self.candidates: list[GivenValue] = []
        self.problems: list[Problem] = []
        self.unknown: list[Problem] = []
        """Those of ``problems`` that say that a name is no setting."""
        self.wrong: set[str] = set()
        """The paths of settings with a value that they do not take."""

    def add_document(self, path: str, document: Mapping[str, object]) -> None:
        """Add what a TOML document sets."""
        for name, value in document.items():
            if not name or name not in SECTIONS:
                self._add_key(f"{path}: {key_shown(name)}", "", name, value)
            elif isinstance(value, Mapping):
                for key, held in value.items():
                    self._add_key(f"{path}: [{name}] {key_shown(key)}", name, key, held)
            else:
                remedy = f"begin the section with [{name}] on a line of its own"
                self.problems.append(Problem(f"{path}: {name}", f"expected a table, got {shown(value)}", remedy))

    def _add_key(self, place: str, section: str, key: str, value: object) -> None:
        if setting := TABLE.get(f"{section}.{key}" if section else key):
            self._add(setting, SettingOrigin(SettingSource.FILE, place), value)
        else:
            self._add_unknown(place, _meant(key, section))

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Add what the environment sets, the stronger name of a setting last."""
        for setting in TABLE.values():
            for name in reversed(setting.envs):
                text = environ.get(name, "").strip()
                if text or (name in environ and setting.path == _MAY_BE_EMPTY):
                    self._add(setting, SettingOrigin(SettingSource.ENVIRONMENT, f"environment {name}"), text)
        known = {setting.env for setting in TABLE.values()} | {CONFIG_ENV}
        for name in sorted(environ):
            if name.startswith(ENV_PREFIX) and name not in known and not _SERVICE_LINK.fullmatch(name):
                self._add_unknown(f"environment {key_shown(name)}", _meant_variable(name, known))

    def add_flags(self, flags: Mapping[str, object]) -> None:
        """Add what the command line sets: by path, text or (repeated) several texts."""
        for setting in TABLE.values():
            given = flags.get(setting.path)
            # An empty text is a value, as in --status-listen="": no flags are () or None.
            if isinstance(given, str) or (isinstance(given, Sequence) and given):
                texts = (given,) if isinstance(given, str) else given
                joined = (setting.form.separator or " ").join(map(str, texts)).strip()
                # The shell has taken the quotes off NAME=VALUE.
                value = texts if isinstance(setting.default, Mapping) else joined
                self._add(setting, SettingOrigin(SettingSource.FLAG, setting.flags[0]), value)

    def _add_unknown(self, place: str, remedy: str) -> None:
        self.unknown.append(Problem(place, "is not a setting", remedy))
        self.problems.append(self.unknown[-1])

    def _add(self, setting: Setting, origin: SettingOrigin, value: object) -> None:
        try:
            self.candidates.append(GivenValue(setting, origin, setting.accept(value)))
        except NotAcceptedError as error:
            self.wrong.add(setting.path)
            self.problems += error.at(origin.place)

    def strongest(self, weakest: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, SettingOrigin]]:
        """Return the value and the origin of each setting; where no source has one, that of ``weakest``.

        Variables are merged.
        """
        values, origins = dict(weakest), dict.fromkeys(TABLE, DEFAULT)
        for each in self.candidates:
            path, value = each.setting.path, each.value
            values[path] = MappingProxyType({**values[path], **value}) if isinstance(value, Mapping) else value
            origins[path] = each.origin
        return values, origins

    def checked(self, values: Mapping[str, Any], origins: Mapping[str, SettingOrigin], read: ReadText) -> Settings:
        """Return the tree.

        Raises:
            ConfigurationError: with every problem of the sources, and between settings whose values are fine.
        """
        settings = build(values)
        given = {path for path, origin in origins.items() if origin.source is not SettingSource.DEFAULT}
        ignored = self.unknown if is_newer(settings.settings_version) else ()
        problems = [problem for problem in self.problems if problem not in ignored]
        for found in contradictions(settings, given, read):
            if self.wrong.isdisjoint(found.paths):
                path = found.paths[0]
                place = origins[path].place if path in given else path
                problems.append(Problem(place, found.message, found.remedy))
        if problems:
            raise ConfigurationError(*problems)
        return settings


def read_text(path: str) -> str:
    """Return the text of a file."""
    return Path(path).read_text(encoding="utf-8")


def resolve(flags: Mapping[str, object], environ: Mapping[str, str], read: ReadText = read_text) -> Resolved:
    """Resolve all settings.

    ``flags`` maps paths of the table (and ``config``) to text, or to several texts where a flag was repeated.

    Raises:
        ConfigurationError: with every problem of all sources.
    """
    sources = Sources()
    path, named_by = config_path(flags, environ)
    document = _load(path, named_by, read, sources.problems)
    sources.add_document(path, document or {})
    openssl_note = _openssl_note(environ, flags, read)
    sources.add_environment({**environ, _OPENSSL_VARIABLE: ""} if openssl_note is not None else environ)
    sources.add_flags(flags)
    notes = [*_differing_names(sources.candidates), *filter(None, (openssl_note,))]
    values, origins = sources.strongest(values_of(Settings()))
    home = environ.get("HOME", "").rstrip("/")
    if home:
        values = {path: below_home(TABLE[path].kind, value, home) for path, value in values.items()}
    settings = sources.checked(values, origins, read)
    notes += [
        f"{problem.place}: ignored, pyconfd {__version__} does not know it;"
        f" the settings are written for {settings.settings_version}"
        for problem in sources.unknown
    ]
    names = {name for setting in TABLE.values() for name in setting.envs} | {CONFIG_ENV, "HOME"}
    return Resolved(
        settings=settings,
        origins=MappingProxyType(origins),
        notes=(*notes, *remarks(settings, origins)),
        config=path,
        config_found=document is not None,
        flags=MappingProxyType(dict(flags)),
        environ=MappingProxyType(
            {name: text for name, text in environ.items() if name in names or name.startswith(ENV_PREFIX)}
        ),
    )


def resolve_again(former: Resolved, read: ReadText = read_text) -> Resolved:
    """Resolve with the same flags and environment; the file may have changed.

    Raises:
        ConfigurationError: with every problem, or since the file has gone, which an editor that puts another in its
            place does too; the former settings stay good.
    """
    again = resolve(former.flags, former.environ, read)
    if former.config_found and not again.config_found:
        remedy = "put it back; to go on without it: systemctl restart pyconfd"
        raise ConfigurationError(Problem(former.config, "is not there any more", remedy))
    return again


def overlaid(settings: Settings, document: Mapping[str, object], place: str) -> Settings:
    """Return ``settings`` with what ``document``, shaped like the TOML file, sets; ``place`` is for the problems.

    Raises:
        ConfigurationError: with every problem.
    """
    sources = Sources()
    sources.add_document(place, document)
    return sources.checked(*sources.strongest(values_of(settings)), read_text)


def is_newer(version: str, than: str = __version__) -> bool:
    """Return whether one version comes after another; "" is this one."""
    return bool(version) and _order(version) > _order(than)


def _order(version: str) -> tuple[int, int, int, str, int]:
    found = re.fullmatch(VERSION_FORM, version)
    if found is None:
        raise ValueError(version)
    major, minor, patch, stage, number = found.groups()
    # A release comes after its candidates.
    return int(major), int(minor), int(patch), stage or "released", int(number or 0)


def config_path(flags: Mapping[str, object], environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the path of the TOML file and what named it: "" for the default path, which may be absent."""
    flag = flags.get("config")
    if isinstance(flag, str) and flag.strip():
        return flag.strip(), CONFIG_FLAG
    named = environ.get(CONFIG_ENV, "").strip()
    return (named, f"environment {CONFIG_ENV}") if named else (DEFAULT_CONFIG, "")


def _load(path: str, named_by: str, read: ReadText, problems: list[Problem]) -> Mapping[str, object] | None:
    """Return the tables of the TOML file; None where there is none, or where it cannot be read (a problem then)."""
    try:
        text = read(path)
        if text.startswith(_BYTE_ORDER_MARK):
            message = "begins with a byte order mark, as editors of Windows write it"
            problems.append(Problem(path, message, "save it without"))
            return None
        return tomllib.loads(text)
    except FileNotFoundError:
        if Path(path).is_symlink():
            leads = shown(str(Path(path).readlink()))
            problems.append(Problem(path, f"is a link to {leads}, which is not there", "mend the link"))
        elif named_by:
            problems.append(Problem(named_by, f"there is no file {shown(path)}", "write it, or name another one"))
    except OSError as error:
        remedy = f"each user of pyconfd reads it: chmod 0644 {path}" if isinstance(error, PermissionError) else ""
        problems.append(Problem(path, f"cannot be read: {error.strerror or error}", remedy))
    except UnicodeDecodeError as error:
        problems.append(Problem(path, f"is not UTF-8 (byte {error.start})", "save it as UTF-8"))
    except (ValueError, RecursionError) as error:
        where = re.search(r"\(at (.*)\)$", str(error))
        place = f"{path}: {where[1]}" if where else path
        what = str(error).removesuffix(f" {where[0]}" if where else "")
        problems.append(Problem(place, f"is not TOML: {what}", "texts need quotes, and each key stands once"))
    return None


def _differing_names(candidates: list[GivenValue]) -> Iterator[str]:
    """Return a note where a setting has different values under its two names in the environment."""
    for old, new in itertools.pairwise(candidates):
        both = old.origin.source is new.origin.source is SettingSource.ENVIRONMENT
        if both and old.setting is new.setting and old.value != new.value:
            setting = new.setting
            yield f"environment {setting.env} and {setting.old_env} differ; {setting.env} counts"


def _openssl_note(environ: Mapping[str, str], flags: Mapping[str, object], read: ReadText) -> str | None:
    """Return why SSL_CERT_FILE is not python-confd's variable here; None where it is, or is not set.

    It counts when a key comes with it, by a flag, a variable or in the very file. Otherwise it points OpenSSL to a
    bundle of authorities, as many systems do: "", that needs no note.
    """
    path = environ.get(_OPENSSL_VARIABLE, "").strip()
    key = TABLE["kubernetes.ssl_key"]
    if not path or flags.get(key.path) or any(environ.get(name, "").strip() for name in key.envs):
        return None
    if holds_key(path, read):
        return None
    if holds_authority(path, read):
        return ""
    return (
        f"environment {_OPENSSL_VARIABLE}: not used as the client certificate, since no key comes with it"
        " (OpenSSL reads a CA bundle from the same variable); if it is one, set SSL_KEY_FILE too"
    )


def _meant(name: str, section: str) -> str:
    """Return the remedy for an unknown key: the setting that was most likely meant."""
    siblings = [each.key for each in settings_in(section)] + ([] if section else [*filter(None, SECTIONS)])
    path = SPELLINGS.get(folded(f"{section}_{name}")) or SPELLINGS.get(folded(name))
    if path is None and (remedy := meant(name, siblings)):
        return remedy
    if path is None and (far := difflib.get_close_matches(folded(name), list(SPELLINGS), n=1, cutoff=0.75)):
        path = SPELLINGS[far[0]]
    if path is None:
        return _ALL
    found = TABLE[path]
    if found.section == section:
        return f"did you mean {found.key}?"
    return f"did you mean {found.key} in {f'[{found.section}]' if found.section else 'the top of the file'}?"


def _meant_variable(name: str, known: set[str]) -> str:
    if path := SPELLINGS.get(folded(name.removeprefix(ENV_PREFIX))):
        return f"did you mean {TABLE[path].env}?"
    return meant(name, sorted(known), 0.7) or f"{_ALL}; names that start with PYCONFD_ are reserved for them"
