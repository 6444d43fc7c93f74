"""Requests, and two ways to find their backend: through the maps and groups as HAProxy does, and by the rules alone."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyconfd.model.reservation import Owner
from pyconfd.presets.routing.table import RoutingTable
from pyconfd.presets.routing.types import (
    EXACT_PATHS,
    GROUP_PREFIX,
    PATH_PREFIXES,
    PathKind,
    RouteMatch,
    RouteRule,
    ValueCondition,
)

SITE = "shop.example.com"


@dataclass(frozen=True)
class Request:
    path: str
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)


def exact(path: str) -> RouteMatch:
    return RouteMatch(PathKind.EXACT, path)


def prefix(path: str) -> RouteMatch:
    return RouteMatch(PathKind.PREFIX, path)


def rule(match: RouteMatch, backend: str, *, day: int = 1, name: str = "", number: int = 0) -> RouteRule:
    owner = Owner("Ingress", "demo", name or backend, f"2026-01-{day:02}T00:00:00Z")
    return RouteRule(SITE, match, backend, owner, number)


def table(*rules: RouteRule) -> RoutingTable:
    objects: dict[str, list[RouteRule]] = {}
    for each in rules:
        objects.setdefault(each.owner.name, []).append(each)
    return RoutingTable().updated({name: tuple(found) for name, found in objects.items()})


def _has(values: dict[str, str], conditions: Iterable[ValueCondition]) -> bool:
    for name, value, regex in conditions:
        found = values.get(name)
        if found is None or not (re.fullmatch(value, found) if regex else found == value):
            return False
    return True


def _meets(request: Request, match: RouteMatch) -> bool:
    """Return whether a request has what the maps do not look at."""
    if match.kind is PathKind.REGEX and not re.fullmatch(match.path, request.path):
        return False
    return (
        match.method in {"", request.method}
        and _has(request.headers, match.headers)
        and _has(request.query, match.query)
    )


def through_maps(made: RoutingTable, request: Request, site: str = SITE) -> str:
    """Find the backend as the fragments do."""
    values = {entry: backend for backend, entries in made.entries.items() for entry in entries}
    groups = {group.id: group for found in made.groups.values() for group in found.values()}
    values |= {group.entry: group.id for group in groups.values()}
    by_map: dict[str, dict[str, str]] = {EXACT_PATHS: {}, PATH_PREFIXES: {}}
    for (name, key), value in values.items():
        assert key not in by_map[name]
        by_map[name][key] = value
    found = by_map[EXACT_PATHS].get(site + request.path, "")
    if not found:
        text = f"{site}{request.path}/"
        fitting = [key for key in by_map[PATH_PREFIXES] if text.startswith(key)]
        found = by_map[PATH_PREFIXES][max(fitting, key=len)] if fitting else ""
    if not found.startswith(GROUP_PREFIX):
        return found
    return next((each.backend for each in groups[found].rules if _meets(request, each.match)), "")


def by_rules(rules: Iterable[RouteRule], request: Request) -> str:
    """Find the backend by the precedence that the Gateway API writes down, looking at each rule."""
    fitting = []
    for each in rules:
        match = each.match
        if match.kind is PathKind.EXACT:
            there = request.path == match.path
        else:
            whole = match.path.rstrip("/")
            there = request.path == whole or request.path.startswith(f"{whole}/")
        if there and _meets(request, match):
            length = len(match.path.rstrip("/"))
            order = (-length, not match.method, -len(match.headers), -len(match.query), each.rank)
            fitting.append((match.kind is not PathKind.EXACT, *order, each.backend))
    return min(fitting)[-1] if fitting else ""
