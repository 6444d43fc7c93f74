"""One tenant replaces 1,000 endpoints at once; a neighbour's single endpoint changes 5 ms later, and is measured.

Everything of pyconfd but the network to the API server, a real haproxy, a client in a process of its own, as in
churn.py: latency is the time from the neighbour's event to the first answer by its new pod.
"""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.bench import presets
from tests.bench.asking import Asking
from tests.bench.figures import Figure, median
from tests.bench.serving import Event, Serving, written

SERVICES = 1_000
ENDPOINTS = 1_000
ROUNDS = 15
AFTER_S = 0.005
TENANT, NEIGHBOUR = 0, 500
LIMIT_S = 60.0


def neighbours() -> Iterator[Figure]:
    """Measure the neighbour by itself, and while the tenant replaces its endpoints."""
    whole = presets.snapshot_of(SERVICES)
    with (
        tempfile.TemporaryDirectory(prefix="pyconfd-bench-") as folder,
        Serving(Path(folder), whole, pods=2 * ROUNDS + 1) as serving,
    ):
        serving.first()
        rounds = _Rounds(serving, whole)
        alone = sorted(rounds.next(turn, together=False)[0] for turn in range(ROUNDS))
        busy = [rounds.next(turn, together=True) for turn in range(ROUNDS)]
    beside, replaced = (sorted(times) for times in zip(*busy, strict=True))
    yield Figure("neighbour_load_average", os.getloadavg()[0], f"processes of {os.cpu_count()} processors")
    yield Figure("neighbour_alone_p50", median(alone) * 1000, "ms")
    yield Figure("neighbour_alone_most", alone[-1] * 1000, "ms")
    yield Figure("neighbour_of_1000_p50", median(beside) * 1000, "ms while 1,000 endpoints are replaced", 250)
    yield Figure("neighbour_of_1000_most", beside[-1] * 1000, "ms", 1000)
    yield Figure("neighbour_of_1000_ratio", median(beside) / median(alone), "times as long as alone, p50")
    yield Figure("neighbour_1000_replaced_p50", median(replaced) * 1000, "ms until all are")


class _Rounds:
    """Each gives the neighbour another pod."""

    def __init__(self, serving: Serving, whole: Any) -> None:
        self._serving = serving
        self._bases = {
            each: msgspec.to_builtins(whole.endpointslices[presets.slice_key(each)]) for each in (TENANT, NEIGHBOUR)
        }
        self._pods = iter(serving.pods)
        serving.live(*self._events(NEIGHBOUR, [next(self._pods)]))

    def _events(self, number: int, addresses: list[str]) -> tuple[Event, ...]:
        endpoints = [{"addresses": [each], "conditions": {"ready": True}} for each in addresses]
        ports = [{"name": "web", "port": self._serving.pod_port, "protocol": "TCP"}]
        return written({**self._bases[number], "endpoints": endpoints, "ports": ports})

    def next(self, turn: int, *, together: bool) -> tuple[float, float]:
        """Return the seconds until the neighbour's new pod answers, and until all endpoints of the tenant are new."""
        serving, pod = self._serving, next(self._pods)
        daemon = serving.daemon
        many = [f"10.{128 + turn}.{index // 250}.{index % 250 + 1}" for index in range(ENDPOINTS)] if together else []
        answered = threading.Event()
        found: list[float] = []
        began = 0.0

        def change() -> None:
            with Asking(serving.port, f"s{NEIGHBOUR}.example.com") as asking:
                for event in self._events(TENANT, many) if many else ():
                    serving.events.feed(event)
                    daemon.mailbox.post()
                time.sleep(AFTER_S)
                found.append(asking.timed(pod, tell))
            answered.set()
            daemon.mailbox.nudge()

        def tell() -> None:
            for event in self._events(NEIGHBOUR, [pod]):
                serving.events.feed(event)
                daemon.mailbox.post()

        thread = threading.Thread(target=change)
        thread.start()
        began = time.perf_counter()
        ended = 0.0
        while time.perf_counter() - began < LIMIT_S and not (answered.is_set() and ended):
            daemon.step(daemon.mailbox.take(min(0.05, daemon.wait_s())))
            is_all = not daemon.status().pending_since
            ended = (ended or time.perf_counter() - began) if is_all else 0.0
        thread.join()
        self._settle()
        return found[0], ended

    def _settle(self) -> None:
        """Let pyconfd write the file and delete the servers that left."""
        ends = time.monotonic() + LIMIT_S
        while time.monotonic() < ends and (
            self._serving.balancer.file_behind or self._serving.balancer._runtime.leaving
        ):
            self._serving.daemon.step(0)
            time.sleep(min(0.1, self._serving.daemon.wait_s()))
