"""Clocks for tests."""

import threading
import time

from pyconfd.system.clock import SystemClock

SPEED = 50.0


class ScaledClock(SystemClock):
    """Time that runs ``speed`` times as fast, pauses included."""

    def __init__(self, speed: float = SPEED) -> None:
        self._speed = speed

    def monotonic(self) -> float:
        return time.monotonic() * self._speed

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(timeout_s / self._speed)


class StandingClock(SystemClock):
    """Time that only moves when it is told to; whoever waits has waited at once."""

    def __init__(self, now_s: float = 1_000.0, epoch_s: float = 1_800_000_000.0) -> None:
        self.now_s = now_s
        self._offset_s = epoch_s - now_s

    def monotonic(self) -> float:
        return self.now_s

    def now(self) -> float:
        return self.now_s + self._offset_s

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        self.now_s += timeout_s
        return event.is_set()


class PatientClock(SystemClock):
    """Time at which nobody wakes by himself, but the threads of one name, when they may go on.

    Who waits to end (the one thread that belongs to no resource) waits as ever.
    """

    def __init__(self, name: str) -> None:
        self.waiting: set[str] = set()
        self.goes_on = threading.Event()
        self._name = name

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        name = threading.current_thread().name
        if not name.startswith("reflector-"):
            return event.wait(timeout_s)
        self.waiting.add(name)
        (self.goes_on if name == self._name else event).wait()
        self.waiting.discard(name)
        return event.is_set()
