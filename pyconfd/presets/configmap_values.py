"""One entry of the ConfigMap ``services``: JSON from strangers to data that a template may print anywhere."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from pyconfd.model.context import RefusalReason
from pyconfd.presets import values

Refuse = Callable[[str, str, RefusalReason, str], None]
"""Takes the field, its value, the reason and what is wrong."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}", re.ASCII)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,315}[A-Za-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_DEEPEST = 24


class UnfitError(ValueError):
    """A field cannot be used, and without it the service would not be what was meant."""

    def __init__(self, field: str, value: object, detail: str) -> None:
        self.field = field
        self.value = value if isinstance(value, str) else ""
        self.detail = detail
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Service:
    """``fields`` is the whole entry; a template may print each text in it. ``path`` is "" where it has none."""

    name: str
    namespace: str
    selector: dict[str, str]
    hostnames: tuple[str, ...]
    path: str
    fields: dict[str, Any]


def service_of(name: str, text: str, ignored: frozenset[str], refuse: Refuse) -> Service:
    """Read one entry. What can be left out is refused and left out.

    An entry that was read before is not read again: what is given must not be changed.

    Raises:
        UnfitError: the entry is no JSON object with a namespace and a selector, or a field is unfit.
    """
    service, refused = _remembered(name, text, ignored)
    for each in refused:
        refuse(*each)
    if isinstance(service, UnfitError):
        # A new one: the old one would collect tracebacks.
        raise UnfitError(service.field, service.value, service.detail)
    return service


@lru_cache(maxsize=32_768)
def _remembered(
    name: str, text: str, ignored: frozenset[str]
) -> tuple[Service | UnfitError, tuple[tuple[str, str, RefusalReason, str], ...]]:
    refused: list[tuple[str, str, RefusalReason, str]] = []

    def refuse(field: str, value: str, reason: RefusalReason, detail: str) -> None:
        refused.append((field, value, reason, detail))

    try:
        return _read(name, text, ignored, refuse), tuple(refused)
    except UnfitError as error:
        return UnfitError(error.field, error.value, error.detail), tuple(refused)


def _read(name: str, text: str, ignored: frozenset[str], refuse: Refuse) -> Service:
    if not _NAME.fullmatch(name) or name in values.CONDITION_WORDS:
        raise UnfitError("", name, "not a name for a backend: expected letters, digits, '.', '_' and '-'")
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnfitError("", text, f"not JSON: {values.shown(str(error))}") from None
    if not isinstance(given, dict):
        raise UnfitError("", text, "not a JSON object")
    namespace, selector = given.get("namespace"), given.get("selector")
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace) or namespace in values.CONDITION_WORDS:
        raise UnfitError("namespace", namespace, "the name of a namespace is required")
    if not isinstance(selector, dict) or not all(_is_label(*item) for item in selector.items()):
        raise UnfitError("selector", "", "an object of labels and their values is required")
    fields: dict[str, Any] = {"namespace": namespace, "selector": dict(sorted(selector.items()))}
    for field, value in sorted(given.items()):
        if field in fields or field in {"name", "pods"} or field in ignored:
            continue
        if not values.is_word(field):
            raise UnfitError(values.shown(field), field, "the name of the field is no plain word")
        read = _KNOWN.get(field)
        kept = read(value, refuse) if read else _data(field, value, ignored, 0)
        if kept is not None:
            fields[field] = kept
    hostnames = fields.get("hostnames", [])
    path = fields.get("path", "")
    return Service(name, namespace, fields["selector"], tuple(hostnames), str(path), fields)


def _is_label(key: str, value: object) -> bool:
    if key in values.CONDITION_WORDS or value in values.CONDITION_WORDS:
        return False
    return bool(_LABEL.fullmatch(key)) and isinstance(value, str) and bool(_LABEL_VALUE.fullmatch(value))


def _hostnames(value: object, refuse: Refuse) -> list[str]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise UnfitError("hostnames", "", "expected a list of host names")
    kept: list[str] = []
    for item in items:
        try:
            kept.append(_host_name(item))
        except ValueError as error:
            refuse("hostnames", str(item), RefusalReason.INVALID_VALUE, f"{error}; this host name is left out")
    if items and not kept:
        raise UnfitError("hostnames", "", "none of its host names can be used")
    return list(dict.fromkeys(kept))


def _host_name(item: object) -> str:
    if not isinstance(item, str):
        raise ValueError("not a text")  # noqa: TRY004 - it is the value that is wrong
    if item.startswith("^"):
        return values.pattern(item)
    return values.host_name(item)


def _path(value: object, refuse: Refuse) -> Any:
    del refuse
    if value in ("", None):
        return None
    items = value if isinstance(value, list) else [value]
    for item in items:
        try:
            if not isinstance(item, str) or item[:1] not in {"/", "^"}:
                raise UnfitError("path", item, "a path begins with / or, as a regular expression, with ^")
            values.pattern(item)
        except ValueError as error:
            raise UnfitError("path", item, str(error)) from None
    return value


def _ports(value: object, refuse: Refuse) -> list[int]:
    del refuse
    items = value if isinstance(value, list) else [value]
    kept: list[int] = []
    for item in items:
        try:
            if isinstance(item, bool) or not isinstance(item, int | str):
                raise UnfitError("ports", "", "expected numbers from 1 to 65535")
            kept.append(values.port_number(str(item)))
        except ValueError as error:
            raise UnfitError("ports", str(item), str(error)) from None
    return kept


def _ssl(value: object, refuse: Refuse) -> bool | str | None:
    del refuse
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if isinstance(value, str) and values.is_word(value):
        return value
    raise UnfitError("ssl", value, "expected true or false")


def _mode(value: object, refuse: Refuse) -> str:
    del refuse
    if isinstance(value, str) and value.lower() in {"http", "tcp"}:
        return value.lower()
    raise UnfitError("mode", value, "expected http or tcp")


_KNOWN: dict[str, Callable[[object, Refuse], Any]] = {
    "hostnames": _hostnames,
    "path": _path,
    "ports": _ports,
    "ssl": _ssl,
    "mode": _mode,
}


def _data(field: str, value: Any, ignored: frozenset[str], depth: int) -> Any:
    """Return any other value if each text in it is a plain word."""
    if depth > _DEEPEST:
        raise UnfitError(field, "", "it is nested too deeply")
    if isinstance(value, str):
        if values.is_word(value):
            return value
        advice = "templates print it as it is, so it has to be one plain word; configmap.ignored_fields leaves it out"
        raise UnfitError(field, value, f"not a plain word: {advice}")
    if isinstance(value, list):
        return [_data(field, item, ignored, depth + 1) for item in value]
    if isinstance(value, dict):
        kept = {}
        for key, item in sorted(value.items()):
            if key in ignored:
                continue
            if not values.is_word(key):
                raise UnfitError(f"{field}.{values.shown(key)}", key, "the name of the field is no plain word")
            kept[key] = _data(f"{field}.{key}", item, ignored, depth + 1)
        return kept
    return value
