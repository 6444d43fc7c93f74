"""The settings that belong to a generation: what a rollback brings back. Secrets always come from the present."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec

from pyconfd.errors import ConfigurationError, Problem, RejectedInput
from pyconfd.model.inputs import merged_documents
from pyconfd.model.secrets import names_secret
from pyconfd.settings.resolve import overlaid
from pyconfd.settings.sections import Settings
from pyconfd.settings.table import settings_in, value_of

# Not those that say who may have what ([claims], [addresses], [ingress]): a right that an operator took stays taken.
_SECTIONS = ("presets", "kubefigurator", "kube2lb", "configmap", "hosts")
_TEMPLATES = ("undefined", "trim_blocks", "vars")


def inputs_of(settings: Settings) -> dict[str, Any]:
    """Return the settings that decide what fragments render to, as the TOML file has them, without secrets."""
    templates = _plain(settings.templates)
    found = {name: _plain(getattr(settings, name)) for name in _SECTIONS}
    return {**found, "templates": _part({name: templates[name] for name in _TEMPLATES}, secret=False)}


def with_inputs(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Return ``settings`` with those that :func:`inputs_of` returned; variables with secret names stay as they are.

    Raises:
        RejectedInput: they are not what these settings take.
    """
    secrets = _part(_plain(settings.templates)["vars"], secret=True)
    try:
        templates = dict(values.get("templates", {}))
        templates["vars"] = merged_documents(templates.get("vars", {}), secrets)
        bare = replace(settings, templates=replace(settings.templates, vars=MappingProxyType({})))
        return overlaid(bare, {**values, "templates": templates}, "the generation's settings")
    except (ConfigurationError, AttributeError, TypeError, ValueError) as error:
        problem = Problem("settings", f"those of that generation cannot be used any more: {error}")
        raise RejectedInput(problem) from error


def secret_values(settings: Settings) -> tuple[str, ...]:
    """Return the operator's own values whose names say that they are secret."""
    return tuple(_secret_texts(_plain(settings.templates)["vars"]))


def credential_files(settings: Settings) -> frozenset[str]:
    """Return the files that hold the credentials for API servers, etcd and the status page: not for templates."""
    paths = (each for section in ("kubernetes", "etcd", "status") for each in settings_in(section) if each.form.path)
    return frozenset(path for each in paths if (path := value_of(settings, each)))


def _secret_texts(value: Any, *, secret: bool = False) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, held in value.items():
            yield from _secret_texts(held, secret=secret or names_secret(name))
    elif isinstance(value, list):
        for held in value:
            yield from _secret_texts(held, secret=secret)
    elif secret and isinstance(value, str):
        yield value


def _plain(section: object) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(section, enc_hook=dict))
    return found


def _part(table: Mapping[str, Any], *, secret: bool) -> dict[str, Any]:
    """Return the secret values or all others, with the tables around them."""
    found = {}
    for name, held in table.items():
        if isinstance(held, Mapping) and not names_secret(name):
            below = _part(held, secret=secret)
            if below or not secret:
                found[name] = below
        elif secret is (names_secret(name) or _has_secret(held)):
            found[name] = held
    return found


def _has_secret(value: Any) -> bool:
    """Return whether an array has a secret in one of its tables; the whole array is secret then."""
    if isinstance(value, Mapping):
        return any(names_secret(name) or _has_secret(held) for name, held in value.items())
    return isinstance(value, list) and any(map(_has_secret, value))
