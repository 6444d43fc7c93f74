"""What the tests of the balancer share: a balancer, its real haproxy and its state on disk."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.haproxy.runtime.overrides import Override, OverrideStore
from pyconfd.haproxy.runtime.servers_now import servers_now
from pyconfd.haproxy.runtime.sockets import ask
from pyconfd.model.context import EndpointTotals
from pyconfd.model.operations import ServerState
from pyconfd.model.outcome import Applied, Deferred
from pyconfd.model.plan import Noop, Reload, RuntimeUpdate
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from pyconfd.settings import ApplySettings
from tests.world.haproxy import HaproxyProcess, configuration, free_port, wait_until


def rendering(*texts: str, files: tuple[OutputFile, ...] = ()) -> Rendering:
    pieces = tuple(Piece(f"{number:02}-part.tmpl", text) for number, text in enumerate(texts, start=1))
    return Rendering(pieces, tuple(sorted(files, key=lambda file: file.path)))


@dataclass
class Bench:
    """``haproxy`` is not started before :meth:`serve` or the test does it."""

    directory: Path
    haproxy: HaproxyProcess
    port: int = field(default_factory=free_port)
    latest: Balancer | None = None

    def balancer(self, **changes: Any) -> Balancer:
        """Return a new one, as after a restart of pyconfd: the one before loses its lock."""
        self.close()
        settings = self.haproxy.settings(**changes)
        self.latest = Balancer(settings, ApplySettings(keep_generations=5), self.state_dir, unit=UnitFacts())
        return self.latest

    def close(self) -> None:
        if self.latest is not None:
            self.latest.close()

    @property
    def state_dir(self) -> str:
        return str(self.directory / "state")

    @property
    def conf(self) -> Path:
        return self.haproxy.conf

    def rendering(self, answer: str = "ok", *, extra: str = "", files: tuple[OutputFile, ...] = ()) -> Rendering:
        return rendering(configuration(self.port, answer), extra, files=files)

    def map_file(self, content: str, name: str = "hosts.map") -> OutputFile:
        return OutputFile(FileKind.MAP, str(self.conf.parent / "files" / "maps" / name), content)

    def certificate(self, content: str, name: str = "site.pem") -> OutputFile:
        return OutputFile(FileKind.CERTIFICATE, str(self.conf.parent / "files" / "certs" / name), content)

    def serve(self, answer: str = "first") -> Balancer:
        """Start haproxy with the first generation of pyconfd."""
        self.conf.write_text(configuration(self.port, "before pyconfd"))
        self.haproxy.start()
        balancer = self.balancer()
        balancer.startup()
        apply(balancer, self.rendering(answer))
        return balancer

    def start_when_there_is_a_file(self) -> None:
        wait_until(self.conf.exists, "a configuration to start with")
        self.haproxy.start()

    def temporary_files(self) -> list[Path]:
        return list(self.directory.rglob(".pyconfd-*"))


def apply(balancer: Balancer, desired: Rendering, *, now: float = 1000.0) -> Applied:
    plan = balancer.plan(desired)
    assert isinstance(plan, Reload), plan
    return balancer.apply(desired, plan, curdate="2024-01-01", now=now)


@contextmanager
def small_disk(path: Path, *, kilobytes: int = 256) -> Iterator[Path]:
    """Mount a small file system, as root."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)


TEXT = """global
    stats socket {socket} mode 600 level admin
defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
frontend fe
    bind 127.0.0.1:{port}
    default_backend be
backend be
    balance roundrobin
"""


class Live:
    """A balancer with its haproxy, which serves ``members`` of one backend."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.extra = ""
        self.balancer = bench.balancer()
        self.balancer.startup()

    def rendering(self, *members: int) -> Rendering:
        lines = "".join(f"    server s{one} 127.0.0.1:{9000 + one} id {one}\n" for one in members)
        head = TEXT.format(socket=self.bench.haproxy.stats_socket, port=self.bench.port)
        return Rendering((Piece("01-part.tmpl", head + lines, self.extra or "\n"),))

    def begin(self, *members: int) -> None:
        """Serve, and let the balancer see that all is level."""
        first = self.rendering(*members)
        self.bench.conf.write_text(first.text)
        self.bench.haproxy.start()
        self.reload(first)
        assert isinstance(self.balancer.refresh(), Noop)

    def reload(self, rendering: Rendering) -> Applied:
        plan = self.balancer.plan(rendering)
        assert isinstance(plan, Reload), plan
        return self.balancer.apply(rendering, plan, curdate="", now=1.0, totals=EndpointTotals())

    def change(self, *members: int) -> Applied | Reload:
        wanted = self.rendering(*members)
        plan = self.balancer.plan(wanted)
        assert isinstance(plan, RuntimeUpdate), plan
        done = self.balancer.change(wanted, plan, curdate="", now=2.0, totals=EndpointTotals())
        assert not isinstance(done, Deferred)  # all at once
        return done

    def follow(self) -> None:
        wait_until(lambda: not self.balancer.file_behind, "the file is level")

    def override(self, server: str, state: ServerState) -> None:
        """Store what an operator sets with ``pyconfd server``."""
        with OverrideStore(self.bench.state_dir).edited() as stored:
            made = Override("be", server, state, 1.0)
            stored[made.key] = made

    def ask(self, command: str) -> str:
        return ask(self.bench.haproxy.stats_socket, command)

    def serving(self) -> set[str]:
        """Return the servers of the process that take traffic."""
        state = self.ask("show servers state be")
        return {one.name for one in servers_now(state) if not (one.drain or one.maint)}

    def worker(self) -> int:
        return self.bench.haproxy.worker()
