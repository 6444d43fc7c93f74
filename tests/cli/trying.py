"""``pyconfd try`` as users start it, and what it printed."""

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Self

import psutil

from pyconfd.fragments import directory
from tests.world import forked
from tests.world.appliance import Appliance
from tests.world.haproxy import BINARY, wait_until

TRANSCRIPTS = Path(__file__).parent.parent / "data" / "kubernetes-transcripts"


CLUSTER = f"{directory()}/tests/cluster.yaml"


class Trying:
    """One run; leaving the ``with`` ends it."""

    def __init__(self, scratch: Path, *arguments: str) -> None:
        self.scratch = scratch / "tmp"
        self.scratch.mkdir(exist_ok=True)
        self.log = scratch / "said.log"
        environment = Appliance.environment(TMPDIR=str(self.scratch))
        self.process = forked.start(["try", "--haproxy-binary", BINARY, *arguments], environment, self.log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def lines(self) -> list[str]:
        return self.log.read_text().split("\n")[:-1] if self.log.exists() else []

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def until(self, wanted: str, count: int = 1) -> str:
        """Wait until a line has this; return the last of them."""

        def told() -> bool:
            ended = self.process.poll() is not None
            found = sum(wanted in line for line in self.lines)
            if found < count and ended:
                raise AssertionError(f"it ended with {self.process.returncode}\n{self.text}")
            return found >= count

        try:
            wait_until(told, f"{wanted!r} is told", limit_s=90)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from error
        return next(line for line in reversed(self.lines) if wanted in line)

    def port_of(self, url: str) -> int:
        """Return the port that the command below a row names."""
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
        return self.process.wait(60)

    def family(self) -> list[psutil.Process]:
        """Return the processes that it began."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def left_behind(self) -> list[str]:
        return sorted(path.name for path in self.scratch.iterdir())


def transcripts(folder: Path) -> list[str]:
    """Write what a real API server listed, as kubectl would print it; return the options."""
    options = []
    for name in ("services", "endpoints", "endpointslices", "nodes"):
        body = json.loads((TRANSCRIPTS / f"list-{name}.json").read_text())["body"]
        path = folder / f"{name}.json"
        path.write_text(json.dumps(body))
        options += ["--snapshot", str(path)]
    return options
