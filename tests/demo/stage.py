"""What the demo runs on: a cluster behind two API servers, pods, a real haproxy, and pyconfd as users start it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyconfd import fragments
from tests.world.apiserver import ApiServer
from tests.world.backends import Backends
from tests.world.cluster import Cluster
from tests.world.haproxy import HaproxyProcess, free_port
from tests.world.objects import EndpointSpec, PortSpec

PATIENCE_S = 20.0


class DemoError(Exception):
    """Something did not come out as promised; the message says what."""


def wait_for(condition: Callable[[], bool], what: str) -> float:
    """Wait until ``condition`` holds; give the seconds that took. Raises: DemoError."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > PATIENCE_S:
            raise DemoError(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - began


class Stage:
    """Everything that the demo starts; leaving the ``with`` ends it all, whatever happened."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="pyconfd-demo-")))
        self.cluster = Cluster()
        self.pods = self._stack.enter_context(Backends(free_port()))
        self.servers = [self._stack.enter_context(ApiServer(self.cluster)) for _ in range(2)]
        (self.folder / "generated").mkdir()
        self.haproxy = self._stack.enter_context(
            HaproxyProcess(self.folder, conf=self.folder / "generated" / "haproxy.cfg")
        )
        self.http, self.https, self.stats, self.redis, self.page = (free_port() for _ in range(5))
        self.config = self.folder / "pyconfd.toml"
        self.log = self.folder / "pyconfd.log"
        self.daemon: subprocess.Popen[bytes] | None = None
        self._members: dict[str, list[EndpointSpec]] = {}
        self._started: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_daemon()
        self._stack.close()

    def populate(self) -> None:
        """Put the sample cluster up: two web services, a redis, and one that asks for a name already taken."""
        for number in (1, 2):
            self.cluster.add_node(f"node-{number}", f"192.0.2.{number}")
        self._service("shop", {"domain": "shop.example.com", "proto": "http"}, pods=2, block=10)
        self._service("blog", {"domain": "blog.example.com", "proto": "http"}, pods=1, block=20)
        self._service("thief", {"domain": "shop.example.com", "proto": "http"}, pods=1, block=30)
        listen = {"domain": "cache.example.com", "proto": "redis", "pyconfd.io/listen-port": str(self.redis)}
        self._service("cache", listen, pods=1, block=40, redis=True)

    def to_try(self) -> tuple[str, ...]:
        """Give commands for whoever keeps it up."""
        return (
            f"curl -H 'Host: shop.example.com' http://127.0.0.1:{self.http}/",
            f"kubectl --server {self.servers[0].url} annotate service thief -n demo domain=me.example.com --overwrite",
        )

    def _service(self, name: str, annotations: dict[str, str], *, pods: int, block: int, redis: bool = False) -> None:
        port = PortSpec(name="redis" if redis else "web", port=6379 if redis else 80, target=self.pods.port)
        self.cluster.add_service("demo", name, ports=[port], annotations=annotations)
        self._members[name] = []
        for number in range(1, pods + 1):
            self.scale_up(name, f"127.18.{block}.{number}", redis=redis)

    def scale_up(self, name: str, address: str, *, redis: bool = False) -> str:
        """Start one more pod of a service; give its name."""
        self._started[name] += 1
        pod = f"{name}-{self._started[name]}"
        (self.pods.add_redis if redis else self.pods.add)(pod, address)
        node = f"node-{self._started[name] % 2 + 1}"
        self._write(name, [*self._members[name], EndpointSpec(address, pod=pod, node=node)])
        return pod

    def terminate(self, name: str, pod: str) -> None:
        """Let a pod terminate: it serves what it has begun and wants nothing new."""
        self._write(
            name,
            [
                EndpointSpec(e.address, pod=e.pod, node=e.node, ready=False, serving=True, terminating=True)
                if e.pod == pod
                else e
                for e in self._members[name]
            ],
        )

    def remove(self, name: str, pod: str) -> None:
        """End a pod."""
        self._write(name, [e for e in self._members[name] if e.pod != pod])

    def _write(self, name: str, members: list[EndpointSpec]) -> None:
        self._members[name] = members
        self.cluster.set_endpoints("demo", name, members)

    def start(self) -> None:
        """Start pyconfd with no configuration there; haproxy as soon as there is one, as its unit would."""
        self.config.write_text(self._settings(), encoding="utf-8")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYCONFD_")}
        with self.log.open("ab") as log:
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "pyconfd", "run", "--config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        wait_for(lambda: self.haproxy.conf.exists() or self._dead(), "pyconfd writes the first configuration")
        if self._dead():
            raise DemoError(f"pyconfd ended by itself:\n{self.log.read_text(encoding='utf-8')}")
        self.haproxy.start()

    def _dead(self) -> bool:
        return self.daemon is not None and self.daemon.poll() is not None

    def stop_daemon(self) -> None:
        """Stop pyconfd as systemd would."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGTERM)
            try:
                self.daemon.wait(15)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()

    def values(self) -> dict[str, dict[str, Any]]:
        """Give the settings by section."""
        return {
            "": {"state_dir": f"{self.folder}/state", "runtime_dir": f"{self.folder}/run"},
            "kubernetes": {"api_servers": [server.url for server in self.servers]},
            "templates": {"dir": fragments.directory()},
            "templates.vars": {
                "http_bind": f"127.0.0.1:{self.http}",
                "https_bind": f"127.0.0.1:{self.https}",
                "stats_bind": f"127.0.0.1:{self.stats}",
                "tcp_address": "127.0.0.1",
            },
            "presets": {"listen_ports": ["1024-65535"]},
            "haproxy": {
                "conf": str(self.haproxy.conf),
                "master_socket": self.haproxy.master_socket,
                "pid_file": str(self.haproxy.pid_file),
                "reload_method": "master",
                "unit": "",
            },
            "status": {"listen": f"127.0.0.1:{self.page}"},
        }

    def _settings(self) -> str:
        lines = []
        for section, items in self.values().items():
            lines += [f"[{section}]"] if section else []
            lines += [f"{key} = {json.dumps(value)}" for key, value in items.items()]
        return "\n".join(lines) + "\n"

    def status(self) -> dict[str, Any]:
        """Give what ``pyconfd status`` says."""
        answer = subprocess.run(
            [sys.executable, "-m", "pyconfd", "status", "--config", str(self.config), "--output", "json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        status: dict[str, Any] = json.loads(answer.stdout)["status"] or {}
        return status


@dataclass(frozen=True)
class Play:
    """What is played on which stage."""

    stage: type[Stage]
    scenes: tuple[Callable[[Any], None], ...]
