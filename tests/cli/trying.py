"""``pyconfd try`` as users start it, and what it printed."""

import json
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

import psutil

from pyconfd.fragments import directory
from tests.world.appliance import Appliance
from tests.world.haproxy import BINARY, wait_until

TRANSCRIPTS = Path(__file__).parent.parent / "data" / "kubernetes-transcripts"


CLUSTER = f"{directory()}/tests/cluster.yaml"


class Trying:
    """One run; leaving the ``with`` ends it."""

    def __init__(self, scratch: Path, *arguments: str) -> None:
        self.scratch = scratch / "tmp"
        self.scratch.mkdir(exist_ok=True)
        self.lines: list[str] = []
        environment = Appliance.environment(TMPDIR=str(self.scratch), PYTHONUNBUFFERED="1")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pyconfd", "try", "--haproxy-binary", BINARY, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def until(self, wanted: str, count: int = 1) -> str:
        """Wait until a line has this; give the last of them."""

        def told() -> bool:
            found = sum(wanted in line for line in list(self.lines))
            if found < count and self.process.poll() is not None and not self._reader.is_alive():
                raise AssertionError(f"it ended with {self.process.returncode}\n{self.text}")
            return found >= count

        try:
            wait_until(told, f"{wanted!r} is told", limit_s=90)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from error
        return next(line for line in reversed(self.lines) if wanted in line)

    def port_of(self, url: str) -> int:
        """Give the port that the command below a row names."""
        row = max(number for number, line in enumerate(self.lines) if f" {url} " in line)
        found = re.search(r"127\.0\.0\.1:(\d+)|127\.0\.0\.1 (\d+)|:(\d+):127\.0\.0\.1", self.lines[row + 1])
        assert found, self.text
        return int(next(filter(None, found.groups())))

    def command_of(self, url: str) -> list[str]:
        row = max(number for number, line in enumerate(self.lines) if f" {url} " in line)
        return shlex.split(self.lines[row + 1], comments=True)

    def stop(self) -> int:
        """Press Ctrl-C once and wait."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(60)
        self._reader.join(10)
        return code

    def family(self) -> list[psutil.Process]:
        """Give the processes that it began."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def left_behind(self) -> list[str]:
        return sorted(path.name for path in self.scratch.iterdir())


def transcripts(folder: Path) -> list[str]:
    """Write what a real API server listed, as kubectl would print it; give the options."""
    options = []
    for name in ("services", "endpoints", "endpointslices", "nodes"):
        body = json.loads((TRANSCRIPTS / f"list-{name}.json").read_text())["body"]
        path = folder / f"{name}.json"
        path.write_text(json.dumps(body))
        options += ["--snapshot", str(path)]
    return options
