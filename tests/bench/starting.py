"""From the start of the process to the first request answered by a pod: 1,000 services with 10 endpoints each."""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import psutil

from pyconfd import fragments
from pyconfd.haproxy.process import adoption
from pyconfd.presets import registry
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.file import read_snapshot
from pyconfd.sources.fragments import read_fragments
from tests.bench.figures import Figure, median
from tests.bench.serving import OPTIONS
from tests.world.backends import Backends
from tests.world.clients import ask
from tests.world.cluster import Cluster
from tests.world.haproxy import HaproxyProcess, configuration, free_port
from tests.world.log import json_lines
from tests.world.objects import EndpointSpec, PortSpec

SERVICES, ENDPOINTS, ROUNDS = 1_000, 10, 3
LIMIT_S = 120.0
LOOKS = 20
"""How often memory is looked at after the first configuration, two a second."""
RESIDENT_MB = 400.0
PROBE = "service-0000.example.com"


def many_services(pod_port: int, services: int = SERVICES) -> Cluster:
    """Return a cluster whose endpoints share a few real pods on loopback, so that health checks find somebody."""
    cluster = Cluster()
    port = PortSpec("web", 80, pod_port)
    for number in range(services):
        name = f"service-{number:04d}"
        cluster.add_service(
            f"team-{number % 50:02d}",
            name,
            ports=[port],
            annotations={"domain": f"{name}.example.com", "proto": "http"},
        )
        members = [
            EndpointSpec(f"127.20.{number % 4}.{index + 1}", pod=f"{name}-{index}", node=f"node-{index}")
            for index in range(ENDPOINTS)
        ]
        cluster.set_endpoints(f"team-{number % 50:02d}", name, members)
    return cluster


def _seconds(event: dict[str, str]) -> float:
    return datetime.fromisoformat(event["timestamp"]).timestamp()


@contextmanager
def running(folder: Path, api_url: str, template_dir: str) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    """Start haproxy with an older configuration, then pyconfd; give that, the port of the frontend and the log."""
    http = free_port()
    with HaproxyProcess(folder) as haproxy:
        haproxy.conf.write_text(configuration(free_port()), encoding="utf-8")
        haproxy.start()
        adoption.adopt(str(folder / "state"))
        log = folder / "pyconfd.log"
        options = {
            "api-servers": api_url, "template-dir": template_dir, "haproxy-conf": str(haproxy.conf),
            "haproxy-master-socket": haproxy.master_socket, "haproxy-reload-method": "master", "haproxy-unit": "",
            "state-dir": str(folder / "state"), "runtime-dir": str(folder / "run"), "status-listen": "127.0.0.1:0",
            "log-format": "json", "ignore-proxy-env": "true", "claims-allow-endpoints": "127.0.0.0/8",
        }  # fmt: skip
        variables = {
            "http_bind": f"127.0.0.1:{http}",
            "https_bind": "",
            "stats_bind": "",
            "runtime_socket": haproxy.stats_socket,
        }
        argv = [sys.executable, "-m", "pyconfd", "run", *(f"--{name}={value}" for name, value in options.items())]
        argv += [word for name, value in variables.items() for word in ("--var", f"{name}={value}")]
        with log.open("wb") as stream:
            daemon = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
        try:
            yield daemon, http, log
        finally:
            daemon.terminate()
            daemon.wait(30)


def until(condition: Callable[[], object], daemon: subprocess.Popen[bytes], log: Path, pause_s: float) -> None:
    """Wait; raise RuntimeError where the daemon ends, or it takes too long."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > LIMIT_S or daemon.poll() is not None:
            raise RuntimeError(f"it did not get there:\n{log.read_text(encoding='utf-8')[-2000:]}")
        time.sleep(pause_s)


def has_applied(log: Path) -> bool:
    """Return whether a configuration was applied."""
    return "generation.applied" in log.read_text(encoding="utf-8")


def _one_start(folder: Path, api_url: str, round_: int) -> dict[str, float]:
    """Return the seconds from step to step."""
    began = time.time()
    with running(folder / f"round-{round_}", api_url, fragments.directory()) as (daemon, http, log):
        until(lambda: ask(http, PROBE, 1.0).startswith("pod-"), daemon, log, 0.002)
        answered = time.time()
        until(lambda: has_applied(log), daemon, log, 0.01)
    events = json_lines(log)
    at = {event["event"]: _seconds(event) for event in events}
    applied = next(event for event in events if event["event"] == "generation.applied")
    return {
        "total": answered - began,
        "imports_and_settings": at["daemon.started"] - began,
        "lists": at["resource.synced"] - at["daemon.started"],
        "translate_to_verified": float(applied["duration_s"]),
    }


@contextmanager
def served(folder: Path, cluster: Cluster) -> Iterator[tuple[str, Path]]:
    """Serve a cluster in a process of its own; give its address, and the file that holds the cluster."""
    dump = folder / "cluster.json"
    cluster.dump(dump)
    argv = [sys.executable, "-m", "tests.world.apiserver", "--port", str(free_port()), "--load", str(dump)]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), dump
        finally:
            server.terminate()


def fragments_without_checks(folder: Path) -> str:
    """Copy the shipped fragments into a new folder; for health checks a machine may have too few descriptors."""
    folder.mkdir()
    found = read_fragments(fragments.directory())
    for fragment in (*found.fragments, *found.includable):
        text = fragment.text.replace("default-server check", "default-server")
        (folder / fragment.name).write_text(text, encoding="utf-8")
    return str(folder)


def daemon_memory() -> Iterator[Figure]:
    """Return what ``pyconfd run`` keeps resident once haproxy serves 10,000 services and the history is written."""
    with tempfile.TemporaryDirectory(prefix="pyconfd-bench-") as name:
        folder = Path(name)
        templates = fragments_without_checks(folder / "templates")
        with (
            served(folder, many_services(free_port(), 10 * SERVICES)) as (url, _),
            running(folder / "run", url, templates) as (daemon, _, log),
        ):
            until(lambda: has_applied(log), daemon, log, 0.1)
            watched, highest = psutil.Process(daemon.pid), 0
            for _ in range(LOOKS):
                highest = max(highest, watched.memory_info().rss)
                time.sleep(0.5)
            peak = int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{daemon.pid}/status").read_text("ascii"))[0]) * 1024
    yield Figure("daemon_10000_services_resident_memory", highest / 1e6, "MB", RESIDENT_MB)
    yield Figure("daemon_10000_services_peak_memory", peak / 1e6, "MB")


def first_configuration() -> Iterator[Figure]:
    """Start the real process three times; then time the pure steps by themselves."""
    with tempfile.TemporaryDirectory(prefix="pyconfd-bench-") as name, Backends(free_port()) as pods:
        folder = Path(name)
        for block in range(4):
            for index in range(ENDPOINTS):
                pods.add(f"pod-{block}-{index}", f"127.20.{block}.{index + 1}")
        with served(folder, many_services(pods.port)) as (url, dump):
            rounds = [_one_start(folder, url, number) for number in range(ROUNDS)]
        for step in rounds[0]:
            yield Figure(f"first_configuration_{step}", median([each[step] for each in rounds]) * 1000, "ms")
        yield from _pure_steps(dump)


def _pure_steps(dump: Path) -> Iterator[Figure]:
    snapshot, _ = read_snapshot(dump)
    renderer = Renderer(read_fragments(fragments.directory()), RenderOptions(files_dir="/tmp/files"))
    translating, rendering = [], []
    for _ in range(5):
        began = time.process_time()
        context = registry.translate(snapshot, ("domains",), OPTIONS)
        middle = time.process_time()
        assert renderer.render(context, curdate="").rendering.digest
        translating.append(middle - began)
        rendering.append(time.process_time() - middle)
    yield Figure("first_configuration_translate_cpu", median(translating) * 1000, "ms")
    yield Figure("first_configuration_render_cpu", median(rendering) * 1000, "ms")
