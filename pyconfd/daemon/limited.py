"""Renders an operator's fragments within limits: one that goes on for ever stops neither the loop nor the machine.

A thread cannot be stopped, so an alarm interrupts the main thread. What Python does in one piece of C (a list of a
million million numbers) it cannot interrupt; the service manager's watchdog and limits are behind it. The process that
renders templates of the cluster has limits of its own: to wait for it is nobody's fault here, and not cut short.
"""

import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.context import Context
from pyconfd.render.cluster_templates import Fallback
from pyconfd.render.engine import Rendered, Renderer
from pyconfd.render.invalid import InvalidValueError

LONGEST_S = 20.0
"""Far longer than 100,000 endpoints take, far shorter than the watchdog of the unit."""

MOST_BYTES = 2 << 30
"""By so much the process may grow in one rendering, from its first quarter of a second on."""

WAITS_FOR_OWN_LIMITS = "__waits_for_own_limits__"
"""A module with a global of this name waits for something that has limits of its own: that time is not counted."""

_POLL_S = 0.25
_AGAIN_S = 0.0007
_TRIES = 1_000
_REMEDY = "give the loop an end, or bound what it goes through"


class _LimitError(InvalidValueError):
    """The template that was running is to blame, as for any other error in it."""


class LimitedRenderer(Renderer):
    """The same, within limits where it runs in the main thread."""

    longest_s = LONGEST_S
    most_bytes = MOST_BYTES

    def render(self, context: Context, *, curdate: str, fallback: Fallback | None = None) -> Rendered:
        """Render as :class:`Renderer` does; what takes too long or too much memory is refused too."""
        try:
            with _limits(self.longest_s, self.most_bytes):
                return super().render(context, curdate=curdate, fallback=fallback)
        except _LimitError as error:  # between two lines of the templates, so that none can be named
            raise RejectedInput(Problem("templates", str(error), error.remedy)) from error


@contextmanager
def _limits(longest_s: float, most_bytes: int) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    began, size, tries = time.monotonic(), 0, _TRIES
    looked = began

    def look(_signal: int, frame: FrameType | None) -> None:
        nonlocal began, looked, size, tries
        former, looked = looked, time.monotonic()
        if _is_in(frame, WAITS_FOR_OWN_LIMITS):
            began += looked - former
            return
        # Asked for only once it takes its time: nearly every rendering has ended by now.
        size = size or _resident_bytes()
        why = ""
        if looked - began > longest_s:
            why = f"rendering did not end within {longest_s:g} s"
        elif _resident_bytes() - size > most_bytes:
            why = f"rendering takes more than {most_bytes >> 20:,} MiB"
        if why and tries and not _is_in(frame, "__jinja_template__"):
            # Between two lines nobody could say which template it is: look again at once.
            tries -= 1
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _POLL_S)
        elif why:
            signal.setitimer(signal.ITIMER_REAL, 0)  # once: what reports it must not be interrupted
            raise _LimitError(why, _REMEDY)

    former = signal.signal(signal.SIGALRM, look)
    former_timer = signal.setitimer(signal.ITIMER_REAL, _POLL_S, _POLL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *former_timer)
        signal.signal(signal.SIGALRM, former)


def _is_in(frame: FrameType | None, name: str) -> bool:
    """Return whether a module runs that has the global ``name``."""
    while frame is not None:
        if name in frame.f_globals:
            return True
        frame = frame.f_back
    return False


def _resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()
