"""Words that say how long requests may take, and how often they are tried."""

from pyconfd.presets import values
from pyconfd.presets.routing.rules import MOST_ATTEMPTS, RETRIED_STATUSES, Handling, Retry

_USUAL_ATTEMPTS = 3
_EVENTS = frozenset({"conn-failure", "empty-response", "response-timeout", "junk-response", "0rtt-rejected"})
"""Source: configuration manual, ``retry-on``."""
_ON = "conn-failure"
"""All that can be tried again whatever the request does: nothing of it was sent."""


def attempts(text: str) -> int:
    """Parse how often a request is tried again; raise ValueError."""
    return values.number(text, 0, MOST_ATTEMPTS)


def events(text: str) -> str:
    """Parse what a request is tried again on.

    Raises:
        ValueError: HAProxy does not try again on one of it.
    """
    found = dict.fromkeys(text.replace(",", " ").split())
    known = _EVENTS | {str(each) for each in RETRIED_STATUSES}
    if not found or not found.keys() <= known:
        raise ValueError(f"expected some of {', '.join(sorted(known))}")
    return " ".join(found)


def with_attempts(found: Handling, number: int) -> Handling:
    """Return the handling with a number of attempts."""
    return found._replace(retry=Retry(number, _ON))


def with_events(found: Handling, on: str) -> Handling:
    """Return the handling with what is tried again on."""
    return found._replace(retry=Retry(found.retry.attempts if found.retry else _USUAL_ATTEMPTS, on))


def with_deadline(found: Handling, ms: int) -> Handling:
    """Return the handling with a time for all attempts together, each of which is no longer."""
    silence = ms if found.timeout_ms is None else min(ms, found.timeout_ms)
    return found._replace(deadline_ms=ms, timeout_ms=silence)
