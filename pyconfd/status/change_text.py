"""A change as one line for a person."""

import time
from collections.abc import Callable
from typing import assert_never

from pyconfd.model.changes import Action, Change
from pyconfd.printable import clean

DETAILS_SHOWN = 3


def line_of(change: Change, *, clock: Callable[[float], time.struct_time] = time.localtime) -> str:
    """Return one line: when, what changed, how and how fast, and what serves since; ``clock`` gives the time of day."""
    return clean(f"{time.strftime('%H:%M:%S', clock(change.at))} {_said(change)}")


def without_time(change: Change) -> str:
    """Return the same line without when it was."""
    return clean(_said(change))


def _said(change: Change) -> str:  # noqa: PLR0911 - one sentence for each action
    number = f"generation {change.generation}" if change.generation else "nothing serves yet"
    took = duration(change.duration_s)
    match change.action:
        case Action.NOOP:
            return f"nothing to do, {number}"
        case Action.LIVE:
            return f"{change.summary}, live {took}, no reload, {number}"
        case Action.FILE:
            return f"only the file{_about(change)} {took}, no reload, {number}"
        case Action.RELOAD:
            return f"reload{_about(change)} {took}, {number}"
        case Action.DEFERRED:
            meanwhile = f"; {change.summary} live {took}" if change.summary else ""
            return f"reload waits for its turn{_about(change)}{meanwhile}, {number}"
        case Action.HELD:
            return f"held{_problem(change)}; {_serving(change)}"
        case Action.RELEASED:
            return f"held no more after {took}: {'; '.join(change.details)} ({change.summary}); {_serving(change)}"
        case Action.REJECTED:
            return f"refused{_at_step(change)}{_problem(change)}; {_serving(change)}"
        case Action.FAILED:
            return f"failed{_at_step(change)}{_problem(change)}; {_serving(change)}"
    assert_never(change.action)


def _serving(change: Change) -> str:
    return f"generation {change.generation} serves" if change.generation else "nothing serves yet"


def duration(seconds: float) -> str:
    """Return a short duration with two or three digits: ``0.9 ms``, ``214 ms``, ``3.4 s``."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.1f} ms"


def _about(change: Change) -> str:
    details = "; ".join(change.details[:DETAILS_SHOWN])
    more = len(change.details) - DETAILS_SHOWN
    details += f"; and {more} more" if more > 0 else ""
    about = ": ".join(part for part in (", ".join(change.reasons), details) if part)
    return f" ({about})" if about else ""


def _at_step(change: Change) -> str:
    return f" at {change.reasons[0]}" if change.reasons else ""


def _problem(change: Change) -> str:
    if not change.details:
        return ""
    first = change.details[0].replace("\n    -> ", " -> ").splitlines()[0]
    more = len(change.details) - 1
    return f": {first}" + (f" (and {more} more)" if more else "")
