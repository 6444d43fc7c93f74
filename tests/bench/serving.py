"""A whole pyconfd in one process for benchmarks of live changes: real presets, fragments, loop and haproxy.

Only the network to the API server is left out: events come as the bytes that a watch gives.
"""

import ipaddress
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from pyconfd.daemon.loop import Daemon, LoopSettings
from pyconfd.daemon.ports import World
from pyconfd.fragments import directory
from pyconfd.haproxy.process import adoption
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.context import Refusal
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.model.snapshot import Resource, Snapshot
from pyconfd.model.status import SourceHealth, Status
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.preset import CLUSTER_VIEW, PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.settings import ApplySettings
from pyconfd.sources.fragments import read_fragments
from pyconfd.sources.kubernetes.cache import Cache
from pyconfd.sources.kubernetes.decode import decode_event
from pyconfd.system.clock import SystemClock
from tests.bench.presets import endpoints_of
from tests.world.haproxy import HaproxyProcess, configuration, free_port, wait_until

POD = "127.19.{}.{}"
OPTIONS = PresetOptions(claims=ClaimOptions(allow_endpoints=(ipaddress.ip_network("127.0.0.0/8"),)))
"""The pods are on loopback."""


class Event(NamedTuple):
    """One line of the watch of one resource."""

    resource: Resource
    line: bytes


class Events:
    """A source of a daemon whose events come from the benchmark."""

    def __init__(self, whole: Snapshot) -> None:
        more = {each for each in Resource if getattr(whole, each.field)}
        self._caches = {each: Cache() for each in CLUSTER_VIEW | more}
        for resource, cache in self._caches.items():
            cache.replace(getattr(whole, resource.field).values(), ())

    def feed(self, *events: Event) -> None:
        """Take events of watches."""
        for resource, line in events:
            assert self._caches[resource].apply(decode_event(resource, line))

    def start(self, notify: Callable[[], None]) -> None:
        """Do nothing: the benchmark turns the loop itself."""

    def snapshot(self) -> Snapshot:
        views: dict[str, Any] = {resource.field: cache.view() for resource, cache in self._caches.items()}
        return Snapshot(**views)

    def refusals(self) -> tuple[Refusal, ...]:
        return ()

    def health(self) -> SourceHealth:
        return SourceHealth(synced=True)

    def relist(self) -> None:
        """Do nothing."""

    def relisted(self) -> bool:
        return True

    def stop(self) -> None:
        """Do nothing."""


class _Silent:
    def ready(self, status: str = "") -> None: ...

    def status(self, text: str) -> None: ...

    def watchdog(self) -> None: ...


class Serving:
    """A daemon with its haproxy in ``folder``, in front of what ``whole`` holds; pods that answer can be added."""

    def __init__(
        self,
        folder: Path,
        whole: Snapshot,
        *,
        pods: int = 0,
        presets: tuple[str, ...] = ("domains",),
        options: PresetOptions = OPTIONS,
    ) -> None:
        self._stack = ExitStack()
        self.port, self.pod_port = free_port(), free_port()
        self.haproxy = self._stack.enter_context(HaproxyProcess(folder / "etc"))
        self.events = Events(whole)
        self.pods = [POD.format(index // 250, index % 250 + 1) for index in range(pods)]
        if pods:
            argv = [sys.executable, "-m", "tests.world.backends", "--port", str(self.pod_port), *self.pods]
            self._backends = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
            self._stack.callback(self._end_backends)
            wait_until(lambda: self._listens(self.pods[-1]), "the pods listen")
        self.settings = self.haproxy.settings(reload_timeout_s=120.0)
        self.balancer = Balancer(self.settings, ApplySettings(), str(folder / "state"), unit=UnitFacts())
        self._stack.callback(self.balancer.close)
        self.statuses: list[Status] = []
        world = World(
            source=self.events,
            balancer=self.balancer,
            notifier=_Silent(),
            clock=SystemClock(),
            read_fragments=self.fragments,
            make_renderer=self.renderer,
            preset_options=lambda _: options,
            allowed_holds=frozenset,
            forget_holds=lambda: None,
            publish=lambda _: None,
        )
        self.balancer.startup()
        adoption.adopt(str(folder / "state"))
        self.daemon = Daemon(world, LoopSettings(ApplySettings(), presets, "0", 1))
        self.daemon.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end_backends(self) -> None:
        self._backends.terminate()
        self._backends.wait(10)

    def _listens(self, address: str) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((address, self.pod_port)) == 0

    def fragments(self) -> FragmentSet:
        """Return the shipped fragments with a runtime socket, without checks of pods that are not there."""
        found = read_fragments(directory())
        runtime = f"global\n    stats socket {self.haproxy.stats_socket} mode 600 level admin\n"
        texts = [Fragment("00-runtime.conf", runtime)]
        texts += [
            Fragment(each.name, each.text.replace("default-server check", "default-server"))
            for each in found.fragments
            if not each.name.startswith("00-runtime")
        ]
        return FragmentSet(tuple(texts), found.includable)

    def renderer(self, found: FragmentSet) -> Renderer:
        """Compile fragments."""
        variables: Mapping[str, str] = {
            "http_bind": f"127.0.0.1:{self.port}",
            "https_bind": "",
            "stats_bind": "",
        }
        return Renderer(found, RenderOptions(str(self.haproxy.conf.parent / "files"), variables=variables))

    def first(self) -> None:
        """Bring up haproxy with what the cluster holds, and let the daemon see that all is level."""
        self.haproxy.conf.write_text(configuration(free_port()), encoding="utf-8")
        self.haproxy.start()
        self.daemon.step(1)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not self.balancer.updates_at_runtime():
            self.daemon.step(0)
            time.sleep(min(0.2, self.daemon.wait_s()))
        assert self.balancer.updates_at_runtime()

    def live(self, *events: Event) -> None:
        """Take the first event and do what is due; the others come right after that."""
        for each in events:
            self.events.feed(each)
            self.daemon.step(1)


def written(item: Mapping[str, Any]) -> tuple[Event, Event]:
    """Return the events for a changed EndpointSlice: a controller manager writes it, and Endpoints beside it."""
    changed = {Resource.ENDPOINTSLICES: item, Resource.ENDPOINTS: endpoints_of(item)}
    of_slice, of_endpoints = (
        Event(resource, msgspec.json.encode({"type": "MODIFIED", "object": each})) for resource, each in changed.items()
    )
    return of_slice, of_endpoints


class Client:
    """One kept connection to haproxy."""

    def __init__(self, port: int, host: str) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()

    def ask(self) -> bytes:
        """Return the whole answer to a request."""
        self._connection.sendall(self._request)
        answer = b""
        while True:
            chunk = self._connection.recv(65536)
            if not chunk:
                raise ConnectionResetError("haproxy closed the connection")
            answer += chunk
            head, end, body = answer.partition(b"\r\n\r\n")
            if end:
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                if len(body) >= length:
                    return answer

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
