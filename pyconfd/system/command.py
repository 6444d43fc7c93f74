"""Run one command with a time limit and bounded output; nothing of it outlives the limit."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyconfd.errors import Problem, TransientError

MAX_OUTPUT_BYTES = 64 * 1024
TERMINATION_GRACE_S = 2.0
PROGRESS_S = 1.0
"""How often a command that takes long is reported as progress."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """``exit_code`` is negative for a signal; ``output`` is standard output and error, the last part of it."""

    exit_code: int
    output: str
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """Exit code 0, in time."""
        return self.exit_code == 0 and not self.timed_out

    @property
    def summary(self) -> str:
        """The last lines of the output on one line, for a message."""
        return " | ".join(line.strip() for line in self.output.splitlines()[-4:] if line.strip())


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    group: str | int | None = None,
    cwd: str = "/",
    niceness: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> CommandResult:
    """Run ``argv`` in ``cwd`` in a process group of its own; at the time limit the whole group is killed.

    ``niceness`` is added to pyconfd's own, so that work in the background leaves the processors to others.
    ``user`` and ``group`` (names) can be set where pyconfd is root; supplementary groups are dropped then.
    ``progress`` is called about each second while it runs.

    Raises:
        TransientError: the program is missing or may not be executed.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=None if env is None else dict(env),
            user=user,
            group=group,
            extra_groups=None if user is None else [],
            process_group=0,
        )
    except (OSError, ValueError, LookupError) as error:
        raise TransientError(_not_started(argv, error)) from error
    if niceness:
        with suppress(OSError):  # it has ended, or runs as another user already: pyconfd then waits for no less
            os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + niceness)
    with process:
        output, timed_out = _read(process, time.monotonic() + timeout_s, progress)
        if timed_out:
            _kill_group(process)
        process.wait()
    return CommandResult(process.returncode, output.decode(errors="replace"), timed_out)


def _not_started(argv: Sequence[str], error: Exception) -> Problem:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    remedy = "correct the path in the settings, or install the program"
    if isinstance(error, PermissionError):
        remedy = "let the user that pyconfd runs as execute it"
    return Problem(argv[0], f"cannot be executed: {reason}", remedy)


def _read(process: subprocess.Popen[bytes], deadline: float, progress: Callable[[], None]) -> tuple[bytes, bool]:
    """Read until the process ends; what it left running may keep the pipe open and is not waited for."""
    output = bytearray()
    pipe = process.stdout.fileno() if process.stdout else -1
    ended = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            selector.register(ended, selectors.EVENT_READ)
            while True:
                remaining_s = deadline - time.monotonic()
                ready = {key.fd for key, _ in selector.select(min(max(remaining_s, 0), PROGRESS_S))}
                progress()
                if pipe in ready:
                    chunk = os.read(pipe, 65536)
                    output += chunk
                    del output[:-MAX_OUTPUT_BYTES]
                    if not chunk:
                        selector.unregister(pipe)
                elif ended in ready:
                    return bytes(output), False
                if remaining_s <= 0:
                    return bytes(output), True
    finally:
        os.close(ended)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(TERMINATION_GRACE_S)
            if number == signal.SIGKILL:
                return
