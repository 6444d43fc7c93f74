"""What it costs to see what happens: logs and counters, the page, and whether what is seen is right."""

import gzip
import http.client
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil

from pyconfd.haproxy.runtime.route_figures import LOOK_S
from pyconfd.haproxy.runtime.sockets import processes
from pyconfd.trying.own_haproxy import short_folder
from tests.bench.explaining import url_explanations
from tests.bench.figures import Figure, median
from tests.bench.requests import HOSTS, Load, Proxy, serve_pod, shipped
from tests.bench.starting import fragments_without_checks, has_applied, many_services, running, until
from tests.e2e.browser import CHROMIUM, Tab
from tests.e2e.expect import edit
from tests.explain.agreement import compare
from tests.explain.real import NamedBackends
from tests.world.apiserver import ApiServer
from tests.world.appliance import Appliance
from tests.world.clients import Crowd
from tests.world.cluster import Cluster
from tests.world.haproxy import HaproxyProcess, free_port
from tests.world.log import json_lines
from tests.world.objects import EndpointSpec
from tests.world.pki import CertificateAuthority

PAIRS = int(os.environ.get("PAIRS", "12"))
RELOADS, REQUESTS = 20, 2_000
ROUTES, PAGES, WATCHED_S, CHANGES = 5_000, 20, 20.0, 10
COST_GOAL = 0.03
SIDES: Mapping[str, Mapping[str, bool]] = {
    "none": {"logs": False, "route_latency": False},
    "control": {"logs": False, "route_latency": False},
    "histogram": {"logs": False, "route_latency": True},
    "logs": {"logs": True, "route_latency": False},
    "both": {"logs": True, "route_latency": True},
}
"""``control`` is another haproxy with the same configuration as ``none``: what it differs by is noise."""
_SAMPLE = re.compile(r"(pyconfd_route_\w+)(\{.*\}) (\d+)")


def _load() -> Figure:
    return Figure("observability_load_average", os.getloadavg()[0], "processes")


# Logs and counters


def observability_request_cost() -> Iterator[Figure]:
    """Take turns between haproxy without logs and histogram, and with; see tests/bench/requests.py.

    Throughput is that of haproxy's one thread: what it falls by is how much more processor time a request takes. What
    HAProxy counts for every backend anyway has no switch, so it is on all sides.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyconfd-bench-")))
        authority, pod_port = CertificateAuthority(folder / "ca"), free_port()
        pod = serve_pod(folder, pod_port)
        stack.callback(pod.wait, 30)
        stack.callback(pod.terminate)
        sides: dict[str, Proxy] = {}
        for name, given in SIDES.items():
            (folder / name).mkdir()
            made = shipped(folder / name, "gateway", pod_port, authority, **given)
            sides[name] = stack.enter_context(made)
        found: dict[str, list[Load]] = {name: [] for name in sides}
        for turn in range(PAIRS):
            for name in [*sides][:: 1 if turn % 2 else -1]:
                found[name].append(sides[name].load("http", HOSTS["http"]))
        yield Figure("observability_requests_per_second", median([each.each_s for each in found["both"]]), "1/s")
        for name in ("control", "histogram", "logs", "both"):
            pairs = [*zip(found["none"], found[name], strict=True)]
            goal = None if name == "control" else COST_GOAL
            of = {
                "throughput": [1 - none.cost_us / mine.cost_us for none, mine in pairs],
                "p99": [mine.p99_ms / none.p99_ms - 1 for none, mine in pairs],
            }
            for what, costs in of.items():
                yield Figure(f"observability_{name}_{what}_cost", median(costs), "share", goal)
                for part, value in zip(("low", "high"), _quartiles(costs), strict=True):
                    yield Figure(f"observability_{name}_{what}_cost_{part}", value, "share")
            yield Figure(
                f"observability_{name}_cpu", median([mine.cost_us - none.cost_us for none, mine in pairs]), "us"
            )
        yield _load()


def _quartiles(values: list[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]


# Whether counters are right


class _Reader:
    """Reads the figures of a node all the time; ``backwards`` says which series went back, and how far."""

    def __init__(self, node: Appliance) -> None:
        self._node = node
        self.backwards: list[str] = []
        self.readings = 0
        self.last: dict[str, int] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.wait(0.2):
            self.read()

    def read(self) -> None:
        code, text = self._node.get("/metrics/routes")
        found = {name + labels: int(value) for name, labels, value in _SAMPLE.findall(text) if "sessions" not in name}
        if code != http.HTTPStatus.OK:
            return  # pyconfd restarts
        self.backwards += [
            f"{name}: {self.last[name]} to {value}" for name, value in found.items() if value < self.last.get(name, 0)
        ]
        # Before HAProxy has answered a pyconfd that restarted, what was never asked for is not shown.
        self.last |= found
        self.readings += 1

    def total(self, family: str) -> int:
        return sum(value for name, value in self.last.items() if name.startswith(f"pyconfd_route_{family}{{"))

    def timed(self) -> int:
        return sum(value for name, value in self.last.items() if 'le="+Inf"' in name)

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()


def _is_after(node: Appliance, generation: int) -> bool:
    return node.generation > generation and node.settled()


def observability_counters() -> Iterator[Figure]:
    """Count requests over reloads and a restart of pyconfd, then on another node, as after a failover, and back."""
    with ExitStack() as stack:
        nodes: list[Appliance] = []
        for _ in range(2):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyconfd-bench-")))
            node = stack.enter_context(Appliance(folder))
            node.own_fragments()
            node.serve("shop")
            node.start()
            node.until(node.settled, "the first configuration is applied and verified")
            nodes.append(node)
        first, second = nodes
        readers = [_Reader(node) for node in nodes]
        fragment = Path(first.values["templates"]["dir"]) / "01-defaults.conf"
        text, asked = fragment.read_text(), 0
        crowd = Crowd(first.http, "shop.example.com", keep_alive=True)
        for turn in range(RELOADS):
            generation = first.generation
            edit(fragment, text.replace("timeout http-request 10s", f"timeout http-request {11 + turn}s"))
            first.until(partial(_is_after, first, generation), "it was reloaded")
            if turn == RELOADS // 2:
                first.stop()
                time.sleep(1)
                first.spawn()
                first.until(first.settled, "pyconfd runs again")
        asked += crowd.stop().total()
        reloads = processes(first.haproxy.master_socket).reloads
        # The address moves to the other node, and back.
        for node in (second, first):
            moved = Crowd(node.http, "shop.example.com", keep_alive=True)
            time.sleep(3)
            asked += moved.stop().total()
        time.sleep(2 * LOOK_S)  # within a second a scrape gets what was read for the one before
        for reader in readers:
            reader.stop()
            reader.read()
            for series in reader.backwards:
                sys.stderr.write(f"went back: {series}\n")
        counted = sum(reader.total("requests_total") for reader in readers)
        yield Figure("observability_counters_reloads", reloads, "reloads")
        yield Figure("observability_counters_readings", sum(reader.readings for reader in readers), "readings")
        yield Figure("observability_counters_requests", asked, "requests")
        yield Figure("observability_counters_backwards", sum(len(each.backwards) for each in readers), "series", 0)
        yield Figure("observability_counters_differ", abs(counted - asked), "requests", 0)
        yield Figure("observability_histogram_lacks", 1 - sum(map(_Reader.timed, readers)) / asked, "share")
        yield _load()


# The page


def observability_page() -> Iterator[Figure]:
    """Open the page of a daemon that serves 5,000 Services, beside a real haproxy."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyconfd-bench-")))
        cluster = many_services(free_port(), ROUTES)
        url = stack.enter_context(ApiServer(cluster)).url
        templates = fragments_without_checks(folder / "templates")
        daemon, _, log = stack.enter_context(running(folder / "run", url, templates))
        until(lambda: has_applied(log), daemon, log, 0.1)
        page = next(each["url"] for each in json_lines(log) if each["event"] == "status_page.started")
        port = int(page.rpartition(":")[2].strip("/"))
        until(lambda: len(_rows(port)) >= ROUTES, daemon, log, 0.5)
        watched = psutil.Process(daemon.pid)
        time.sleep(10)  # the file behind, and Python's garbage collector
        yield Figure("observability_page_rest_cpu", _cpu_share(watched, port, 0), "of a processor", 0.005)
        yield Figure("observability_page_of_20_cpu", _cpu_share(watched, port, PAGES), "of a processor", 0.03)
        if CHROMIUM:
            yield from _in_a_browser(folder, page, cluster)
        yield _load()


def _rows(port: int) -> list[object]:
    status, _, body = _get(port, "/routes.json", "")
    if body.startswith(b"\x1f\x8b"):  # what is small is not compressed
        body = gzip.decompress(body)
    rows: list[object] = json.loads(body)["rows"] if status == http.HTTPStatus.OK else []
    return rows


def _get(port: int, path: str, etag: str) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Accept-Encoding": "gzip"} | ({"If-None-Match": etag} if etag else {})
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.headers["ETag"] or "", body


def _cpu_share(watched: psutil.Process, port: int, pages: int) -> float:
    """Return the share of a processor that the daemon takes while so many pages are open, which ask as page.js does."""
    ends = threading.Event()

    def ask(path: str, every_s: float, delay_s: float) -> None:
        etag = ""
        ends.wait(delay_s)
        while not ends.is_set():
            _, etag, _ = _get(port, path, etag)
            ends.wait(every_s)

    threads = [
        threading.Thread(target=ask, args=(path, every_s, every_s * number / pages))
        for number in range(pages)
        for path, every_s in (("/page.json", 2.0), ("/routes.json", 10.0))
    ]
    for thread in threads:
        thread.start()
    time.sleep(2)
    before, began = watched.cpu_times(), time.monotonic()
    time.sleep(WATCHED_S)
    after, took_s = watched.cpu_times(), time.monotonic() - began
    ends.set()
    for thread in threads:
        thread.join()
    return (after.user + after.system - before.user - before.system) / took_s


def _in_a_browser(folder: Path, page: str, cluster: Cluster) -> Iterator[Figure]:
    with Tab(folder / "browser") as tab:
        tab.look(width=1200, height=900)
        tab.open(page)
        tab.until(lambda: tab.run("document.querySelectorAll('#routes-body tr').length"), "the list is there")
        sizes = "performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'))"
        sent = tab.run(f"{sizes}.reduce((sum, each) => sum + each.transferSize, 0)")
        paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        yield Figure("observability_page_sent", sent / 1e3, "KB", 300)
        yield Figure("observability_page_first_paint", tab.run(paint), "ms", 1000)
        took, shown = [], "document.querySelector('#changes').textContent"
        for turn in range(CHANGES):
            before, began = tab.run(shown), time.monotonic()
            cluster.set_endpoints(
                "team-07", "service-0007", [EndpointSpec(f"127.20.9.{turn + 1}", pod="new", node="n")]
            )
            tab.until(partial(_differs, tab, shown, before), "the change is shown")
            took.append(time.monotonic() - began)
            time.sleep(0.3 + turn / CHANGES)
        yield Figure("observability_page_change_shown_p50", median(took), "s", 1)
        yield Figure("observability_page_change_shown_most", max(took), "s")


def _differs(tab: Tab, expression: str, before: object) -> bool:
    return bool(tab.run(expression) != before)


# Where requests go


def observability_explain() -> Iterator[Figure]:
    """Hold `pyconfd explain URL` against HAProxy; `make explain-test` asks ten times as often."""
    with tempfile.TemporaryDirectory(prefix="pyconfd-bench-") as name, HaproxyProcess(Path(name)) as process:
        differing, kinds = compare(NamedBackends(short_folder("req-"), process), REQUESTS, seed=1)
    yield Figure("observability_explain_requests", REQUESTS, "requests")
    yield Figure("observability_explain_served", kinds["served"], "requests")
    yield Figure("observability_explain_differ", len(differing), "requests", 0)
    yield from url_explanations()
