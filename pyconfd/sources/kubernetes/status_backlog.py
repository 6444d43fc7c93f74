"""What is still to be written into the statuses of the cluster, and when each may be: no threads, no requests.

Only what changed since the last look is compared, on either side: what an object's status shall say, and the object.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, NamedTuple

from pyconfd.model.object_status import ObjectKey, ObjectStatus, Statuses
from pyconfd.model.snapshot import Resource, Snapshot
from pyconfd.model.versioned import differing
from pyconfd.sources.kubernetes.object_status import (
    WITH_STATUS,
    CurrentObject,
    Scope,
    addresses_in,
    document,
    is_in_sync,
    may_hold,
    to_apply,
    without_ours,
)
from pyconfd.system.backoff import Backoff

CONTESTED_AFTER = 3
"""So many times somebody else has to change what was written before that is a problem to report."""

CALM_S = 900.0
"""After so long without a change by somebody else the next one counts as the first."""

_REWRITE_FIRST_S, _REWRITE_LAST_S = 2.0, 600.0
_RETRY_FIRST_S, _RETRY_LAST_S = 1.0, 60.0
_STORM, _SUMMARY_PAUSE_S = 10, 1.0
"""While more than so many objects wait, a Gateway, which counts its routes, is written each second, not behind them."""

_NO_STATUSES: Statuses = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reconciliation that HAProxy runs asks for; those in quarantine are not served."""

    statuses: tuple[Statuses, ...] = ()
    quarantined: frozenset[ObjectKey] = frozenset()

    def of(self, of: ObjectKey) -> ObjectStatus | None:
        """Return what the status of one object shall be; None where it is not ours."""
        return next((each[of] for each in self.statuses if of in each), None)


class StatusWrite(NamedTuple):
    """One request: the ``body`` of a server-side apply; ``asked`` None removes our part."""

    of: ObjectKey
    body: bytes
    current: CurrentObject
    asked: Mapping[str, Any] | None


@dataclass(slots=True)
class _Written:
    """What was written last into an object: ``asked`` None where our part was removed.

    ``before`` and ``after`` are the resourceVersions; ``status`` is what the API server returned, for as long as the
    Snapshot still has ``before``. ``at`` and ``not_before`` are seconds of the monotonic clock.
    ``repeated`` counts how often somebody else had changed it.
    """

    uid: str
    asked: Mapping[str, Any] | None
    before: str
    after: str
    status: Mapping[str, Any]
    at: float
    repeated: int = 0
    pauses: Backoff = field(default_factory=lambda: Backoff(first_s=_REWRITE_FIRST_S, last_s=_REWRITE_LAST_S))
    not_before: float = 0.0


class _Left(NamedTuple):
    """An object that was ours until ``since``, in seconds of the monotonic clock."""

    uid: str
    controller: str
    since: float


class _Need(NamedTuple):
    """Why one object has to be written."""

    current: CurrentObject
    asked: ObjectStatus | None
    controller: str

    @property
    def withdraws(self) -> bool:
        """Whether clients are told where to connect, and shall not be any more."""
        return bool(addresses_in(self.current.status)) and not (self.asked and addresses_in(self.asked.body))


class _Due(NamedTuple):
    need: _Need
    at: float


class _Turns:
    """Objects that wait, by namespace: each has its turn, so that thousands of one delay those of no other."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[ObjectKey, None]] = {}

    def add(self, of: ObjectKey, *, first: bool) -> None:
        """Add an object that does not wait: before or behind all others of its namespace."""
        waiting = self._waiting.setdefault(of.key.namespace, {})
        if first:
            self._waiting[of.key.namespace] = {of: None, **waiting}
        else:
            waiting[of] = None

    def __contains__(self, of: ObjectKey) -> bool:
        return of in self._waiting.get(of.key.namespace, ())

    def discard(self, of: ObjectKey) -> None:
        waiting = self._waiting.get(of.key.namespace, {})
        waiting.pop(of, None)
        if not waiting:
            self._waiting.pop(of.key.namespace, None)

    def next(self, is_ready: Callable[[ObjectKey], bool]) -> ObjectKey | None:
        """Return the first object of the next namespace that has one ready; that namespace is the last one then."""
        for namespace, waiting in self._waiting.items():
            # Most often the first one is ready: thousands wait in a storm.
            if (of := next(filter(is_ready, waiting), None)) is not None:
                self._waiting[namespace] = self._waiting.pop(namespace)
                return of
        return None


class StatusBacklog:
    """Belongs to one thread; times are of the monotonic clock.

    An object that is not ours any more loses our part after ``grace_s``, and so its addresses one for which nothing
    answers for the time being; one in quarantine at once.
    """

    def __init__(self, grace_s: float, scope: Scope) -> None:
        self._grace_s = grace_s
        self._scope = scope
        self._asked = Asked()
        self._snapshot = Snapshot()
        self._due: dict[ObjectKey, _Due] = {}
        self._withdrawals, self._others = _Turns(), _Turns()
        self._withdrew = False
        """Whether the last write withdrew an address."""
        self._written: dict[ObjectKey, _Written] = {}
        self._left: dict[ObjectKey, _Left] = {}
        self._retries: dict[ObjectKey, Backoff] = {}
        self._blocked: dict[Resource, float] = {}
        self._contested: dict[ObjectKey, float] = {}

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, of: ObjectKey) -> bool:
        return of in self._due

    @property
    def is_idle(self) -> bool:
        """Whether nothing is ours, and nothing has to be removed."""
        return not (self._due or any(self._asked.statuses))

    def take(self, asked: Asked, snapshot: Snapshot, now: float) -> None:
        """Compare what changed since the last call."""
        former, self._asked = self._asked, asked
        before, self._snapshot = self._snapshot, snapshot
        changed: dict[ObjectKey, None] = {}
        for old, new in zip_longest(former.statuses, asked.statuses, fillvalue=_NO_STATUSES):
            changed.update(dict.fromkeys(differing(old, new)))
        changed.update(dict.fromkeys(former.quarantined ^ asked.quarantined))
        for of in changed:
            self._note_owner(of, former.of(of), now)
        for resource in WITH_STATUS:
            if resource not in self._scope.resources:
                continue
            records = differing(getattr(before, resource.field), getattr(snapshot, resource.field))
            changed.update((ObjectKey(resource, key), None) for key in records)
        for of in changed:
            self._consider(of, now)

    def next_write(self, now: float, date: str) -> StatusWrite | None:
        """Return what to write now, None where nothing is due.

        What withdraws an address comes first, but every second time at most; namespaces take turns in either. ``date``
        is now in RFC 3339, for conditions that change.
        """
        both = [self._withdrawals, self._others]
        turns = reversed(both) if self._withdrew else both
        of = next(filter(None, (each.next(lambda of: self._is_ready(of, now)) for each in turns)), None)
        if of is None:
            return None
        self._withdrew = self._due[of].need.withdraws
        current, asked, controller = self._due[of].need
        if asked is None:
            status = without_ours(of.resource, controller, current.status)
        else:
            status = to_apply(of.resource, asked.body, controller, current.status, date)
        return StatusWrite(of, document(of, current, status), current, asked.body if asked else None)

    def next_due(self) -> float | None:
        """Return when something is due next, None for never."""
        times = (max(due.at, self._blocked.get(of.resource, 0.0)) for of, due in self._due.items())
        return min(times, default=None)

    def written(self, write: StatusWrite, version: str, status: Mapping[str, Any], now: float) -> None:
        """Record that a write was accepted, and what stands since."""
        of, current = write.of, write.current
        made = _Written(current.uid, write.asked, current.version, version, status, now)
        former = self._written.get(of)
        # Without a new version nothing had to be changed: nobody else had written.
        if former is not None and former.uid == made.uid and former.asked == made.asked and version != made.before:
            if now - former.at < CALM_S:
                made.repeated, made.pauses = former.repeated + 1, former.pauses
            made.not_before = now + made.pauses.delay_s()
        if made.repeated >= CONTESTED_AFTER:
            self._contested[of] = now
        self._written[of] = made
        self._forget(of)
        if write.asked is None:
            self._left.pop(of, None)

    def failed(self, write: StatusWrite, now: float) -> None:
        """Try one write again later, and all others meanwhile."""
        pauses = self._retries.setdefault(write.of, Backoff(first_s=_RETRY_FIRST_S, last_s=_RETRY_LAST_S))
        self._due[write.of] = self._due[write.of]._replace(at=now + pauses.delay_s())

    def block(self, resource: Resource, until: float) -> None:
        """Write nothing to objects of a resource for a while."""
        self._blocked[resource] = until

    def contested(self, now: float) -> tuple[ObjectKey, ...]:
        """Return the objects whose status somebody else changes again and again, sorted."""
        self._contested = {of: at for of, at in self._contested.items() if of in self._written and now - at < CALM_S}
        return tuple(sorted(self._contested))

    def _note_owner(self, of: ObjectKey, former: ObjectStatus | None, now: float) -> None:
        if self._asked.of(of) is not None:
            self._left.pop(of, None)
        elif former is not None:
            self._left[of] = _Left(former.uid, former.controller, now)

    def _note_left_over(self, of: ObjectKey, now: float) -> None:
        """Record that a former process, or another balancer, may have written to an object that is not ours."""
        if of in self._left or of in self._written or self._asked.of(of) is not None:
            return
        current = self._current(of)
        if current is not None and self._scope.has_mark(of.resource, current.status):
            self._left[of] = _Left(current.uid, self._scope.controller, now)

    def _current(self, of: ObjectKey) -> CurrentObject | None:
        """Return an object as it is, though the watch may not have brought it yet; None where there is none."""
        record = getattr(self._snapshot, of.resource.field).get(of.key)
        if record is None:
            self._written.pop(of, None)
            return None
        found = CurrentObject(record.metadata.uid, record.metadata.resource_version, record.status or {})
        written = self._written.get(of)
        if written is None:
            return found
        if written.uid != found.uid:
            del self._written[of]
            return found
        if written.before != found.version:
            written.status = {}  # the watch has brought it, or something newer
            return found
        return CurrentObject(written.uid, written.after, written.status)

    def _consider(self, of: ObjectKey, now: float) -> None:
        """Schedule the write of one object, if it needs one."""
        self._note_left_over(of, now)
        need, left, written = self._need(of), self._left.get(of), self._written.get(of)
        if need is None:
            self._forget(of)
            self._left.pop(of, None)
            return
        known = self._due.get(of)
        at = known.at if known is not None and of in self._retries else now
        if of in self._asked.quarantined:
            pass
        elif left is not None:
            at = max(at, left.since + self._grace_s)
        elif need.withdraws and need.asked is not None and need.asked.may_wait:
            at = known.at if known is not None and known.need.withdraws else now + self._grace_s
        elif written is not None and need.asked is not None and written.asked == need.asked.body:
            at = max(at, written.not_before)
        counts = of.resource is Resource.GATEWAYS
        calm_at = written.at + _SUMMARY_PAUSE_S if written is not None else now
        if counts and len(self._due) > _STORM:
            at = max(at, calm_at)
        self._due[of] = _Due(need, at)
        mine, other = self._others, self._withdrawals
        if need.withdraws:
            mine, other = other, mine
        other.discard(of)
        if of not in mine:
            mine.add(of, first=counts and at >= calm_at)

    def _need(self, of: ObjectKey) -> _Need | None:
        """Return why one object has to be written; None where it says already what it shall say."""
        current, asked, left = self._current(of), self._asked.of(of), self._left.get(of)
        if current is None:
            return None
        if asked is None:
            is_ours = left is not None and left.uid == current.uid
            if left is None or not (is_ours and may_hold(of.resource, left.controller, current.status)):
                return None
            return _Need(current, None, left.controller)
        # Another object of its name is for the next reconciliation, which will have seen it.
        if asked.uid != current.uid or self._says(of, asked, current):
            return None
        return _Need(current, asked, asked.controller)

    def _says(self, of: ObjectKey, asked: ObjectStatus, current: CurrentObject) -> bool:
        written = self._written.get(of)
        if written is not None:
            if written.asked != asked.body:
                return False  # what was asked for before has to go
            if written.after == current.version:
                return True  # that is what the API server made of it
        return is_in_sync(of.resource, asked.body, asked.controller, current.status)

    def _is_ready(self, of: ObjectKey, now: float) -> bool:
        return self._due[of].at <= now and self._blocked.get(of.resource, 0.0) <= now

    def _forget(self, of: ObjectKey) -> None:
        self._due.pop(of, None)
        self._withdrawals.discard(of)
        self._others.discard(of)
        self._retries.pop(of, None)
