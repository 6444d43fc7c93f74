"""One connection to a worker's ``stats socket``, kept open; commands go in batches, one answer counted for each.

The connection is put into prompt mode, where the answer to each line ends with a prompt. Each command has a line of its
own: since 3.0 commands that are joined by ``;`` share one prompt. A kept connection stays with its worker
when a reload makes a new one, so every batch asks first who answers.

Source: HAProxy management manual, 9.3 (UNIX socket commands).
"""

import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyconfd.haproxy.master_socket import NoAnswer

ANSWER_TIMEOUT_S = 5.0
IDLE_S = 24 * 3600
"""How long the worker keeps an idle connection; asked for with ``set timeout cli``, its default is 10 s."""
CHUNK_BYTES = 8_000
"""What is sent before its answers are read, so that neither side waits for the other with full buffers."""
MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""Far more than the state of 1,000,000 servers."""

PROMPT = b"\n> "
_PAYLOAD_PROMPTS = re.compile(r"\A(?:\+ )+")
_WHO = "show info"


@dataclass(frozen=True, slots=True)
class Worker:
    """Who answers: ``stopping`` is a worker that a reload has replaced."""

    pid: int
    stopping: bool


class RuntimeSocket:
    """A connection that is opened when it is needed, and again after each failure."""

    def __init__(self, path: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self.path = path
        self._timeout_s = timeout_s
        self._connection: socket.socket | None = None
        self._unread = b""

    def close(self) -> None:
        """Close the connection; the next batch opens another one."""
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
        self._connection, self._unread = None, b""

    def ask(self, commands: Sequence[str]) -> tuple[Worker, list[str]]:
        """Send commands and give who answered and one answer for each; a command with a payload ends with a newline.

        A connection that was closed meanwhile, or that is still with a worker of the past, is opened anew once.

        Raises:
            NoAnswer: the socket is absent, closed, forbidden or silent, or fewer answers came than commands were sent.
        """
        fresh = self._connection is None
        try:
            worker, answers = self._batch(commands)
        except NoAnswer as error:
            if fresh or not error.closed:
                raise
            return self._batch(commands)
        if worker.stopping and not fresh:
            self.close()
            return self._batch(commands)
        return worker, answers

    def _batch(self, commands: Sequence[str]) -> tuple[Worker, list[str]]:
        try:
            answers: list[str] = []
            for chunk, count in _chunks([_WHO, *commands]):
                self._send(chunk)
                answers += [self._answer() for _ in range(count)]
        except OSError as error:
            self.close()
            raise NoAnswer(self.path, error) from error
        return _worker(self.path, answers[0]), answers[1:]

    def _send(self, chunk: bytes) -> None:
        if self._connection is None:
            self._connection = self._opened()
        self._connection.sendall(chunk)

    def _opened(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(self._timeout_s)
            connection.connect(self.path)
            self._connection = connection
            connection.sendall(b"prompt\n")
            self._answer()
            connection.sendall(f"set timeout cli {IDLE_S}\n".encode())
            self._answer()
        except OSError:
            connection.close()
            self._connection, self._unread = None, b""
            raise
        return connection

    def _answer(self) -> str:
        connection = self._connection
        if connection is None:
            raise ConnectionResetError("the connection is closed")
        start = 0
        while (end := self._unread.find(PROMPT, start)) < 0:
            start = max(0, len(self._unread) - len(PROMPT))
            chunk = connection.recv(1 << 20)
            if not chunk:
                raise ConnectionResetError("haproxy closed the connection before it answered")
            self._unread += chunk
            if len(self._unread) > MAX_ANSWER_BYTES:
                raise OSError("haproxy's answer does not end")
        answer, self._unread = self._unread[:end], self._unread[end + len(PROMPT) :]
        return _PAYLOAD_PROMPTS.sub("", answer.decode(errors="replace")).strip("\n")


def _chunks(commands: Sequence[str]) -> Iterator[tuple[bytes, int]]:
    """Give the lines together as far as they fit, each time with the number of commands."""
    chunk, count = bytearray(), 0
    for command in commands:
        line = command.encode() + b"\n"
        if chunk and len(chunk) + len(line) > CHUNK_BYTES:
            yield bytes(chunk), count
            chunk, count = bytearray(), 0
        chunk += line
        count += 1
    yield bytes(chunk), count


def _worker(path: str, answer: str) -> Worker:
    found = dict(line.partition(": ")[::2] for line in answer.splitlines())
    pid = found.get("Pid", "")
    if not pid.isdigit():
        raise NoAnswer(path, OSError("what answers there is no worker of haproxy"))
    return Worker(int(pid), found.get("Stopping", "0") != "0")
