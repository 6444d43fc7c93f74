"""The last requests and connections, out of the ring that the shipped fragments have HAProxy keep.

Each worker has a ring of its own. So who follows it opens another connection for each new worker, and reads the former
one's until it ends: it goes on logging what its clients still ask.

Source: HAProxy management manual, 9.3 (``show events``).
"""

import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Self

from pyconfd.haproxy.runtime.sockets import ANSWER_TIMEOUT_S, NoAnswer, ask

RING = "access"
"""The ``ring`` section of 01-defaults.conf."""

POLL_S = 1.0
"""How often the socket is asked which worker answers there."""

_BEGIN = b"{"
_NO_RING = "Sink not found"
_UNFINISHED_BYTES = 64 * 1024
"""Of a line: more than any that the ring takes."""


class NoRing(Exception):  # noqa: N818 - it says what is missing
    """The running HAProxy has no ring for its log."""


def lines(path: str) -> Iterator[bytes]:
    """Return the lines that are in the ring of the worker behind a socket, the oldest first.

    Raises:
        NoAnswer: the socket is absent, closed, forbidden or silent.
        NoRing: there is none.
    """
    answer = ask(path, f"show events {RING}")
    if _NO_RING in answer:
        raise NoRing
    return (line.encode() for line in answer.split("\n") if line.startswith("{"))


def following(path: str, note: Callable[[str], None]) -> Iterator[bytes]:
    """Return the lines that come from now on, over reloads and restarts; ``note`` is told when HAProxy is away.

    Raises:
        NoAnswer: the socket cannot be opened at first.
        NoRing: there is none.
    """
    for _ in lines(path):  # says what is wrong, which a connection that follows says to nobody
        break
    streams = _Streams(path, note)
    with streams:
        streams.poll(is_first=True)
        while True:
            yield from streams.read(POLL_S)
            streams.poll()


class _Streams:
    """A connection to each worker that was seen, until it ends."""

    def __init__(self, path: str, note: Callable[[str], None]) -> None:
        self._path, self._note = path, note
        self._is_away = False
        self._selector = selectors.DefaultSelector()
        self._unfinished: dict[socket.socket, bytes] = {}
        self._worker = ""
        self._polled = 0.0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._selector)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def poll(self, *, is_first: bool = False) -> None:
        """Follow another worker where one answers now; of one that came meanwhile, all that is in its ring."""
        now = time.monotonic()
        if not is_first and now - self._polled < POLL_S:
            return
        self._polled = now
        try:
            worker = _pid(ask(self._path, "show info"))
            if worker and worker != self._worker:
                self._open("-w -n" if is_first else "-w")
                self._worker = worker
        except NoAnswer as error:
            if is_first:
                raise
            if not self._is_away:
                self._note(f"haproxy does not answer ({error}): waiting for it")
            self._is_away = True
        else:
            if self._is_away:
                self._note("haproxy answers again")
            self._is_away = False

    def read(self, wait_s: float) -> Iterator[bytes]:
        """Return the lines that come within ``wait_s``."""
        for key, _ in self._selector.select(wait_s):
            connection: socket.socket = key.data
            try:
                chunk = connection.recv(1 << 16)
            except OSError:
                chunk = b""
            if not chunk:
                self._selector.unregister(connection)
                del self._unfinished[connection]
                connection.close()
                continue
            *whole, rest = (self._unfinished[connection] + chunk).split(b"\n")
            self._unfinished[connection] = rest[-_UNFINISHED_BYTES:]
            yield from (line for line in whole if line.startswith(_BEGIN))

    def _open(self, options: str) -> None:
        connection = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        connection.settimeout(ANSWER_TIMEOUT_S)
        try:
            connection.connect(self._path)
            connection.sendall(f"show events {RING} {options}\n".encode())
        except OSError as error:
            raise NoAnswer(self._path, error) from error
        self._unfinished[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ, connection)


def _pid(answer: str) -> str:
    found = (line.partition(":")[2].strip() for line in answer.split("\n") if line.startswith("Pid:"))
    return next(found, "")
