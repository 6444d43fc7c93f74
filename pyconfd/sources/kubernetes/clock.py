"""Time as a port, so that hours pass in a test without waiting."""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What the source needs of time."""

    def monotonic(self) -> float:
        """Return seconds that only ever grow."""

    def time(self) -> float:
        """Return seconds since the epoch."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until the event is set, at most so long; tell whether it is set."""


class SystemClock:
    """The machine's own time."""

    def monotonic(self) -> float:
        """Return seconds that only ever grow."""
        return time.monotonic()

    def time(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until the event is set, at most so long; tell whether it is set."""
        return event.wait(timeout_s)
