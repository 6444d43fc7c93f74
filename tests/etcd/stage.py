"""A cluster, an etcd, producers and consumers as users start them, and light consumers within the test."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyconfd import fragments
from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.cli.commands import etcd as commands
from pyconfd.daemon.base_loop import run_until_stopped
from pyconfd.daemon.consuming import Consumer, ConsumerWorld
from pyconfd.etcd.publication import KnownGeneration
from pyconfd.haproxy.config.text import endpoint_totals
from pyconfd.model.balancing import TakesAll
from pyconfd.model.context import EndpointTotals
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Applied, Generation, Outcome, Stored, Unchanged
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason
from pyconfd.model.rendering import Rendering
from pyconfd.model.status import Status
from pyconfd.settings import ApplySettings, HaproxySettings, Settings, resolve
from pyconfd.status import document
from pyconfd.status.document import read_report
from pyconfd.wiring import SystemClock
from tests.world.apiserver import ApiServer
from tests.world.backends import Backends
from tests.world.cluster import Cluster
from tests.world.etcd import EtcdProcess
from tests.world.haproxy import HaproxyProcess, free_port
from tests.world.objects import EndpointSpec, PortSpec

PATIENCE_S = 90.0


def wait_for(condition: Callable[[], object], what: str | Callable[[], str]) -> None:
    """Wait until ``condition`` holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE_S:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.05)


@dataclass
class FakeBalancer(TakesAll):
    """Takes everything and remembers it; one of the many behind one producer."""

    applied: list[Rendering] = field(default_factory=list)
    fails: Exception | None = None
    _last: Stored | None = None

    def contested(self, rendering: Rendering) -> Mapping[Listener, str]:
        return {}

    def last_good(self) -> Stored | None:
        return self._last

    def plan(self, rendering: Rendering) -> Plan:
        if self._last and self._last.rendering.digest == rendering.digest:
            return Noop()
        return Reload((ReloadReason.TEXT_CHANGED,))

    def apply(self, rendering: Rendering, plan: Reload, *, curdate: str, totals: EndpointTotals, now: float) -> Applied:
        if self.fails:
            raise self.fails
        self.applied.append(rendering)
        self._last = Stored(Generation(len(self.applied), rendering.digest, now, curdate, totals=totals), rendering)
        return Applied(self._last.generation, plan, verified=True)

    def restore_last_good(self, now: float) -> Outcome | None:
        return Unchanged(self._last.generation) if self._last else None

    def runs(self) -> bool:
        return True

    def report_progress(self, progress: Callable[[], None]) -> None:
        pass


class FakeNotifier:
    def __init__(self) -> None:
        self.readies: list[str] = []

    def ready(self, status: str = "") -> None:
        self.readies.append(status)

    def status(self, text: str) -> None:
        pass

    def watchdog(self) -> None:
        pass

    def stopping(self, status: str = "") -> None:
        pass


class LightConsumer:
    """The whole consumer but for HAProxy, in a thread."""

    def __init__(self, etcd: EtcdProcess, folder: Path, balancer: FakeBalancer | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.settings = Settings(
            etcd=etcd.settings(timeout_s=3.0),
            haproxy=HaproxySettings(conf=str(folder / "haproxy.cfg")),
            state_dir=str(folder),
        )
        self.balancer = balancer or FakeBalancer()
        self.notifier = FakeNotifier()
        self.allowed: set[str] = set()
        self.taken = KnownGeneration(str(folder), commands.CONSUMED, self.settings.etcd.path)
        world = ConsumerWorld(
            source=commands.EtcdPublications(self.settings),
            balancer=self.balancer,
            notifier=self.notifier,
            clock=SystemClock(),
            taken=self.taken,
            count=endpoint_totals,
            allowed_holds=lambda: frozenset(self.allowed),
            forget_holds=self.allowed.clear,
            publish=lambda status: None,
        )
        settings = ApplySettings(boot_wait_s=1.0, retry_min_s=0.2, retry_max_s=1.0)
        self.consumer = Consumer(world, settings, RemovalRules(), version="test", pid=os.getpid())
        self._thread = threading.Thread(target=run_until_stopped, args=(self.consumer,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.consumer.mailbox.stop()
        self._thread.join(30)

    def status(self) -> Status:
        return self.consumer.status()

    def text(self) -> str:
        last = self.balancer.last_good()
        return last.rendering.text if last else ""


class Stage:
    """Everything that a test starts; leaving the ``with`` ends it all."""

    def __init__(self, folder: Path, etcd: EtcdProcess) -> None:
        self._stack = ExitStack()
        self.folder = folder
        self.etcd = etcd
        self.cluster = Cluster()
        self.pods = self._stack.enter_context(Backends(free_port()))
        self.api = self._stack.enter_context(ApiServer(self.cluster))
        self.http, self.https, self.stats = (free_port() for _ in range(3))
        self.fragments = fragments.directory()
        # Short, as the path of a UNIX socket has to be.
        sockets = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="rt-"))
        self.runtime_socket = f"{sockets}/s"
        self._members: dict[str, list[EndpointSpec]] = {}
        self._started: Counter[str] = Counter()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.etcd_settings: dict[str, Any] = {}
        self.producer_settings: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._stack.close()

    def service(self, name: str, *addresses: str) -> None:
        """Put up a web service with one pod at each address, named SERVICE-1 and so on."""
        if name not in self._members:
            annotations = {"domain": f"{name}.example.com", "proto": "http"}
            port = PortSpec(name="web", port=80, target=self.pods.port)
            self.cluster.add_service("demo", name, ports=[port], annotations=annotations)
            self._members[name] = []
        for address in addresses:
            self._started[name] += 1
            pod = f"{name}-{self._started[name]}"
            self.pods.add(pod, address)
            self._members[name].append(EndpointSpec(address, pod=pod, node="node-1"))
        self.cluster.set_endpoints("demo", name, self._members[name])

    def empty(self, name: str) -> None:
        """Take all pods of a service away."""
        self._members[name] = []
        self.cluster.set_endpoints("demo", name, [])

    def configure(self, name: str, haproxy: HaproxyProcess | None = None) -> Path:
        """Write the settings file of one producer, or of the consumer that feeds ``haproxy``."""
        folder = self.folder / name
        (folder / "generated").mkdir(parents=True)
        etcd = {
            key: getattr(self.etcd.settings(), key)
            for key in ("endpoints", "ca", "cert", "key", "lease_s", "poll_s", "timeout_s")
        }
        values: dict[str, dict[str, Any]] = {
            "": {"state_dir": f"{folder}/state", "runtime_dir": f"{folder}/run"},
            "kubernetes": {"api_servers": [] if haproxy else [self.api.url]},
            "templates": {"dir": f"{folder}/none" if haproxy else self.fragments},
            "templates.vars": {
                "http_bind": f"127.0.0.1:{self.http}",
                "https_bind": f"127.0.0.1:{self.https}",
                "stats_bind": f"127.0.0.1:{self.stats}",
                "runtime_socket": self.runtime_socket,
            },
            "presets": {"listen_ports": ["1024-65535"]},
            "claims": {"allow_endpoints": ["127.0.0.0/8"]},
            "etcd": {**etcd, **self.etcd_settings},
            "apply": {"boot_wait_s": 2, "retry_max_s": 1},
            "haproxy": {"conf": str(haproxy.conf if haproxy else folder / "generated" / "haproxy.cfg"), "unit": ""},
            "status": {"listen": ""},
        }
        for section, items in ({} if haproxy else self.producer_settings).items():
            values[section] = values.get(section, {}) | items
        if haproxy:
            values["haproxy"] |= {
                "master_socket": haproxy.master_socket,
                "pid_file": str(haproxy.pid_file),
                "reload_method": "master",
            }
        lines = []
        for section, items in values.items():
            lines += [f"[{section}]"] if section else []
            lines += [f"{key} = {json.dumps(value)}" for key, value in items.items() if value != []]
        path = folder / "pyconfd.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def balancer(self, name: str) -> HaproxyProcess:
        """Give an haproxy that is not started yet."""
        folder = self.folder / name
        (folder / "generated").mkdir(parents=True, exist_ok=True)
        return self._stack.enter_context(HaproxyProcess(folder, conf=folder / "generated" / "haproxy.cfg"))

    def start(self, command: str, config: Path) -> subprocess.Popen[bytes]:
        """Start ``pyconfd COMMAND`` as a process of its own."""
        with (config.parent / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pyconfd", command, "--config", str(config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(),
            )  # fmt: skip
        self._processes.append(process)
        return process

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a pyconfd command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "pyconfd", *arguments],
            capture_output=True, text=True, check=False, env=_environment(), timeout=60,
        )  # fmt: skip

    @staticmethod
    def kill(process: subprocess.Popen[bytes]) -> None:
        """End a process without letting it say good-bye."""
        process.send_signal(signal.SIGKILL)
        process.wait()

    def status(self, config: Path) -> dict[str, Any]:
        """Give what ``pyconfd status`` says; asked again and again, so without a process for each time."""
        settings = resolve({"config": str(config)}, {}).settings
        known = read_report(settings).status
        return dict(json.loads(document.encode(known))) if known is not None else {}

    def log(self, config: Path) -> str:
        """Give the last lines that a process logged."""
        return "\n".join((config.parent / "log").read_text(encoding="utf-8").splitlines()[-40:])


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYCONFD_")}
