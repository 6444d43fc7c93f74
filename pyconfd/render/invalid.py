"""What a filter or function raises when a template gave it something that cannot stand in haproxy.cfg."""

from difflib import get_close_matches
from typing import Any


class InvalidValueError(ValueError):
    """``str()`` says what is wrong, ``remedy`` what to do; the engine adds fragment, line and object."""

    def __init__(self, message: str, remedy: str = "") -> None:
        self.remedy = remedy
        super().__init__(message)


def shown(value: object, limit: int = 60) -> str:
    """Return ``value`` as a message may show it: quoted, escaped, on one line, at most ``limit`` characters."""
    text = repr(str(value))
    return text if len(text) <= limit else f"{text[: limit - 4]}...{text[-1]}"


def did_you_mean(name: str, known: Any) -> str:
    """Return a remedy that names what was probably meant, or what there is; "" if there is nothing."""
    names = sorted({str(one) for one in known})
    if close := get_close_matches(name, names, n=3, cutoff=0.6):
        return f"did you mean {' or '.join(repr(one) for one in close)}?"
    if not names:
        return ""
    listed = ", ".join(names[:20])
    return f"there is: {listed}{', ...' if len(names) > 20 else ''}"
