"""Removal protection in the loop: call it with each Snapshot, log its holds, and save them over restarts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog

from pyconfd.admission.removal_protection import Moment, RemovalProtection, RemovalRules, SavedHold
from pyconfd.admission.whole_change import WholeChange
from pyconfd.daemon.translation import Translator
from pyconfd.model.context import Context
from pyconfd.model.hold import Hold, HoldEvent, HoldStep
from pyconfd.model.kubernetes import WholeObject
from pyconfd.model.outcome import Applied, Deferred, Held, Outcome, Stored, Unchanged
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.registry import Memo
from pyconfd.system.state_file import StateFile

if TYPE_CHECKING:
    from pyconfd.daemon.ports import World

log = structlog.get_logger(__name__)

FILE = "held.json"


def hold_file(state_dir: str) -> StateFile[SavedHold]:
    """Return the file for what is held; it has an empty object once nothing is any more."""
    effect = "a restart would not know what is held"
    # Only for this user: a pod's environment may hold a password.
    path = Path(state_dir) / FILE
    return StateFile(path, SavedHold, effect=effect, mode=0o600, enc_hook=encoded, dec_hook=decoded)


class ProtectedSnapshot(NamedTuple):
    """A Snapshot to serve, and what the presets make of it; None where objects are held, which they have not seen."""

    snapshot: Snapshot
    context: Context | None


class ProtectedSnapshots:
    """Turns the Snapshots of the source into those that are served.

    What was served before the first Snapshot is known by its numbers alone: where these say that too much is gone, the
    whole change waits, until something was applied.
    """

    def __init__(
        self,
        rules: RemovalRules,
        world: "World",
        report: Callable[[Hold | None, tuple[HoldEvent, ...]], None],
    ) -> None:
        self._protection = RemovalProtection(rules)
        self._whole_change = WholeChange(rules)
        self._world = world
        self._report = report
        self._cluster_memo: Memo | None = None
        """For what the cluster shows, while something else is served."""
        self._read_with: object = None
        """Options and host facts: what decides beside the cluster what the presets make of it."""
        self.has_applied = False
        """Whether this process applied anything; until then a list may lack most objects and was not judged."""
        self._may_restore = True
        self.without_hold: Context | None = None
        """What the presets make of the newest Snapshot without what is held; None where nothing is."""

    @property
    def hold(self) -> Hold | None:
        """What is held; None for nothing, or for a whole change."""
        return self._protection.hold

    def is_due(self, now: float) -> bool:
        """Return whether the same Snapshot has to be admitted again."""
        world = self._world
        return self.hold is not None and self._protection.is_due(
            now, confirmed=world.source.relisted(), allowed=world.allowed_holds()
        )

    def protect(self, snapshot: Snapshot, translator: Translator) -> ProtectedSnapshot:
        """Return what to serve: the Snapshot itself, or with the objects that are held as they were."""
        protection = self._protection
        if self._cluster_memo is not None:
            translator = replace(translator, memo=self._cluster_memo)
        read_with = (translator.options, snapshot.host)
        left = protection.without_deleted(snapshot)
        if self._read_with is not None and (read_with != self._read_with or left is not protection.snapshot):
            protection.rebase(left, translator.translate(replace(left, host=snapshot.host)))
        self._read_with = read_with
        context = translator.translate(snapshot)
        served = self._admit(snapshot, context)
        events = protection.events()
        for event in events:
            self._log(event)
        self._report(protection.hold, events)
        is_held = served is not snapshot
        self.without_hold = context if is_held else None
        self._cluster_memo = (self._cluster_memo or Memo()) if is_held else None
        return ProtectedSnapshot(served, None if is_held else context)

    def _admit(self, snapshot: Snapshot, context: Context) -> Snapshot:
        world, protection = self._world, self._protection
        moment = Moment(world.clock.monotonic(), world.clock.now())
        if not self.has_applied and protection.hold is None:
            saved = world.hold_file.load() if world.hold_file is not None and self._may_restore else None
            self._may_restore = False
            return protection.restore(saved or SavedHold(), moment, snapshot, context)
        # Permissions are files; there can be none while nothing is held, so they are not looked for.
        allowed = world.allowed_holds() if protection.hold is not None else ()
        return protection.admit(moment, snapshot, context, confirmed=world.source.relisted(), allowed=allowed)

    def judge(self, before: Stored, context: Context, digest: Callable[[], str]) -> Held | None:
        """Judge a whole change by numbers, until something was applied."""
        if self.has_applied:
            return None
        world, totals = self._world, before.generation.totals
        return self._whole_change.judge(
            world.clock.monotonic(),
            totals,
            context.totals,
            lost=totals.claimed - context.totals.claimed,
            digest=digest,
            allowed=world.allowed_holds(),
            confirmed=world.source.relisted(),
        )

    def concluded(self, outcome: Outcome) -> None:
        """Record the outcome of the Snapshot that was returned last, and save what is held."""
        protection = self._protection
        if isinstance(outcome, Applied | Unchanged | Deferred):
            self.has_applied = True
            protection.applied()
        if not protection.is_saved and self._world.hold_file is not None:
            protection.is_saved = self._world.hold_file.save(protection.saved())

    def _log(self, event: HoldEvent) -> None:
        hold, problem = event.hold, event.hold.problem
        held_s = round(max(0.0, self._world.clock.now() - hold.since), 3)
        about = log.bind(id=hold.hold_id, kind=hold.kind.value, endpoints=hold.lost, of=hold.of, held_s=held_s)
        about = about.bind(affected=hold.affected, names=list(hold.names))
        if event.step is HoldStep.BEGUN:
            about.error("hold.begun", place=problem.place, problem=problem.message, remedy=problem.remedy)
            self._world.source.relist()
        else:
            about.info(f"hold.{event.step.value}")


def encoded(value: object) -> object:
    """Return what JSON has for a value that it lacks: msgspec's ``enc_hook``."""
    if isinstance(value, WholeObject):
        return value.json.decode()
    raise NotImplementedError(f"no JSON for {type(value).__name__}")


def decoded(kind: type, value: object) -> object:
    """Return what :func:`encoded` stood for: msgspec's ``dec_hook``."""
    if kind is WholeObject and isinstance(value, str):
        return WholeObject(value.encode())
    raise NotImplementedError(f"no {kind.__name__} from JSON")
