"""Cuts a list of steps down to the few that matter."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrunk(steps: Sequence[T], fails: Callable[[Sequence[T]], bool], *, most: int = 200) -> list[T]:
    """Return a part of ``steps`` that still fails and of which no single one can be left out.

    ``fails`` is asked at most ``most`` times; what is there by then is given.
    """
    kept, size, asked = list(steps), max(1, len(steps) // 2), 0
    while kept and asked < most:
        at, smaller = 0, False
        while at < len(kept) and asked < most:
            rest = kept[:at] + kept[at + size :]
            asked += 1
            if fails(rest):
                kept, smaller = rest, True
            else:
                at += size
        if size == 1 and not smaller:
            break
        size = max(1, size // 2)
    return kept
