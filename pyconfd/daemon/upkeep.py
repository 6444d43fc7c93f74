"""What every loop does beside applying: look after the balancer, mind an operator's pause, tell each change."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from pyconfd.daemon.account import Account
from pyconfd.daemon.journal import Journal
from pyconfd.daemon.ports import Changes, Clock, RestoringBalancer
from pyconfd.model.changes import Action, Change, change_of, change_of_hold
from pyconfd.model.hold import Hold, HoldEvent
from pyconfd.model.outcome import Failed, Outcome, Rejected
from pyconfd.model.status import Paused

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the upkeep looks at; ``paused`` gives what an operator froze, at a time in seconds since the epoch."""

    balancer: RestoringBalancer
    clock: Clock
    paused: Callable[[float], Paused | None]
    changes: Changes


class Upkeep:
    """The upkeep of one loop, which shows in ``account`` and ``journal``."""

    def __init__(self, around: Surroundings, account: Account, journal: Journal) -> None:
        self._around = around
        self._account = account
        self._journal = journal
        self._told: Change | None = None
        self._told_edit: tuple[Action, tuple[str, ...]] | None = None
        self.paused: Paused | None = None

    def resumed(self) -> bool:
        """Look whether applying is frozen; True once when it is not any more."""
        former, self.paused = self.paused, self._around.paused(self._around.clock.now())
        if self.paused and not former:
            log.warning("applying.paused", reason=self.paused.reason, until=self.paused.until)
        if former and not self.paused:
            log.info("applying.resumed")
        return former is not None and self.paused is None

    def look(self) -> None:
        """Have the balancer look after what runs, and show how it stands."""
        standing = self._around.balancer.standing(may_repair=not self.paused)
        self._journal.problems("balancer", "balancer.troubled", standing.problems)
        why = standing.live.unavailable
        if why and why != self._account.status.live.unavailable:
            log.info("live_changes.unavailable", why=why)
        self._account.stands(standing, self.paused, self._around.clock.now())

    def tell(self, outcome: Outcome, duration_s: float) -> None:
        """Count an outcome, and tell people what changed; what waits is told when it begins to."""
        serving = self._account.status.generation
        number = serving.number if serving else 0
        change = change_of(outcome, at=self._around.clock.now(), serving=number, duration_s=duration_s)
        self._account.took(change)
        if change is None:
            return
        told = replace(change, at=0.0, duration_s=0.0)
        if change.action is not Action.DEFERRED or told != self._told:
            self._around.changes.record(change)
        self._told = told

    def tell_edit(self, outcome: Rejected | Failed, duration_s: float = 0.0) -> None:
        """Count and tell an edit of fragments that does not come to serve; tries that end the same are told once."""
        serving = self._account.status.generation
        number = serving.number if serving else 0
        change = change_of(outcome, at=self._around.clock.now(), serving=number, duration_s=duration_s)
        self._account.took(change)
        if change is not None and (change.action, change.details) != self._told_edit:
            self._around.changes.record(change)
            self._told_edit = change.action, change.details

    def edited(self) -> None:
        """Note that there is another edit."""
        self._told_edit = None

    def held(self, hold: Hold | None, events: tuple[HoldEvent, ...]) -> None:
        """Show what is held, and tell people when that begins and how it ends."""
        self._account.held(hold, events)
        if not events:
            return
        now, serving = self._around.clock.now(), self._account.status.generation
        told = (change_of_hold(event, at=now, serving=serving.number if serving else 0) for event in events)
        for change in told:
            if change is not None:
                self._around.changes.record(change)

    def flush(self) -> None:
        """Write what was told."""
        self._around.changes.flush()
