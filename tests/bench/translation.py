"""5,000 routes: what the presets need for one endpoint, path or host that changed, from the Snapshot to the Context.

Translation alone, as one processor counts it, with the names that are remembered from one to the next. The functions
are those of pyconfd that run between the event of an endpoint and the plan.
"""

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from pyconfd import __file__ as product
from pyconfd.daemon.translation import FormerNames, Translator
from pyconfd.model.context import Context
from pyconfd.model.garbage import without_collector
from pyconfd.model.plan import RuntimeUpdate
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from tests.bench import routing
from tests.bench.figures import Figure
from tests.bench.proportion import Chain
from tests.bench.routing import Cluster
from tests.world.resources import Obj

ROUTES, ROUNDS, WARM, PASSES = 5_000, 100, 10, 3
GATEWAYS = 100
HOSTS, OF_ALL_HOSTS = 800, 200
GOALS_MS: Mapping[str, float] = {"endpoint": 0.5, "path": 3, "host": 5}
RATIO = 1.1
"""Of the time without more Gateways and policies, what a change may cost with them."""
FUNCTIONS, MODULES = 180, 35
RESERVE_S = 3600.0
_ROOT = str(Path(product).parent)

Change = Callable[[int], Obj]
"""Returns the object that changed, another one for each number."""


class Translating:
    """The presets over a cluster, with all that is remembered from one translation to the next."""

    def __init__(self, presets: tuple[str, ...], options: PresetOptions) -> None:
        self._translator = Translator(presets, options, Memo(), FormerNames(keep_s=RESERVE_S))

    def follow(self, snapshot: Snapshot) -> Context:
        """Return what the presets make of a Snapshot."""
        context = self._translator.translate(snapshot)
        names = replace(self._translator.names, register=context.register)
        self._translator = replace(self._translator, names=names)
        return context


class Made:
    """A cluster with so many routes, and the changes of it by what changes."""

    def __init__(self, kind: str, routes: int = ROUTES, gateways: int = 0, of_all_hosts: int = 0) -> None:
        self.presets, self.options = ("domains", kind), PresetOptions()
        if kind == "gateway":
            pool = tuple(f"192.0.2.{number + 1}" for number in range(gateways + 1))
            self.options = PresetOptions(addresses=AddressOptions(pool))
            wide = [routing.route_of_all_hosts(number) for number in range(of_all_hosts)]
            self.cluster = Cluster(*routing.gateway_objects(routes), *routing.more_gateways(gateways), *wide)
            route: Callable[[int, int, str], Obj] = routing.http_route
        else:
            self.cluster, route = Cluster(*routing.ingress_objects(routes)), routing.ingress_route
        self.changes: Mapping[str, Change] = {
            "endpoint": lambda version: routing.service_of(routes // 2, version)[1],
            "path": lambda version: route(routes // 3, version, ""),
            "host": lambda version: route((routes // 4 + version) % routes, 0, f"new-{version}.example.com"),
        }
        if of_all_hosts:
            self.changes = {
                "host": self.changes["host"],
                "route": lambda version: routing.route_of_all_hosts(of_all_hosts + version),
            }


def translation() -> Iterator[Figure]:
    """Time one changed endpoint, path and host among Ingresses, HTTPRoutes, and those beside more Gateways."""
    plain: dict[str, float] = {}
    for name, made in (("ingress_5000", Made("ingress")), ("gateway_5000", Made("gateway"))):
        functions, modules = called_for_an_endpoint(made)
        yield Figure(f"{name}_endpoint_functions", len(functions), "functions", FUNCTIONS)
        yield Figure(f"{name}_endpoint_modules", len(modules), "modules", MODULES)
        for what, times in timed(made):
            plain[what] = _p50(times)
            yield Figure(f"{name}_translation_{what}_p50_cpu", _p50(times), "ms")
            yield Figure(f"{name}_translation_{what}_p99_cpu", _p99(times), "ms", GOALS_MS[what])
    for what, times in timed(Made("gateway", gateways=GATEWAYS)):
        name = f"gateway_5000_of_{GATEWAYS}_translation_{what}"
        yield Figure(f"{name}_p50_cpu", _p50(times), "ms")
        yield Figure(f"{name}_p99_cpu", _p99(times), "ms", GOALS_MS[what] * RATIO)
        yield Figure(f"{name}_p50_ratio", _p50(times) / plain[what], "of that without them", RATIO)
    for what, times in timed(Made("gateway", HOSTS, of_all_hosts=OF_ALL_HOSTS)):
        name = f"gateway_{HOSTS}_hosts_of_{OF_ALL_HOSTS}_routes_translation_{what}"
        yield Figure(f"{name}_p50_cpu", _p50(times), "ms")
        yield Figure(f"{name}_p99_cpu", _p99(times), "ms", GOALS_MS["host"])


def timed(made: Made) -> Iterator[tuple[str, list[float]]]:
    """Return the sorted times of each kind of change, in ms: of the pass that was disturbed least."""
    translating = Translating(made.presets, made.options)
    translating.follow(made.cluster.snapshot())
    gc.collect()
    gc.freeze()  # as the daemon does after its first configuration
    for what, change in made.changes.items():
        versions = range(1, PASSES * (WARM + ROUNDS) + 1)
        times = [_timed(translating, made.cluster, change(version)) for version in versions]
        passes = (times[end - ROUNDS : end] for end in range(WARM + ROUNDS, len(times) + 1, WARM + ROUNDS))
        yield what, min(map(sorted, passes), key=_p99)
    gc.unfreeze()


def _timed(translating: Translating, cluster: Cluster, changed: Obj) -> float:
    cluster.apply(changed)
    snapshot = cluster.snapshot()
    with without_collector():  # as the daemon does; what it costs afterwards is in the processor time of `churn`
        began = time.process_time()
        translating.follow(snapshot)
        return (time.process_time() - began) * 1000


def called_for_an_endpoint(made: Made) -> tuple[set[tuple[str, int]], set[str]]:
    """Return the functions of pyconfd that run from the event of an endpoint to the plan, and their modules."""
    chain = Chain(made.presets, made.options)
    chain.follow(made.cluster.snapshot())
    change = made.changes["endpoint"]
    for version in range(1, 4):  # what is loaded on first use is no part of a change
        made.cluster.apply(change(version))
        chain.follow(made.cluster.snapshot())
    item = change(4)
    with calls() as called:
        made.cluster.apply(item)
        found = chain.follow(made.cluster.snapshot())
    assert isinstance(found, RuntimeUpdate), found
    return set(called), {name for name, _ in called}


@contextmanager
def calls() -> Iterator[Counter[tuple[str, int]]]:
    """Count the calls of each function of pyconfd, by file and line."""
    called: Counter[tuple[str, int]] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = code.co_name == "<lambda>" or not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(_ROOT):
            called[code.co_filename, code.co_firstlineno] += 1

    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)


def _p50(times: list[float]) -> float:
    return times[len(times) // 2]


def _p99(times: list[float]) -> float:
    return times[len(times) * 99 // 100]
