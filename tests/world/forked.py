"""Starts pyconfd without its imports, which are most of what a start costs: as the fork of a process that did them.

It is a process of its own with a pid, streams, signals and an exit status like any other; only its command line, as
``ps`` shows it, is another one.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import IO, Protocol

_MOST_BYTES = 1 << 17
"""Of one request: a command line and an environment."""
_SERVERS = 2
"""Each has an order of sets of its own, as each start of Python has: what depends on it must not stay hidden."""
_OF_THE_INTERPRETER = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_", "OPENSSL_")
"""Variables that count when a process starts."""


class Process(Protocol):
    """What the tests use of ``subprocess.Popen``."""

    returncode: int | None

    @property
    def pid(self) -> int:
        """The process."""

    def poll(self) -> int | None:
        """Give the exit status; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status. Raises: subprocess.TimeoutExpired."""

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""

    def kill(self) -> None:
        """Kill it."""


class Forked:
    """A fork, with what the tests use of ``subprocess.Popen``."""

    def __init__(self, channel: socket.socket, arguments: Sequence[str]) -> None:
        self._channel, self._arguments = channel, arguments
        self.returncode: int | None = None
        self.pid = int(channel.recv(64))

    def poll(self) -> int | None:
        """Give the exit status; None while it runs."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status. Raises: subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._channel.settimeout(timeout)
            try:
                self.returncode = int(self._channel.recv(64))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self._arguments, timeout or 0.0) from None
            self._channel.settimeout(None)
            self._channel.shutdown(socket.SHUT_WR)
            assert not self._channel.recv(1)  # the zombie is gone
            self._channel.close()
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


class _Server:
    """One process to fork from; it ends with this one."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, "-m", "tests.world.forking"]
            self._process = subprocess.Popen(argv, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, cwd=_ROOT)
        atexit.register(self._end)

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]) -> Forked:
        request = {"arguments": arguments, "environment": dict(environment), "folder": str(Path.cwd())}
        text = json.dumps(request).encode()
        assert len(text) < _MOST_BYTES
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._control, [text], [*streams, theirs.fileno()])
        return Forked(ours, arguments)

    def _end(self) -> None:
        self._control.close()
        self._process.wait()


_ROOT = Path(__file__).parents[2]
_lock = threading.Lock()
_servers: list[_Server] = []
_turns = count()


def fits(environment: Mapping[str, str]) -> bool:
    """Whether a fork of a process with this one's environment would be like a process that starts with the other."""
    return _early(environment) == _early(os.environ)


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_THE_INTERPRETER)}


def start(arguments: Sequence[str], environment: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes]) -> Forked:
    """Start ``pyconfd`` with these arguments and an empty standard input."""
    with _lock:
        if not _servers:
            _servers.extend(_Server() for _ in range(_SERVERS))
        server = _servers[next(_turns) % _SERVERS]
    with Path(os.devnull).open("rb") as empty:
        return server.start(arguments, environment, [each.fileno() for each in (empty, stdout, stderr)])
