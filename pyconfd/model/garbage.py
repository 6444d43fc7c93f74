"""When Python looks for garbage, and where: not while somebody waits for a change, and not at what is old."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

THAW_S = 3600.0
"""How often old objects are looked at all the same, so that a cycle of theirs does not stay for ever."""
_FULL = 2
"""The oldest generation. Source: Python's documentation of ``gc.callbacks``."""


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep the garbage collector from running; what has no cycle is freed all the same.

    A change replaces mappings of the whole cluster, and the collector walks those that are young, all of their items:
    6 ms with 5,000 routes, of 12 that such a change took. It does so afterwards. May be nested, and in any thread:
    who switched it off switches it on, and others meanwhile may be disturbed.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def survivors_frozen(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Freeze what is there and what survives each full collection; each :data:`THAW_S` one looks at all of it.

    A full collection holds up every thread. It would walk the caches and all that was made of them, each time more:
    350 ms with 3,000 routes. So it walks what came since the last one. ``clock`` returns seconds.
    """
    thaws_at = clock() + THAW_S

    def around(phase: str, about: dict[str, Any]) -> None:
        nonlocal thaws_at
        if about["generation"] < _FULL:
            return
        if phase == "stop":
            gc.freeze()
        elif clock() >= thaws_at:
            thaws_at = clock() + THAW_S
            gc.unfreeze()

    gc.freeze()
    gc.callbacks.append(around)
    try:
        yield
    finally:
        gc.callbacks.remove(around)
