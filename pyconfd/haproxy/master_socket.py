"""Ask HAProxy over its UNIX sockets: the master's, or the one that ``stats socket`` opens in a worker.

One command for each connection, and its writing side is closed behind it: then the master answers and closes instead
of waiting for the next command, and an answer never comes from a worker of the past.
"""

import re
import socket
from dataclasses import dataclass

from pyconfd.haproxy.marker import digest_of
from pyconfd.haproxy.observation import Running

ANSWER_TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 1024 * 1024

_FAILED = re.compile(r"\[failed: (\d+)\]")
_UPTIME = re.compile(r"(\d+)d(\d+)h(\d+)m(\d+)s")


class NoAnswer(Exception):  # noqa: N818 - it says what happened
    """The socket could not be asked.

    ``refused`` where nobody listens on it, or it is not there; ``closed`` where the other side hung up,
    ``silent`` where it did not answer in time.
    """

    def __init__(self, path: str, error: OSError) -> None:
        self.path = path
        self.refused = isinstance(error, ConnectionRefusedError | FileNotFoundError)
        self.forbidden = isinstance(error, PermissionError)
        self.closed = isinstance(error, ConnectionResetError | BrokenPipeError)
        self.silent = isinstance(error, TimeoutError)
        super().__init__(f"{path}: {error.strerror or error}")


@dataclass(frozen=True, slots=True)
class Processes:
    """What ``show proc`` tells; ``worker_pid`` is 0 while none is up.

    ``oldest_worker_age_s`` is the time since the oldest of the old workers was started, in whole seconds; 0 for none.
    """

    master_pid: int
    worker_pid: int
    old_workers: int
    version: str
    reloads: int
    failed_reloads: int
    oldest_worker_age_s: float = 0.0


def ask(path: str, command: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
    """Send one command and give the whole answer.

    Raises:
        NoAnswer: the socket is absent, closed, forbidden or silent.
    """
    answer = bytearray()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(path)
            connection.sendall(command.encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            while len(answer) < MAX_ANSWER_BYTES:
                chunk = connection.recv(65536)
                if not chunk:
                    break
                answer += chunk
    except OSError as error:
        raise NoAnswer(path, error) from error
    return answer.decode(errors="replace")


def processes(path: str) -> Processes:
    """Ask the master which processes it has.

    Raises:
        NoAnswer: it could not be asked, or what answered is no master.
    """
    rows = [line.split() for line in ask(path, "show proc").splitlines()]
    block = ""
    master: list[str] = []
    current: list[list[str]] = []
    old: list[list[str]] = []
    for row in rows:
        if row and row[0].startswith("#"):
            block = " ".join(row)
        elif len(row) > 1 and row[0].isdigit():
            if row[1] == "master":
                master = row
            elif row[1] == "worker" and block == "# workers":
                current.append(row)
            elif row[1] == "worker":
                old.append(row)
    if not master:
        raise NoAnswer(path, OSError("what listens there is no master process of haproxy"))
    failed = _FAILED.search(" ".join(master))
    return Processes(
        master_pid=int(master[0]),
        worker_pid=int(current[0][0]) if current else 0,
        old_workers=len(old),
        version=master[-1],
        reloads=int(master[2]) if master[2].isdigit() else 0,
        failed_reloads=int(failed[1]) if failed else 0,
        oldest_worker_age_s=max(map(_age_s, old), default=0.0),
    )


def _age_s(row: list[str]) -> float:
    found = _UPTIME.search(" ".join(row))
    if found is None:
        return 0.0
    days, hours, minutes, seconds = map(int, found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def running_by_master(path: str) -> Running:
    """Ask the master for its processes and the newest worker for its text.

    Raises:
        NoAnswer: one of them could not be asked.
    """
    found = processes(path)
    info = _information(ask(path, "@1 show info"))
    if not info.get("pid", "").isdigit():
        raise NoAnswer(path, OSError("the newest worker does not answer"))
    return Running(
        digest=digest_of(info.get("description", "")),
        worker_pid=int(info["pid"]),
        version=found.version,
        master_pid=found.master_pid,
        old_workers=found.old_workers,
        reloads=found.reloads,
        failed_reloads=found.failed_reloads,
        oldest_worker_age_s=found.oldest_worker_age_s,
    )


def is_accepting(path: str, worker_pid: int) -> bool:
    """Ask the master whether the worker ``worker_pid`` still accepts connections; False where it is gone."""
    try:
        return _information(ask(path, f"@!{worker_pid} show info")).get("stopping") == "0"
    except NoAnswer:
        return False


def running_by_stats_socket(path: str) -> Running:
    """Ask the worker behind a ``stats socket``.

    Raises:
        NoAnswer: it could not be asked.
    """
    info = _information(ask(path, "show info"))
    if not info.get("pid", "").isdigit() or info.get("stopping", "0") != "0":
        raise NoAnswer(path, OSError("no worker answers that is not stopping"))
    return Running(
        digest=digest_of(info.get("description", "")), worker_pid=int(info["pid"]), version=info.get("version", "")
    )


def _information(answer: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in answer.splitlines())
    return {key.strip().casefold(): value.strip() for key, colon, value in pairs if colon}
