"""A real haproxy in master-worker mode on high ports, started and stopped by a test or the demo."""

import os
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyconfd.haproxy.runtime.sockets import NoAnswer, ask, is_accepting
from pyconfd.trying.own_haproxy import OwnHaproxy
from tests.world.ports import free

BINARY_VARIABLE = "PYCONFD_TEST_HAPROXY"
"""Names another haproxy for the tests, as tests/matrix.py does."""

BINARY = (
    os.environ.get(BINARY_VARIABLE)
    or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    or "/usr/sbin/haproxy"
)


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port that was free a moment ago, never twice in this process, nor to any other one that asks here.

    It is below the range from which Linux takes the ports of outgoing connections: one of those may come at any time.
    """
    return free(10_240, 32_000, address)


def wait_until(condition: Callable[[], object], what: str, *, limit_s: float = 60.0, pause_s: float = 0.02) -> float:
    """Wait for ``condition``, return the seconds that took; an AssertionError names ``what`` after ``limit_s``."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit_s:
            raise AssertionError(f"not within {limit_s:g} s: {what}")
        time.sleep(pause_s)
    return time.monotonic() - began


class HaproxyProcess(OwnHaproxy):
    """The haproxy under test."""

    def __init__(self, directory: Path, *, conf: Path | None = None) -> None:
        super().__init__(directory, BINARY, conf=conf)

    def start(self, *, wait: bool = True) -> None:
        """Start with what ``conf`` holds; by default wait until the worker answers."""
        self.launch()
        if wait:
            wait_until(lambda: self.running() is not None, f"haproxy is up\n{self.log.read_text()}")

    def reports_reloads(self) -> bool:
        """Return whether the master's ``reload`` tells how it went, as it does since 2.7."""
        return "startup-logs" in ask(self.master_socket, "help")

    def reload(self) -> None:
        """Reload as an operator would, and wait for another worker."""
        former = self.worker()
        with suppress(NoAnswer):  # the master loads itself again, and may be gone before it has answered
            ask(self.master_socket, "reload")
        wait_until(lambda: self.worker() != former, "another worker serves")
        # It answers a few milliseconds before the former one has closed its sockets.
        wait_until(lambda: self._has_stopped(former), "the former one accepts no more")

    def _has_stopped(self, worker: int) -> bool:
        try:
            return not is_accepting(self.master_socket, worker)
        except NoAnswer:
            return False  # the master opens its socket late

    def worker(self) -> int:
        """Return the newest worker; the master is silent for a moment while it reloads."""
        seen: list[int] = []

        def answers() -> bool:
            if (running := self.running()) is not None:
                seen.append(running.worker_pid)
            return bool(seen)

        wait_until(answers, "the master answers")
        return seen[0]


def configuration(port: int, answer: str = "ok", *, extra: str = "", global_lines: str = "") -> str:
    """Return a configuration that answers every request on ``port`` with ``answer``."""
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


def fetch(port: int, *, timeout_s: float = 30.0) -> str:
    """Ask ``port`` once over a connection of its own; return the body."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
        answer = bytearray()
        while chunk := connection.recv(65536):
            answer += chunk
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise AssertionError(f"not answered with 200: {head!r}")
    return body.decode()
