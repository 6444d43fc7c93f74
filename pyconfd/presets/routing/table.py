"""The table of routes: which rule owns which path, and the map entries and groups that lead to its backend.

Of several rules that ask for the same match at the same virtual host the oldest object's has it. The precedence among
different matches is that of the Gateway API: exact paths, then the longest prefix, then rules with a method, then the
number of headers, then of query parameters, then the rank of the rule. A regular expression belongs to the prefix of
its literal elements, and is tried first there.

The tables are collections (:mod:`pyconfd.derived`): after a change only the paths are decided again that it concerns.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from pyconfd.derived import Collection, Derived, Grouped, Read, Spread, Tally
from pyconfd.model.snapshot import Key
from pyconfd.presets.routing.types import (
    EXACT_PATHS,
    GROUP_PREFIX,
    PATH_EXPRESSIONS,
    PATH_PREFIXES,
    PathEntry,
    PathKind,
    RouteGroup,
    RouteMatch,
    RouteRule,
)

_ANY_CASE = "(?i)"
_LITERAL = re.compile(r"\^?((?:/[A-Za-z0-9_~-]+)*)/(?![?*+{])")
"""The whole elements that a regular expression begins with."""


class Place(NamedTuple):
    """Where a map of paths leads to rules: ``path`` of a prefix has no final slash, so that of ``/`` is ""."""

    kind: PathKind
    path: str


ALL_OF_HOST = Place(PathKind.PREFIX, "")
"""The place of a virtual host that has the name of the host, as a domain has."""


class VirtualHostPath(NamedTuple):
    """One place at one virtual host."""

    virtual_host: str
    place: Place


class ConflictedRule(NamedTuple):
    """A rule that does not own its match: ``winner`` does, or ``why`` says why this rule may not."""

    rule: RouteRule
    winner: RouteRule | None
    why: str = ""


class DecidedPath(NamedTuple):
    """The rules of one path that got their match, in order of precedence, and those that did not."""

    effective: tuple[RouteRule, ...]
    lost: tuple[ConflictedRule, ...]


class Lead(NamedTuple):
    """Where the map entry of a path leads: to a backend, or to a group."""

    backend: str = ""
    group: RouteGroup | None = None


Blocked = Callable[[Read, VirtualHostPath, Sequence[RouteRule]], Callable[[RouteRule], str]]
"""Returns, for all rules that ask for a path, in order of rank, what says why one may not have its match, or ""."""

Taken = Callable[[Read, VirtualHostPath, RouteRule], str]
"""Returns whose a path is for which a rule came first of all rules, "" where it is the rule's."""


def never_blocked(_: Read, __: VirtualHostPath, ___: Sequence[RouteRule]) -> Callable[[RouteRule], str]:
    """Return that each rule may have its match."""
    return lambda _: ""


def place_of(match: RouteMatch) -> Place:
    """Return the place of a match."""
    if match.kind in {PathKind.EXACT, PathKind.BEGINNING, PathKind.EXPRESSION}:
        return Place(match.kind, match.path)
    if match.kind is PathKind.PREFIX:
        return Place(PathKind.PREFIX, match.path.removesuffix("/"))
    found = _LITERAL.match(match.path) if "|" not in match.path else None
    return Place(PathKind.PREFIX, found[1] if found else "")


def path_of(rule: RouteRule) -> VirtualHostPath:
    """Return the place that a rule asks for."""
    return VirtualHostPath(rule.virtual_host, place_of(rule.match))


def entry_of(virtual_host: str, place: Place) -> PathEntry:
    """Return the map entry of a place."""
    if place.kind is PathKind.EXACT:
        return PathEntry(EXACT_PATHS, f"{virtual_host}{place.path}")
    if place.kind is PathKind.BEGINNING:
        return PathEntry(PATH_PREFIXES, f"{virtual_host}{place.path}")
    if place.kind is PathKind.EXPRESSION:
        return PathEntry(PATH_EXPRESSIONS, f"{_ANY_CASE}^{re.escape(virtual_host)}{place.path}")
    return PathEntry(PATH_PREFIXES, f"{virtual_host}{place.path}/")


def place_of_entry(entry: PathEntry, virtual_host: str) -> Place | None:
    """Return the place that an entry is for, None where it is another virtual host's."""
    expression = entry_of(virtual_host, Place(PathKind.EXPRESSION, ""))
    start = expression.key if entry.map == PATH_EXPRESSIONS else virtual_host
    path = entry.key.removeprefix(start)
    if not entry.key.startswith(f"{start}/"):
        return None
    if entry.map == PATH_PREFIXES:
        kind = PathKind.PREFIX if path.endswith("/") else PathKind.BEGINNING
        return Place(kind, path.removesuffix("/"))
    return Place(PathKind.EXACT if entry.map == EXACT_PATHS else PathKind.EXPRESSION, path)


def conflict_key(match: RouteMatch) -> object:
    """Return what two matches at one place must differ in, or they conflict; the order of conditions does not count."""
    regex = match.path if match.kind is PathKind.REGEX else ""
    return regex, match.method, frozenset(match.headers), frozenset(match.query), frozenset(match.cookies)


def _precedence(rule: RouteRule) -> tuple[int, bool, bool, int, int, tuple[int, str, str, str, str, int]]:
    match = rule.match
    return (
        rule.precedence, match.kind is not PathKind.REGEX, not match.method, -len(match.headers), -len(match.query),
        rule.rank,
    )  # fmt: skip


class RoutingTable:
    """Who has which path, of the ``rules`` of all objects by any key: ``decided``. ``name`` tells tables apart."""

    def __init__(self, name: str, rules: Collection[Any, RouteRule], blocked: Blocked = never_blocked) -> None:
        self.name, self._blocked = name, blocked
        claimants = Grouped(
            rules, lambda _, rule: (path_of(rule),), f"{name}: claims of paths", rank=lambda _, rule: rule.rank
        )
        self.decided = Derived(claimants, self._decide, f"{name}: decisions on paths")

    def _decide(self, read: Read, path: VirtualHostPath, asking: Sequence[tuple[object, RouteRule]]) -> DecidedPath:
        claimants = [rule for _, rule in asking]
        why_not = self._blocked(read, path, claimants)
        given: dict[object, RouteRule] = {}
        lost: list[ConflictedRule] = []
        for rule in claimants:
            what = conflict_key(rule.match)
            if what in given:
                lost.append(ConflictedRule(rule, given[what]))
            elif why := why_not(rule):
                lost.append(ConflictedRule(rule, None, why))
            else:
                given[what] = rule
        effective = tuple(sorted(given.values(), key=_precedence)) if len(given) > 1 else tuple(given.values())
        return DecidedPath(effective, tuple(lost))


class PlainRoutingTable(RoutingTable):
    """For rules whose matches are paths, and nothing else: one rule wins each of them.

    ``won`` has the decisions by object, and ``virtual_hosts`` the number of paths that are served by virtual host.
    ``lost`` has what each object lost: however many ask for one path, each is told of its own
    rules.
    """

    def __init__(self, name: str, rules: Collection[Any, RouteRule], blocked: Blocked, taken: Taken) -> None:
        super().__init__(name, rules, blocked)
        self._taken = taken
        self.won = Grouped(self.decided, _objects_that_won, f"{name}: paths by object")
        lost = Spread(self.decided, _lost_by_object, f"{name}: lost paths")
        self.lost = Grouped(lost, lambda at, _: (at[1],), f"{name}: lost paths by object")
        self.virtual_hosts = Tally(self.decided, _served_virtual_hosts, f"{name}: served paths of virtual hosts")

    def _decide(self, read: Read, path: VirtualHostPath, asking: Sequence[tuple[object, RouteRule]]) -> DecidedPath:
        decided = super()._decide(read, path, asking)
        taken = self._taken(read, path, decided.effective[0]) if decided.effective else ""
        if not taken:
            return decided
        claimants = [rule for _, rule in asking]
        why_not = self._blocked(read, path, claimants)
        return DecidedPath((), tuple(ConflictedRule(each, None, why_not(each) or taken) for each in claimants))


def key_of(rule: RouteRule) -> Key:
    """Return the key of the object that a rule is of."""
    return Key(rule.owner.namespace, rule.owner.name)


def _objects_that_won(_: VirtualHostPath, path: DecidedPath) -> Iterator[Key]:
    return (key_of(rule) for rule in path.effective)


def _lost_by_object(_: VirtualHostPath, path: DecidedPath) -> Iterable[tuple[Key, tuple[ConflictedRule, ...]]]:
    found: defaultdict[Key, tuple[ConflictedRule, ...]] = defaultdict(tuple)
    for each in path.lost:
        found[key_of(each.rule)] += (each,)
    return found.items()


def _served_virtual_hosts(at: VirtualHostPath, path: DecidedPath) -> Sequence[tuple[str, int]]:
    return ((at.virtual_host, 1),) if path.effective else ()


class ConditionalRoutingTable(RoutingTable):
    """For rules with conditions on the request: ``leading`` are the paths whose entry leads to a backend, by that.

    ``groups`` are those whose entry leads to a group, by virtual host. Where the rules of a virtual host differ in
    ``precedence`` a shorter path may come before a longer one.
    """

    def __init__(self, name: str, rules: Collection[Any, RouteRule], blocked: Blocked = never_blocked) -> None:
        super().__init__(name, rules, blocked)
        precedences = Tally(rules, lambda _, rule: (((rule.virtual_host, rule.precedence), 1),), f"{name}: precedences")
        by_virtual_host = Grouped(precedences, lambda at, _: (at[0],), f"{name}: precedences by virtual host")
        self._mixed = Derived(
            by_virtual_host, lambda _, __, found: len(found) > 1 or None, f"{name}: mixed virtual hosts"
        )
        leads = Derived(self.decided, self._lead, f"{name}: map entries")
        self.leading = Grouped(
            leads,
            lambda _, lead: (lead.backend,) if lead.backend else (),
            f"{name}: paths by backend",
            rank=lambda path, _: entry_of(*path),
        )
        self.groups = Grouped(
            leads,
            lambda path, lead: (path.virtual_host,) if lead.group is not None else (),
            f"{name}: groups by virtual host",
            rank=lambda path, _: path.place,
        )

    def _lead(self, read: Read, path: VirtualHostPath, decided: DecidedPath) -> Lead | None:
        if not decided.effective:
            return None
        tried = self._tried(read, path, decided)
        if tried[0].match.is_plain:
            return Lead(tried[0].backend)
        return Lead(group=group_of(path.virtual_host, path.place, tried))

    def _tried(self, read: Read, path: VirtualHostPath, decided: DecidedPath) -> list[RouteRule]:
        """Return the rules to try for requests that a map leads to a path, up to one without conditions."""
        mixed = read(self._mixed, path.virtual_host) is not None
        rules: list[RouteRule] = []
        for rule in self._in_order(read, path, decided):
            rules.append(rule)
            if rule.match.is_plain and not mixed:
                return rules
        if mixed:
            rules.sort(key=attrgetter("precedence"))
            last = next((number for number, rule in enumerate(rules, 1) if rule.match.is_plain), len(rules))
            del rules[last:]
        return rules

    def _in_order(self, read: Read, path: VirtualHostPath, decided: DecidedPath) -> Iterator[RouteRule]:
        yield from decided.effective
        for place in _less_specific(path.place):
            found = read(self.decided, VirtualHostPath(path.virtual_host, place))
            yield from found.effective if found is not None else ()


def _less_specific(place: Place) -> Iterator[Place]:
    """Return the places whose rules come after those of ``place``, in their order."""
    path = place.path
    if place.kind is PathKind.EXACT:
        path = path.removesuffix("/")
        yield Place(PathKind.PREFIX, path)
    while path:
        path = path.rpartition("/")[0]
        yield Place(PathKind.PREFIX, path)


def group_of(virtual_host: str, place: Place, rules: Sequence[RouteRule]) -> RouteGroup:
    """Return the group of the rules that are tried, in this order, for requests that a map leads to a place."""
    digest = hashlib.sha256(f"{virtual_host} {place.kind} {place.path}".encode()).hexdigest()[:20]
    return RouteGroup(f"{GROUP_PREFIX}{digest}", entry_of(virtual_host, place), tuple(rules))
