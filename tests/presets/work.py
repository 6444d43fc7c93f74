"""How much work something is, whatever the machine does beside it."""

import sys
from collections.abc import Callable
from types import FrameType


def calls_of(work: Callable[[], object]) -> int:
    """Return how many calls of Python functions some work needs."""
    count = 0

    def called(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    previous = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(previous)
    return count
