"""Asks haproxy again and again, over its socket or as a client does: whether it answers in time."""

import errno
import select
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass

_KEEP_BYTES = 4096
_AT_ONCE_S = 0.001
"""What waits so long for an answer is not worth two more wake-ups; haproxy needs about a tenth of it."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked ``where`` (a path, or an address and a port), and how each answer begins; times in seconds."""

    where: str | tuple[str, int]
    text: bytes
    answer: bytes
    interval_s: float
    timeout_s: float


class Asking:
    """Counts the answers that were missed in a row. An answer that comes in time, and begins as it should, is one."""

    def __init__(self, question: Question, selector: selectors.BaseSelector, *, unproven: int) -> None:
        self._question, self._selector, self._unproven = question, selector, unproven
        self.misses = 0
        self.rounds = 0
        self.answer = b""
        self._asking: socket.socket | None = None
        self._registered = False
        self._seen = self._now = 0.0
        self._due = 0.0
        self._waits = False

    @property
    def due(self) -> float:
        """Return when :meth:`step` wants to be called next."""
        return self._due

    def distrust(self) -> None:
        """Take haproxy for silent until it has answered: the process is new."""
        self.misses = max(self.misses, self._unproven)

    def step(self, now: float) -> None:
        """Ask, or count a miss, where it is time to."""
        slept, self._seen, self._now = now - self._seen, now, now
        if now < self._due:
            return
        if not self._waits:
            self._ask(now)
        elif self._asking is not None and slept > self._question.timeout_s / 2:
            # It was this process that did not run: haproxy gets its time again.
            self._due = now + self._question.timeout_s
        else:
            self._close()
            self.misses += 1
            self.rounds += 1
            self._ask(now)

    def _ask(self, now: float) -> None:
        self._waits, self._due = True, now + self._question.timeout_s
        where = self._question.where
        family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        asking = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        failed = asking.connect_ex(where)
        if failed == errno.EINPROGRESS:
            self._wait_for(asking, selectors.EVENT_WRITE, self._connected)
        elif failed:
            asking.close()
            self._refused()
        else:
            self._asking = asking
            self._say()

    def _wait_for(self, asking: socket.socket, what: int, then: Callable[[], bool]) -> None:
        self._asking, self._registered = asking, True
        self._selector.register(asking, what, then)

    def _wait_no_more(self) -> None:
        if self._asking is not None and self._registered:
            self._selector.unregister(self._asking)
        self._registered = False

    def _connected(self) -> bool:
        misses = self.misses
        self._wait_no_more()
        self._say()
        return self.misses != misses

    def _say(self) -> None:
        asking = self._asking
        if asking is None:
            return
        try:
            asking.send(self._question.text)
        except OSError:
            self._asking = None
            asking.close()
            self._refused()
            return
        if select.select([asking], [], [], _AT_ONCE_S)[0]:
            self._answered()
        else:
            self._wait_for(asking, selectors.EVENT_READ, self._answered)

    def _answered(self) -> bool:
        """Read the answer; give whether it changes anything: one more that was in time does not."""
        if self._asking is None:
            return False
        try:
            answer = self._asking.recv(_KEEP_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            answer = b""
        self._close()
        if answer and answer.startswith(self._question.answer):
            changes = self.misses > 0 or self.rounds == 0
            self.misses = 0
            self.rounds += 1
            self._waits = False
            self.answer = answer
            self._due = self._now + self._question.interval_s
            return changes
        self._refused()
        return True

    def _refused(self) -> None:
        """Count a miss when the time is over, as silence is; a client's connection that is refused is one at once.

        (A haproxy that has too much to do refuses its socket, too.)
        """
        if not isinstance(self._question.where, str):
            self._due = self._now + self._question.interval_s

    def _close(self) -> None:
        self._wait_no_more()
        if self._asking is not None:
            self._asking.close()
            self._asking = None


def is_full(show_info: bytes) -> bool:
    """Return whether haproxy serves as many connections as it may: then it accepts no further one, on no node."""
    most = _number(show_info, b"Maxconn: ")
    return most is not None and (_number(show_info, b"CurrConns: ") or 0) >= most


def _number(show_info: bytes, name: bytes) -> int | None:
    """Return the number at the line that begins with ``name``; called twenty times a second."""
    begin = 0 if show_info.startswith(name) else show_info.find(b"\n" + name) + 1
    if not show_info.startswith(name, begin):
        return None
    value = show_info[begin + len(name) :].partition(b"\n")[0]
    return int(value) if value.isdigit() else None
