"""Endpoint changes on a busy cluster: 5,000 services, 20 of which change each second, and one that is measured.

Everything of pyconfd but the network to the API server, a real haproxy, a client in a process of its own. Latency is
the time from the event to the first answer by the new pod, while the other changes go on.
"""

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import msgspec

from pyconfd import __file__ as product
from pyconfd.haproxy.runtime.drift import SLICE
from tests.bench import presets
from tests.bench.asking import Asking
from tests.bench.figures import Figure
from tests.bench.serving import Serving

SERVICES = 5_000
CHANGES_PER_S = 20
LONG_S = 30.0
PROBE_EVERY_S = 0.25
SETTLE_S = 5.0
_ROOT = str(Path(product).parent)


def change_path() -> Iterator[Figure]:
    """Count the functions and modules of pyconfd that run between the event of one endpoint and its last command."""
    with tempfile.TemporaryDirectory(prefix="pyconfd-bench-") as name:
        whole = presets.snapshot_of(1_000)
        with Serving(Path(name), whole, pods=3) as serving:
            serving.first()
            base = msgspec.to_builtins(whole.endpointslices[presets.slice_key(500)])
            for pod in serving.pods[:2]:  # what is loaded on first use is no part of a change
                serving.live(_event(serving, base, pod))
                _settle(serving)
            called: Counter[tuple[str, int]] = Counter()

            def count(frame: FrameType, event: str, _: Any) -> None:
                code = frame.f_code
                if event == "call" and code.co_filename.startswith(_ROOT) and not code.co_name.startswith("<"):
                    called[code.co_filename, code.co_firstlineno] += 1

            line = _event(serving, base, serving.pods[2])
            sys.setprofile(count)
            try:
                serving.live(line)
            finally:
                sys.setprofile(None)
    yield Figure("change_path_functions", len(called), "functions that run for one changed endpoint", 150)
    yield Figure("change_path_modules", len({file for file, _ in called}), "modules", 30)
    yield Figure("change_path_calls", called.total(), "calls")


def churn() -> Iterator[Figure]:
    """Measure latency and processor time while other endpoints change."""
    whole = presets.snapshot_of(SERVICES)
    with tempfile.TemporaryDirectory(prefix="pyconfd-bench-") as name:
        pods = int(LONG_S / PROBE_EVERY_S) + 2
        with Serving(Path(name), whole, pods=pods) as serving:
            serving.first()
            _settle(serving)
            for _ in range(SERVICES // SLICE + 1):  # the first look at a backend parses it; the later ones compare
                serving.balancer.standing()
            latencies, changes, used_s = _run(serving, whole, pods)
    yield Figure("churn_load_average", os.getloadavg()[0], f"processes of {os.cpu_count()} processors")
    yield Figure("churn_changes", changes, f"changes in {LONG_S:g} s")
    yield Figure("churn_first_answer_p50", _part(latencies, 0.5) * 1000, "ms", 6)
    yield Figure("churn_first_answer_p99", _part(latencies, 0.99) * 1000, "ms", 20)
    yield Figure("churn_processor_per_change", used_s / changes * 1000, "ms without haproxy -c", 3)
    yield Figure("churn_processor_share", used_s / LONG_S * 100, "% of one processor without haproxy -c")


def _run(serving: Serving, whole: Any, pods: int) -> tuple[list[float], int, float]:
    measured = SERVICES // 2
    base = msgspec.to_builtins(whole.endpointslices[presets.slice_key(measured)])
    sent: dict[str, float] = {}
    answered: dict[str, float] = {}
    count = 0

    def change() -> None:
        """Send what a watch would send; runs as the watch's thread does."""
        nonlocal count
        rng, began = Random(1), time.perf_counter()
        others = [number for number in range(SERVICES) if number != measured]
        spare = iter(serving.pods)
        next_other, next_probe = began, began
        while (now := time.perf_counter()) - began < LONG_S:
            if now >= next_other:
                next_other += 1 / CHANGES_PER_S
                item = msgspec.to_builtins(whole.endpointslices[presets.slice_key(rng.choice(others))])
                address = f"10.77.{rng.randrange(256)}.{rng.randrange(1, 255)}"
                first, *rest = item["endpoints"]
                item["endpoints"] = [{**first, "addresses": [address]}, *rest]
                serving.events.feed(serving.event(item))
            elif now >= next_probe:
                next_probe += PROBE_EVERY_S
                pod = next(spare)
                line = _event(serving, base, pod)
                sent[pod] = time.perf_counter()
                serving.events.feed(line)
            else:
                time.sleep(max(0.0, min(next_other, next_probe) - time.perf_counter()))
                continue
            count += 1
            serving.daemon.mailbox.post()
        time.sleep(1.0)
        serving.daemon.mailbox.stop()

    first = _event(serving, base, serving.pods[-1])
    serving.live(first)
    with Asking(serving.port, f"s{measured}.example.com") as asking:

        def listen() -> None:
            while len(answered) < pods:
                try:
                    at, answer = asking.saw()
                except ValueError:  # the client has ended
                    return
                answered.setdefault(answer, at)

        threads = [threading.Thread(target=change), threading.Thread(target=listen, daemon=True)]
        used = time.process_time()
        for thread in threads:
            thread.start()
        while not serving.daemon.mailbox.stopped:
            serving.daemon.step(serving.daemon.mailbox.take(serving.daemon.wait_s()))
        used = time.process_time() - used
        threads[0].join()
    return _latencies(sent, answered), count, used


def _latencies(sent: Mapping[str, float], answered: Mapping[str, float]) -> list[float]:
    """A pod that was replaced before a step took it is answered for by the next one that answers."""
    found, newest = [], float("inf")
    for pod, at in reversed(list(sent.items())):
        newest = min(newest, answered.get(pod, newest))
        found.append(newest - at)
    assert max(found) < float("inf"), "the last change never reached traffic"
    return sorted(found)


def _event(serving: Serving, base: Any, pod: str) -> bytes:
    return serving.event(
        {
            **base,
            "endpoints": [{"addresses": [pod], "conditions": {"ready": True}}],
            "ports": [{"name": "web", "port": serving.pod_port, "protocol": "TCP"}],
        }
    )


def _settle(serving: Serving) -> None:
    """Let pyconfd do what it does behind a change: write the file, look at the process."""
    ends = time.monotonic() + SETTLE_S
    while time.monotonic() < ends or serving.balancer.file_behind:
        serving.daemon.step(0)
        time.sleep(min(0.1, serving.daemon.wait_s()))


def _part(sorted_values: list[float], part: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * part))]
