"""A real haproxy in master-worker mode on high ports, started and stopped by a test or the demo."""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from pyconfd.haproxy.master_socket import NoAnswer, ask, running_by_master
from pyconfd.haproxy.observation import Running
from pyconfd.settings import HaproxySettings, ReloadMethod

BINARY_VARIABLE = "PYCONFD_TEST_HAPROXY"
"""Names another haproxy for the tests, as tests/matrix.py does."""

BINARY = (
    os.environ.get(BINARY_VARIABLE)
    or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    or "/usr/sbin/haproxy"
)


_handed_out: set[int] = set()
_chance = random.SystemRandom()  # a seeded generator would give parallel test runs the same ports


def free_port(address: str = "127.0.0.1") -> int:
    """Give a port that was free a moment ago, never twice in this process.

    It is below the range from which Linux takes the ports of outgoing connections: one of those may come at any time.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    while True:
        port = _chance.randrange(10_240, 32_000)
        with socket.socket(family) as probe, suppress(OSError):
            probe.bind((address, port))
            if port not in _handed_out:
                _handed_out.add(port)
                return port


def wait_until(condition: Callable[[], object], what: str, *, limit_s: float = 30.0, pause_s: float = 0.02) -> float:
    """Wait for ``condition``, give the seconds that took; an AssertionError names ``what`` after ``limit_s``."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit_s:
            raise AssertionError(f"not within {limit_s:g} s: {what}")
        time.sleep(pause_s)
    return time.monotonic() - began


class HaproxyProcess:
    """``haproxy -W -S <socket> -p <pid file> -f <conf>``.

    ``directory`` holds ``haproxy.cfg`` (written by whoever wants to), the log and the pid file; the sockets are in a
    short directory of their own, since the path of a UNIX socket may have 107 bytes.
    """

    def __init__(self, directory: Path, *, conf: Path | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.conf = conf or directory / "haproxy.cfg"
        self.log = directory / "haproxy.log"
        self.pid_file = directory / "haproxy.pid"
        self._sockets = Path(tempfile.mkdtemp(prefix="hap-"))
        self.master_socket = str(self._sockets / "m")
        self.stats_socket = str(self._sockets / "s")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def settings(self, **changes: Any) -> HaproxySettings:
        """Give the settings by which pyconfd controls this process."""
        return replace(
            HaproxySettings(
                conf=str(self.conf),
                binary=BINARY,
                master_socket=self.master_socket,
                pid_file=str(self.pid_file),
                reload_method=ReloadMethod.MASTER,
                reload_timeout_s=15.0,
                unit="",
            ),
            **changes,
        )

    def start(self, *, wait: bool = True) -> None:
        """Start with what ``conf`` holds; by default wait until the worker answers."""
        argv = [BINARY, "-W", "-S", self.master_socket, "-p", str(self.pid_file), "-f", str(self.conf)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if wait:
            wait_until(lambda: self.running() is not None, f"haproxy is up\n{self.log.read_text()}")

    def running(self) -> Running | None:
        """Give what the newest worker says, None while it does not answer."""
        try:
            return running_by_master(self.master_socket)
        except NoAnswer:
            return None

    def reports_reloads(self) -> bool:
        """Say whether the master's ``reload`` tells how it went, as it does since 2.7."""
        return "startup-logs" in ask(self.master_socket, "help")

    def stop(self) -> None:
        """End the master, every worker, and wait for them."""
        if self._process is None:
            return
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(self._process.pid).children(recursive=True)
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)
        self._process = None

    def close(self) -> None:
        """Stop, and remove the sockets."""
        self.stop()
        shutil.rmtree(self._sockets, ignore_errors=True)


def configuration(port: int, answer: str = "ok", *, extra: str = "", global_lines: str = "") -> str:
    """Give a configuration that answers every request on ``port`` with ``answer``."""
    return f"""global
    maxconn 200
    {global_lines}
defaults
    mode http
    option idle-close-on-response
    timeout connect 2s
    timeout client 30s
    timeout server 30s
frontend fe_main
    bind 127.0.0.1:{port}
    http-request return status 200 content-type text/plain string "{answer}"
{extra}"""


def fetch(port: int, *, timeout_s: float = 10.0) -> str:
    """Ask ``port`` once over a connection of its own; give the body."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
        answer = bytearray()
        while chunk := connection.recv(65536):
            answer += chunk
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise AssertionError(f"not answered with 200: {head!r}")
    return body.decode()
