"""When a node may send: an account has 5 requests a second, and all nodes and all other programs share them.

Time is parted into slots that the nodes take in turn. A slot has room for two requests, a read and the change that
follows from it: so two nodes seldom meet, and where clocks differ the compare-and-swap sorts it out.
"""

from collections.abc import Iterable
from zlib import crc32

SLOT_S = 1.0
REQUESTS_IN_A_SLOT = 2
"""So no second has more than four, which leaves one to others: it has parts of two slots at the most.

Source: Route 53 Developer Guide, Quotas: five requests a second for an account.
"""


def place(node: str, known: Iterable[str], expected: int) -> tuple[int, int]:
    """Return the slot of a node and the number of slots in a round.

    ``known`` are the nodes that all others know too. One that is not among them yet takes a slot by its name.
    """
    nodes = sorted({*known})
    slots = max(len({node, *nodes}), expected)
    return (nodes.index(node) if node in nodes else crc32(node.encode()) % slots), slots


def slot_number(now: float) -> int:
    """Return the number of the slot that a time (seconds since the epoch) is in."""
    return int(now // SLOT_S)


def next_slot(now: float, slot: int, slots: int, used: int) -> float:
    """Return the earliest time from ``now`` on in an own slot; ``used`` is the number of the last one that was used."""
    first = max(slot_number(now), used + 1)
    number = first + (slot - first) % slots
    return max(number * SLOT_S, now)
