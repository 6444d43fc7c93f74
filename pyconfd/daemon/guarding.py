"""The guard in the loop: what it is shown, what it is told, and what is said about its holds."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import structlog

from pyconfd.daemon.arbitration import Remembered, translator
from pyconfd.errors import TransientError
from pyconfd.guard import CountingGuard, Guard, Moment, Rules, Seen
from pyconfd.guard.saved import Saved
from pyconfd.model.context import Context
from pyconfd.model.hold import Hold, HoldEvent, HoldStep
from pyconfd.model.outcome import Applied, Deferred, Held, Outcome, Stored, Unchanged
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import tenures
from pyconfd.presets.memo import Memo
from pyconfd.presets.reading import PresetOptions

log = structlog.get_logger(__name__)


class HoldMemory(Protocol):
    """Remembers over restarts what is held."""

    def load(self) -> Saved | None:
        """Return what was held, None for nothing, or where that cannot be read."""
        ...

    def save(self, saved: Saved | None) -> None:
        """Remember just this; raises TransientError."""
        ...


class ForgetfulHolds:
    """Remembers nothing."""

    def load(self) -> Saved | None:
        """Return None."""
        return None

    def save(self, saved: Saved | None) -> None:
        """Do nothing."""


class _Lists(Protocol):
    def relist(self) -> None: ...

    def relisted(self) -> bool: ...


class _Clock(Protocol):
    def now(self) -> float: ...

    def monotonic(self) -> float: ...


class _World(Protocol):
    @property
    def source(self) -> _Lists: ...

    @property
    def clock(self) -> _Clock: ...

    @property
    def allowed_holds(self) -> Callable[[], frozenset[str]]: ...

    @property
    def hold_memory(self) -> HoldMemory: ...


class Guarding:
    """Keeps back removals in a succession of Snapshots. All deadlines are of the monotonic clock.

    What served before the first Snapshot is known by its numbers alone: where these say that too much is gone, the
    whole change waits. So it does where what was held before a restart went on to vanish meanwhile: what asks for the
    endpoints that were kept may not have been. ``told`` is called at each look with what is held, and what happened to
    holds.
    """

    def __init__(
        self, rules: Rules, world: _World, memo: Memo, told: Callable[[Hold | None, tuple[HoldEvent, ...]], None]
    ) -> None:
        self._guard = Guard(rules)
        self._counting = CountingGuard(rules)
        self._world = world
        self._memo = memo
        self._told = told
        self._first: Seen | None = None
        self._saved: Saved | None = None
        self._loaded = self._unsaved = False
        self._took_over = False
        """Whether a hold of a former run goes on, and nothing was served with it yet."""
        self._owed: Callable[[], object] | None = None
        self.unheld: Context | None = None
        """What the newest Snapshot gives without what is kept back; None where nothing is."""
        self._raw_memo = memo
        """For translations of what the cluster shows; another one than that for what is served while these differ."""

    @property
    def hold(self) -> Hold | None:
        """What is held; None for nothing, or for a whole change."""
        return self._guard.hold

    def is_due(self, now: float) -> bool:
        """Return whether another look at the same Snapshot is worth while."""
        if self._guard.hold is None:
            return False
        return self._guard.is_due(now, confirmed=self._world.source.relisted(), allowed=self._world.allowed_holds())

    def keep_back(
        self, snapshot: Snapshot, presets: tuple[str, ...], options: PresetOptions, remembered: Remembered
    ) -> Snapshot:
        """Return the Snapshot to serve: with the removals that are held, and itself where there are none.

        ``remembered`` is who had which name: what nobody may have yet makes up for no loss.
        """
        former = tenures.standing(remembered.tenancy, remembered.now, remembered.keep_s)

        def translate(another: Snapshot) -> Context:
            return translator(another, presets, options, self._raw_memo, remembered)({})

        self._look_owed()
        seen = Seen(snapshot, translate(snapshot), (options, former.tenures))
        moment = Moment(self._world.clock.monotonic(), self._world.clock.now())
        if self._raw_memo is self._memo and self._guard.lets_pass(seen):
            self._owed = partial(self._look, moment, seen, translate)
            return snapshot
        return self._look(moment, seen, translate)

    def _look_owed(self) -> None:
        """Catch up on a look that was put off because it could hold nothing."""
        owed, self._owed = self._owed, None
        if owed is not None:
            owed()

    def _look(self, moment: Moment, seen: Seen, translate: Callable[[Snapshot], Context]) -> Snapshot:
        snapshot = seen.snapshot
        if not self._guard.has_baseline:
            saved = self._former_hold()
            if saved is None:
                self._first = seen
                return snapshot
            served = self._guard.restore(saved, moment, seen)
            self._took_over = True
        else:
            # Permissions are files: nobody can have given one while nothing is held.
            allowed = self._world.allowed_holds() if self._guard.hold is not None else ()
            confirmed = self._world.source.relisted()
            served = self._guard.look(moment, seen, translate, confirmed=confirmed, allowed=allowed)
        events = self._guard.events()
        for event in events:
            self._tell(event)
        self._told(self._guard.hold, events)
        self.unheld = None if served is snapshot else seen.context
        if served is snapshot:
            self._raw_memo = self._memo
        elif self._raw_memo is self._memo:
            self._raw_memo = self._memo.fork()
        return served

    def judge(self, before: Stored, context: Context, digest: Callable[[], str]) -> Held | None:
        """Judge by numbers, as long as little but these is known of what served before."""
        if self._guard.has_baseline and not (self._took_over and self._guard.hold is not None):
            return None
        census = before.generation.census
        return self._counting.judge(
            self._world.clock.monotonic(),
            census,
            context.census,
            lost=census.claimed - context.census.claimed,
            digest=digest,
            allowed=self._world.allowed_holds(),
            confirmed=self._world.source.relisted(),
        )

    def concluded(self, outcome: Outcome) -> None:
        """Take the first Snapshot that was let through for what served before the next one; save what is held.

        What was refused, or failed, says nothing about a loss: it goes on to be judged by numbers.
        """
        self._look_owed()
        self._took_over = self._took_over and not isinstance(outcome, Applied | Unchanged)
        if self._first is not None and isinstance(outcome, Applied | Unchanged | Deferred):
            first, self._first = self._first, None
            moment = Moment(self._world.clock.monotonic(), self._world.clock.now())
            self._guard.look(moment, first, lambda _: first.context, confirmed=False, allowed=())
        if isinstance(outcome, Applied | Unchanged | Deferred):
            self._guard.applied()
        changed, saved = self._guard.to_save()
        if not changed and not self._unsaved:
            return
        self._saved = saved if changed else self._saved
        try:
            self._world.hold_memory.save(self._saved)
            self._unsaved = False
        except TransientError as error:
            if not self._unsaved:
                log.warning("hold.not_saved", problem=str(error))
            self._unsaved = True

    def _former_hold(self) -> Saved | None:
        if self._loaded:
            return None
        self._loaded = True
        return self._world.hold_memory.load()

    def _tell(self, event: HoldEvent) -> None:
        hold = event.hold
        problem = hold.problem
        begins = event.step is HoldStep.BEGUN
        (log.error if begins else log.info)(
            f"hold.{event.step.value}",
            **({"place": problem.place, "problem": problem.message, "remedy": problem.remedy} if begins else {}),
            id=hold.hold_id,
            kind=hold.kind.value,
            endpoints=hold.lost,
            of=hold.of,
            affected=hold.affected,
            names=list(hold.names),
            held_s=round(max(0.0, self._world.clock.now() - hold.since), 3),
        )
        if event.step is HoldStep.BEGUN:
            self._world.source.relist()
