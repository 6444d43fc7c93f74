"""Names in Route 53: how fast a dead haproxy is withdrawn, and what it costs to look on."""

import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.bench.figures import Figure, median
from tests.dns.nodes import FieldNode
from tests.dns.simulation import World
from tests.dns.stage import NAME, SPEC, zone_with
from tests.dns.strict_http import StrictServer
from tests.dns.wire import FaultProxy
from tests.world.haproxy import wait_until

ROUNDS = 5
IDLE_S = 20.0
LIMIT_S = 60.0


def dns_follows() -> Iterator[Figure]:
    """Two nodes with the settings as they are; the haproxy of one is killed."""
    provider = zone_with()
    as_they_are = {"DNS_LOOK_S": "1", "DNS_INTERVAL_S": "60", "DNS_NODES": "4"}
    with tempfile.TemporaryDirectory() as name, StrictServer(provider) as server, FaultProxy(server.port) as proxy:
        folders = [Path(name) / f"n{number}" for number in range(2)]
        for folder in folders:
            folder.mkdir()
        with (
            FieldNode(folders[0], "n0", "192.0.2.1", proxy.url) as first,
            FieldNode(folders[1], "n1", "192.0.2.2", proxy.url) as second,
        ):
            first.run(**as_they_are)
            second.run(**as_they_are)
            took = []
            for _ in range(ROUNDS):
                wait_until(lambda: len(provider.answer(NAME, "A")) == 2, "both are in", limit_s=LIMIT_S)
                master = psutil.Process(int(first.haproxy.pid_file.read_text().split()[0]))
                began = time.monotonic()
                for process in (*master.children(recursive=True), master):
                    process.send_signal(signal.SIGKILL)
                wait_until(lambda: len(provider.answer(NAME, "A")) == 1, "it was withdrawn", limit_s=LIMIT_S)
                took.append(time.monotonic() - began)
                first.haproxy.stop()
                first.haproxy.start()
            yield Figure("dns_haproxy_died_to_change_request", median(took), "s")
            wait_until(lambda: len(provider.answer(NAME, "A")) == 2, "both are in", limit_s=LIMIT_S)
            process = psutil.Process(second.service.pid)
            used = process.cpu_times()
            time.sleep(IDLE_S)
            now = process.cpu_times()
            yield Figure(
                "dns_idle_cpu", 100 * (now.user + now.system - used.user - used.system) / IDLE_S, "% of a processor"
            )
            yield Figure("dns_resident_memory", process.memory_info().rss / 1e6, "MB")


def dns_requests() -> Iterator[Figure]:
    """Two nodes and thirty, where nothing happens for an hour of their time."""
    for count in (2, 30):
        world = World(1, count, SPEC)
        world.run(0.0, 600.0)
        before = sum(len(machine.requests) for machine in world.machines)
        world.run(0.0, 3600.0)
        sent = sum(len(machine.requests) for machine in world.machines) - before
        yield Figure(f"dns_idle_requests_an_hour_and_node_of_{count}", sent / count, "requests")
