"""The one table of settings, read off the tree: paths, flags, environment names, kinds, defaults and help."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_origin

from pyconfd.settings.kinds import Kind
from pyconfd.settings.setting import Setting
from pyconfd.settings.tree import Settings

ENV_PREFIX = "PYCONFD_"
CONFIG_ENV = "PYCONFD_CONFIG"
CONFIG_FLAG = "--config"
DEFAULT_CONFIG = "/etc/pyconfd/pyconfd.toml"


@dataclass(frozen=True, slots=True)
class Row:
    """One setting.

    ``path`` is ``section.key``, or ``key`` alone at the top. ``flags`` holds the preferred one first. ``old_env`` is
    python-confd's name or "". ``empty`` says what an empty value stands for.
    """

    path: str
    section: str
    key: str
    kind: Kind
    default: Any
    about: str
    flags: tuple[str, ...]
    env: str
    old_env: str
    empty: str

    @property
    def envs(self) -> tuple[str, ...]:
        """Return the environment names, the stronger first."""
        return (self.env, self.old_env) if self.old_env else (self.env,)

    @property
    def unit(self) -> str:
        """Return the unit of the value: "s" for durations, else ""."""
        return "s" if self.key.endswith("_s") else ""

    def text(self, value: Any) -> str:
        """Return a value for people: with its unit, and an empty one by what it stands for."""
        text = self.kind.text(value)
        if not text:
            return f"({self.empty or 'empty'})"
        return f"{text} {self.unit}".rstrip()


def _row(section: str, item: Field[Any], about: Setting) -> Row:
    regular = f"{section}_{item.name}".lstrip("_")
    name = about.name or regular
    flag = "--" + name.replace("_", "-")
    default = item.default if item.default_factory is MISSING else item.default_factory()
    return Row(
        path=f"{section}.{item.name}".lstrip("."),
        section=section,
        key=item.name,
        kind=about.kind,
        default=default,
        about=about.about,
        flags=(*((about.short,) if about.short else ()), flag, *about.also),
        env=ENV_PREFIX + name.upper(),
        old_env=about.old_env,
        empty=about.empty,
    )


def _annotated(kind: object) -> tuple[Any, Any]:
    """Return the type and the note of an ``Annotated``."""
    if get_origin(kind) is not Annotated:
        raise TypeError(f"{kind} must say what it is for, with Annotated")
    bare, note = get_args(kind)
    return bare, note


def _rows() -> Iterator[Row]:
    top = []
    for item in fields(Settings):
        bare, note = _annotated(item.type)
        if is_dataclass(bare):
            yield from (_row(item.name, inner, _annotated(inner.type)[1]) for inner in fields(bare))
        else:
            top.append(_row("", item, note))
    yield from top


def _sections() -> Iterator[tuple[str, str]]:
    for item in fields(Settings):
        bare, note = _annotated(item.type)
        if is_dataclass(bare):
            yield item.name, note
    yield "", "where pyconfd keeps its own files"


TABLE: Mapping[str, Row] = MappingProxyType({row.path: row for row in _rows()})
"""Every setting by its path, in the order of the tree, those without a section last."""

SECTIONS: Mapping[str, str] = MappingProxyType(dict(_sections()))
"""What each section is about; "" is the top of the file."""


def rows_of(section: str) -> tuple[Row, ...]:
    """Return the settings of a section in the order of the tree."""
    return tuple(row for row in TABLE.values() if row.section == section)


def value_of(settings: Settings, row: Row) -> Any:
    """Return the value that a tree has for a setting."""
    owner = getattr(settings, row.section) if row.section else settings
    return getattr(owner, row.key)


def build(values: Mapping[str, Any]) -> Settings:
    """Return the tree with ``values`` (by path) in place of its defaults."""
    arguments: dict[str, Any] = {row.key: values[row.path] for row in rows_of("") if row.path in values}
    for item in fields(Settings):
        bare, _ = _annotated(item.type)
        if is_dataclass(bare):
            own = {row.key: values[row.path] for row in rows_of(item.name) if row.path in values}
            arguments[item.name] = bare(**own)  # type: ignore[operator]  # is_dataclass does not narrow to a class
    return Settings(**arguments)


def folded(name: str) -> str:
    """Return a name in the form in which spellings of one setting meet: ``--API-Servers`` gives ``api_servers``."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _spellings() -> Iterator[tuple[str, str]]:
    for row in TABLE.values():
        for name in (row.path, row.env.removeprefix(ENV_PREFIX), row.old_env, *row.flags):
            if name:
                yield folded(name), row.path
    for row in TABLE.values():
        yield folded(row.path.removesuffix("_s")), row.path
        yield folded(row.key), row.path
        yield folded(row.key.removesuffix("_s")), row.path


SPELLINGS: Mapping[str, str] = MappingProxyType(dict(reversed(list(_spellings()))))
"""The path of each setting by every name somebody may try for it, folded; the better names win."""
