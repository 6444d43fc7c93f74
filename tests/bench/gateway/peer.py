"""haproxy-ingress beside pyconfd: the same objects on the same control plane, asked by the same client.

It runs in two forms: as it is, and with the settings that its documentation names for fast updates.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

import psutil

from tests.bench.gateway.harness import Api, Harness
from tests.bench.gateway.objects import NAMESPACE, config_map, ingress_class
from tests.conformance.controlplane import ControlPlane
from tests.world.appliance import Appliance
from tests.world.haproxy import free_port

CLASS, CONTROLLER = "haproxy", "haproxy-ingress.github.io/controller"
CONFIG = "haproxy-ingress"
TUNED = ("--rate-limit-update=10", "--wait-before-update=0s", "--reload-interval=0s")
"""Source: docs/content/en/docs/configuration/command-line.md of haproxy-ingress 0.16."""
FORMS: Mapping[str, tuple[str, ...]] = MappingProxyType({"default": (), "tuned": TUNED})
_RELOADED = "haproxy successfully reloaded"


class Peer(Harness):
    """A running haproxy-ingress; ``checkout`` is one of its repository, with ``bin/controller``."""

    def __init__(self, plane: ControlPlane, appliance: Appliance, checkout: Path, form: str) -> None:
        super().__init__(Api(plane), appliance)
        self.class_name = CLASS
        # Its names of maps are made by cutting the path at a dot.
        self._folder = Path(tempfile.mkdtemp(prefix=f"peer-{form}-"))
        self._port, self._form, self._checkout, self._plane = free_port(), form, checkout, plane
        self._process: psutil.Popen | None = None

    @property
    def ingresses(self) -> tuple[str, int]:
        """Where Ingresses are served."""
        return "127.0.0.1", self._port

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run it with a configuration and files of its own."""
        lua = self._folder / "etc/haproxy/lua"
        shutil.copytree(self._checkout / "rootfs/etc/lua", lua)
        (lua / "json.lua").write_text("return {}\n")  # its image has lua-json; only external authentication uses it
        ports = {name: str(free_port()) for name in ("https-port", "stats-port", "healthz-port")}
        made = [ingress_class(CLASS, CONTROLLER), config_map(CONFIG, {"http-port": str(self._port), **ports})]
        self.api.create_all(made)
        command = [str(self._checkout / "bin/controller"), f"--kubeconfig={self._plane.kubeconfig}"]
        command += [f"--local-filesystem-prefix={self._folder}", f"--configmap={NAMESPACE}/{CONFIG}"]
        command += ["--update-status=false", "--watch-gateway=false", "--healthz-port=0", *FORMS[self._form]]
        with self._log.open("wb") as log:
            # It finds its templates in its working directory.
            self._process = psutil.Popen(command, cwd=self._checkout, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            for each in self._haproxy():
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            self._process.kill()
            self._process.wait()
            self.api.delete_all(made)

    def settled(self) -> bool:
        """Whether nothing waits: no line was logged for a second."""
        return time.time() - self._log.stat().st_mtime > 1.0

    def tail(self) -> str:
        """Return what it logged last."""
        return self._log.read_text(errors="replace")[-2000:]

    @contextmanager
    def counted(self, figures: dict[str, object]) -> Iterator[None]:
        """Add to ``figures`` what a test took; of a haproxy that ended meanwhile its processor time is missing."""
        before, began = self._peer_counters(), time.monotonic()
        yield
        for name, value in self._peer_counters().items():
            figures[name] = round(value - before[name], 2)
        assert self._process is not None
        figures["seconds"] = round(time.monotonic() - began, 1)
        figures["peer_mb"] = round(self._process.memory_info().rss / 1e6)
        figures["load_average"] = round(os.getloadavg()[0], 1)

    @property
    def _log(self) -> Path:
        return self._folder / "controller.log"

    def _peer_counters(self) -> dict[str, float]:
        assert self._process is not None
        said = self._log.read_text(errors="replace")
        return {"reloads": said.count(_RELOADED), "peer_cpu_s": sum(self._process.cpu_times()[:4])}

    def _haproxy(self) -> list[psutil.Process]:
        """Return the processes of haproxy that run its configuration."""
        mine = str(self._folder)
        return [
            each
            for each in psutil.process_iter(["cmdline"])
            if mine in " ".join(each.info["cmdline"] or ()) and each.name() == "haproxy"
        ]
