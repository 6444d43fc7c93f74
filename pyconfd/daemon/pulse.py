"""Says that the loop makes progress: to the service manager, and in the status."""

from pyconfd.daemon.account import Account
from pyconfd.daemon.ports import Clock, Notifier

EVERY_S = 1.0


class Pulse:
    """Beats when asked; :meth:`progressed` beats at most each second."""

    def __init__(self, clock: Clock, notifier: Notifier, account: Account) -> None:
        self._clock = clock
        self._notifier = notifier
        self._account = account
        self._next = clock.monotonic()

    def beat(self) -> None:
        """Say it now."""
        self._next = self._clock.monotonic() + EVERY_S
        self._account.beat(self._clock.now())
        self._notifier.watchdog()

    def progressed(self) -> None:
        """Say that this thread does not hang; for an apply that takes long."""
        if self._clock.monotonic() >= self._next:
            self.beat()
