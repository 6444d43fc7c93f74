"""A pin: fragments and settings of a former generation that serve instead of those on disk."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pin:
    """``basis`` is the digest of what is pinned.

    ``id`` tells two pins to the same generation apart.
    ``since`` is seconds since the epoch. ``broken`` says why what is pinned cannot be known, "" where it can.
    """

    id: str
    generation: int
    basis: str
    since: float
    reason: str = ""
    broken: str = ""


@dataclass(frozen=True, slots=True)
class PinStatus:
    """What a pin does: ``serves`` once what is pinned serves, ``refused`` where it was tried and could not.

    ``waiting`` says in words how what is on disk differs.
    """

    pin: Pin
    serves: bool = False
    refused: bool = False
    waiting: tuple[str, ...] = ()
