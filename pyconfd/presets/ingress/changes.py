"""What differs between two readings of the claims, and mappings that follow it."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from pyconfd.model.snapshot import Key
from pyconfd.model.versioned import replaced
from pyconfd.presets.ingress.claims import IngressClaim

_K = TypeVar("_K", bound=Hashable)
NOBODY: frozenset[Key] = frozenset()


class ChangedClaims(NamedTuple):
    """The claims of two readings; ``keys`` are those of claims that are others, came or went."""

    before: Mapping[Key, IngressClaim]
    after: Mapping[Key, IngressClaim]
    keys: tuple[Key, ...]

    def both(self) -> Iterator[IngressClaim]:
        """Return the changed claims as they were and as they are."""
        for key in self.keys:
            for claims in (self.before, self.after):
                if key in claims:
                    yield claims[key]


def users_of(
    former: Mapping[_K, frozenset[Key]], changed: ChangedClaims, things: Callable[[IngressClaim], Iterable[_K]]
) -> Mapping[_K, frozenset[Key]]:
    """Return the keys of the claims that ask for each thing, after the claims changed."""
    found: dict[_K, frozenset[Key]] = {}
    for key in changed.keys:
        before, after = (set(things(claims[key])) if key in claims else set() for claims in changed[:2])
        for thing in before ^ after:
            users = found.get(thing, former.get(thing, NOBODY))
            found[thing] = users | {key} if thing in after else users - {key}
    return replaced(former, {thing: users or None for thing, users in found.items()})
