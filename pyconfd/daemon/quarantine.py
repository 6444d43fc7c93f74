"""Remembers which objects are left out, tries them again when they change and from time to time, and tells of both."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

import structlog

from pyconfd.daemon.culprits import Blame, Verdict, signature
from pyconfd.daemon.isolation import Isolation, changed_origins, told
from pyconfd.errors import NO_CLUES, Problem
from pyconfd.model.outcome import Applied, Outcome, Step, Unchanged
from pyconfd.model.snapshot import Resource, Snapshot
from pyconfd.model.status import Quarantined, QuarantineStatus
from pyconfd.presets.memo import Memo
from pyconfd.presets.origins import Filter, Origin, exists, ref_of, version_of
from pyconfd.system.backoff import Backoff

log = structlog.get_logger(__name__)

PATIENCE = 16
"""How many times longer than usual the longest pause is: each try costs checks, and what changes is tried anyway."""

CHANGED_S = 10.0
"""An object that changes again and again while it is bad is tried as often as this, as each try costs some checks."""


@dataclass(slots=True)
class _Ward:
    """One origin in quarantine: what it was made of when it was tried last, and when it is to be tried again.

    ``since`` is seconds since the epoch. At ``due_at`` it is tried again, from ``earliest`` on if it changed.
    """

    problem: Problem
    step: Step
    since: float
    backoff: Backoff
    version: tuple[object, ...] = ()
    earliest: float = 0.0
    due_at: float = 0.0

    def wait(self, now: float) -> None:
        """Note that it was tried: time doubles until it is tried again, but one that changed need not wait so long."""
        delay_s = self.backoff.delay_s()
        self.earliest, self.due_at = now + min(delay_s, CHANGED_S), now + delay_s


class Quarantine:
    """Lives as long as the loop; a restarted pyconfd finds the objects again. All times are of the monotonic clock."""

    def __init__(self, memo: Memo, *, retry_min_s: float, retry_max_s: float) -> None:
        self._memo = memo
        self._retry_min_s, self._retry_max_s = retry_min_s, retry_max_s * PATIENCE
        self._wards: dict[Origin, _Ward] = {}
        self._filter = Filter()
        self._good: Snapshot | None = None
        self._hopeless: Verdict | None = None
        self._hopeless_until = 0.0
        self._backoff = self._new_backoff()
        self._total: Counter[str] = Counter()

    @property
    def due_at(self) -> float | None:
        """When something is to be tried again though nothing happens; None for never."""
        return min((ward.due_at for ward in self._wards.values()), default=None)

    def isolation(self, snapshot: Snapshot, now: float, *, may_retry: bool, proven: bool) -> Isolation:
        """Return what the next attempt leaves out.

        ``may_retry`` says whether it is a whole one, by which an object can be released; fragments that were not
        ``proven`` are tried with all objects.
        """
        retried = [
            origin
            for origin, ward in self._wards.items()
            if not proven or (may_retry and self._is_due(origin, ward, snapshot, now))
        ]
        left_out = {origin: ward.problem for origin, ward in self._wards.items() if origin not in retried}

        def suspects(found: Snapshot) -> Collection[Origin]:
            changed = changed_origins(self._good, found) if self._good is not None else ()
            return {*retried, *changed}

        hopeless = self._hopeless if proven and now < self._hopeless_until else None
        only = None if proven else frozenset(self._wards)
        return Isolation(snapshot, left_out, suspects, only, hopeless, self._filter)

    def _is_due(self, origin: Origin, ward: _Ward, snapshot: Snapshot, now: float) -> bool:
        if now >= ward.due_at:
            return True
        return now >= ward.earliest and self._version(snapshot, origin) != ward.version

    def retry_all(self, now: float) -> None:
        """Have everything tried again: there are new fragments."""
        self._hopeless = None
        for ward in self._wards.values():
            ward.due_at = now

    def postpone(self, now: float) -> None:
        """Have nothing tried again at once: a rendering is waited for, and its end is an event."""
        for ward in self._wards.values():
            ward.due_at = max(ward.due_at, now + self._retry_min_s)

    def concluded(
        self,
        isolation: Isolation,
        outcome: Outcome,
        verdict: Verdict | None,
        *,
        now: float,
        wall: float,
        pending: bool = False,
    ) -> QuarantineStatus:
        """Note what came of an attempt with ``isolation``, and give what is to be shown.

        ``wall`` is seconds since the epoch. ``pending``: a template is not rendered yet, so nobody is known to be good.
        """
        snapshot = isolation.snapshot
        culprits = verdict.culprits if verdict else {}
        served = isinstance(outcome, Applied | Unchanged) and not pending
        self._judge(isolation, culprits, now, served=served, pending=pending)
        for origin, blame in culprits.items():
            self._take(origin, blame, snapshot, self._version(snapshot, origin), now=now, wall=wall)
        self.note(verdict, now)
        if served:
            self._good = snapshot
        return self._status(snapshot)

    def _judge(
        self, isolation: Isolation, culprits: Collection[Origin], now: float, *, served: bool, pending: bool
    ) -> None:
        """Note what an attempt tells about those in quarantine."""
        snapshot = isolation.snapshot
        if pending:
            self.postpone(now)
        for origin, ward in list(self._wards.items()):
            if not exists(snapshot, origin):
                self._release(origin, snapshot, "it is gone")
            elif origin in culprits:
                pass
            elif origin in isolation.left_out:
                if self._version(snapshot, origin) != ward.version:
                    ward.due_at = min(ward.due_at, max(now, ward.earliest))
            elif served:
                self._release(origin, snapshot, "it is good now")
            elif not pending:  # nothing tells
                ward.wait(now)

    def _release(self, origin: Origin, snapshot: Snapshot, why: str) -> None:
        del self._wards[origin]
        log.info("object.released", object=str(ref_of(snapshot, origin)), entry=origin.entry, why=why)

    def _take(
        self,
        origin: Origin,
        blame: Blame,
        snapshot: Snapshot,
        version: tuple[object, ...],
        *,
        now: float,
        wall: float,
    ) -> None:
        # What led to the object would keep alive what templates had at hand.
        problem = replace(blame.problem, clues=NO_CLUES)
        ward = self._wards.get(origin)
        if ward is None:
            ward = self._wards[origin] = _Ward(problem, blame.step, wall, self._new_backoff())
            self._total[blame.step.value] += 1
            log.warning(
                "object.quarantined",
                object=str(ref_of(snapshot, origin)),
                entry=origin.entry,
                step=blame.step.value,
                place=problem.place,
                problem=problem.message,
                remedy=problem.remedy,
            )
        elif signature([ward.problem]) != signature([problem]):
            ward.problem, ward.step = problem, blame.step
        ward.version = version
        ward.wait(now)

    def _new_backoff(self) -> Backoff:
        return Backoff(first_s=self._retry_min_s, last_s=self._retry_max_s)

    def note(self, verdict: Verdict | None, now: float) -> None:
        """Remember that nobody was found, so that it costs no search each time that something else changes."""
        if verdict is None or verdict.culprits:
            self._hopeless = None
            self._backoff.reset()
        elif verdict is not self._hopeless:
            if self._hopeless is None or self._hopeless.about != verdict.about:
                log.warning("culprit.none", why=verdict.why)
            self._hopeless, self._hopeless_until = verdict, now + self._backoff.delay_s()

    def _status(self, snapshot: Snapshot) -> QuarantineStatus:
        shown = (
            Quarantined(ref_of(snapshot, origin), origin.entry, ward.step.value, told(ward.problem), ward.since)
            for origin, ward in self._wards.items()
        )
        return QuarantineStatus(tuple(sorted(shown, key=lambda one: (one.ref, one.entry))), dict(self._total))

    def _version(self, snapshot: Snapshot, origin: Origin) -> tuple[object, ...]:
        """Return all that an origin is made of; the slices are those of the last translation."""
        cluster = self._memo.cluster
        slices = cluster.slices.get(origin.key) if cluster and origin.resource is Resource.SERVICES else None
        return *version_of(snapshot, origin), slices
