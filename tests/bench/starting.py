"""From the start of the process to the first request answered by a pod: 1,000 services with 10 endpoints each."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from pyconfd import fragments
from pyconfd.presets import registry
from pyconfd.presets.reading import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.file import read_snapshot
from pyconfd.sources.fragments import read_fragments
from tests.bench.figures import Figure, median
from tests.world.backends import Backends
from tests.world.clients import ask
from tests.world.cluster import Cluster
from tests.world.haproxy import HaproxyProcess, configuration, free_port
from tests.world.objects import EndpointSpec, PortSpec

SERVICES, ENDPOINTS, ROUNDS = 1_000, 10, 3
LIMIT_S = 120.0
PROBE = "service-0000.example.com"


def _cluster(pod_port: int) -> Cluster:
    """Give a cluster whose endpoints share a few real pods on loopback, so that health checks find somebody."""
    cluster = Cluster()
    port = PortSpec("web", 80, pod_port)
    for number in range(SERVICES):
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


def _one_start(folder: Path, api_url: str, round_: int) -> dict[str, float]:
    """Start haproxy with an older configuration, then pyconfd; give the seconds from step to step."""
    http, place = free_port(), folder / f"round-{round_}"
    with HaproxyProcess(place) as haproxy:
        haproxy.conf.write_text(configuration(free_port()), encoding="utf-8")
        haproxy.start()
        log = place / "pyconfd.log"
        options = {
            "api-servers": api_url, "template-dir": fragments.directory(), "haproxy-conf": str(haproxy.conf),
            "haproxy-master-socket": haproxy.master_socket, "haproxy-reload-method": "master", "haproxy-unit": "",
            "state-dir": str(place / "state"), "runtime-dir": str(place / "run"), "status-listen": "",
            "log-format": "json", "ignore-proxy-env": "true",
        }  # fmt: skip
        variables = {
            "http_bind": f"127.0.0.1:{http}",
            "https_bind": "",
            "stats_bind": "",
            "runtime_socket": haproxy.stats_socket,
        }
        argv = [sys.executable, "-m", "pyconfd", "run", *(f"--{name}={value}" for name, value in options.items())]
        argv += [word for name, value in variables.items() for word in ("--var", f"{name}={value}")]
        began = time.time()
        with log.open("wb") as stream:
            daemon = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
        try:
            while not ask(http, PROBE, 1.0).startswith("pod-"):
                if time.time() - began > LIMIT_S or daemon.poll() is not None:
                    raise RuntimeError(f"no answer:\n{log.read_text(encoding='utf-8')[-2000:]}")
                time.sleep(0.002)
            answered = time.time()
            while "generation.applied" not in log.read_text(encoding="utf-8"):
                time.sleep(0.01)
        finally:
            daemon.terminate()
            daemon.wait(30)
        events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    at = {event["event"]: _seconds(event) for event in events}
    applied = next(event for event in events if event["event"] == "generation.applied")
    return {
        "total": answered - began,
        "imports_and_settings": at["daemon.started"] - began,
        "lists": at["resource.synced"] - at["daemon.started"],
        "translate_to_verified": float(applied["duration_s"]),
    }


def first_configuration() -> Iterator[Figure]:
    """Start the real process three times; then time the pure steps by themselves."""
    with tempfile.TemporaryDirectory(prefix="pyconfd-bench-") as name, Backends(free_port()) as pods:
        folder = Path(name)
        for block in range(4):
            for index in range(ENDPOINTS):
                pods.add(f"pod-{block}-{index}", f"127.20.{block}.{index + 1}")
        dump = folder / "cluster.json"
        _cluster(pods.port).dump(dump)
        argv = [sys.executable, "-m", "tests.world.apiserver", "--port", str(free_port()), "--load", str(dump)]
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            rounds = [_one_start(folder, url, number) for number in range(ROUNDS)]
        finally:
            server.terminate()
            server.wait(30)
            if server.stdout:
                server.stdout.close()
        for step in rounds[0]:
            yield Figure(f"first_configuration_{step}", median([each[step] for each in rounds]) * 1000, "ms")
        yield from _pure_steps(dump)


def _pure_steps(dump: Path) -> Iterator[Figure]:
    snapshot, _ = read_snapshot(dump)
    renderer = Renderer(read_fragments(fragments.directory()), RenderOptions(files_dir="/tmp/files"))
    translating, rendering = [], []
    for _ in range(5):
        began = time.process_time()
        context = registry.translate(snapshot, ("domains",), PresetOptions())
        middle = time.process_time()
        assert renderer.render(context, curdate="").rendering.digest
        translating.append(middle - began)
        rendering.append(time.process_time() - middle)
    yield Figure("first_configuration_translate_cpu", median(translating) * 1000, "ms")
    yield Figure("first_configuration_render_cpu", median(rendering) * 1000, "ms")
