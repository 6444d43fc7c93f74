"""Which generations are kept: by number, by age, and those without which nobody could go back. Pure."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from pyconfd.model.plan import ReloadReason

_OF_ENDPOINTS = frozenset({ReloadReason.SERVERS_CHANGED, ReloadReason.NOT_LIVE, ReloadReason.PROCESS_BEHIND})


@dataclass(frozen=True, slots=True)
class Entry:
    """What decides whether a generation is kept; ``applied_at`` is seconds since the epoch.

    ``claims`` is the digest of who had which name, "" where that was not kept. ``reasons`` are those of its reload, ()
    where it went live.
    """

    number: int
    applied_at: float = 0.0
    basis: str = ""
    ran_well: bool = False
    claims: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def is_of_endpoints(self) -> bool:
        """Return whether only servers changed: so it is many times in each rollout."""
        return _OF_ENDPOINTS.issuperset(self.reasons)


def kept(entries: Collection[Entry], *, number: int, for_s: float) -> frozenset[int]:
    """Return the numbers of those that stay.

    There may be many generations in a second, and few edits in a month: so the newest ``number`` of all stay, as many
    of those that changed more than servers, and the newest of each of the newest ``number`` bases. Those applied more
    than ``for_s`` seconds before the newest one go. Always kept are the newest, the newest that ran well, and the
    newest of another basis than that of the newest.
    """
    newest_first = sorted(entries, key=lambda entry: entry.number, reverse=True)
    if not newest_first:
        return frozenset()
    newest = newest_first[0]
    of_bases = list(_first_of_each_basis(newest_first))
    of_more = [entry for entry in newest_first if not entry.is_of_endpoints]
    chosen = [*newest_first[:number], *of_more[:number], *of_bases[:number]]
    young = {entry.number for entry in chosen if newest.applied_at - entry.applied_at <= for_s}
    sound = [entry.number for entry in newest_first if entry.ran_well]
    other = [entry.number for entry in of_bases if entry.basis != newest.basis]
    return frozenset({newest.number, *young, *sound[:1], *other[:1]})


def _first_of_each_basis(newest_first: Iterable[Entry]) -> Iterator[Entry]:
    seen: set[str] = set()
    for entry in newest_first:
        if entry.basis not in seen:
            seen.add(entry.basis)
            yield entry
