"""Objects that are left out because the configuration is rejected with them, so that everything else goes on.

::

    found offending --> quarantined --> tried again --> released
                            ^               |
                            +--- rejected --+

An object is tried again when it changed (at most every CHANGED_S), when there are new fragments, and after a pause that
doubles. Nothing of this outlives the process: after a restart the offending objects are found again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import structlog

from pyconfd.daemon.offending import Offence, SearchResult
from pyconfd.errors import NO_CLUES, Problem
from pyconfd.model.claim import Claim
from pyconfd.model.context import Context, Refusal, RefusalReason, in_order
from pyconfd.model.outcome import Applied, Outcome, Unchanged
from pyconfd.model.snapshot import Resource, Snapshot
from pyconfd.model.status import Quarantined, QuarantineStatus
from pyconfd.model.versioned import differing
from pyconfd.presets.endpoints import owner_of
from pyconfd.presets.origins import WHOLE_RESOURCES, Filter, ObjectOrigin, exists, ref_of, version_of
from pyconfd.system.backoff import Backoff

log = structlog.get_logger(__name__)

PATIENCE = 16
"""How many times longer than usual the longest pause is: each try costs checks, and what changes is tried anyway."""

CHANGED_S = 10.0
"""An object that changes again and again while it is bad is tried as often as this, as each try costs some checks."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What one attempt leaves out of its Snapshot, with the problem of each object, and what they ask for.

    ``may_search``: where the rest is rejected too, the objects behind that may be searched; ``good`` is the last
    Snapshot that was accepted as a whole, None where none is known: what changed since is suspected first.
    """

    snapshot: Snapshot
    problems: Mapping[ObjectOrigin, Problem] = field(default_factory=lambda: MappingProxyType({}))
    may_search: bool = True
    retried: frozenset[ObjectOrigin] = frozenset()
    good: Snapshot | None = None
    filter: Filter = field(default_factory=Filter)
    claims: tuple[Claim, ...] = ()

    def rest(self) -> Snapshot:
        """Return what is not left out; the very same Snapshot where nothing is."""
        return self.filter.without(self.snapshot, self.problems.keys())

    def with_more(self, found: Mapping[ObjectOrigin, Offence]) -> "LeftOut":
        """Return the same with more that is left out."""
        more = {origin: offence.problem for origin, offence in found.items()}
        claims = (*self.claims, *_claims(found.values()))
        return replace(self, problems={**self.problems, **more}, claims=claims)

    def suspects(self) -> Collection[ObjectOrigin]:
        """Return the objects that are tried again, or changed since all was accepted."""
        changed = changed_origins(self.good, self.rest()) if self.good is not None else ()
        return {*self.retried, *changed}

    def explained(self, context: Context) -> Context:
        """Return ``context`` with a refusal for each object that is left out, and with its claims."""
        if not self.problems:
            return context
        refused = (_refusal(self.snapshot, origin, problem) for origin, problem in self.problems.items())
        claims = {**context.claims, "quarantine": self._claimed}
        return replace(context, refused=in_order(context.refused, refused), claims=claims)

    def _claimed(self) -> tuple[Claim, ...]:
        return self.claims


@dataclass(slots=True)
class _Case:
    """One object in quarantine: what it was made of when it was tried last, and when it is tried again.

    ``since`` is seconds since the epoch. At ``due_at`` it is tried again, from ``earliest`` on if it changed.
    """

    offence: Offence
    since: float
    backoff: Backoff
    version: tuple[object, ...] = ()
    earliest: float = 0.0
    due_at: float = 0.0

    def wait(self, now: float) -> None:
        """Schedule the next try."""
        delay_s = self.backoff.delay_s()
        self.earliest, self.due_at = now + min(delay_s, CHANGED_S), now + delay_s

    def is_due(self, now: float, version: tuple[object, ...]) -> bool:
        """Return whether to try it again: in time, or since it changed."""
        return now >= self.due_at or (now >= self.earliest and version != self.version)


class Quarantine:
    """Lives as long as the loop. All times are of the monotonic clock."""

    def __init__(self, *, retry_min_s: float, retry_max_s: float) -> None:
        self._retry_min_s, self._retry_max_s = retry_min_s, retry_max_s * PATIENCE
        self._cases: dict[ObjectOrigin, _Case] = {}
        self._filter = Filter()
        self._good: Snapshot | None = None
        self._no_search_until = 0.0
        self._backoff = self._new_backoff()
        self._total: Counter[str] = Counter()

    @property
    def due_at(self) -> float | None:
        """When something is to be tried again though nothing happens; None for never."""
        return min((case.due_at for case in self._cases.values()), default=None)

    def left_out(self, snapshot: Snapshot, now: float, *, may_release: bool, were_applied: bool) -> LeftOut:
        """Return what the next attempt leaves out.

        ``may_release``: it is a whole attempt, by which an object can be released. Fragments that
        never ``were_applied`` take no object away that is served without them: no object is searched for them.
        """
        if not were_applied:
            # No object is released by these, so what is due would be due again at once.
            for case in self._cases.values():
                case.earliest = max(case.earliest, now + self._retry_min_s)
                case.due_at = max(case.due_at, case.earliest)
        may_release = may_release and were_applied
        retried = frozenset(
            origin
            for origin, case in self._cases.items()
            if may_release and case.is_due(now, version_of(snapshot, origin))
        )
        offences = {origin: case.offence for origin, case in self._cases.items() if origin not in retried}
        problems = {origin: each.problem for origin, each in offences.items()}
        may_search = were_applied and (bool(retried) or now >= self._no_search_until)
        claims = tuple(_claims(offences.values()))
        return LeftOut(snapshot, problems, may_search, retried, self._good, self._filter, claims)

    def retry_all(self, now: float) -> None:
        """Make every object due: there are new fragments."""
        self._no_search_until = now
        for case in self._cases.values():
            case.due_at = now

    def concluded(
        self,
        left_out: LeftOut,
        outcome: Outcome,
        search: SearchResult | None,
        *,
        now: float,
        wall: float,
        pending: bool = False,
    ) -> QuarantineStatus:
        """Learn from an attempt, and return what is to be shown. ``wall`` is seconds since the epoch.

        ``pending``: a template of the cluster is not rendered yet, so no object is known to be good.
        """
        snapshot = left_out.snapshot
        offending = search.offending if search is not None else {}
        accepted = isinstance(outcome, Applied | Unchanged) and not pending
        for origin, case in list(self._cases.items()):
            version = version_of(snapshot, origin)
            if not exists(snapshot, origin):
                self._release(origin, snapshot, "it is gone")
            elif origin in left_out.problems or origin in offending:
                if origin not in offending and version != case.version:
                    case.due_at = min(case.due_at, max(now, case.earliest))
            elif accepted:
                self._release(origin, snapshot, "it is good now")
            else:  # nothing tells
                case.wait(now)
        for origin, offence in offending.items():
            self._take(origin, offence, snapshot, now=now, wall=wall)
        if offending or accepted:
            self._backoff.reset()
        elif search is not None:
            # A search costs checks: not again each time that something else changes.
            self._no_search_until = now + self._backoff.delay_s()
            log.warning("quarantine.search_failed", why=search.why)
        if accepted:
            self._good = snapshot
        return self._status(snapshot)

    def _take(self, origin: ObjectOrigin, offence: Offence, snapshot: Snapshot, *, now: float, wall: float) -> None:
        # The clues would keep alive what templates had at hand.
        offence = offence._replace(problem=replace(offence.problem, clues=NO_CLUES))
        case = self._cases.get(origin)
        if case is None:
            case = self._cases[origin] = _Case(offence, wall, self._new_backoff())
            self._total[offence.step.value] += 1
            log.warning(
                "object.quarantined",
                object=str(ref_of(snapshot, origin)),
                entry=origin.entry,
                step=offence.step.value,
                place=offence.problem.place,
                problem=offence.problem.message,
                remedy=offence.problem.remedy,
            )
        case.offence = offence
        case.version = version_of(snapshot, origin)
        case.wait(now)

    def _release(self, origin: ObjectOrigin, snapshot: Snapshot, why: str) -> None:
        del self._cases[origin]
        log.info("object.released", object=str(ref_of(snapshot, origin)), entry=origin.entry, why=why)

    def _new_backoff(self) -> Backoff:
        return Backoff(first_s=self._retry_min_s, last_s=self._retry_max_s)

    def _status(self, snapshot: Snapshot) -> QuarantineStatus:
        shown = (
            Quarantined(
                ref_of(snapshot, origin),
                origin.entry,
                case.offence.step.value,
                in_one_line(case.offence.problem),
                case.since,
            )
            for origin, case in self._cases.items()
        )
        return QuarantineStatus(tuple(sorted(shown, key=lambda one: (one.ref, one.entry))), dict(self._total))


def _claims(offences: Iterable[Offence]) -> Iterator[Claim]:
    """Return what objects that are left out ask for: they have no servers, and a Pod only has endpoints of its own."""
    for claim in (each for offence in offences for each in offence.claims):
        endpoints = claim.endpoints if claim.ref.kind == "Pod" else ()
        yield replace(claim, backends=(), frontends=(), endpoints=endpoints, refused=())


def in_one_line(problem: Problem) -> str:
    """Return a problem in one line."""
    where = f"{problem.place}: " if problem.place else ""
    return " ".join(f"{where}{problem.message}".split())


def changed_origins(old: Snapshot, new: Snapshot) -> Iterator[ObjectOrigin]:
    """Return what differs between two Snapshots, the owners of slices for these."""
    for resource in (Resource.SERVICES, Resource.ENDPOINTS):
        for key in differing(getattr(old, resource.field), getattr(new, resource.field)):
            yield ObjectOrigin(Resource.SERVICES, key)
    for key in differing(old.endpointslices, new.endpointslices):
        for slices in (old.endpointslices, new.endpointslices):
            owner = owner_of(key, slices[key]) if key in slices else None
            if owner is not None:
                yield ObjectOrigin(Resource.SERVICES, owner)
    for resource in WHOLE_RESOURCES:
        for key in differing(getattr(old, resource.field), getattr(new, resource.field)):
            yield ObjectOrigin(resource, key)
    for key in differing(old.config_maps, new.config_maps):
        was, now = ((maps[key].data or {}) if key in maps else {} for maps in (old.config_maps, new.config_maps))
        differ = (name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
        yield from (ObjectOrigin(Resource.CONFIGMAPS, key, name) for name in differ)


def _refusal(snapshot: Snapshot, origin: ObjectOrigin, problem: Problem) -> Refusal:
    detail = f"quarantined: {in_one_line(problem)}; left out until it changes, so that everything else goes on"
    return Refusal(ref_of(snapshot, origin), origin.entry, "", RefusalReason.QUARANTINED, detail)
