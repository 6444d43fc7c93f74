"""A whole load balancer: a cluster behind API servers, pods, a real haproxy, and pyconfd as users start it."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyconfd import fragments
from pyconfd.model.context import PresetName
from pyconfd.settings.table import TABLE
from tests.world import forked
from tests.world.apiserver import ApiServer
from tests.world.backends import Backends
from tests.world.clients import ask
from tests.world.cluster import Cluster
from tests.world.haproxy import BINARY, HaproxyProcess, free_port, wait_until
from tests.world.log import json_lines
from tests.world.objects import EndpointSpec, PortSpec

NAMESPACE = "demo"
PATIENCE_S = 90.0
"""How long anything may take on a busy machine; longer than the longest search for a culprit, 30 s."""
_OWN_NAMES = frozenset(name for row in TABLE.values() for name in row.envs) | {"NOTIFY_SOCKET"}


class Appliance:
    """Everything in one folder, on loopback; leaving the ``with`` ends it all, whatever happened.

    ``values`` are the settings by section; :meth:`start` and :meth:`spawn` write them to ``config``.
    """

    pod_network = "127.18"
    """The first half of the addresses of pods."""

    def __init__(self, folder: Path, *, api_servers: int = 1, cluster: Cluster | None = None) -> None:
        self._stack = ExitStack()
        self.folder = folder
        self.cluster = cluster or Cluster()
        self.cluster.add_namespace("pyconfd")  # as pyconfd rbac does: the Lease of the writer of statuses is there
        self.pods = self._stack.enter_context(Backends(free_port()))
        self.servers: list[ApiServer] = []
        (folder / "generated").mkdir()
        self.haproxy = self._stack.enter_context(HaproxyProcess(folder, conf=folder / "generated" / "haproxy.cfg"))
        self.http, self.https, self.stats, self.redis, self.page = (free_port() for _ in range(5))
        self.config = folder / "pyconfd.toml"
        self.log = folder / "pyconfd.log"
        self.daemon: forked.Process | None = None
        self.launcher: tuple[str, ...] = ()
        """Comes before the daemon's command line; it must end in ``exec``."""
        self.forks = True
        """Spare pyconfd its imports where it starts without a launcher; False starts the very command of users."""
        self.values = self._defaults()
        self._members: dict[str, list[EndpointSpec]] = {}
        self._started: dict[str, int] = {}
        for _ in range(api_servers):
            self.add_api_server()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._stack.close()

    # The cluster

    def add_api_server(self, **options: Any) -> ApiServer:
        """Start one more API server of the cluster, and put it behind the others in the settings."""
        server = self._stack.enter_context(ApiServer(self.cluster, **options))
        self.servers.append(server)
        self.values["kubernetes"]["api_servers"] = [each.url for each in self.servers]
        return server

    def serve(
        self, name: str, annotations: Mapping[str, str] | None = None, *, pods: int = 1, kind: str = "ClusterIP"
    ) -> None:
        """Create a Service with pods; by default it asks for ``<name>.example.com``."""
        annotations = {"domain": f"{name}.example.com", "proto": "http"} if annotations is None else annotations
        is_redis = annotations.get("proto") == "redis"
        port = PortSpec(name="redis" if is_redis else "web", port=6379 if is_redis else 80, target=self.pods.port)
        self.cluster.add_service(NAMESPACE, name, ports=[port], annotations=annotations, type=kind)
        self._members[name] = []
        for _ in range(pods):
            self.scale_up(name)

    def scale_up(self, name: str) -> str:
        """Start one more pod of a Service; return its name."""
        number = self._started[name] = self._started.get(name, 0) + 1
        pod, block = f"{name}-{number}", 10 + list(self._members).index(name)
        address = f"{self.pod_network}.{block}.{number}"
        self.pods.add(pod, address)
        self._write(name, [*self._members[name], EndpointSpec(address, pod=pod, node=f"node-{number % 2 + 1}")])
        return pod

    def terminate(self, name: str, pod: str) -> None:
        """Mark a pod as terminating: it serves what it has begun and gets nothing new."""
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

    def members(self, name: str) -> list[EndpointSpec]:
        """Return the pods of a Service as they are now."""
        return list(self._members[name])

    def _write(self, name: str, members: list[EndpointSpec]) -> None:
        self._members[name] = members
        self.cluster.set_endpoints(NAMESPACE, name, members)

    # pyconfd

    def own_fragments(self, *presets: str) -> Path:
        """Copy the fragments that are shipped for presets to a directory that the test may edit; return it."""
        directory = self.folder / "templates"
        directory.mkdir()
        for name, source in fragments.of_presets(presets or (PresetName.DOMAINS,)).items():
            (directory / name).write_bytes(source.read_bytes())
        self.values["templates"]["dir"] = str(directory)
        return directory

    def reload_always(self) -> None:
        """Render no runtime socket, so that every change is a reload."""
        self.values["templates.vars"]["runtime_socket"] = ""

    def write_settings(self) -> None:
        """Write ``values`` to ``config``."""
        lines = []
        for section, items in self.values.items():
            lines += [f"[{section}]"] if section else []
            lines += [f"{key} = {json.dumps(value)}" for key, value in items.items()]
        self.config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def spawn(self, *arguments: str, **environment: str) -> None:
        """Start pyconfd, by default as ``pyconfd run --config``, and do not wait."""
        self.write_settings()
        arguments = arguments or ("run", "--config", str(self.config))
        given = self.environment(**environment)
        if not self.launcher:
            self.daemon = forked.start(arguments, given, self.log, forks=self.forks)
            return
        argv = [*self.launcher, sys.executable, "-m", "pyconfd", *arguments]
        with self.log.open("ab") as log:
            self.daemon = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=given)

    def start(self, *arguments: str, **environment: str) -> None:
        """Start pyconfd with no configuration there; haproxy as soon as there is one, as its unit would."""
        self.spawn(*arguments, **environment)
        self.until(self.haproxy.conf.exists, "pyconfd writes the first configuration")
        self.haproxy.start()

    def stop(self) -> int | None:
        """Stop pyconfd as systemd would; return its exit status, None if it did not run."""
        daemon, self.daemon = self.daemon, None
        if daemon is None:
            return None
        if daemon.poll() is None:
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        return daemon.returncode

    def kill(self) -> None:
        """Kill pyconfd without a warning."""
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait()
            self.daemon = None

    def hang_up(self) -> None:
        """Ask pyconfd to read its settings again, as ``systemctl reload`` does."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGHUP)

    def reload_settings(self) -> None:
        """Hang up, and wait until pyconfd has read its settings again; the log must be JSON."""
        before = len(self.events("daemon.started"))
        self.hang_up()
        self.until(lambda: len(self.events("daemon.started")) > before, "it restarts")

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of pyconfd to its end, outside of what the launcher makes for the daemon."""
        return forked.run(arguments, self.environment(**environment), forks=self.forks)

    def command(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of pyconfd with the settings of the daemon."""
        return self.run(name, "--config", str(self.config), *arguments)

    @staticmethod
    def environment(**more: str) -> dict[str, str]:
        """Return this process's environment without what pyconfd would take for settings, and with ``more``."""
        kept = {name: value for name, value in os.environ.items() if name not in _OWN_NAMES}
        return {name: value for name, value in kept.items() if not name.startswith("PYCONFD_")} | more

    # What is seen

    def get(self, path: str) -> tuple[int, str]:
        """Ask the status page; 0 where it does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.page, timeout=PATIENCE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        """Return what the daemon says of itself; empty where it does not answer."""
        code, body = self.get("/status.json")
        found: dict[str, Any] = json.loads(body) if code == http.HTTPStatus.OK else {}
        return found

    @property
    def phase(self) -> str:
        """What the daemon does, in one word; "" where it does not answer."""
        return str(self.status().get("phase", ""))

    @property
    def generation(self) -> int:
        """The number of the generation that serves; 0 before the first."""
        return int((self.status().get("generation") or {}).get("number", 0))

    def ask(self, name: str) -> str:
        """Ask for ``<name>.example.com`` through the balancer; return the pod that answered, or the status code."""
        return ask(self.http, f"{name}.example.com")

    def settled(self) -> bool:
        """Whether all that came in is applied, and was verified in the process."""
        status = self.status()
        return status.get("phase") == "serving" and status["verified"] and status["pending_since"] == 0

    def written(self) -> bool:
        """Whether the file has what runtime updates changed, which it follows."""
        return "\npyconfd_file_behind 0.0\n" in self.get("/metrics")[1]

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """Return the lines of the log with this event, or all; only where the settings say ``log.format = "json"``."""
        return [line for line in json_lines(self.log) if name in {"", line["event"]}]

    def until(self, condition: Callable[[], object], what: str) -> float:
        """Wait, unless pyconfd ends meanwhile; return the seconds. Raises: AssertionError."""

        def over() -> object:
            if self.daemon is not None and self.daemon.poll() is not None:
                raise AssertionError(f"pyconfd ended with {self.daemon.returncode}, waiting for: {what}\n{self.tail()}")
            return condition()

        try:
            return wait_until(over, what, limit_s=PATIENCE_S, pause_s=0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tail()}") from error

    def tail(self, lines: int = 25) -> str:
        """Return the end of pyconfd's log."""
        found: Sequence[str] = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else ()
        return "\n".join(f"   | {line}" for line in found[-lines:])

    def _defaults(self) -> dict[str, dict[str, Any]]:
        return {
            "": {"state_dir": f"{self.folder}/state", "runtime_dir": f"{self.folder}/run"},
            "kubernetes": {"api_servers": []},
            "templates": {"dir": fragments.directory()},
            "templates.vars": {
                "http_bind": f"127.0.0.1:{self.http}",
                "https_bind": f"127.0.0.1:{self.https}",
                "stats_bind": f"127.0.0.1:{self.stats}",
                "tcp_address": "127.0.0.1",
                "runtime_socket": self.haproxy.stats_socket,
            },
            "presets": {"listen_ports": ["1024-65535"]},
            "claims": {"allow_endpoints": ["127.0.0.0/8", "::1", f"{self.pod_network}.0.0/16"]},
            "haproxy": {
                "conf": str(self.haproxy.conf),
                "binary": BINARY,
                "master_socket": self.haproxy.master_socket,
                "pid_file": str(self.haproxy.pid_file),
                "reload_method": "master",
                "unit": "",
            },
            "status": {"listen": f"127.0.0.1:{self.page}"},
        }
