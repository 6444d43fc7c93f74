"""Clocks for tests."""

import threading
import time


class ScaledClock:
    """Time that runs ``speed`` times as fast, pauses included."""

    def __init__(self, speed: float = 50) -> None:
        self._speed = speed

    def monotonic(self) -> float:
        return time.monotonic() * self._speed

    def time(self) -> float:
        return time.time()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(timeout_s / self._speed)


class StandingClock:
    """Time that only moves when it is told to; whoever waits has waited at once."""

    def __init__(self, now_s: float = 1_000.0, epoch_s: float = 1_800_000_000.0) -> None:
        self.now_s = now_s
        self._offset_s = epoch_s - now_s

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s + self._offset_s

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.now_s += timeout_s
        return event.is_set()
