"""A cluster, an etcd, producers and consumers as users start them, and light consumers within the test."""

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyconfd import fragments
from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.cli.commands import etcd as commands
from pyconfd.daemon.base_loop import run_until_stopped
from pyconfd.model.context import EndpointTotals
from pyconfd.model.outcome import Generation
from pyconfd.model.plan import Reload
from pyconfd.model.rendering import OutputFile, Piece, Rendering
from pyconfd.model.status import Status
from pyconfd.predecessors.etcd.campaign import Campaign
from pyconfd.predecessors.etcd.client import EtcdClient
from pyconfd.predecessors.etcd.consuming import Consumer, ConsumerWorld
from pyconfd.predecessors.etcd.local import LocalFiles
from pyconfd.predecessors.etcd.producer import EtcdBalancer
from pyconfd.predecessors.etcd.publication import Keys, KnownGeneration, Pointer, Producer, decode_pointer
from pyconfd.predecessors.etcd.source import PublishedSource
from pyconfd.settings import ApplySettings, HaproxySettings, Settings, resolve
from pyconfd.status import document
from pyconfd.status.document import read_report
from pyconfd.system.clock import SystemClock
from tests.daemon.fakes import FakeBalancer, FakeNotifier
from tests.world import forked
from tests.world.apiserver import ApiServer
from tests.world.appliance import Appliance
from tests.world.backends import Backends
from tests.world.clients import ask
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
        etcd_settings = self.settings.etcd
        world = ConsumerWorld(
            source=PublishedSource(EtcdClient(etcd_settings), Keys(etcd_settings.path), poll_s=etcd_settings.poll_s),
            files=LocalFiles(str(folder)),
            balancer=self.balancer,
            notifier=self.notifier,
            clock=SystemClock(),
            taken=self.taken,
            allowed_holds=lambda: frozenset(self.allowed),
            forget_holds=self.allowed.clear,
            publish=lambda status: None,
        )
        settings = ApplySettings(boot_wait_s=1.0, retry_min_s=0.2, retry_max_s=1.0, reload_interval_s=0.1)
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

    def texts(self) -> list[str]:
        """Return all that was applied."""
        return [stored.rendering.text for stored in self.balancer.disk.history]


KEYS = Keys("/pyconfd/")


@dataclass
class Maker:
    """One producer without a cluster; ``checked`` counts what its HAProxy judged."""

    balancer: EtcdBalancer
    campaign: Campaign
    client: EtcdClient
    checked: list[Rendering]

    def publish(self, text: str, files: tuple[OutputFile, ...] = ()) -> Generation | None:
        """Publish as the loop would; None where there was nothing to do."""
        rendering = Rendering((Piece("01.conf", text),), files)
        plan = self.balancer.plan(rendering)
        if not isinstance(plan, Reload):
            return None
        return self.balancer.apply(rendering, plan, curdate="today", totals=EndpointTotals(1, 2), now=1.0).generation


class Makers:
    """Producers without a cluster, all with the same keys."""

    def __init__(self, etcd: EtcdProcess, folder: Path, stack: ExitStack) -> None:
        self._etcd, self._folder, self._stack = etcd, folder, stack

    def lead(self, name: str, **changes: Any) -> Maker:
        """Return a producer that has just won the election."""
        maker = self.make(name, **changes)
        assert maker.campaign.run_round().leads
        return maker

    def make(self, name: str, *, start: bool = False, **changes: Any) -> Maker:
        # Where no thread renews it, a lease has to outlast a busy machine.
        settings = self._etcd.settings(**{"lease_s": 600.0, **changes})
        voting, writing = EtcdClient(settings), EtcdClient(settings)
        campaign = Campaign(voting, KEYS, name=name, lease_s=settings.lease_s)
        checked: list[Rendering] = []
        balancer = EtcdBalancer(
            writing,
            campaign,
            keys=KEYS,
            check=checked.append,
            files_dir="/f",
            producer=Producer(name, "test"),
            memory=KnownGeneration(str(self._folder / name), "published", "/pyconfd/"),
            keep=settings.keep,
        )
        self._stack.callback(writing.close)
        self._stack.callback(campaign.stop)
        if start:
            campaign.start(lambda: None)
        return Maker(balancer, campaign, writing, checked)


def pointer_in(maker: Maker) -> Pointer:
    value = maker.client.read(KEYS.pointer)
    assert value is not None
    return decode_pointer(value.content)


def text_in(etcd: EtcdProcess) -> str:
    source = PublishedSource(EtcdClient(etcd.settings()), KEYS, poll_s=1)
    reading = source.read_now()
    source.stop()
    assert reading.error is None
    assert reading.published is not None
    return "".join(piece.text for piece in reading.published.pieces)


class EtcdHarness:
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
        self._processes: list[forked.Process] = []
        self._configs: list[Path] = []
        self.light: list[LightConsumer] = []
        self.etcd_settings: dict[str, Any] = {}
        self.producer_settings: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._stack.close()

    def service(self, name: str, *addresses: str) -> None:
        """Create a web service with one pod at each address, named SERVICE-1 and so on."""
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
        """Remove all pods of a service."""
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
        """Return an haproxy that is not started yet."""
        folder = self.folder / name
        (folder / "generated").mkdir(parents=True, exist_ok=True)
        return self._stack.enter_context(HaproxyProcess(folder, conf=folder / "generated" / "haproxy.cfg"))

    def start(self, command: str, config: Path) -> forked.Process:
        """Start ``pyconfd COMMAND`` as a process of its own."""
        self._configs.append(config)
        arguments = [command, "--config", str(config)]
        process = forked.start(arguments, Appliance.environment(), config.parent / "log")
        self._processes.append(process)
        return process

    @staticmethod
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a pyconfd command to its end."""
        return forked.run(arguments, Appliance.environment())

    def publish_once(self, config: Path, *arguments: str) -> str:
        """Publish what the cluster asks for now; return what was printed, and logged."""
        done = self.run("publish", "--once", "--config", str(config), *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def fragments_of(self, preset: str = "") -> Path:
        """Return a directory of this test that producers render from, with the shipped fragments of ``preset``."""
        directory = self.folder / "fragments"
        directory.mkdir(parents=True)
        for name, path in (fragments.of_presets([preset]) if preset else {}).items():
            (directory / name).write_bytes(path.read_bytes())
        self.fragments = str(directory)
        return directory

    def answers(self, *pods: str) -> None:
        """Wait until one of these answers for the service ``shop``."""
        self.until(lambda: ask(self.http, "shop.example.com") in pods)

    def has_phase(self, config: Path, phase: str) -> None:
        """Wait for a phase of the process with these settings."""
        self.until(lambda: self.status(config).get("phase") == phase)

    def note(self, config: Path) -> str:
        """Return the note about the source in the status."""
        return str(self.status(config).get("source", {}).get("note", ""))

    def status(self, config: Path) -> dict[str, Any]:
        """Return what ``pyconfd status`` says; asked again and again, so without a process for each time."""
        settings = resolve({"config": str(config)}, {}).settings
        known = read_report(settings).status
        return dict(json.loads(document.encode(known))) if known is not None else {}

    def until(self, condition: Callable[[], object]) -> None:
        """Wait; a failure shows what all processes and consumers said last."""
        wait_for(condition, lambda: "\n".join([*(self.log(each) for each in self._configs), *map(str, self._seen())]))

    def _seen(self) -> list[Status]:
        return [light.status() for light in self.light]

    def consumer(self, name: str = "light") -> "LightConsumer":
        """Return a light consumer that runs until the harness ends."""
        self.light.append(self._stack.enter_context(LightConsumer(self.etcd, self.folder / name)))
        return self.light[-1]

    def log(self, config: Path) -> str:
        """Return the last lines that a process logged."""
        path = config.parent / "log"
        return "\n".join(path.read_text(encoding="utf-8").splitlines()[-40:]) if path.exists() else ""
