"""The table of routes: which rule owns which path, and the map entries and groups that lead to its backend.

Of several rules that ask for the same match at the same site the oldest object's has it. The precedence among different
matches is that of the Gateway API: exact paths, then the longest prefix, then rules with a method, then the number of
headers, then of query parameters, then the rank of the rule. A regular expression belongs to the prefix of its literal
elements, and is tried first there.

A table is never changed: :meth:`RoutingTable.updated` returns another one, and looks only at paths whose rules changed.
"""

import hashlib
import re
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from pyconfd.model.versioned import VersionedDict
from pyconfd.presets.routing.types import (
    EXACT_PATHS,
    GROUP_PREFIX,
    PATH_PREFIXES,
    PathEntry,
    PathKind,
    RouteGroup,
    RouteMatch,
    RouteRule,
)

_LITERAL = re.compile(r"\^?((?:/[A-Za-z0-9_~-]+)*)/(?![?*+{])")
"""The whole elements that a regular expression begins with."""


class Place(NamedTuple):
    """Where a map of paths leads to rules: ``path`` of a prefix has no final slash, so that of ``/`` is ""."""

    kind: PathKind
    path: str


class SitePath(NamedTuple):
    """One place at one site."""

    site: str
    place: Place


class Lost(NamedTuple):
    """A rule that does not own its match: ``winner`` does, or ``why`` says why this rule may not."""

    rule: RouteRule
    winner: RouteRule | None
    why: str = ""


class _Rules(NamedTuple):
    """Those that ask for one place, in order of rank; and those that got their match, in order of precedence."""

    claimants: tuple[RouteRule, ...]
    winners: tuple[RouteRule, ...]
    lost: tuple[Lost, ...]


_NO_RULES = _Rules((), (), ())

Blocked = Callable[[RouteRule, Sequence[RouteRule]], str]
"""Returns why a rule may not have its match, or ""; with all rules that ask for its place, in order of rank."""


def _never(_: RouteRule, __: Sequence[RouteRule]) -> str:
    return ""


def place_of(match: RouteMatch) -> Place:
    """Return the place of a match."""
    if match.kind is PathKind.EXACT:
        return Place(PathKind.EXACT, match.path)
    if match.kind is PathKind.PREFIX:
        return Place(PathKind.PREFIX, match.path.removesuffix("/"))
    found = _LITERAL.match(match.path) if "|" not in match.path else None
    return Place(PathKind.PREFIX, found[1] if found else "")


def path_of(rule: RouteRule) -> SitePath:
    """Return the place that a rule asks for."""
    return SitePath(rule.site, place_of(rule.match))


def entry_of(site: str, place: Place) -> PathEntry:
    """Return the map entry of a place."""
    if place.kind is PathKind.EXACT:
        return PathEntry(EXACT_PATHS, f"{site}{place.path}")
    return PathEntry(PATH_PREFIXES, f"{site}{place.path}/")


def conflict_key(match: RouteMatch) -> object:
    """Return what two matches at one place must differ in, or they conflict; the order of conditions does not count."""
    regex = match.path if match.kind is PathKind.REGEX else ""
    return regex, match.method, frozenset(match.headers), frozenset(match.query)


def _precedence(rule: RouteRule) -> tuple[int, bool, bool, int, int, tuple[int, str, str, str, str, int]]:
    match = rule.match
    return (
        rule.precedence, match.kind is not PathKind.REGEX, not match.method, -len(match.headers), -len(match.query),
        rule.rank,
    )  # fmt: skip


def _decide(claimants: tuple[RouteRule, ...], blocked: Blocked) -> _Rules:
    given: dict[object, RouteRule] = {}
    lost: list[Lost] = []
    for rule in claimants:
        what = conflict_key(rule.match)
        if what in given:
            lost.append(Lost(rule, given[what]))
        elif why := blocked(rule, claimants):
            lost.append(Lost(rule, None, why))
        else:
            given[what] = rule
    winners = tuple(sorted(given.values(), key=_precedence)) if len(given) > 1 else tuple(given.values())
    return _Rules(claimants, winners, tuple(lost))


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """``rules`` has all that is asked for, by any key that names the object; the rest follows from it.

    ``sites`` has the rules of each path. ``entries`` are, by backend, what leads to it without conditions; ``groups``
    are those of each site. ``lost`` has the rules without their match. ``mixed`` are the sites whose rules differ in
    ``precedence``: there a shorter path may come before a longer one.
    """

    rules: Mapping[Any, tuple[RouteRule, ...]] = field(default_factory=dict)
    sites: Mapping[str, Mapping[Place, _Rules]] = field(default_factory=dict)
    entries: Mapping[str, tuple[PathEntry, ...]] = field(default_factory=lambda: VersionedDict({}))
    groups: Mapping[str, Mapping[Place, RouteGroup]] = field(default_factory=dict)
    lost: Mapping[SitePath, tuple[Lost, ...]] = field(default_factory=dict)
    mixed: frozenset[str] = frozenset()

    def updated(
        self,
        changed: Mapping[Any, tuple[RouteRule, ...]],
        blocked: Blocked = _never,
        again: Collection[SitePath] = (),
    ) -> "RoutingTable":
        """Return the table with other rules of some objects, () for none.

        ``again`` are paths for which ``blocked`` may return something else than before.
        """
        gone, come = self._differences(changed)
        touched: defaultdict[str, set[Place]] = defaultdict(set)
        for path in (*gone, *come, *again):
            touched[path.site].add(path.place)
        if not touched:
            return self
        kept = {owner: rules for owner, rules in changed.items() if rules}
        rules = {**self.rules, **kept}
        for owner in changed.keys() - kept.keys():
            rules.pop(owner, None)
        draft = _TableDraft(self)
        for site, places in touched.items():
            claimants = {}
            for place in places:
                path = SitePath(site, place)
                claimants[place] = self._claimants(path, gone.get(path, ()), come.get(path, ()))
            draft.update_site(site, claimants, blocked)
        return RoutingTable(rules, draft.sites, draft.entries(), draft.groups, draft.lost, frozenset(draft.mixed))

    def has_won(self, rule: RouteRule) -> bool:
        """Return whether a rule has its match."""
        return rule in self._at(path_of(rule)).winners

    def winners(self, path: SitePath) -> tuple[RouteRule, ...]:
        """Return the rules that have their matches at one path, in order of precedence."""
        return self._at(path).winners

    def claimants(self, path: SitePath) -> tuple[RouteRule, ...]:
        """Return all rules that ask for one path, in order of rank."""
        return self._at(path).claimants

    def _at(self, path: SitePath) -> _Rules:
        return self.sites.get(path.site, {}).get(path.place, _NO_RULES)

    def _differences(
        self, changed: Mapping[Any, tuple[RouteRule, ...]]
    ) -> tuple[dict[SitePath, list[RouteRule]], dict[SitePath, list[RouteRule]]]:
        """Return the rules that are not asked for any more, and the new ones, by path."""
        gone: dict[SitePath, list[RouteRule]] = {}
        come: dict[SitePath, list[RouteRule]] = {}
        for owner, now in changed.items():
            before = self.rules.get(owner, ())
            if now == before:
                continue
            old, new = frozenset(before), frozenset(now)
            for found, rules, others in ((gone, before, new), (come, now, old)):
                for rule in dict.fromkeys(rules):
                    if rule not in others:
                        found.setdefault(path_of(rule), []).append(rule)
        return gone, come

    def _claimants(
        self, path: SitePath, gone: Collection[RouteRule], come: Collection[RouteRule]
    ) -> tuple[RouteRule, ...]:
        before = self.claimants(path)
        kept = [rule for rule in before if rule not in gone] if gone else before
        return tuple(sorted((*kept, *come), key=lambda rule: rule.rank)) if come else tuple(kept)


_V = TypeVar("_V", bound=Sized)


def _put(mapping: dict[Any, _V], key: Hashable, value: _V) -> None:
    """Set what is not empty."""
    if value:
        mapping[key] = value
    else:
        mapping.pop(key, None)


class _TableDraft:
    """The parts of a table while they are updated."""

    def __init__(self, former: RoutingTable) -> None:
        self.sites = dict(former.sites)
        self._former = former.entries
        self._moved: dict[str, tuple[PathEntry, ...]] = {}
        self.groups = dict(former.groups)
        self.lost = dict(former.lost)
        self.mixed = set(former.mixed)

    def update_site(self, site: str, claimants: Mapping[Place, tuple[RouteRule, ...]], blocked: Blocked) -> None:
        """Decide which rules own some places of one site."""
        before = self.sites.get(site, {})
        paths = dict(before)
        for place, asking in claimants.items():
            if asking:
                paths[place] = _decide(asking, blocked)
            else:
                paths.pop(place, None)
            _put(self.lost, SitePath(site, place), paths.get(place, _NO_RULES).lost)
        was_mixed, is_mixed = site in self.mixed, self._is_mixed(site, paths, claimants)
        touched = {*before, *paths} if was_mixed or is_mixed else claimants.keys()
        for place in touched:
            old = _only_backend(_tried_at(place, before, mixed=was_mixed))
            new = _only_backend(_tried_at(place, paths, mixed=is_mixed))
            if old != new:
                self._move_entry(entry_of(site, place), old, new)
        _put(self.sites, site, paths)
        (self.mixed.add if is_mixed else self.mixed.discard)(site)
        self._update_groups(site, paths, touched)

    def _is_mixed(self, site: str, paths: Mapping[Place, _Rules], changed: Collection[Place]) -> bool:
        """Return whether rules of a site differ in precedence."""
        # Where they did not, one path that did not change stands for the others.
        looked_at = paths if site in self.mixed else {*changed, *islice(paths, len(changed) + 1)} & paths.keys()
        return len({rule.precedence for place in looked_at for rule in paths[place].claimants}) > 1

    def entries(self) -> Mapping[str, tuple[PathEntry, ...]]:
        """Return what leads to each backend now."""
        former = self._former if isinstance(self._former, VersionedDict) else VersionedDict(self._former)
        gone = [name for name, entries in self._moved.items() if not entries]
        return former.with_changes({name: entries for name, entries in self._moved.items() if entries}, gone)

    def _entries_of(self, backend: str) -> list[PathEntry]:
        return list(self._moved.get(backend, self._former.get(backend, ())))

    def _move_entry(self, entry: PathEntry, old: str, new: str) -> None:
        if old:
            left = self._entries_of(old)
            del left[bisect_left(left, entry)]
            self._moved[old] = tuple(left)
        if new:
            now = self._entries_of(new)
            insort(now, entry)
            self._moved[new] = tuple(now)

    def _update_groups(self, site: str, paths: Mapping[Place, _Rules], touched: Collection[Place]) -> None:
        before = self.groups.get(site, {})
        tried = {place: _tried_at(place, paths, mixed=site in self.mixed) for place in touched}
        stale = [place for place in touched if place in before or _is_group(tried[place])]
        for place in before:
            if place not in touched and _falls_to(place, before[place], touched):
                stale.append(place)
                tried[place] = _tried_at(place, paths, mixed=False)
        if not stale:
            return
        groups = dict(before)
        for place in stale:
            if _is_group(tried[place]):
                made = _made_group(site, place, tried[place])
                groups[place] = before[place] if before.get(place) == made else made
            else:
                groups.pop(place, None)
        _put(self.groups, site, {place: groups[place] for place in sorted(groups)})


def _tried_at(place: Place, paths: Mapping[Place, _Rules], *, mixed: bool) -> list[RouteRule]:
    """Return the rules to try for requests that a map leads to ``place``, up to one without conditions."""
    if not paths.get(place, _NO_RULES).winners:
        return []
    rules: list[RouteRule] = []
    for each in (place, *_less_specific(place)):
        for rule in paths.get(each, _NO_RULES).winners:
            rules.append(rule)
            if rule.match.is_plain and not mixed:
                return rules
    if mixed:
        rules.sort(key=attrgetter("precedence"))
        last = next((number for number, rule in enumerate(rules, 1) if rule.match.is_plain), len(rules))
        del rules[last:]
    return rules


def _only_backend(tried: Sequence[RouteRule]) -> str:
    """Return the backend that a map entry can lead to, "" where there is none or conditions decide."""
    return tried[0].backend if tried and tried[0].match.is_plain else ""


def _is_group(tried: Sequence[RouteRule]) -> bool:
    return bool(tried) and not tried[0].match.is_plain


def _less_specific(place: Place) -> Iterator[Place]:
    """Return the places whose rules come after those of ``place``, in their order."""
    path = place.path
    if place.kind is PathKind.EXACT:
        path = path.removesuffix("/")
        yield Place(PathKind.PREFIX, path)
    while path:
        path = path.rpartition("/")[0]
        yield Place(PathKind.PREFIX, path)


def _falls_to(place: Place, group: RouteGroup, changed: Collection[Place]) -> bool:
    """Return whether a group holds, or may hold, rules of one of the places."""
    own = [rule for rule in group.rules if place_of(rule.match) == place]
    return not (own and own[-1].match.is_plain) and any(each in changed for each in _less_specific(place))


def _made_group(site: str, place: Place, rules: list[RouteRule]) -> RouteGroup:
    digest = hashlib.sha256(f"{site} {place.kind} {place.path}".encode()).hexdigest()[:20]
    return RouteGroup(f"{GROUP_PREFIX}{digest}", entry_of(site, place), tuple(rules))
