"""A real nginx as a target of pyconfd: its settings as pyconfd's users would write them, and the process."""

import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyconfd import examples

BINARY = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin") or ""
TEMPLATES = Path(str(examples.__path__[0])) / "kube2lb"


class NginxProcess:
    """``nginx`` in the foreground, on what pyconfd wrote to ``conf``; leaving the ``with`` ends it."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        folder.mkdir(parents=True, exist_ok=True)
        self.conf = folder / "nginx.conf"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def variables(self) -> dict[str, str]:
        """What the example needs under ``[templates.vars]``."""
        return {"nginx_pid": f"{self.folder}/pid", "nginx_logs": str(self.folder), "nginx_address": self.address}

    @property
    def target(self) -> dict[str, Any]:
        """The table under ``[[targets]]``."""
        return {
            "name": "nginx",
            "template": str(TEMPLATES / "nginx" / "nginx.conf.tmpl"),
            "output": str(self.conf),
            "check": [BINARY, "-t", "-q", "-e", f"{self.folder}/error.log", "-c"],
            "notify": f"pidfile:SIGHUP:{self.folder}/pid",
        }

    def start(self) -> None:
        """Start it."""
        argv = [BINARY, "-e", f"{self.folder}/error.log", "-c", str(self.conf), "-g", "daemon off;"]
        with (self.folder / "nginx.log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
