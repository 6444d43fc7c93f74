"""Remembers that a worker does not answer: whoever connects to it waits as pyconfd does."""

from collections.abc import Callable, Collection

from pyconfd.errors import Problem
from pyconfd.haproxy.master_socket import NoAnswer
from pyconfd.haproxy.observation import Running, RunningState, Unknown


class Silence:
    """The worker that was silent last, told until it answers or is gone; ``pids`` gives HAProxy's processes.

    A reload does not end it: it hears of that as little as of anything else, and keeps its share of new connections.
    """

    def __init__(self, pids: Callable[[], Collection[int]]) -> None:
        self._pids = pids
        self._worker = 0

    def note(self, error: Exception, worker: int) -> None:
        """Take note of what came of a question to ``worker``."""
        cause = error.__cause__
        if isinstance(cause, NoAnswer) and cause.silent:
            self._worker = worker

    def saw(self, running: RunningState, newest: int) -> None:
        """Take note of a look at the process; ``newest`` is the worker that was seen last."""
        if isinstance(running, Running):
            self.ended(running.worker_pid)
        elif isinstance(running, Unknown) and running.silent:
            self._worker = running.worker_pid or newest

    def ended(self, worker: int) -> None:
        """Take note that ``worker`` has answered."""
        if worker == self._worker:
            self._worker = 0

    def problems(self) -> tuple[Problem, ...]:
        """Return what it means for the operator."""
        if self._worker and self._worker not in self._pids():
            self._worker = 0
        if not self._worker:
            return ()
        message = f"its worker {self._worker} does not answer: connections that it has, or gets, hang"
        remedy = (
            f"pyconfd reloads; if this stays: kill -9 {self._worker}, which ends the connections of that worker "
            "(systemd starts haproxy anew where no other one serves)"
        )
        return (Problem("haproxy", message, remedy),)
