"""A pyconfd with its haproxy and pods that come and go: what the figures of under_load.py are taken from."""

import json
import re
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pyconfd.haproxy.config.text import mark
from pyconfd.haproxy.runtime.servers_now import servers_now
from pyconfd.haproxy.runtime.sockets import RuntimeSocket
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.sources.file import read_snapshot
from tests.bench.presets import endpoints_of
from tests.bench.serving import Serving, written
from tests.world import objects
from tests.world.haproxy import free_port, wait_until
from tests.world.objects import PortSpec
from tests.world.pods import Pods

LIMIT_S = 120.0
_LINE = re.compile(r"backend (?P<backend>\S+)|\s+server (?P<name>\S+) (?P<target>\S+) id \d+(?P<drains> weight 0)?$")


def address(number: int) -> str:
    """Return the address of a pod, on loopback; each number has its own."""
    return f"127.{32 + number // 62_500}.{number // 250 % 250}.{number % 250 + 1}"


def host(number: int) -> str:
    """Return the name under which a service is asked for."""
    return f"s{number}.example.com"


@dataclass
class Member:
    """A pod as its EndpointSlice tells it."""

    address: str
    ready: bool = True
    terminating: bool = False

    def endpoint(self) -> dict[str, Any]:
        """Return it as Kubernetes writes it."""
        ready = self.ready and not self.terminating
        conditions = {"ready": ready, "serving": self.ready, "terminating": self.terminating}
        return {"addresses": [self.address], "conditions": conditions}


class Fleet:
    """``members`` are the pods of each service; those of the first ``answering`` services answer."""

    def __init__(self, folder: Path, *, services: int, each: int, answering: int) -> None:
        self._taken = services * each
        self._port = free_port()
        self.members = [[Member(address(number * each + one)) for one in range(each)] for number in range(services)]
        self._stack = ExitStack()
        with self._stack:
            self.pods = self._stack.enter_context(Pods(self._port))
            self.pods.start(*(one.address for members in self.members[:answering] for one in members))
            self.serving = self._stack.enter_context(Serving(folder, self._snapshot()))
            self.serving.first()
            self._stack = self._stack.pop_all()
        self.balancer = self.serving.balancer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # The cluster

    def _snapshot(self) -> Snapshot:
        items: list[dict[str, Any]] = []
        for number in range(len(self.members)):
            annotations = {"domain": host(number), "proto": "http"}
            made = objects.service(
                f"team-{number % 20}", f"app-{number}", [PortSpec("web", 80)], annotations=annotations
            )
            made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
            items.append({"apiVersion": "v1", "kind": "Service", **objects.with_service_defaults(made)})
            item = self._slice(number)
            items += [item, endpoints_of(item)]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"apiVersion": "v1", "kind": "List", "items": items}, file)
            file.flush()
            snapshot, refused = read_snapshot(Path(file.name))
        assert not refused
        return snapshot

    def _slice(self, number: int) -> dict[str, Any]:
        name = f"app-{number}"
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{name}-a",
                "namespace": f"team-{number % 20}",
                "labels": {objects.SERVICE_NAME: name},
            },
            "addressType": "IPv4",
            "endpoints": [one.endpoint() for one in self.members[number]],
            "ports": [{"name": "web", "port": self._port, "protocol": "TCP"}],
        }

    def new_member(self, *, ready: bool = True) -> Member:
        """Return a pod at an address that no pod had before; it does not run yet."""
        self._taken += 1
        return Member(address(self._taken - 1), ready=ready)

    def tell(self, number: int) -> None:
        """Let pyconfd see the pods of a service as they are now; it has not acted on that when this returns."""
        self.serving.events.feed(*written(self._slice(number)))

    # pyconfd

    def step(self, events: int = 0) -> None:
        """Let pyconfd do what is due."""
        self.serving.daemon.step(events)

    def pump(self, seconds: float) -> None:
        """Let pyconfd go on for a time."""
        ends = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= ends, "time goes on")

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Let pyconfd go on until something is so. Raises: AssertionError."""
        ends = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < ends, f"not within {LIMIT_S:g} s: {what}"
            self.step()
            time.sleep(min(0.01, self.serving.daemon.wait_s()))

    def apply(self, *numbers: int) -> float:
        """Show these services at once; return when the change was acknowledged (monotonic clock)."""
        for number in numbers:
            self.tell(number)
        self.step(len(numbers))
        while self.serving.daemon.status().pending_since:
            time.sleep(min(0.001, self.serving.daemon.wait_s()))
            self.step()
        return time.monotonic()

    def worker(self) -> int:
        """Return the number of the process that serves: a reload makes another one."""
        # The master refuses connections for a moment after a reload.
        wait_until(lambda: self.serving.haproxy.running() is not None, "the master answers")
        running = self.serving.haproxy.running()
        assert running is not None
        return running.worker_pid

    def in_process(self) -> dict[tuple[str, str], tuple[str, bool]]:
        """Return target and whether it gets traffic of each server that HAProxy has, by backend and name."""
        connection = RuntimeSocket(self.serving.haproxy.stats_socket)
        _, (answer,) = connection.ask(["show servers state"])
        connection.close()
        return {
            (one.backend, one.name): (one.target, not (one.maint or one.drain or one.weight == 0))
            for one in servers_now(answer)
        }

    def until_answered(self, *addresses: str, requests: int = 0) -> None:
        """Let pyconfd go on until all of these pods have answered, and so many requests were."""

        def answered() -> bool:
            count, by = self.pods.answered()
            return count >= requests and by.issuperset(addresses)

        self.until(answered, "the load sees the pods")

    def until_idle(self, *addresses: str) -> None:
        """Let pyconfd go on until no client waits for an answer of these pods."""
        self.until(lambda: not self._waited_for() & set(addresses), "the pods have answered")

    def _waited_for(self) -> set[str]:
        connection = RuntimeSocket(self.serving.haproxy.stats_socket)
        _, (answer,) = connection.ask(["show servers conn"])
        connection.close()
        rows = [line.split() for line in answer.splitlines() if line]
        columns = rows[0][1:]
        address, used = columns.index("addr"), columns.index("used_cur")
        return {row[address] for row in rows[1:] if row[used] != "0"}

    def unlike_rendering(self) -> list[str]:
        """Return what differs between HAProxy's servers and the newest rendering with the listed leaving servers."""
        last = self.balancer.last_good()
        assert last is not None
        there = self.in_process()
        leaving = self.leaving()
        expected = wanted(last.rendering)
        found = [f"{key} is {there.get(key)}, not {one}" for key, one in expected.items() if there.get(key) != one]
        strangers = there.keys() - expected.keys()
        found += [f"{key} is not listed as leaving" for key in strangers - leaving]
        return found + [f"{key} is leaving and takes traffic" for key in strangers & leaving if there[key][1]]

    def leaving(self) -> set[tuple[str, str]]:
        """Return the servers that pyconfd lists as on their way out, by backend and name."""
        return set(self.balancer._runtime.leaving)

    def unlike_file(self) -> bool:
        """Return whether the installed file holds something else than the newest rendering."""
        last = self.balancer.last_good()
        assert last is not None
        return self.serving.haproxy.conf.read_text() != mark(last.rendering.text, last.rendering.digest)


def wanted(rendering: Rendering) -> dict[tuple[str, str], tuple[str, bool]]:
    """Return target and whether it gets traffic of each server of a rendering, by backend and name."""
    found: dict[tuple[str, str], tuple[str, bool]] = {}
    backend = ""
    for line in rendering.text.splitlines():
        read = _LINE.match(line)
        if read and read["backend"]:
            backend = read["backend"]
        elif read:
            found[backend, read["name"]] = read["target"], not read["drains"]
    return found
