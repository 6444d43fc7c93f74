"""Keeps back removals that look like a sudden loss; everything else of the same Snapshot passes."""

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from pyconfd.guard.changes import CLUSTER, Change, by_preset, changes_between, distinct, distinct_of, tracked
from pyconfd.guard.keeping import Delta, Keeping, announced
from pyconfd.guard.ledger import Ledger, Name
from pyconfd.guard.rules import Rules
from pyconfd.guard.saved import Saved, SavedLoss, afterwards_of, objects_of, saved_of, standing_of
from pyconfd.model.context import Claimed, Context
from pyconfd.model.hold import SHOWN, Hold, HoldEvent, HoldKind, HoldStep
from pyconfd.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Moment:
    """Both clocks: ``now`` never jumps, ``at`` is seconds since the epoch."""

    now: float
    at: float


@dataclass(frozen=True, slots=True)
class Seen:
    """A Snapshot and what the presets make of it; ``basis`` is all else that decides that."""

    snapshot: Snapshot
    context: Context
    basis: object

    def is_read_like(self, other: "Seen") -> bool:
        """Return whether only the cluster makes a difference."""
        mine, host = self.snapshot.host, other.snapshot.host
        same_basis = self.basis is other.basis or self.basis == other.basis
        return same_basis and (mine is host or mine == host)


class Guard:
    """Belongs to one loop. Show it each Snapshot with its Context (:meth:`look`), then ask what is held.

    It knows what served before from the Snapshots it was shown, or from :meth:`restore`; the first one passes as it is.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._ledger = Ledger(rules.window_s)
        self._keeping = Keeping(rules.window_s)
        self._seen: Seen | None = None
        self._claimed: tuple[Claimed, ...] = ()
        self._applied: tuple[Claimed, ...] | None = None
        """What is applied, None where that is not known; what came later and is gone again is nothing to put back."""
        self._ready: dict[str, int] = {}
        """How many are ready behind what each preset serves."""
        self._emptied: set[str] = set()
        """The presets that serve nothing any more, and lost something without a word."""
        self._had = 0
        self._began = 0.0
        self._held_base = 0
        self._events: list[HoldEvent] = []
        self._saved_hold: Hold | None = None
        self.hold: Hold | None = None

    @property
    def has_baseline(self) -> bool:
        """Return whether it knows what served before."""
        return self._seen is not None

    def is_due(self, now: float, *, confirmed: bool, allowed: Collection[str]) -> bool:
        """Return whether a look at the same Snapshot would say something else than the last one."""
        hold = self.hold
        if hold is None:
            return False
        if hold.hold_id in allowed or (confirmed and not hold.confirmed_at):
            return True
        return bool(hold.confirmed_at) and self._is_over(now)

    def lets_pass(self, seen: Seen) -> bool:
        """Return whether :meth:`look` certainly gives this Snapshot as it is: then it may come after it was served."""
        former = self._seen
        if self.hold is not None or former is None or not seen.is_read_like(former):
            return False
        is_own = any(each.by_name for each in seen.context.claimed)
        if is_own != self._is_own:
            return False
        gone: dict[str, int] = {}
        for each in changes_between(self._claimed, tracked(seen.context, is_own=is_own)):
            gone[each.name[0]] = gone.get(each.name[0], 0) + len(each.gone)
        lost = sum(gone.values())
        ready = self._ledger.ready - lost
        # Whatever went within the window counts, as if nothing had made up for it.
        most = lost + sum(map(len, self._ledger.lost.values()))
        is_one_empty = any(self._ready.get(preset, 0) <= count for preset, count in gone.items())
        return ready > 0 and not is_one_empty and not self._rules.is_too_much(most, ready)

    def look(
        self,
        moment: Moment,
        seen: Seen,
        translate: Callable[[Snapshot], Context],
        *,
        confirmed: bool,
        allowed: Collection[str],
    ) -> Snapshot:
        """Return the Snapshot to serve: with what is held back, and itself where nothing is.

        ``translate`` gives what the presets make of another Snapshot on the same basis. ``confirmed`` says whether
        every resource was listed in full since the hold began, ``allowed`` has the holds that an operator let through.
        """
        former, snapshot = self._seen, seen.snapshot
        if self.hold is None:
            self._ledger.expire(moment.now)
            self._keeping.expire(moment.now)
        if former is None:
            self._begin_with(seen.context)
        elif snapshot is not former.snapshot or not seen.is_read_like(former):
            old = former.snapshot
            if not seen.is_read_like(former):
                # Other settings, fragments or facts about this host may leave things out: nothing of that is lost.
                old = replace(old, host=snapshot.host)
                self._note_silently(translate(old))
            self._note(moment.now, old, snapshot, seen.context)
        self._seen = seen
        self._decide(moment, confirmed=confirmed, allowed=allowed)
        return self._served(snapshot)

    def applied(self) -> None:
        """Note that what the last look gave is applied: what it lacks is never put back, whatever is held later."""
        self._applied = self._claimed
        if self.hold is None:
            self._ledger.let_go()
            self._ledger.touched.clear()
            self._keeping.forget()
        else:
            self._keeping.let_go()

    def events(self) -> tuple[HoldEvent, ...]:
        """Return what happened to holds since the last call."""
        events, self._events = tuple(self._events), []
        return events

    # What is lost

    def _begin_with(self, context: Context, *, is_own: bool = False) -> None:
        self._claimed = tracked(context, is_own=is_own or any(each.by_name for each in context.claimed))
        self._ready = {each.preset: sum(len(distinct(each, name)) for name in each.by_name) for each in self._claimed}
        self._ledger.ready = self._had = sum(self._ready.values())

    def _note(self, now: float, old: Snapshot, new: Snapshot, context: Context) -> None:
        """Count what changed between two Snapshots, and keep what went."""
        is_counted = self._ledger.ready > 0 or self.hold is not None
        is_own = any(each.by_name for each in context.claimed) or (self._is_own and is_counted)
        self._had = self._ledger.ready
        if is_own != self._is_own:
            # What counts is another set of things: nothing of it is lost.
            self._ledger.forgive()
            self._begin_with(context)
            return
        claimed = tracked(context, is_own=is_own)
        changes = changes_between(self._claimed, claimed)
        self._claimed = claimed
        delta = Delta(old, new)
        if changes:
            self._count(now, delta, changes)
        if wanted := self._ledger.wanted:
            # The lists of one loss come one after the other.
            vanished = any(each.vanished and each.name in self._ledger.lost for each in changes)
            self._keeping.record(now, delta, wanted, asked=vanished)
        if self._keeping:
            self._keeping.touch(self._ledger.touched)
            self._keeping.follow(delta)
            if self.hold is not None:
                self._keeping.give_way(delta)
        self._ledger.touched.clear()

    def _note_silently(self, context: Context) -> None:
        """Take what is read now from the former Snapshot for what was read before."""
        if self._is_own:
            changes = changes_between(self._claimed, context.claimed)
            self._claimed = context.claimed
            for preset, change in by_preset(changes).items():
                self._ready[preset] = self._ready.get(preset, 0) + change
                self._ledger.ready += change

    @property
    def _is_own(self) -> bool:
        return all(each.preset != CLUSTER for each in self._claimed)

    def _count(self, now: float, delta: Delta, changes: list[Change]) -> None:
        came = {address for each in changes for address in each.came}
        # What is served under another name at the same time was renamed.
        gone = {address for each in changes for address in each.gone} - came
        after = self._ledger.ready + sum(each.more for each in changes)
        if gone and after:
            gone -= announced(delta, gone)
        elif gone:
            # The last ones may have said that they leave, or have come just before: to serve nothing is for people to
            # decide all the same.
            self._ledger.forget_gains(now)
        lossy = set()
        for each in changes:
            mine = sorted(each.gone & gone) if gone else []
            if mine:
                lossy.add(each.name[0])
            held = mine and self._was_applied(each.name, mine)
            self._ledger.note(now, each.name, each.more, gone=mine, held=held, came=each.came)
        for preset, change in by_preset(changes).items():
            had = self._ready.get(preset, 0)
            self._ready[preset] = had + change
            if had and had + change == 0 and preset in lossy:
                self._emptied.add(preset)

    def _was_applied(self, name: Name, addresses: list[str]) -> list[str]:
        if self._applied is None:
            return addresses
        applied = distinct_of(self._applied, name)
        return [address for address in addresses if address in applied]

    # What is held

    def _decide(self, moment: Moment, *, confirmed: bool, allowed: Collection[str]) -> None:
        self._emptied = {preset for preset in self._emptied if not self._ready.get(preset)}
        kind, preset = self._kind()
        hold = self.hold
        if hold is None:
            if kind is not None:
                self._begin(moment, kind, preset)
            else:
                self._emptied.clear()
            return
        is_worse = kind is HoldKind.TOTAL and hold.kind is not HoldKind.TOTAL
        if kind is None:
            self._end(HoldStep.RETURNED)
        elif hold.hold_id in allowed and not is_worse:
            self._end(HoldStep.ALLOWED)
        elif (kind, preset) != (hold.kind, hold.preset):
            # Another loss than the one that people read about: a permission for that one is none for this.
            self._begin(moment, kind, preset)
        else:
            self.hold = self._described(hold)
            if confirmed and not hold.confirmed_at:
                self._confirm(moment)
            elif hold.confirmed_at and self._is_over(moment.now):
                self._end(HoldStep.EXPIRED)

    def _kind(self) -> tuple[HoldKind | None, str]:
        """Return what kind of loss this is, and of which preset; None where it is none to hold."""
        ledger, rules = self._ledger, self._rules
        if rules.total and not ledger.ready:
            is_held = self.hold is not None and self.hold.kind is HoldKind.TOTAL
            is_lost = bool(ledger.loss) and (self._had > 0 or self.hold is not None)
            return (HoldKind.TOTAL if is_held or is_lost else None), ""
        if not ledger.wanted:
            return None, ""  # what went within the window is applied, or came back: there is nothing to keep
        if rules.is_too_much(ledger.loss, self._base):
            return HoldKind.SHARE, ""
        if ledger.ready and rules.share < 1.0 and self._emptied:
            return HoldKind.PRESET, min(self._emptied)
        return None, ""

    @property
    def _base(self) -> int:
        """How many endpoints there were: what comes while something is held makes the loss no smaller."""
        return self._ledger.base if self.hold is None else self._held_base

    def _is_over(self, now: float) -> bool:
        hold = self.hold
        return hold is not None and hold.kind is not HoldKind.TOTAL and now - self._began >= self._rules.persist_s

    def _begin(self, moment: Moment, kind: HoldKind, preset: str) -> None:
        snapshot = self._seen.snapshot if self._seen else Snapshot()
        self._began = moment.now
        applies_at = 0.0 if kind is HoldKind.TOTAL else moment.at + self._rules.persist_s
        names = sorted(self._ledger.held())
        seed = f"{kind} {preset} {moment.at!r} {moment.now!r} {names[:SHOWN]}"
        hold_id = hashlib.sha256(seed.encode()).hexdigest()[:8]
        if self.hold is None:
            self._held_base = self._ledger.base
            self._keeping.give_way(Delta(Snapshot(), snapshot))
        # What is put back depends on the kind.
        self._keeping.begin(anew=self.hold is None)
        self.hold = Hold(hold_id, kind, moment.at, 0, 0, 0, (), preset, applies_at=applies_at)
        self.hold = self._described(self.hold)
        self._say(HoldStep.BEGUN)

    def _described(self, hold: Hold) -> Hold:
        held = self._ledger.held()
        lost, names = sum(held.values()), sorted(held)
        shown = tuple(name for _, name in names[:SHOWN])
        former = self._ledger.loss - lost
        return replace(hold, lost=lost, let_go=former, of=self._base, affected=len(names), names=shown)

    def _confirm(self, moment: Moment) -> None:
        if self.hold is not None:
            applies_at = 0.0
            if self.hold.kind is not HoldKind.TOTAL:
                applies_at = moment.at + max(0.0, self._rules.persist_s - (moment.now - self._began))
            self.hold = replace(self.hold, confirmed_at=moment.at, applies_at=applies_at)
            self._say(HoldStep.CONFIRMED)

    def _end(self, step: HoldStep) -> None:
        self._say(step)
        self.hold = None
        self._had = self._ledger.ready
        if step is not HoldStep.RETURNED:
            self._ledger.forgive()
            self._ledger.touched.clear()
            self._keeping.forget()
            self._emptied.clear()

    def _say(self, step: HoldStep) -> None:
        if self.hold is not None:
            self._events.append(HoldEvent(step, self.hold))

    def _served(self, snapshot: Snapshot) -> Snapshot:
        hold = self.hold
        if hold is None:
            return snapshot
        strictly = hold.kind is HoldKind.TOTAL
        return self._keeping.merged(snapshot, self._ledger.wanted, strictly=strictly)

    # Over restarts

    def to_save(self) -> tuple[bool, Saved | None]:
        """Return whether what has to survive a restart is another than when this was asked last, and give it."""
        hold = self.hold
        known = hold and replace(hold, lost=0, let_go=0, of=0, affected=0, names=())
        if known == self._saved_hold and not (hold and self._keeping.changed):
            return False, None
        self._saved_hold, self._keeping.changed = known, False
        if hold is None:
            return True, None
        losses = [self._saved_loss(name, gone) for name, gone in self._ledger.lost.items()]
        kept = self._keeping
        return True, saved_of(
            hold,
            self._held_base,
            losses,
            sorted(self._emptied),
            objects=kept.objects(),
            afterwards=kept.afterwards(),
            standing=kept.standing(self._seen.snapshot if self._seen else Snapshot()),
        )

    def _saved_loss(self, name: Name, gone: Collection[str]) -> SavedLoss:
        ledger = self._ledger
        wanted = [address for address in gone if name in ledger.wanted.get(address, ())]
        let_go = [address for address in gone if name not in ledger.wanted.get(address, ())]
        return SavedLoss(*name, len(distinct_of(self._claimed, name)) + ledger.missing(name), wanted, let_go)

    def restore(self, saved: Saved, moment: Moment, seen: Seen) -> Snapshot:
        """Begin with a hold of a former run, and the first Snapshot of this one; give the Snapshot to serve."""
        self._seen = seen
        self._begin_with(seen.context, is_own=any(loss.preset != CLUSTER for loss in saved.losses))
        for loss in saved.losses:
            name = (loss.preset, loss.name)
            present = distinct_of(self._claimed, name)
            wanted, let_go = (
                [address for address in gone if address not in present] for gone in (loss.gone, loss.let_go)
            )
            self._ledger.restore(moment.now, name, len(present) - loss.before, wanted=wanted, let_go=let_go)
        self._emptied = {preset for preset in saved.emptied if not self._ready.get(preset)}
        self._keeping.restore(moment.now, objects_of(saved), afterwards_of(saved), standing_of(saved), seen.snapshot)
        self._keeping.give_way(Delta(Snapshot(), seen.snapshot))
        self._keeping.begin(anew=True)
        elapsed = min(max(0.0, moment.at - saved.since), self._rules.persist_s)
        self._began = moment.now - elapsed
        kind = HoldKind(saved.kind)
        applies_at = 0.0 if kind is HoldKind.TOTAL else moment.at + self._rules.persist_s - elapsed
        # The lists of this run are others: a second one has to confirm them again.
        hold = Hold(saved.hold_id, kind, saved.since, 0, 0, 0, (), saved.preset, applies_at=applies_at)
        self._held_base = saved.base
        self.hold = hold
        self.hold = self._described(hold)
        self._say(HoldStep.BEGUN)
        self._decide(moment, confirmed=False, allowed=())
        return self._served(seen.snapshot)
