"""Nodes as they are in the field: a real haproxy, and ``pyconfd dns`` as a process."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from click.testing import CliRunner, Result

from pyconfd.cli.main import cli
from pyconfd.model.outcome import Generation
from pyconfd.model.status import Phase, Status
from pyconfd.status import document
from tests.dns.stage import NAME
from tests.dns.strict import StrictRoute53
from tests.dns.wire import CREDENTIALS
from tests.world import forked
from tests.world.haproxy import HaproxyProcess, configuration, free_port, wait_until

LIMIT_S = 60.0


@dataclass
class FieldNode:
    """One node below ``folder``; ``url`` is where its Route 53 is, ``around`` more of its environment."""

    folder: Path
    name: str
    address: str
    url: str
    port: int = field(default_factory=free_port)
    around: dict[str, str] = field(default_factory=dict)
    _service: forked.Process | None = None

    def __post_init__(self) -> None:
        self.haproxy = HaproxyProcess(self.folder / "haproxy")
        lines = f"stats socket {self.haproxy.stats_socket} mode 600 level admin"
        self.haproxy.conf.write_text(configuration(self.port, global_lines=lines))
        (self.folder / "run").mkdir()
        status = Status(time.time(), "1", 1, 1.0, 1.0, Phase.SERVING, generation=Generation(1, "d", 1.0))
        (self.folder / "run" / "status.json").write_bytes(document.encode(status))

    def __enter__(self) -> Self:
        self.haproxy.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.haproxy.close()

    @property
    def log(self) -> str:
        path = self.folder / "dns.log"
        return path.read_text() if path.exists() else ""

    @property
    def report(self) -> dict[str, Any]:
        """What the service that runs now said of itself last; its turn ends with it, after the log."""
        path = self.folder / "run" / "dns-status.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found if found.get("pid") == self.service.pid else {}

    def hook_says(self, vip: str, *, holds: bool, drained: bool = False) -> dict[str, str]:
        """Leave a report behind as ``pyconfd-vip`` does; return the settings that lead to it."""
        folder = self.folder / "vip"
        folder.mkdir(exist_ok=True)
        router = {"addresses": [f"{vip}/24"], "holds": holds, "holder": "lb2", "rivals": []}
        router |= {"drained": {"at": 1.0} if drained else None}
        (folder / "new").write_text(json.dumps({"at": time.time(), "routers": [router]}))
        (folder / "new").replace(folder / "status.json")
        return {"VIP_INTERFACE": "lo", "VIP_RUNTIME_DIR": str(folder)}

    def environ(self, **changes: str) -> dict[str, str]:
        settings = {
            "CONFIG": "",
            "DNS_NAMES": NAME,
            "DNS_OWNER": "prod",
            "DNS_NODE": self.name,
            "DNS_ADDRESS": self.address,
            "DNS_ACCEPT_DEAD_NODES": "yes",
            "DNS_FRONTENDS": f"http://127.0.0.1:{self.port}/",
            "DNS_ENDPOINT_URL": self.url,
            "DNS_LOOK_S": "0.1",
            "DNS_HOLD_S": "0",
            "DNS_NODES": "1",
            "DNS_INTERVAL_S": "10",
            "DNS_TTL_S": "1",
            "HAPROXY_RUNTIME_SOCKET": self.haproxy.stats_socket,
            "RUNTIME_DIR": str(self.folder / "run"),
            "STATE_DIR": str(self.folder / "state"),
            **changes,
        }
        return {
            "PATH": os.environ["PATH"],
            "AWS_EC2_METADATA_DISABLED": "true",
            **CREDENTIALS,
            **self.around,
            **{f"PYCONFD_{key}": value for key, value in settings.items()},
        }

    @property
    def service(self) -> forked.Process:
        assert self._service is not None
        return self._service

    def run(self, **changes: str) -> None:
        self._service = forked.start(("dns", "run"), self.environ(**changes), self.folder / "dns.log")

    def stop(self) -> int:
        if self._service is None:
            return 0
        self._service.send_signal(signal.SIGTERM)
        try:
            return self._service.wait(30)
        finally:
            self._service.kill()
            self._service = None

    def kill(self) -> None:
        assert self._service is not None
        self._service.kill()
        self._service.wait()
        self._service = None

    def pyconfd(self, *arguments: str, **changes: str) -> Result:
        """Run a command of ``pyconfd dns`` in this process, with this node's environment."""
        hidden = {name: None for name in os.environ if name.startswith(("PYCONFD_", "AWS_"))}
        # Route53 writes these two; given here, they are put back.
        environ = hidden | {"no_proxy": "", "NO_PROXY": ""} | self.environ(**changes)
        return CliRunner().invoke(cli, ["dns", *arguments], env=environ)


def until(condition: Callable[[], object], what: str) -> None:
    wait_until(condition, what, limit_s=LIMIT_S)


def answers(provider: StrictRoute53, *nodes: FieldNode) -> None:
    wanted = tuple(sorted(node.address for node in nodes))
    until(lambda: provider.answer(NAME, "A") == wanted, f"the answer is {wanted}")
