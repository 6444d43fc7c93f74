"""HAProxy's UNIX sockets: one command a connection to the master or a worker, and a kept connection to a worker.

:func:`ask` closes its writing side behind the command: then the master answers and closes instead of waiting for the
next one, and an answer never comes from a former worker.

:class:`RuntimeSocket` is put into prompt mode, where the answer to each line ends with a prompt. Each command has a
line of its own: since 3.0 commands that are joined by ``;`` share one prompt. A kept connection stays with its worker
when a reload makes a new one, so every batch asks first who answers; and last for the level of the connection, whose
answer is known: one prompt too many or too few in between would give each answer to another command.

Source: HAProxy management manual, 9.3 (UNIX socket commands).
"""

import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyconfd.haproxy.config.text import digest_of
from pyconfd.haproxy.process.observation import OldWorker, Running

ANSWER_TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""Far more than the state of 1,000,000 servers."""

_FAILED = re.compile(r"\[failed: (\d+)\]")
_UPTIME = re.compile(r"(\d+)d(\d+)h(\d+)m(\d+)s")


class NoAnswer(Exception):  # noqa: N818 - it says what happened
    """The socket could not be asked.

    ``refused`` where no process listens on it, or it is not there; ``closed`` where the other side hung up,
    ``silent`` where it did not answer in time.
    """

    def __init__(self, path: str, error: OSError) -> None:
        self.path = path
        self.refused = isinstance(error, ConnectionRefusedError | FileNotFoundError)
        self.forbidden = isinstance(error, PermissionError)
        self.closed = isinstance(error, ConnectionResetError | BrokenPipeError)
        self.silent = isinstance(error, TimeoutError)
        super().__init__(f"{path}: {error.strerror or error}")


def ask(path: str, command: str, *, timeout_s: float | None = None) -> str:
    """Send one command and return the whole answer.

    Raises:
        NoAnswer: the socket is absent, closed, forbidden or silent.
    """
    answer = bytearray()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_TIMEOUT_S if timeout_s is None else timeout_s)
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


def processes(path: str, *, timeout_s: float | None = None) -> Running:
    """Ask the master which processes it has; ``worker_pid`` is 0 while none is up, ``digest`` is not known.

    Raises:
        NoAnswer: it could not be asked, or what answered is no master.
    """
    rows = [line.split() for line in ask(path, "show proc", timeout_s=timeout_s).splitlines()]
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
    return Running(
        digest=None,
        master_pid=int(master[0]),
        worker_pid=int(current[0][0]) if current else 0,
        old_workers=_old_workers(old, current),
        version=master[-1],
        reloads=int(master[2]) if master[2].isdigit() else 0,
        failed_reloads=int(failed[1]) if failed else 0,
    )


def _old_workers(old: list[list[str]], current: list[list[str]]) -> tuple[OldWorker, ...]:
    """Return the old workers, the oldest first: each was replaced when the next one was started."""
    ordered = sorted(old, key=lambda row: (int(row[2]) if row[2].isdigit() else 0, _age_s(row)), reverse=True)
    followers = [_age_s(row) for row in (*ordered, *current[:1])][1:]
    replaced = [*followers, *[0.0] * (len(ordered) - len(followers))]
    return tuple(OldWorker(int(row[0]), _age_s(row), since) for row, since in zip(ordered, replaced, strict=True))


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
    return replace(found, digest=digest_of(info.get("description", "")), worker_pid=int(info["pid"]))


def is_accepting(path: str, worker_pid: int) -> bool:
    """Ask the master whether the worker ``worker_pid`` still accepts connections; False where it is gone.

    Raises:
        NoAnswer: the master could not be asked.
    """
    return _information(ask(path, f"@!{worker_pid} show info")).get("stopping") == "0"


def end_worker(path: str, pid: int) -> int:
    """End an old worker at once with all that it has; return how many connections that were.

    ``shutdown session`` ends only what has a stream: idle connections, half a request and half a handshake kept the
    worker alive. Its exit takes all of them, in less than 0.2 s, and no other worker notices. Measured on 2.6 and 3.4.

    Raises:
        NoAnswer: the worker could not be asked.
    """
    connections = connections_of(path, pid)
    with suppress(NoAnswer):  # it hangs up with its end
        ask(path, f"expert-mode on; @!{pid} debug dev exit 0")
    return connections


def connections_of(path: str, pid: int, *, timeout_s: float | None = None) -> int:
    """Ask the master how many connections the worker ``pid`` has.

    Raises:
        NoAnswer: it could not be asked.
    """
    connections = _information(ask(path, f"@!{pid} show info", timeout_s=timeout_s)).get("currconns", "")
    if not connections.isdigit():
        raise NoAnswer(path, OSError(f"worker {pid} does not answer"))
    return int(connections)


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


IDLE_S = 24 * 3600
"""How long the worker keeps an idle connection; asked for with ``set timeout cli``, its default is 10 s."""
CHUNK_BYTES = 8_000
"""What is sent before its answers are read, so that neither side waits for the other with full buffers."""

PROMPT = b"\n> "
_PAYLOAD_PROMPTS = re.compile(r"\A(?:\+ )+")
_WHO = "show info"
_WHO_SAYS = re.compile(r"^(Pid|Stopping): (\d+)$", re.MULTILINE)
_LAST = "show cli level"
_LEVELS = frozenset({"admin", "operator", "user"})


class ReplacedError(OSError):
    """Another worker answers than the one that is meant; it was sent nothing."""


@dataclass(frozen=True, slots=True)
class Worker:
    """Who answers: ``stopping`` is a worker that a reload has replaced."""

    pid: int
    stopping: bool


class RuntimeSocket:
    """A connection that is opened when it is needed, and again after each failure."""

    def __init__(self, path: str, *, timeout_s: float | None = None, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self.path = path
        self._max_answer_bytes = max_answer_bytes
        self._timeout_s = ANSWER_TIMEOUT_S if timeout_s is None else timeout_s
        self._connection: socket.socket | None = None
        self._unread = bytearray()
        self._answered = False

    def close(self) -> None:
        """Close the connection; the next batch opens another one."""
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
        self._connection = None
        self._unread = bytearray()

    def ask(self, commands: Sequence[str], *, pid: int = 0) -> tuple[Worker, list[str]]:
        """Send commands; return who answered, and an answer for each. A command with a payload ends with a newline.

        ``pid`` is the worker that is meant: any other one is sent nothing. A connection that was closed before it gave
        the first answer is opened again once; one to a former worker too, where any worker will do.

        Raises:
            NoAnswer: the socket is absent, closed, forbidden or silent, what answers is another worker or none, or
                the number of answers is not that of the commands.
        """
        kept = self._connection is not None
        try:
            worker, answers = self._batch(commands, pid)
        except NoAnswer as error:
            if not kept or not error.closed or self._answered:
                raise
            return self._batch(commands, pid)
        if worker.stopping and kept and not pid:
            self.close()
            return self._batch(commands, pid)
        return worker, answers

    def _batch(self, commands: Sequence[str], pid: int) -> tuple[Worker, list[str]]:
        self._answered = False
        try:
            if self._connection is None:
                self._connection = self._opened(pid)
            answers = self._exchange(self._connection, [_WHO, *commands, _LAST])
            worker = _worker(answers[0])
        except OSError as error:
            self.close()
            raise NoAnswer(self.path, error) from error
        return worker, answers[1:-1]

    def _exchange(self, connection: socket.socket, lines: Sequence[str]) -> list[str]:
        answers: list[str] = []
        if not self._unread:
            for chunk, count in _chunks(lines):
                connection.sendall(chunk)
                answers += [self._answer(connection) for _ in range(count)]
        if self._unread or answers[-1].strip() not in _LEVELS:
            raise OSError("the number of haproxy's answers is not that of the commands")
        return answers

    def _opened(self, pid: int) -> socket.socket:
        """Open a connection and see who is there, before anything is changed through it."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self._timeout_s)
            connection.connect(self.path)
            for command in ("prompt", f"set timeout cli {IDLE_S}"):
                connection.sendall(command.encode() + b"\n")
                self._answer(connection)
            if pid:
                connection.sendall(_WHO.encode() + b"\n")
                _see_that_it_is(pid, _worker(self._answer(connection)))
        except OSError:
            connection.close()
            raise
        self._answered = False
        return connection

    def _answer(self, connection: socket.socket) -> str:
        unread = self._unread
        start = 0
        while (end := unread.find(PROMPT, start)) < 0:
            start = max(0, len(unread) - len(PROMPT))
            chunk = connection.recv(1 << 20)
            if not chunk:
                raise ConnectionResetError("haproxy closed the connection before it answered")
            self._answered = True
            unread += chunk
            if len(unread) > self._max_answer_bytes:
                raise OSError("haproxy's answer does not end")
        answer = unread[:end].decode(errors="replace")
        del unread[: end + len(PROMPT)]
        return _PAYLOAD_PROMPTS.sub("", answer).strip("\n")


def _chunks(commands: Sequence[str]) -> Iterator[tuple[bytes, int]]:
    """Return the lines together as far as they fit, each time with the number of commands."""
    chunk, count = bytearray(), 0
    for command in commands:
        line = command.encode() + b"\n"
        if chunk and len(chunk) + len(line) > CHUNK_BYTES:
            yield bytes(chunk), count
            chunk, count = bytearray(), 0
        chunk += line
        count += 1
    yield bytes(chunk), count


def _worker(answer: str) -> Worker:
    found: dict[str, str] = dict(_WHO_SAYS.findall(answer))
    if "Pid" not in found:
        raise OSError("what answers there is no worker of haproxy")
    return Worker(int(found["Pid"]), found.get("Stopping", "0") != "0")


def _see_that_it_is(pid: int, worker: Worker) -> None:
    if worker.stopping or worker.pid != pid:
        raise ReplacedError(f"worker {worker.pid} answers, no longer {pid}: another program reloaded haproxy")
