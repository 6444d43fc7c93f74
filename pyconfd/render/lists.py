"""Filters over lists of mappings or objects; none fails on None, none depends on the order of a hash."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from jinja2 import Environment, Undefined, pass_environment

from pyconfd.render.filters import field_of, no_field
from pyconfd.render.invalid import InvalidValueError, did_you_mean, shown
from pyconfd.render.order import natural_order
from pyconfd.render.plain import is_code, is_data_name

_MISSING = object()


class Group(NamedTuple):
    """What :func:`group_by` gives; unpacks in ``{% for key, items in ... %}``, or use ``.grouper`` and ``.list``."""

    grouper: Any
    list: list[Any]


def _values(environment: Environment, items: list[Any], attribute: str | None) -> list[Any]:
    """Return what a dotted path names of each item, by the environment's own rules: a template gave the path."""
    values = items
    for name in attribute.split(".") if attribute else ():
        values = [_value(environment, item, name) for item in values]
    return values


def _value(environment: Environment, item: Any, name: str) -> Any:
    # Asking for the abstract Mapping first would cost as much as all the rest.
    if isinstance(item, dict):
        found = item.get(name, _MISSING)
    elif not is_data_name(name):
        raise InvalidValueError(f"{shown(name)} of {shown(item)} is no data", "name an attribute that holds a value")
    else:
        found = environment.getattr(item, name)
    if found is _MISSING or isinstance(found, Undefined):
        raise no_field(item, name)
    if is_code(found) or callable(found):
        raise InvalidValueError(f"{shown(name)} of {shown(item)} is no data", "name an attribute that holds a value")
    return found


def _by_rank(items: list[Any], keys: list[Any], *, reverse: bool = False) -> list[Any]:
    ranks = _ranks(keys)
    order = sorted(range(len(items)), key=lambda index: _rank(keys[index], ranks), reverse=reverse)
    return [items[index] for index in order]


def _ranks(values: Iterable[Any]) -> dict[str, int]:
    texts = {str(value) for value in values if _kind(value) == 2}
    return {text: rank for rank, text in enumerate(natural_order(texts))}


def _kind(value: Any) -> int:
    """None first, then numbers, then text."""
    if value is None:
        return 0
    return 1 if isinstance(value, int | float) else 2


def _rank(value: Any, ranks: dict[str, int]) -> tuple[int, float]:
    kind = _kind(value)
    return kind, (0, value, ranks.get(str(value), 0))[kind]


@pass_environment
def natsort(
    environment: Environment, values: Iterable[Any], attribute: str | None = None, *, reverse: bool = False
) -> list[Any]:
    """Sort naturally (``pod-9`` before ``pod-10``) by the values or by ``attribute`` (may be dotted).

    None comes first, then numbers, then texts; equal ones keep their order.

    Raises:
        InvalidValueError: an item has no such attribute.

    """
    items = list(values)
    return _by_rank(items, _values(environment, items, attribute), reverse=reverse)


@pass_environment
def unique_by(environment: Environment, values: Iterable[Any], attribute: str | None = None) -> list[Any]:
    """Keep the first item of each value (or of each value of ``attribute``), in the order given.

    Raises:
        InvalidValueError: an item has no such attribute.

    """
    seen: set[tuple[int, str]] = set()
    kept = []
    items = list(values)
    for item, value in zip(items, _values(environment, items, attribute), strict=True):
        key = (_kind(value), str(value))
        if key not in seen:
            seen.add(key)
            kept.append(item)
    return kept


@pass_environment
def group_by(environment: Environment, values: Iterable[Any], attribute: str) -> list[Group]:
    """Group items by ``attribute``: groups sorted as by :func:`natsort`, items in the order given.

    Raises:
        InvalidValueError: an item has no such attribute.

    """
    groups: dict[tuple[int, str], Group] = {}
    items = list(values)
    for item, value in zip(items, _values(environment, items, attribute), strict=True):
        groups.setdefault((_kind(value), str(value)), Group(value, [])).list.append(item)
    found = list(groups.values())
    return _by_rank(found, [group.grouper for group in found])


def port_named(ports: Iterable[Any], name: object) -> int:
    """Return the number of the port that is called ``name``, or has that number, in a list with ``name`` and ``port``.

    Raises:
        InvalidValueError: there is none, or several; the remedy lists the ports.

    """
    listed = list(ports)
    wanted = str(name)
    found = {
        int(field_of(port, "port"))
        for port in listed
        if wanted in (str(field_of(port, "name") or ""), str(field_of(port, "port")))
    }
    if len(found) == 1:
        return found.pop()
    known = [f"{field_of(port, 'name') or '(unnamed)'}={field_of(port, 'port')}" for port in listed]
    if found:
        raise InvalidValueError(f"several ports are called {shown(name)}", f"there is: {', '.join(known)}")
    names = [str(field_of(port, "name") or field_of(port, "port")) for port in listed]
    remedy = f"there is: {', '.join(known)}" if known else "there is no port at all"
    if (hint := did_you_mean(wanted, names)).startswith("did"):
        remedy = f"{hint} {remedy}"
    raise InvalidValueError(f"no port is called {shown(name)}", remedy)
