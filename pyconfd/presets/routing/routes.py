"""Which rule has which path, and the map entries that lead to its backend, as collections.

Of several rules that ask for the same match at the same site the oldest object's has it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pyconfd.derived import Collection, Derived, Grouped, Read, Spread
from pyconfd.model.snapshot import Key
from pyconfd.presets.routing.table import Lost, SitePath, conflict_key, entry_of, path_of
from pyconfd.presets.routing.types import RouteRule

Blocked = Callable[[Read, RouteRule, Sequence[RouteRule]], str]
"""Returns why a rule may not have its match, or ""; with all rules that ask for its path, in order of rank."""


class DecidedPath(NamedTuple):
    """The rules of one path that got their match, and those that did not."""

    winners: tuple[RouteRule, ...]
    lost: tuple[Lost, ...]


class PlainRoutes:
    """Routes whose matches are paths, and nothing else: one rule wins each of them.

    ``decided`` is by path; ``won`` and ``lost`` have the same by object, ``leading`` by backend, and ``sites`` has
    those that are served by site.
    """

    def __init__(
        self, claims: Collection[Key, Any], rules: Callable[[Any], Iterable[RouteRule]], blocked: Blocked
    ) -> None:
        self._blocked = blocked
        asked = Spread(claims, lambda _, claim: enumerate(rules(claim)), "rules")
        claimants = Grouped(asked, lambda _, rule: (path_of(rule),), "claims of paths", rank=lambda _, rule: rule.rank)
        self.decided = Derived(claimants, self._decide, "decisions on paths")
        self.won = Grouped(self.decided, _objects_that_won, "paths by object")
        self.lost = Grouped(self.decided, _objects_that_lost, "lost paths by object")
        self.leading = Grouped(self.decided, _backends, "paths by backend", rank=lambda path, _: entry_of(*path))
        self.sites = Grouped(self.decided, _served_sites, "paths by site")

    def _decide(self, read: Read, _: SitePath, asking: Sequence[tuple[object, RouteRule]]) -> DecidedPath:
        claimants = [rule for _, rule in asking]
        given: dict[object, RouteRule] = {}
        lost: list[Lost] = []
        for rule in claimants:
            what = conflict_key(rule.match)
            if what in given:
                lost.append(Lost(rule, given[what]))
            elif why := self._blocked(read, rule, claimants):
                lost.append(Lost(rule, None, why))
            else:
                given[what] = rule
        return DecidedPath(tuple(given.values()), tuple(lost))


def key_of(rule: RouteRule) -> Key:
    """Return the key of the object that a rule is of."""
    return Key(rule.owner.namespace, rule.owner.name)


def _objects_that_won(_: SitePath, path: DecidedPath) -> Iterator[Key]:
    return (key_of(rule) for rule in path.winners)


def _objects_that_lost(_: SitePath, path: DecidedPath) -> Iterator[Key]:
    return (key_of(each.rule) for each in path.lost)


def _backends(_: SitePath, path: DecidedPath) -> Iterator[str]:
    return (rule.backend for rule in path.winners)


def _served_sites(at: SitePath, path: DecidedPath) -> Sequence[str]:
    return (at.site,) if path.winners else ()
