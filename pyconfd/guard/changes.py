"""What changed behind each name that is served."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyconfd.guard.ledger import Name
from pyconfd.model.context import Claimed, Context
from pyconfd.model.layered import differing

CLUSTER = "cluster"
"""The name of what is counted where no preset serves anything: all services of the cluster."""


@dataclass(frozen=True, slots=True)
class Change:
    """What changed behind one name; ``vanished`` where nothing is asked for under it any more."""

    name: Name
    gone: frozenset[str]
    came: frozenset[str]
    vanished: bool

    @property
    def more(self) -> int:
        """By how many there are more."""
        return len(self.came) - len(self.gone)


def tracked(context: Context, *, is_own: bool) -> tuple[Claimed, ...]:
    """Return what counts: what the presets serve, or all services of the cluster."""
    if is_own:
        return context.claimed
    return (context.everything,) if context.everything is not None else ()


def distinct(claimed: Claimed, name: str) -> frozenset[str]:
    """Return the addresses behind one name of one preset."""
    return frozenset(claimed.addresses(claimed.by_name[name]))


def distinct_of(claimed: Iterable[Claimed], name: Name) -> frozenset[str]:
    """Return the addresses behind one name."""
    for each in claimed:
        if each.preset == name[0] and name[1] in each.by_name:
            return distinct(each, name[1])
    return frozenset()


def changes_between(old: tuple[Claimed, ...], new: tuple[Claimed, ...]) -> list[Change]:
    """Return what changed between two Contexts."""
    former = {each.preset: each for each in old}
    found: list[Change] = []
    for each in new:
        before = former.pop(each.preset, None) or replace(each, by_name={})
        found += _changes_of(before, each)
    for gone in former.values():
        found += _changes_of(gone, replace(gone, by_name={}))
    return found


def _changes_of(old: Claimed, new: Claimed) -> Iterable[Change]:
    for name in differing(old.by_name, new.by_name):
        before = distinct(old, name) if name in old.by_name else frozenset[str]()
        vanished = name not in new.by_name
        after = frozenset[str]() if vanished else distinct(new, name)
        if before != after or vanished:
            yield Change((new.preset, name), before - after, after - before, vanished)


def by_preset(changes: Iterable[Change]) -> Mapping[str, Any]:
    """Return by how many there are more behind each preset."""
    found: dict[str, int] = {}
    for each in changes:
        found[each.name[0]] = found.get(each.name[0], 0) + each.more
    return found


def kept_back(served: Context, asked: Context) -> Mapping[Name, frozenset[str]]:
    """Return the addresses that are ready in ``served`` and not in ``asked``, by preset and name."""
    return {each.name: each.gone for each in changes_between(served.claimed, asked.claimed) if each.gone}
