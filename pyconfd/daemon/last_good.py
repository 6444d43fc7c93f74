"""Keeps up what served last, for as long as nothing newer can be made to serve."""

from collections.abc import Callable

import structlog

from pyconfd.daemon.account import Account
from pyconfd.daemon.journal import Journal
from pyconfd.daemon.ports import Clock, RestoringBalancer
from pyconfd.daemon.queue import WorkQueue
from pyconfd.errors import Problem, PyconfdError
from pyconfd.model.outcome import Applied, Failed, Outcome, Rejected, Step, Unchanged
from pyconfd.model.plan import Noop
from pyconfd.model.status import Phase

log = structlog.get_logger(__name__)


RESTORE = "restore the last good generation"
"""The key of the work queue until which restoring is not tried again."""

NOT_RUNNING = Problem("haproxy", "does not run: nothing is served", "start it: it loads what is installed")


class LastGood:
    """The last good generation, put back with back-off; what is in its way is said once and shown."""

    def __init__(
        self,
        balancer: RestoringBalancer,
        clock: Clock,
        account: Account,
        journal: Journal,
        queue: WorkQueue,
        *,
        reloaded: Callable[[float], None],
    ) -> None:
        """Call ``reloaded`` with the time of the monotonic clock after each reload.

        While :data:`RESTORE` waits in ``queue`` it is too early to try again.
        """
        self._balancer = balancer
        self._clock = clock
        self._account = account
        self._journal = journal
        self._queue = queue
        self._reloaded = reloaded
        self._shown = False

    def is_in_place(self) -> bool:
        """Return whether disk and process are as it left them, which is so too where there is none."""
        last = self._balancer.last_good()
        if last is None:
            return True
        in_place = isinstance(self._balancer.look(), Noop)
        if in_place:
            self._show(())
        elif not self._shown and not self._balancer.runs():  # what is done about it may wait half a minute for it
            self._show((NOT_RUNNING,), "haproxy.not_running")
        return in_place

    def replaced(self) -> None:
        """Note that something newer serves, and is the last good one now."""
        self._queue.succeeded(RESTORE)
        self._show(())

    def restore(self, now: float) -> None:
        """Make it serve unless it does; ``now`` is of the monotonic clock."""
        if self._queue.is_waiting(RESTORE) and not self._queue.pop(now, RESTORE):
            return
        outcome: Outcome | None
        try:
            outcome = self._balancer.restore_last_good(now=self._clock.now())
        except PyconfdError as error:
            outcome = Failed(Step.CHECK, error.problems)
        self._show(outcome.problems if isinstance(outcome, Rejected | Failed) else ())
        if isinstance(outcome, Rejected | Failed):
            disruptive = isinstance(outcome, Failed) and outcome.disruptive
            self._queue.retry(RESTORE, self._clock.monotonic(), disruptive=disruptive)
        elif isinstance(outcome, Applied | Unchanged):
            self._queue.succeeded(RESTORE)
            self._journal.restored(outcome)
            self._account.restored(outcome)
            if isinstance(outcome, Applied):
                self._reloaded(self._clock.monotonic())
            if self._account.status.phase is Phase.WAITING:
                self._account.phase(Phase.SERVING_LAST_GOOD)

    def _show(self, problems: tuple[Problem, ...], event: str = "last_good.failed") -> None:
        self._shown = bool(problems)
        self._journal.problems("last_good", event, problems)
        self._account.problems("last_good", problems)
