"""How long ``pyconfd plan --traffic`` takes for a log of 1,000,000 requests and 5,000 HTTPRoutes, as one CPU counts it.

Every request has a path of its own, hosts are asked for as unequally as in a real log, and one in twenty is for a host
or path that nothing serves. After the change one route in a hundred has another path.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from pyconfd import fragments
from pyconfd.cli.traffic import read_log
from pyconfd.explain.conditions import Evidence
from pyconfd.explain.decision import RoutingDecisions
from pyconfd.explain.replay import TrafficReplay
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.bench.figures import Figure
from tests.bench.proportion import resident_bytes
from tests.bench.routing import ROUTES, Cluster, gateway_objects, http_route

LINES = 1_000_000
GOAL_S = 60.0
_PRESETS, _OPTIONS = ("domains", "gateway"), PresetOptions(addresses=AddressOptions(("192.0.2.1",)))
_METHODS = ("GET",) * 17 + ("POST", "POST", "PUT")
LINE = (
    '{{"time":1795856913.292,"client":"192.0.2.{client}","client_port":59344,"method":"{method}","host":"{host}",'
    '"path":"{path}","version":"HTTP/2.0","status":200,"bytes":5632,"idle_ms":0,"request_ms":0,"queue_ms":0,'
    '"connect_ms":1,"response_ms":11,"total_ms":12,"retries":"0","end":"--",'
    '"id":"f87bf6fe-0fb8-428c-b357-dddd137d35b0","listener":"{listener}","backend":"gw_http_team-000_web_0",'
    '"server":"web-1:10.244.1.23:8080"}}\n'
)


def evidence_of(cluster: Cluster) -> Evidence:
    """Return what the cluster leads to, rendered."""
    snapshot = cluster.snapshot()
    context = registry.translate(snapshot, _PRESETS, _OPTIONS)
    renderer = Renderer(read_fragments(fragments.directory()), RenderOptions("/etc/haproxy/generated/files"))
    rendering = renderer.render(context, curdate="").rendering
    return Evidence(1.0, snapshot, context, _PRESETS, _OPTIONS, rendering, None, context.refused)


def write_log(path: Path, listener: str) -> None:
    """Write the log."""
    rng = Random(1)
    with path.open("w") as file:
        for number in range(LINES):
            host = f"s{min(int(rng.paretovariate(0.4)) - 1, ROUTES - 1)}.example.com"
            start = rng.choice(("/api/v0/items", "/api/v0/items", "/shop/articles", "/static/x", "/cart"))
            if rng.random() < 0.05:
                host, start = rng.choice((f"scan{number}.example.org", host)), f"/.env{number}"
            text = f"{start}/{number}" if start != "/cart" else start
            method, client = rng.choice(_METHODS), number % 250
            file.write(LINE.format(client=client, method=method, host=host, path=text, listener=listener))


def traffic_replay() -> Iterator[Figure]:
    """Return the seconds for the whole log, and what memory grows by over its second half."""
    cluster = Cluster(*gateway_objects(ROUTES))
    before = evidence_of(cluster)
    for number in range(0, ROUTES, 100):
        cluster.apply(http_route(number, version=1))
    after = evidence_of(cluster)
    (front,) = before.context.names["gateway"]["frontends"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "access.log"
        write_log(path, front)
        size = path.stat().st_size
        began = time.process_time()
        replay = TrafficReplay(RoutingDecisions(before), RoutingDecisions(after))
        prepared_s = time.process_time() - began
        with path.open("rb") as file:
            read_log(file, replay)
        report = replay.report()
        took = time.process_time() - began
        resident = resident_bytes()
        with path.open("rb") as file:
            read_log(file, replay)
    assert report.requests == LINES, json.dumps(report.unreadable)
    assert report.changed, report.lines
    yield Figure("traffic_replay_1000000_lines_cpu", took, "s", GOAL_S)
    yield Figure("traffic_replay_5000_routes_prepared_cpu", prepared_s, "s")
    yield Figure("traffic_replay_changed_requests", report.changed, "requests")
    yield Figure("traffic_replay_log_size", size / 2**20, "MiB")
    yield Figure("traffic_replay_memory_of_once_more", (resident_bytes() - resident) / 2**20, "MiB")
    yield Figure("traffic_replay_load_average", os.getloadavg()[0], f"processes of {os.cpu_count()} processors")
