"""The machine's clocks; tests replace them, so that hours pass without waiting."""

import threading
import time
from datetime import datetime


class SystemClock:
    """The real clocks, in seconds."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return time.monotonic()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until the event is set, at most ``timeout_s``; return whether it is set."""
        return event.wait(timeout_s)

    def stored(self, at: float) -> float:
        """Return a monotonic time as a file keeps it over a restart: seconds since the epoch, 0.0 for never."""
        return max(0.0, self.now() - (self.monotonic() - at))

    def recalled(self, stored: float) -> float:
        """Return the monotonic time of :meth:`stored`; one in the future, by a clock that was set back, is now."""
        return self.monotonic() - max(0.0, self.now() - stored)

    def date(self, now: float) -> str:
        """Return the local time as python-confd printed it, always with microseconds."""
        return datetime.fromtimestamp(now).isoformat(" ", "microseconds")  # noqa: DTZ006 - local, as it was
