"""How long the conditions of routes may take for one request: a budget for each namespace at each listener.

A request is compared with the rules of one host, and those are of few namespaces; nobody's expressions use up the
budget of another namespace. The unit is a step of :func:`pyconfd.presets.gateway.patterns.steps_of`, about 1 ns.

Measured with HAProxy 2.6 (PCRE2 10.42 with JIT) and the worst requests: expressions that use up a budget take 1 to
12 ms of its thread.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from pyconfd.presets.gateway import patterns
from pyconfd.presets.gateway.faults import UNSUPPORTED, RuleFault
from pyconfd.presets.routing.types import PathKind, RouteMatch

MOST_WORK = 5_000_000
_EXPRESSION = 2_000
"""To call the library at all."""
_HEADER = 300
"""To find a header among a hundred."""
_QUERY = 15_000
"""To find a parameter in a query of 14 KB."""

OVER_BUDGET = RuleFault(
    UNSUPPORTED, "matches", "",
    "conditions of this namespace's routes take too long together at a listener: write prefixes, or fewer expressions",
)  # fmt: skip

_Id = TypeVar("_Id")


class RouteWork(NamedTuple):
    """The work of each rule of one route; ``listeners`` are those that it is served at, ``rank`` sorts by age."""

    namespace: str
    rank: tuple[str, ...]
    listeners: frozenset[tuple[str, str]]
    rules: tuple[int, ...]


def work_of(matches: Iterable[RouteMatch]) -> int:
    """Return the steps that the matches of a rule may take beyond the maps."""
    found = 0
    for match in matches:
        found += work_of_expression(match.path) if match.kind is PathKind.REGEX else 0
        for each in match.headers:
            found += 2 * _HEADER + _EXPRESSION + patterns.steps_of(each.value) if each.regex else _HEADER
        for each in match.query:
            found += 2 * _QUERY + _EXPRESSION + patterns.steps_of(each.value, lines=True) if each.regex else _QUERY
    return found


def work_of_expression(path: str) -> int:
    """Return the steps of one regular expression of a path."""
    return _EXPRESSION + patterns.steps_of(path)


def beyond_budget(routes: Mapping[_Id, RouteWork]) -> Mapping[_Id, frozenset[int]]:
    """Return the numbers of the rules that are to be left out, by route: the older route comes first."""
    used: Counter[tuple[str, tuple[str, str]]] = Counter()
    found: defaultdict[_Id, set[int]] = defaultdict(set)
    for name, route in sorted(routes.items(), key=lambda item: item[1].rank):
        places = [(route.namespace, listener) for listener in route.listeners]
        for number, work in enumerate(route.rules):
            if work and any(used[place] + work > MOST_WORK for place in places):
                found[name].add(number)
            else:
                used.update(dict.fromkeys(places, work))
    return {name: frozenset(numbers) for name, numbers in found.items()}
