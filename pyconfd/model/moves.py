"""Names that went from one object to another: text and servers may be the same, so only the owners tell. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyconfd.model.reservation import Name, Owner, Owners


@dataclass(frozen=True, slots=True)
class Move:
    """``name`` (a host name, or a port or listener as a whole) of ``preset`` has another owner."""

    preset: str
    name: str
    former: str
    now: str

    @property
    def sentence(self) -> str:
        """Say it."""
        return f"{self.name} moved from {self.former} to {self.now}"


def moves(before: Mapping[str, Owners], after: Mapping[str, Owners]) -> tuple[Move, ...]:
    """Return the names that have other owners in ``after``, sorted; what came or went is no move."""
    return tuple(sorted(_moves(before, after), key=lambda each: (each.preset, each.name)))


def _moves(before: Mapping[str, Owners], after: Mapping[str, Owners]) -> Iterator[Move]:
    for preset, now in after.items():
        former = before.get(preset, now)
        if former is now:
            continue
        for name, owner in now.items():
            was = former.get(name)
            if was is not None and was[:3] != owner[:3]:
                yield Move(preset, _shown(name), _object(was), _object(owner))


def _shown(name: Name) -> str:
    return f"{name.name} on {name.place}" if name.name and name.place else name.name or name.place


def _object(owner: Owner) -> str:
    return f"{owner.kind} {owner.namespace}/{owner.name}"
