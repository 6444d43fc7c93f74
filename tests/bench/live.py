"""A change of one endpoint on its way to traffic: real haproxy, real pods, everything of pyconfd but the network.

Each round gives one service another pod: the event comes as the bytes of a watch, and the clock stops when a client in
a process of its own, which asks without a pause, has the first answer by the new pod. What pyconfd does after that (it
reads back what it did, and tells) is not part of it. The garbage collector is on.
"""

import gc
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Self

import msgspec

from pyconfd.haproxy.config import diff
from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import Comparison
from pyconfd.model.kubernetes import EndpointSlice
from pyconfd.model.plan import Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import Rendering
from pyconfd.presets import registry
from pyconfd.presets.registry import Memo
from pyconfd.render.engine import Renderer
from tests.bench import presets
from tests.bench.asking import Asking
from tests.bench.figures import Figure, median
from tests.bench.serving import OPTIONS, Client, Event, Serving, written

WAIT_S = 0.1
"""Between two changes only requests are served: a change finds its code and data as cold as on a quiet cluster."""
FASTER = 300
"""How many times faster than a reload a change has to be."""
SCRIPTED = 30
"""How often the script changes a server."""


FIRST, LAST = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
"""Pyconfd has the first processor; haproxy, the pods and the client, of which one works at a time, have the last."""


@contextmanager
def _on(processor: int) -> Iterator[None]:
    """Have this thread, and the processes that it starts meanwhile, run on one processor."""
    former = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, former)


@dataclass(frozen=True, slots=True)
class _Size:
    """``of_script`` is how many times the script's time a change may take. With 100,000 servers a check takes seconds,
    and each change waits for the one before to be in the file, so there are few.
    """

    changes: int
    reloads: int
    of_script: float


SIZES: Mapping[int, _Size] = MappingProxyType({1_000: _Size(40, 3, 5.0), 10_000: _Size(10, 1, 25.0)})
"""By the number of services, of 10 endpoints each."""


class _Rounds:
    """The rounds on one haproxy: each gives one service one pod that it never had."""

    def __init__(self, serving: Serving, base: EndpointSlice, host: str) -> None:
        self.serving = serving
        self._host = host
        self._base = msgspec.to_builtins(base)
        self._pods = iter(serving.pods)
        self._asking: Asking
        self._stack = ExitStack()
        self.bare_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def next(self) -> tuple[str, tuple[Event, ...]]:
        """Return a pod, and the events by which it takes the place of the former one."""
        pod = next(self._pods)
        item = {
            **self._base,
            "endpoints": [{"addresses": [pod], "conditions": {"ready": True}}],
            "ports": [{"name": "web", "port": self.serving.pod_port, "protocol": "TCP"}],
        }
        return pod, written(item)

    def begin(self) -> None:
        """Have the first pod serve, and see what a request takes."""
        _, events = self.next()
        self.serving.live(*events)
        client = Client(self.serving.port, self._host)
        times = []
        for _ in range(300):
            began = time.perf_counter()
            client.ask()
            times.append(time.perf_counter() - began)
        client.close()
        self.bare_s = median(times)
        with _on(LAST):
            self._asking = self._stack.enter_context(Asking(self.serving.port, self._host))

    def wait(self) -> None:
        """Wait until the file is level, and a moment longer; requests come all the time."""
        while self.serving.balancer.file_behind:
            time.sleep(0.01)
        time.sleep(WAIT_S)

    def timed(self, pod: str, change: Callable[[], object]) -> float:
        """Return the seconds from the start of ``change`` to the first answer by ``pod``."""
        return self._asking.timed(pod, change)


def live_1000_services() -> Iterator[Figure]:
    """Compare a change with a reload by the same pyconfd, and with a script that sends the same commands."""
    yield from _with(1_000)


def live_10000_services() -> Iterator[Figure]:
    """Do the same with ten times as many."""
    yield from _with(10_000)


def _with(services: int) -> Iterator[Figure]:
    size, whole, middle = SIZES[services], presets.snapshot_of(services), services // 2
    pods = 1 + size.changes + size.reloads + SCRIPTED
    with (
        tempfile.TemporaryDirectory(prefix="pyconfd-bench-") as name,
        _on(LAST),
        Serving(Path(name), whole, pods=pods) as serving,
    ):
        serving.first()
        os.sched_setaffinity(0, {FIRST})
        base = whole.endpointslices[presets.slice_key(middle)]
        with _Rounds(serving, base, f"s{middle}.example.com") as rounds:
            yield from _compared(rounds, services)


def _compared(rounds: _Rounds, services: int) -> Iterator[Figure]:
    name = f"live_{services}_services"
    rounds.begin()
    bare = rounds.bare_s
    ours, steps = _changes(rounds, SIZES[services].changes)
    reload = _reloads(rounds, SIZES[services].reloads)
    script = _script(rounds)
    yield Figure(f"{name}_load_average", os.getloadavg()[0], f"processes of {os.cpu_count()} processors")
    yield Figure(f"{name}_first_answer", ours * 1000, "ms")
    yield Figure(f"{name}_step", steps * 1000, "ms")
    yield Figure(f"{name}_bare_request", bare * 1000, "ms")
    yield Figure(f"{name}_reload_first_answer", reload * 1000, "ms")
    yield Figure(f"{name}_first_answer_of_reload", ours / reload, "ratio", 1 / FASTER)
    yield Figure(f"{name}_times_faster_than_reload", reload / ours, "times")
    yield Figure(f"{name}_script_minus_bare", (script - bare) * 1000, "ms")
    most = SIZES[services].of_script
    yield Figure(f"{name}_minus_bare_of_script", (ours - bare) / (script - bare), "of the script's", most)


def _changes(rounds: _Rounds, count: int) -> tuple[float, float]:
    """Return the seconds to the first answer, and those of the loop's step."""
    serving, times, steps = rounds.serving, [], []
    gc.collect()
    for _ in range(count):
        pod, events = rounds.next()
        rounds.wait()
        serving.daemon.step(0)  # what is due by the clock
        ended = 0.0

        def change(of_slice: Event = events[0]) -> None:
            nonlocal ended
            serving.live(of_slice)
            ended = time.perf_counter()

        began = time.perf_counter()
        times.append(rounds.timed(pod, change))
        steps.append(ended - began)
        serving.live(*events[1:])
    assert serving.balancer.updates_at_runtime()
    return median(times), median(steps)


def _reloads(rounds: _Rounds, count: int) -> float:
    """Return the seconds to the first answer where all is read and rendered, checked and loaded."""
    serving, times = rounds.serving, []
    plan = Reload((ReloadReason.SERVERS_CHANGED,))
    for _ in range(count):
        pod, events = rounds.next()
        rounds.wait()
        renderer = serving.renderer(serving.fragments())

        def change(events: tuple[Event, ...] = events, renderer: Renderer = renderer) -> None:
            serving.events.feed(*events)
            context = registry.translate(serving.events.snapshot(), ("domains",), OPTIONS)
            rendering = renderer.render(context, curdate="").rendering
            serving.balancer.apply(rendering, plan, curdate="", now=time.time(), totals=context.totals)

        times.append(rounds.timed(pod, change))
    return median(times)


def _script(rounds: _Rounds) -> float:
    """Return the seconds to the first answer after a script that sends the same commands, all answers awaited."""
    serving, times, memo, comparison = rounds.serving, [], Memo(), Comparison()
    renderer = serving.renderer(serving.fragments())

    def rendered() -> Rendering:
        context = registry.translate(serving.events.snapshot(), ("domains",), OPTIONS, memo)
        return renderer.render(context, curdate="").rendering

    applied = rendered()
    for _ in range(SCRIPTED):
        pod, events = rounds.next()
        serving.events.feed(*events)
        desired = rendered()
        plan = diff.plan(desired, applied, None, comparison=comparison, abilities=Abilities(runtime=True))
        assert isinstance(plan, RuntimeUpdate)
        commands = ";".join(each.text for command in plan.commands for each in command.socket_lines())
        applied = desired
        rounds.wait()
        times.append(rounds.timed(pod, partial(_send, serving.haproxy.stats_socket, commands.encode())))
    return median(times)


def _send(path: str, commands: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as runtime:
        runtime.connect(path)
        runtime.sendall(commands + b"\n")
        while runtime.recv(65536):
            pass
