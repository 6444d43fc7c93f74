"""What may happen, as plain data: any list of steps can be played, so any part of one can be too."""

import random
from typing import NamedTuple

from tests.simulation.cluster import MOST_PODS, NAMES, RENEWALS, Lie, Poison

_EVERY_POD = (1 << MOST_PODS) - 1
_SOME = len(NAMES) - 1


class Step(NamedTuple):
    """One thing that happens; what the numbers mean depends on ``kind``."""

    kind: str
    one: int = 0
    two: int = 0


KINDS: dict[str, tuple[int, tuple[int, int], tuple[int, int]]] = {
    "pods": (30, (0, _SOME), (1, _EVERY_POD)),
    "scale to nothing": (1, (0, _SOME), (0, 0)),
    "appear": (6, (0, _SOME), (1, _EVERY_POD)),
    "vanish": (4, (0, _SOME), (0, 0)),
    "poison": (10, (0, _SOME), (1, len(Poison) - 1)),
    "heal": (8, (0, _SOME), (0, 0)),
    "thief": (3, (0, _SOME), (0, 1)),
    "renew": (3, (0, RENEWALS - 1), (0, 0)),
    "break secret": (3, (0, 0), (0, 0)),
    "repair secret": (3, (0, 0), (0, 0)),
    "lie": (7, (1, len(Lie) - 1), (0, (1 << len(NAMES)) - 1)),
    "truth": (6, (0, 0), (0, 0)),
    "reload": (4, (0, 2), (0, 0)),
    "disk": (4, (0, 3), (0, 0)),
    "port": (3, (0, 1), (0, 0)),
    "template": (3, (0, 4), (0, 9)),
    "kill": (6, (0, _SOME), (0, 250)),
    "lose names": (2, (0, 0), (0, 0)),
    "haproxy dies": (1, (0, 0), (0, 0)),
    "pass": (10, (0, 4), (0, 0)),
    "allow": (1, (0, 0), (0, 0)),
    "calm": (1, (0, 0), (0, 0)),
}
"""How often each comes, and between what its numbers are."""


def random_steps(seed: int, count: int) -> list[Step]:
    """Return ``count`` steps, the same ones for the same seed."""
    chance = random.Random(seed)
    kinds = chance.choices(list(KINDS), weights=[weight for weight, *_ in KINDS.values()], k=count)
    return [Step(kind, chance.randint(*KINDS[kind][1]), chance.randint(*KINDS[kind][2])) for kind in kinds]
