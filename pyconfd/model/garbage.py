"""When Python looks for garbage: not while somebody waits for a change."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep the garbage collector from running; what has no cycle is freed all the same.

    A change replaces mappings of the whole cluster, and the collector walks those that are young, all of their items:
    6 ms with 5,000 routes, of 12 that such a change took. It does so afterwards. May be nested.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
