"""The machine's time; tests replace it, so that hours pass without waiting."""

import threading
import time


class SourceClock:
    """What the reflectors, the client and the credentials need of time."""

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return time.monotonic()

    def time(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until the event is set, at most ``timeout_s``; return whether it is set."""
        return event.wait(timeout_s)
