"""Start pyconfd without its imports, which are most of what a start costs: as the fork of a process that did them.

It is a process of its own with a pid, streams, signals and an exit status like any other; only its command line, as
``ps`` shows it, is another one.
"""

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyconfd
from pyconfd.cli.main import PLACES, main

_OF_THE_INTERPRETER = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_", "OPENSSL_")
"""Variables that count when a process starts."""
_PATIENCE_S = 240.0
_SERVER = multiprocessing.get_context("forkserver")
_COMMANDS = sorted({f"pyconfd.cli.commands.{place.partition(':')[0]}" for place in PLACES.values()})
_SERVER.set_forkserver_preload([*_COMMANDS, "boto3", "botocore.session", "tests.world.compiled_fragments"])


class Process(Protocol):
    """What the tests use of ``subprocess.Popen``."""

    @property
    def returncode(self) -> int | None: ...

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class Forked:
    """A fork, with what the tests use of ``subprocess.Popen``."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], stdout: Path, stderr: Path) -> None:
        self._arguments = arguments
        given = (tuple(arguments), dict(environment), str(Path.cwd()), str(stdout), str(stderr))
        self._process = _SERVER.Process(target=_become, args=given)
        self._process.start()
        assert self._process.pid
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit status; None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status. Raises: subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if (code := self.returncode) is None:
            raise subprocess.TimeoutExpired(self._arguments, timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def start(arguments: Sequence[str], environment: Mapping[str, str], log: Path, *, forks: bool = True) -> Process:
    """Start a command that logs to ``log``, as a fork where that is the same."""
    if forks and fits(environment):
        return Forked(arguments, environment, log, log)
    argv = [sys.executable, "-m", "pyconfd", *arguments]
    with log.open("ab") as stream:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environment)


def run(
    arguments: Sequence[str], environment: Mapping[str, str], *, forks: bool = True, patience_s: float = _PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as a fork where that is the same."""
    if not forks or not fits(environment):
        argv = [sys.executable, "-m", "pyconfd", *arguments]
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment,
            timeout=patience_s,
            check=False,
        )
    with tempfile.TemporaryDirectory(prefix="forked-") as folder:
        stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
        process = Forked(arguments, environment, stdout, stderr)
        try:
            code = process.wait(patience_s)
        finally:
            process.kill()
            process.wait()
        return subprocess.CompletedProcess(arguments, code, stdout.read_text(), stderr.read_text())


def fits(environment: Mapping[str, str]) -> bool:
    """Return whether a fork is like a process that starts with this: whether it asks the interpreter for no more."""
    asked = {name: value for name, value in environment.items() if name.startswith(_OF_THE_INTERPRETER)}
    return all(os.environ.get(name) == value for name, value in asked.items())


def _become(arguments: Sequence[str], environment: Mapping[str, str], folder: str, stdout: str, stderr: str) -> None:
    """Go on as ``python -m pyconfd`` does when its imports are done."""
    for number, path in enumerate((os.devnull, stdout, stderr)):
        stream = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [str(Path(pyconfd.__file__).parent / "__main__.py"), *arguments]
    try:
        main()
    finally:
        atexit._run_exitfuncs()
