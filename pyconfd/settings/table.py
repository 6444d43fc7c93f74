"""The table of all settings, read off the tree: what flags, variables, the file and the reference are made of."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any

from pyconfd.settings.sections import Settings
from pyconfd.settings.setting import ENV_PREFIX, Setting, settings_of

CONFIG_ENV = "PYCONFD_CONFIG"
CONFIG_FLAG = "--config"
DEFAULT_CONFIG = "/etc/pyconfd/pyconfd.toml"

_SECTION_TYPES: Mapping[str, Any] = MappingProxyType(
    {each.name: each.type for each in fields(Settings) if is_dataclass(each.type)}
)

TABLE: Mapping[str, Setting] = MappingProxyType(
    {
        setting.path: setting
        for name, owner in (*_SECTION_TYPES.items(), ("", Settings))
        for setting in settings_of(owner, name)
    }
)
"""Every setting by its path, in the order of the tree, those without a section last."""

SECTIONS: Mapping[str, str] = MappingProxyType(
    {each.name: each.metadata["about"] for each in fields(Settings) if each.name in _SECTION_TYPES}
    | {"": "where pyconfd keeps its own files"}
)
"""What each section is about; "" is the top of the file."""


def settings_in(section: str) -> tuple[Setting, ...]:
    """Return the settings of a section in the order of the tree."""
    return tuple(setting for setting in TABLE.values() if setting.section == section)


def value_of(settings: Settings, setting: Setting) -> Any:
    """Return the value that a tree has for a setting."""
    owner = getattr(settings, setting.section) if setting.section else settings
    return getattr(owner, setting.key)


def values_of(settings: Settings) -> dict[str, Any]:
    """Return all values of a tree by path."""
    return {path: value_of(settings, setting) for path, setting in TABLE.items()}


def build(values: Mapping[str, Any]) -> Settings:
    """Return the tree with ``values`` (by path) in place of its defaults."""

    def given(section: str) -> dict[str, Any]:
        return {each.key: values[each.path] for each in settings_in(section) if each.path in values}

    sections = {name: made(**given(name)) for name, made in _SECTION_TYPES.items()}
    return Settings(**sections, **given(""))


def folded(name: str) -> str:
    """Return a name in the form in which spellings of one setting meet: ``--API-Servers`` gives ``api_servers``."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _spellings() -> Iterator[tuple[str, str]]:
    for each in TABLE.values():
        for name in (each.path, each.env.removeprefix(ENV_PREFIX), each.old_env, *each.flags):
            if name:
                yield folded(name), each.path
    for each in TABLE.values():
        yield folded(each.path.removesuffix("_s")), each.path
        yield folded(each.key), each.path
        yield folded(each.key.removesuffix("_s")), each.path


SPELLINGS: Mapping[str, str] = MappingProxyType(dict(reversed(list(_spellings()))))
"""The path of each setting by every name somebody may try for it, folded; the better names win."""
