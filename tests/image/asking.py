"""Clients that ask a machine all the time, each request on a connection of its own."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from tests.image.machine import Machine
from tests.world.clients import ask

BATCH_S = 5.0
"""How long a client waits for an answer: a packet lost while the address moves is sent again within that."""

Window = tuple[float, float]
"""From when to when, of the monotonic clock."""


class Clients:
    """Three clients for Service ``shop`` at an address; failures with their times."""

    def __init__(self, address: str) -> None:
        self.failures: list[tuple[float, float, str]] = []
        self.asked = 0
        self._address = address
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(3)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _ask(self) -> None:
        while not self._over.wait(0.005):
            begin = time.monotonic()
            answer = ask(80, "shop.example.com", address=self._address, timeout_s=BATCH_S)
            self.asked += 1
            if not answer.startswith("shop-"):
                self.failures.append((begin, time.monotonic(), answer))

    def outside(self, windows: list[Window]) -> list[tuple[float, float, str]]:
        """Return the failures that lie in none of the times."""
        return [one for one in self.failures if not any(a <= one[1] and one[0] <= b for a, b in windows)]

    def stop(self) -> None:
        """End; it may be told so twice."""
        self._over.set()
        for thread in self._threads:
            thread.join()


@contextmanager
def window(found: list[Window]) -> Iterator[None]:
    """Record the time that the body takes."""
    begin = time.monotonic()
    yield
    found.append((begin, time.monotonic()))


@contextmanager
def traffic(machine: Machine) -> Iterator[None]:
    """Clients ask all the time; no request may fail."""
    with Clients(machine.address) as clients:
        yield
    assert clients.asked > 0
    assert clients.failures == []
