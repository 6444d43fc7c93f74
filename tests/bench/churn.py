"""Endpoint changes on a busy cluster: 5,000 services, 20 of which change each second, and one that is measured.

Everything of pyconfd but the network to the API server, a real haproxy, a client in a process of its own. Latency is
the time from the event to the first answer by the new pod, while the other changes go on. A controller manager writes
Endpoints soon after each EndpointSlice; that is compared with the slices alone.
"""

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import msgspec

from pyconfd import __file__ as product
from pyconfd.haproxy.runtime.drift import SLICE
from pyconfd.model.snapshot import Resource
from tests.bench import presets
from tests.bench.asking import Asking
from tests.bench.figures import Figure
from tests.bench.serving import Event, Serving, written

SERVICES = 5_000
CHANGES_PER_S = 20
LONG_S = 30.0
PROBE_EVERY_S = 0.25
ENDPOINTS_AFTER_S = 0.01
"""How long after the EndpointSlice its Endpoints come: another controller writes them, and another watch brings them.

pyconfd has acted on the slice by then, so that each change is reconciled twice.
"""
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
                serving.live(*_events(serving, base, pod))
                _settle(serving)
            called: Counter[tuple[str, int]] = Counter()

            def count(frame: FrameType, event: str, _: Any) -> None:
                code = frame.f_code
                if event == "call" and code.co_filename.startswith(_ROOT) and not code.co_name.startswith("<"):
                    called[code.co_filename, code.co_firstlineno] += 1

            events = _events(serving, base, serving.pods[2])
            sys.setprofile(count)
            try:
                serving.live(events[0])
            finally:
                sys.setprofile(None)
    yield Figure("change_path_functions", len(called), "functions that run for one changed endpoint", 150)
    yield Figure("change_path_modules", len({file for file, _ in called}), "modules", 30)
    yield Figure("change_path_calls", called.total(), "calls")


def churn() -> Iterator[Figure]:
    """Measure latency and processor time while other endpoints change: with slices alone, and as a cluster does it."""
    whole = presets.snapshot_of(SERVICES)
    pods = int(LONG_S / PROBE_EVERY_S) + 2
    yield Figure("churn_load_average", os.getloadavg()[0], f"processes of {os.cpu_count()} processors")
    for name, alone in (("churn_slices_alone", True), ("churn", False)):
        with (
            tempfile.TemporaryDirectory(prefix="pyconfd-bench-") as folder,
            Serving(Path(folder), whole, pods=pods) as serving,
        ):
            serving.first()
            _settle(serving)
            for _ in range(SERVICES // SLICE + 1):  # the first look at a backend parses it; the later ones compare
                serving.balancer.sync()
            latencies, changes, used_s = _run(serving, whole, pods, alone=alone)
        yield Figure(f"{name}_changes", changes, f"changes in {LONG_S:g} s")
        yield Figure(f"{name}_first_answer_p50", _part(latencies, 0.5) * 1000, "ms", 6)
        yield Figure(f"{name}_first_answer_p99", _part(latencies, 0.99) * 1000, "ms", 20)
        yield Figure(f"{name}_first_answer_most", latencies[-1] * 1000, "ms")
        yield Figure(f"{name}_processor_per_change", used_s / changes * 1000, "ms without haproxy -c", 3)
        yield Figure(f"{name}_processor_share", used_s / LONG_S * 100, "% of one processor without haproxy -c")


def _run(serving: Serving, whole: Any, pods: int, *, alone: bool) -> tuple[list[float], int, float]:
    measured = SERVICES // 2
    base = msgspec.to_builtins(whole.endpointslices[presets.slice_key(measured)])
    timeline = _timeline(serving, whole, measured, alone=alone)
    sent: dict[str, float] = {}
    answered: dict[str, float] = {}

    def change() -> None:
        """Send what a watch would send; runs as the watch's thread does."""
        began = time.perf_counter()
        for at, pod, event in timeline:
            time.sleep(max(0.0, began + at - time.perf_counter()))
            if pod:
                sent[pod] = time.perf_counter()
            serving.events.feed(event)
            serving.daemon.mailbox.post()
        time.sleep(1.0)
        serving.daemon.mailbox.stop()

    serving.live(*_events(serving, base, serving.pods[-1]))
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
    return _latencies(sent, answered), sum(event.resource is Resource.ENDPOINTSLICES for *_, event in timeline), used


def _timeline(serving: Serving, whole: Any, measured: int, *, alone: bool) -> list[tuple[float, str, Event]]:
    """Return the events with their times, and the pod where it is one whose latency is measured."""
    rng, found = Random(1), list[tuple[float, str, tuple[Event, Event]]]()
    others = [number for number in range(SERVICES) if number != measured]
    for turn in range(int(LONG_S * CHANGES_PER_S)):
        item = msgspec.to_builtins(whole.endpointslices[presets.slice_key(rng.choice(others))])
        address = f"10.77.{rng.randrange(256)}.{rng.randrange(1, 255)}"
        first, *rest = item["endpoints"]
        item["endpoints"] = [{**first, "addresses": [address]}, *rest]
        found.append((turn / CHANGES_PER_S, "", written(item)))
    base = msgspec.to_builtins(whole.endpointslices[presets.slice_key(measured)])
    for turn, pod in enumerate(serving.pods[: int(LONG_S / PROBE_EVERY_S)]):
        # Right after one of the others, every second time.
        found.append((turn * PROBE_EVERY_S, pod, _events(serving, base, pod)))
    times = [(at, pod, events[0]) for at, pod, events in found]
    times += [(at + ENDPOINTS_AFTER_S, "", events[1]) for at, _, events in found if not alone]
    return sorted(times, key=itemgetter(0))


def _latencies(sent: Mapping[str, float], answered: Mapping[str, float]) -> list[float]:
    """A pod that was replaced before a step took it is answered for by the next one that answers."""
    found, newest = [], float("inf")
    for pod, at in reversed(list(sent.items())):
        newest = min(newest, answered.get(pod, newest))
        found.append(newest - at)
    assert max(found) < float("inf"), "the last change never reached traffic"
    return sorted(found)


def _events(serving: Serving, base: Any, pod: str) -> tuple[Event, Event]:
    return written(
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
