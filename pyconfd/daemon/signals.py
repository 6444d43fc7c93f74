"""What the process does when somebody sends it a signal."""

import signal
from types import FrameType, TracebackType
from typing import Any, Protocol, Self


class Stoppable(Protocol):
    """A loop that a signal may end."""

    def stop(self) -> None:
        """Ask it to end; must be safe in a signal handler."""
        ...


class Signals:
    """SIGTERM and SIGINT end the loop, SIGHUP has it begin anew; taken for as long as the ``with`` lasts.

    One set of handlers for all instances: a signal that comes between two of them is not lost, and kills nobody.
    """

    def __init__(self) -> None:
        self._ended = self._hung_up = False
        self._loop: Stoppable | None = None
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._former[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def stop_with(self, loop: Stoppable) -> None:
        """Have the next signal stop ``loop``; at once if it came already."""
        self._loop = loop
        if self._ended or self._hung_up:
            loop.stop()

    def asks_for_new_settings(self) -> bool:
        """Say, once, whether a SIGHUP came and nothing that ends the loop."""
        hung_up, self._hung_up = self._hung_up, False
        return hung_up and not self._ended

    def _take(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGHUP:
            self._hung_up = True
        else:
            self._ended = True
        if self._loop is not None:
            self._loop.stop()
