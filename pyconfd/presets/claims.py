"""What the objects of a cluster ask for, by their keys, and brought up to date where something changed."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pyconfd.model.context import Refusal
from pyconfd.model.snapshot import Key
from pyconfd.presets.changes import updated


class _Claim(Protocol):
    @property
    def rank(self) -> tuple[Any, ...]:
        """Who comes first gets what several ask for."""
        ...

    @property
    def asks(self) -> object:
        """All of a claim that decides who gets what, its rank included; not what stands behind it."""
        ...


_C = TypeVar("_C", bound=_Claim)


@dataclass(frozen=True, slots=True)
class Asked(Generic[_C]):
    """What the objects of one key ask for, and what of it cannot be."""

    claims: tuple[_C, ...] = ()
    refused: tuple[Refusal, ...] = ()


_NOTHING: Asked[Any] = Asked()


@dataclass(frozen=True, slots=True)
class Claims(Generic[_C]):
    """All claims. ``places`` has, in order of rank, where each is: its key, and its number among that key's claims.

    ``places`` and ``refused`` are the former objects as long as everybody asks for the same, or is refused the same.
    """

    by_key: Mapping[Key, Asked[_C]]
    places: Sequence[tuple[tuple[Any, ...], Key, int]] = ()
    refused: tuple[Refusal, ...] = ()

    def of(self, key: Key) -> tuple[_C, ...]:
        """Return the claims of one key."""
        return self.by_key.get(key, _NOTHING).claims

    def in_order(self) -> Iterator[_C]:
        """Return all claims, the first in rank first."""
        return (self.by_key[key].claims[number] for _, key, number in self.places)

    def updated(self, changed: Collection[Key], make: Callable[[Key], Asked[_C] | None]) -> "Claims[_C]":
        """Return the claims after those of ``changed`` were read anew."""
        if not changed:
            return self
        now = Claims(updated(self.by_key, changed, make), self.places, self.refused)
        places, refused = self.places, self.refused
        if any(now._asks(key) != self._asks(key) for key in changed):
            places = now._ranked(changed)
        if any(now.by_key.get(key, _NOTHING).refused != self.by_key.get(key, _NOTHING).refused for key in changed):
            refused = tuple(refusal for asked in now.by_key.values() for refusal in asked.refused)
        return Claims(now.by_key, places, refused)

    def replaced(self, former: "Claims[_C]", changed: Iterable[Key]) -> Iterator[tuple[_C, _C]]:
        """Return each claim of ``changed`` that is another object than in ``former`` though it asks for the same."""
        for key in changed:
            for old, new in zip(former.of(key), self.of(key), strict=True):
                if old is not new:
                    yield old, new

    def _asks(self, key: Key) -> list[object]:
        return [claim.asks for claim in self.of(key)]

    def _ranked(self, changed: Collection[Key]) -> list[tuple[tuple[Any, ...], Key, int]]:
        anew = frozenset(changed)
        places = [place for place in self.places if place[1] not in anew]
        places += [(claim.rank, key, number) for key in anew for number, claim in enumerate(self.of(key))]
        # Nearly sorted already, so that this costs little more than to read it.
        places.sort()
        return places
