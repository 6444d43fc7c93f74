"""The settings that belong to a generation: what a rollback brings back. Secrets always come from the present."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec

from pyconfd.errors import ConfigurationError, Problem, RejectedInput
from pyconfd.model.secrets import names_secret
from pyconfd.settings.resolve import overlaid
from pyconfd.settings.sections import Settings
from pyconfd.settings.table import settings_in, value_of

_SECTIONS = ("presets", "kubefigurator", "kube2lb", "configmap", "hosts")
_TEMPLATES = ("undefined", "trim_blocks", "vars")


def inputs_of(settings: Settings) -> dict[str, Any]:
    """Return the settings that decide what fragments render to, as the TOML file has them, without secrets."""
    templates = _plain(settings.templates)
    found = {name: _plain(getattr(settings, name)) for name in _SECTIONS}
    return {**found, "templates": {name: _without_secrets(templates[name]) for name in _TEMPLATES}}


def with_inputs(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Return ``settings`` with those that :func:`inputs_of` returned; variables with secret names stay as they are.

    Raises:
        RejectedInput: they are not what these settings take.
    """
    secrets = _secrets(_plain(settings.templates)["vars"])
    try:
        templates = dict(values.get("templates", {}))
        templates["vars"] = _merged(templates.get("vars", {}), secrets)
        bare = replace(settings, templates=replace(settings.templates, vars=MappingProxyType({})))
        return overlaid(bare, {**values, "templates": templates}, "the generation's settings")
    except (ConfigurationError, AttributeError, TypeError, ValueError) as error:
        problem = Problem("settings", f"those of that generation cannot be used any more: {error}")
        raise RejectedInput(problem) from error


def secret_values(settings: Settings) -> tuple[str, ...]:
    """Return the operator's own values whose names say that they are secret."""
    return tuple(_texts(_secrets(_plain(settings.templates)["vars"])))


def credential_files(settings: Settings) -> frozenset[str]:
    """Return the files that hold the credentials for API servers and etcd; no template may read them."""
    paths = (each for section in ("kubernetes", "etcd") for each in settings_in(section) if each.form.path)
    return frozenset(path for each in paths if (path := value_of(settings, each)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for held in value.values():
            yield from _texts(held)
    elif isinstance(value, str):
        yield value


def _plain(section: object) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(section, enc_hook=dict))
    return found


def _without_secrets(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: _without_secrets(held) for name, held in value.items() if not names_secret(name)}


def _secrets(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return what has a secret name, with the tables around it."""
    found = {}
    for name, held in value.items():
        if names_secret(name):
            found[name] = held
        elif isinstance(held, Mapping) and (below := _secrets(held)):
            found[name] = below
    return found


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        name: _merged(one[name], other[name])
        for name in one.keys() & other.keys()
        if isinstance(one[name], Mapping) and isinstance(other[name], Mapping)
    }
    return {**one, **other, **both}
