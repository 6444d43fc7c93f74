"""Texts fit to be shown: names from files and API servers may hold anything, at any length; durations in words."""

MOST = 1_000
"""Characters of one line; a name of Kubernetes has at most 253."""


def clean(text: str | bytes, most: int = MOST) -> str:
    """Return ``text`` on one line: what cannot be printed is escaped, and what is longer than ``most`` is cut."""
    if isinstance(text, bytes):
        text = text[: most * 4].decode("utf-8", "backslashreplace")
    if len(text) <= most and text.isprintable():
        return text
    shown = escaped(text[:most])
    return shown if len(text) <= most and len(shown) <= most else f"{shown[:most]}... ({len(text):,} characters)"


def clean_lines(text: str, most: int = MOST) -> str:
    """Return ``text`` with each of its lines cleaned; for texts whose line breaks are pyconfd's own."""
    return "\n".join(clean(line, most) for line in text.split("\n"))


def escaped(text: str) -> str:
    """Return ``text`` with what cannot be printed as Python escapes it."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def escaped_json(document: str) -> str:
    """Return a JSON document with what cannot be printed in the escapes of JSON; its own line breaks stay."""
    if document.isprintable():
        return document
    return "".join(
        char if char.isprintable() or char == "\n" else "".join(f"\\u{unit:04x}" for unit in _units(char))
        for char in document
    )


def _units(char: str) -> tuple[int, ...]:
    data = char.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(data[start : start + 2]) for start in range(0, len(data), 2))


_MINUTE_S = 60.0
_HOUR_S = 3600.0
_DAY_S = 86400.0

_UNITS = ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "m"), (1.0, "s"))


def short_duration(seconds: float) -> str:
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


def long_duration(seconds: float) -> str:
    """Return ``seconds`` in the one largest unit, spelled out: ``1 minute``, ``12 minutes``."""
    left = max(0.0, seconds)
    for size, unit in ((_DAY_S, "day"), (_HOUR_S, "hour"), (_MINUTE_S, "minute")):
        if left >= size:
            return _plural(int(left // size), unit)
    return _plural(int(left), "second")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
