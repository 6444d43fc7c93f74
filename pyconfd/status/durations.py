"""Durations in words."""

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0

_UNITS = ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "m"), (1.0, "s"))


def short(seconds: float) -> str:
    """Return ``seconds`` with at most two units: ``4 s``, ``3 m``, ``2 h 5 m``, ``40 d``. Negative counts as 0."""
    left = max(0.0, seconds)
    for index, (size, unit) in enumerate(_UNITS):
        if left < size:
            continue
        whole = int(left // size)
        if unit == "h":
            minutes = int((left - whole * size) // _UNITS[index + 1][0])
            return f"{whole} h {minutes} m" if minutes else f"{whole} h"
        return f"{whole} {unit}"
    return "0 s"


def long(seconds: float) -> str:
    """Return ``seconds`` in the one largest unit, spelled out: ``1 minute``, ``12 minutes``."""
    left = max(0.0, seconds)
    for size, unit in ((DAY_S, "day"), (HOUR_S, "hour"), (MINUTE_S, "minute")):
        if left >= size:
            return _counted(int(left // size), unit)
    return _counted(int(left), "second")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
