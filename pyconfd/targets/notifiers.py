"""Tell a load balancer that its configuration changed, in the four ways of kube2lb."""

import os
import signal
from pathlib import Path
from typing import assert_never

import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.settings.targets import CommandNotifier, DebugNotifier, Notifier, PidFileNotifier, PidNotifier
from pyconfd.system.command import run

log = structlog.get_logger(__name__)

SHOWN_CHARACTERS = 2000
"""How much of a command's output is logged."""

_PID_FILE_BYTES = 64


def notify(notifier: Notifier, *, target: str, timeout_s: float) -> None:
    """Tell the balancer of ``target``.

    Raises:
        TransientError: it could not be told, or the command failed or did not end within ``timeout_s``.
    """
    match notifier:
        case CommandNotifier(shell):
            _run(shell, target, timeout_s)
        case PidNotifier(number, pid):
            _send(number, pid, f"target {target}")
        case PidFileNotifier(number, path):
            _send(number, _pid_in(path, target), path)
        case DebugNotifier():
            log.info("target.notified", target=target, how="debug")
        case _ as never:
            assert_never(never)


def _run(shell: str, target: str, timeout_s: float) -> None:
    # A shell, as kube2lb's contract says; the command is the operator's.
    result = run(["/bin/sh", "-c", shell], timeout_s=timeout_s, cwd=os.getcwd())  # noqa: PTH109 - a text is wanted
    output = result.output.strip()[-SHOWN_CHARACTERS:]
    if result.ok:
        log.info("target.notified", target=target, how="command", output=output)
        return
    how = f"did not end within {timeout_s:g} s" if result.timed_out else f"ended with {result.exit_code}"
    raise TransientError(
        Problem(
            f"target {target}: notify",
            f"the command {how}: {result.summary[-SHOWN_CHARACTERS:] or 'it printed nothing'}",
            f"run it by hand: {shell}",
        )
    )


def _send(number: int, pid: int, place: str) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        raise TransientError(
            Problem(place, f"there is no process {pid}", "start its balancer, or correct the notifier")
        ) from None
    except (PermissionError, OverflowError):
        raise TransientError(
            Problem(place, f"pyconfd may not send signals to process {pid}", "run pyconfd as root or as its user")
        ) from None
    log.info("target.notified", pid=pid, how=signal.Signals(number).name)


def _pid_in(path: str, target: str) -> int:
    try:
        with Path(path).open("rb") as file:
            text = file.read(_PID_FILE_BYTES).strip()
    except OSError as error:
        problem = Problem(path, f"cannot be read: {error.strerror}", f"is the balancer of target {target} running?")
        raise TransientError(problem) from None
    if not text.isdigit() or int(text) < 2:
        raise TransientError(
            Problem(path, "holds no number of a process", "name the file that the balancer writes its number to")
        )
    return int(text)
