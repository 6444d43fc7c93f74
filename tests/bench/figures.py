"""What a benchmark prints."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """``goal`` is None for a figure that only informs; else ``met`` says whether ``value`` is at most ``goal``."""

    name: str
    value: float
    unit: str
    goal: float | None = None

    @property
    def met(self) -> bool | None:
        """None where there is no goal."""
        return None if self.goal is None else self.value <= self.goal

    def show(self) -> None:
        """Print the figure as one line of JSON."""
        fields = {
            "name": self.name,
            "value": round(self.value, 4),
            "unit": self.unit,
            "goal": self.goal,
            "met": self.met,
        }
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


Benchmark = Callable[[], Iterator[Figure]]


def median(values: list[float]) -> float:
    """Return the middle value (the upper one of two)."""
    return sorted(values)[len(values) // 2]
