"""Requests, and two ways to find their backend: through the maps and groups as HAProxy does, and by the rules alone."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pyconfd.derived import Graph, Source
from pyconfd.model.reservation import Owner
from pyconfd.presets.routing.table import (
    Blocked,
    ConditionalRoutingTable,
    ConflictedRule,
    Place,
    entry_of,
    never_blocked,
    path_of,
)
from pyconfd.presets.routing.types import (
    EXACT_PATHS,
    GROUP_PREFIX,
    PATH_PREFIXES,
    PathEntry,
    PathKind,
    RouteGroup,
    RouteMatch,
    RouteRule,
    ValueCondition,
)

VIRTUAL_HOST = "shop.example.com"


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
    return RouteRule(VIRTUAL_HOST, match, backend, owner, number)


class Table:
    """A table of rules, and what it says."""

    def __init__(self, *rules: RouteRule, blocked: Blocked = never_blocked) -> None:
        self.graph = Graph()
        self.source = Source[object, RouteRule](self.graph, "rules")
        self.table = ConditionalRoutingTable("test", self.source, blocked)
        self.change(*rules)

    def change(self, *rules: RouteRule) -> None:
        """Have just these rules."""
        asked: dict[object, RouteRule] = {(rule.owner.name, rule.number, rule.match): rule for rule in rules}
        self.source.replace({key: asked.get(key) for key in self.source.items.keys() | asked.keys()})
        self.graph.settle()

    @property
    def entries(self) -> dict[str, tuple[PathEntry, ...]]:
        leading = self.table.leading.items.items()
        return {backend: tuple(entry_of(*path) for path, _ in paths) for backend, paths in leading}

    @property
    def groups(self) -> dict[str, dict[Place, RouteGroup]]:
        groups = self.table.groups.items.items()
        return {
            virtual_host: {path.place: lead.group for path, lead in found if lead.group}
            for virtual_host, found in groups
        }

    @property
    def lost(self) -> list[ConflictedRule]:
        return [lost for path in self.table.decided.items.values() for lost in path.lost]

    def has_won(self, rule: RouteRule) -> bool:
        return rule in self.table.decided.items[path_of(rule)].effective


def table(*rules: RouteRule) -> Table:
    return Table(*rules)


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


def through_maps(made: Table, request: Request, virtual_host: str = VIRTUAL_HOST) -> str:
    """Find the backend as the fragments do."""
    values = {entry: backend for backend, entries in made.entries.items() for entry in entries}
    groups = {group.id: group for found in made.groups.values() for group in found.values()}
    values |= {group.entry: group.id for group in groups.values()}
    by_map: dict[str, dict[str, str]] = {EXACT_PATHS: {}, PATH_PREFIXES: {}}
    for (name, key), value in values.items():
        assert key not in by_map[name]
        by_map[name][key] = value
    found = by_map[EXACT_PATHS].get(virtual_host + request.path, "")
    if not found:
        text = f"{virtual_host}{request.path}/"
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
