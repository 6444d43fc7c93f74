"""What the process does when somebody sends it a signal."""

import signal
from types import FrameType, TracebackType
from typing import Any, Self

from pyconfd.daemon.base_loop import Mailbox


class Signals:
    """SIGTERM and SIGINT end the loop, SIGHUP has it start again; taken for as long as the ``with`` lasts.

    One set of handlers for all instances: a signal that comes between two of them is not lost, and kills nobody. Once
    a signal has ended it all, another one of the terminal's changes nothing any more about how the process ends.
    """

    def __init__(self) -> None:
        self._ended = self._hung_up = self._restarts = False
        self._mailbox: Mailbox | None = None
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._former[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        over = {signal.SIGINT, signal.SIGHUP} if self._ended or self._hung_up else set()
        for number, former in self._former.items():
            signal.signal(number, signal.SIG_IGN if number in over else former)

    def stop_with(self, mailbox: Mailbox) -> None:
        """Stop the loop that reads this at the next signal; at once if it came already."""
        self._mailbox = mailbox
        if self._ended or self._hung_up or self._restarts:
            mailbox.stop()

    def asks_for_new_settings(self) -> bool:
        """Return, once, whether a SIGHUP came and nothing that ends the loop."""
        hung_up, self._hung_up = self._hung_up, False
        self._restarts = self._restarts and not hung_up
        return hung_up and not self._ended

    def restart(self) -> None:
        """End the loop, to begin another one with the same settings; called by the loop itself."""
        self._restarts = True
        if self._mailbox is not None:
            self._mailbox.stop()

    def asks_for_restart(self) -> bool:
        """Return, once, whether :meth:`restart` was called, and nothing came that ends the loop."""
        restarts, self._restarts = self._restarts, False
        return restarts and not self._ended

    def _take(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGHUP:
            self._hung_up = True
        else:
            self._ended = True
        if self._mailbox is not None:
            self._mailbox.stop()
