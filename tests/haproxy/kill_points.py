"""The effects before which a child dies, one after the other, until it lives to the end.

``make crash-test`` takes every one of them. The suite takes the first few, every fourth, and all of the last few: what
is kept open, written or removed differs from one effect to the next most of all where work begins and where it ends.
"""

import os
from collections.abc import Iterator

LONG = bool(os.environ.get("PYCONFD_TEST_CRASHES"))
FIRST = 4
STRIDE = 1 if LONG else 4
LAST = 2 * (STRIDE - 1)
_MOST = 10_000


def shards(number: int) -> range:
    """Give the numbers of the tests that the kill points are dealt out to, so that they can run beside each other."""
    return range(number if LONG else 1)


class KillPoints:
    """The kill points of one of several tests; say with :meth:`survived` that the latest was never reached."""

    def __init__(self, shard: int, of: range) -> None:
        self._all = range(shard, _MOST, len(of))
        self._survived = False

    def survived(self) -> None:
        """Note that the child did all its work: there are no further points."""
        self._survived = True

    def __iter__(self) -> Iterator[int]:
        skipped: list[int] = []
        for index, point in enumerate(self._all):
            if index >= FIRST and index % STRIDE:
                skipped.append(point)
                continue
            yield point
            if self._survived:
                yield from skipped[-LAST:]  # what the work ends with
                return
        raise AssertionError(f"it died before {_MOST} effects and never lived to the end")
