"""Says that the loop makes progress: to the service manager, and in the status."""

from collections.abc import Callable

from pyconfd.daemon.account import Account
from pyconfd.daemon.ports import Clock, Notifier
from pyconfd.model.outcome import Applied, Outcome, Unchanged
from pyconfd.model.status import Status

EVERY_S = 1.0


class Pulse:
    """Beats when asked; :meth:`progressed` beats at most each second."""

    def __init__(self, clock: Clock, notifier: Notifier, account: Account) -> None:
        self._clock = clock
        self._notifier = notifier
        self._account = account
        self._next = clock.monotonic()
        self._told = ""

    def beat(self) -> None:
        """Say it now."""
        self._next = self._clock.monotonic() + EVERY_S
        self._account.beat(self._clock.now())
        self._notifier.watchdog()

    def progressed(self) -> None:
        """Say that this thread does not hang; for an apply that takes long."""
        if self._clock.monotonic() >= self._next:
            self.beat()

    def concluded(self, outcome: Outcome, restore: Callable[[], None], *, decided: bool) -> None:
        """Put an outcome into the status, and tell the service manager.

        The first one is said to be the start, whatever it is; ``restore`` sees that something serves then.
        """
        self._account.outcome(outcome)
        if decided:
            self._told = self._account.line()
            self._notifier.status(self._told)
            return
        if not isinstance(outcome, Applied | Unchanged):
            restore()
        self.ready()

    def ready(self) -> None:
        """Tell the service manager that it is decided what serves."""
        self._told = self._account.line()
        self._notifier.ready(self._told)

    def told(self, status: Status) -> Status:
        """Tell the service manager what has changed without an outcome: API servers, a pause. Give ``status`` back."""
        line = self._account.line(status.source)
        if self._told and line != self._told:
            self._told = line
            self._notifier.status(line)
        return status
