"""The settings that belong to a generation: what a rollback brings back. Secrets always come from the present."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.secrets import names_secret
from pyconfd.settings.kinds import PathText
from pyconfd.settings.table import rows_of, value_of
from pyconfd.settings.tree import Settings

_SECTIONS = ("presets", "kubefigurator", "kube2lb", "configmap", "hosts")
_TEMPLATES = ("undefined", "trim_blocks", "vars")


def kept(settings: Settings) -> dict[str, Any]:
    """Return the settings that decide what fragments render to, by section and name, as plain data without secrets."""
    found = {name: _plain(getattr(settings, name)) for name in _SECTIONS}
    templates = _plain(settings.templates)
    return {**found, "templates": {name: _without_secrets(templates[name]) for name in _TEMPLATES}}


def with_kept(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Return ``settings`` with those that :func:`kept` gave once; values whose names say that they are secret stay.

    Raises:
        RejectedInput: they are not what these settings take.
    """
    try:
        sections = {
            name: msgspec.convert({**_plain(getattr(settings, name)), **values.get(name, {})}, _type(settings, name))
            for name in _SECTIONS
        }
        present, former = _plain(settings.templates), dict(values.get("templates", {}))
        former["vars"] = _merged(former.get("vars", {}), _secrets(present["vars"]))
        templates = msgspec.convert({**present, **former}, _type(settings, "templates"))
    except (msgspec.MsgspecError, AttributeError, TypeError, ValueError) as error:
        problem = Problem("settings", f"those of that generation cannot be used any more: {error}")
        raise RejectedInput(problem) from error
    return replace(settings, templates=templates, **sections)


def secret_values(settings: Settings) -> tuple[str, ...]:
    """Return the operator's own values whose names say that they are secret."""
    return tuple(_texts(_secrets(_plain(settings.templates)["vars"])))


def credential_files(settings: Settings) -> frozenset[str]:
    """Return the files that hold the credentials for API servers and etcd; no template may read them."""
    rows = (*rows_of("kubernetes"), *rows_of("etcd"))
    return frozenset(path for row in rows if isinstance(row.kind, PathText) and (path := value_of(settings, row)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for held in value.values():
            yield from _texts(held)
    elif isinstance(value, str):
        yield value


def _plain(section: object) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(section, enc_hook=dict))
    return found


def _type(settings: Settings, name: str) -> Any:
    return type(getattr(settings, name))


def _without_secrets(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: _without_secrets(held) for name, held in value.items() if not names_secret(name)}


def _secrets(value: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: held if names_secret(name) else _secrets_below(held) for name, held in value.items()}
    return {name: held for name, held in found.items() if held is not None}


def _secrets_below(value: Any) -> dict[str, Any] | None:
    return (_secrets(value) or None) if isinstance(value, Mapping) else None


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        name: _merged(one[name], other[name])
        for name in one.keys() & other.keys()
        if isinstance(one[name], Mapping) and isinstance(other[name], Mapping)
    }
    return {**one, **other, **both}
