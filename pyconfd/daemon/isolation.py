"""What one reconciliation leaves out of its Snapshot, and the search for who else has to be. Keeps nothing."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pyconfd.daemon.culprits import EVERY_OBJECT, Blame, Search, Verdict, Workshop, signature
from pyconfd.errors import Problem, TransientError, first_line
from pyconfd.model.context import Census, Context, Refusal, RefusalReason
from pyconfd.model.layered import differing
from pyconfd.model.outcome import Rejected, Step
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Resource, Snapshot
from pyconfd.presets.endpoints import owner_of
from pyconfd.presets.origins import Filter, Origin, ref_of

_SEARCHED = frozenset({Step.RENDER, Step.CHECK})
"""The steps whose refusals can be an object's fault."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """``left_out`` are the origins of ``snapshot`` that are in quarantine, with the problem of each.

    ``suspects`` are tried again, or changed since all was good. ``only`` (None: anything) may be left out beside:
    fragments that never served take nothing away from who is served without them. ``hopeless`` is a verdict of nobody
    that still stands. ``filter`` is that of the former attempts.
    """

    snapshot: Snapshot
    left_out: Mapping[Origin, Problem] = field(default_factory=lambda: MappingProxyType({}))
    suspects: Callable[[Snapshot], Collection[Origin]] = lambda _: ()
    only: frozenset[Origin] | None = None
    hopeless: Verdict | None = None
    filter: Filter = field(default_factory=Filter)

    def with_culprits(self, found: Mapping[Origin, Blame]) -> "Isolation":
        """Return the same with more that is left out."""
        more = {origin: blame.problem for origin, blame in found.items()}
        return replace(self, left_out={**self.left_out, **more})

    def rest(self) -> Snapshot:
        """Return what is not left out; the very same Snapshot where nothing is."""
        return self.filter.without(self.snapshot, self.left_out.keys())

    def explained(self, context: Context) -> Context:
        """Return ``context`` with a refusal for each object that is left out."""
        if not self.left_out:
            return context
        refused = (_refusal(self.snapshot, origin, problem) for origin, problem in self.left_out.items())
        return replace(context, refused=tuple(sorted({*context.refused, *refused})))

    def searched(self, outcome: Rejected, rendering: Rendering | None, workshop: Workshop) -> Verdict:
        """Find who is behind a refusal of what the rest gave."""
        snapshot = self.rest()
        about = signature(outcome.problems)
        if outcome.step not in _SEARCHED:
            return Verdict(why="what was refused is no object's text", about=about)
        if self.only is not None and not self.only:
            return Verdict(why="these fragments never served: nobody is left out for them", about=about)
        if self.hopeless is not None and self.hopeless.about >= about:
            return self.hopeless
        try:
            verdict = Search(workshop, snapshot).run(outcome.problems, rendering, self.suspects(snapshot))
        except TransientError as error:
            verdict = Verdict(why=first_line(error.problems))
        return replace(self._judged(verdict, snapshot, workshop), about=about)

    def _judged(self, verdict: Verdict, snapshot: Snapshot, workshop: Workshop) -> Verdict:
        """Let nobody be left out who is served with other fragments, nor everybody."""
        if not verdict.culprits:
            return verdict
        if self.only is not None and (spared := verdict.culprits.keys() - self.only):
            served = ref_of(snapshot, min(spared))
            return Verdict(why=f"{served} is served with the fragments as they were before")
        rest = Filter().without(snapshot, verdict.culprits.keys())
        before, after = workshop.translate(snapshot).census, workshop.translate(rest).census
        if (workshop.serves or len(verdict.culprits) > 1) and _is_nothing_left(before, after):
            return Verdict(why=EVERY_OBJECT)
        return verdict


def told(problem: Problem) -> str:
    """Return a problem in one line."""
    where = f"{problem.place}: " if problem.place else ""
    return " ".join(f"{where}{problem.message}".split())


def _refusal(snapshot: Snapshot, origin: Origin, problem: Problem) -> Refusal:
    detail = f"quarantined: {told(problem)}; left out until it changes, so that everything else goes on"
    return Refusal(ref_of(snapshot, origin), origin.entry, "", RefusalReason.QUARANTINED, detail)


def _is_nothing_left(before: Census, after: Census) -> bool:
    """Return whether all that was to be served, or all there is, would be left out: then it is no object's fault."""
    return bool((before.claimed and not after.claimed) or (before.total and not after.total))


def changed_origins(old: Snapshot, new: Snapshot) -> Iterable[Origin]:
    """Return what differs between two Snapshots, the owners of slices for these."""
    for resource in (Resource.SERVICES, Resource.ENDPOINTS):
        for key in differing(getattr(old, resource.field), getattr(new, resource.field)):
            yield Origin(Resource.SERVICES, key)
    for key in differing(old.endpointslices, new.endpointslices):
        for slices in (old.endpointslices, new.endpointslices):
            owner = owner_of(key, slices[key]) if key in slices else None
            if owner is not None:
                yield Origin(Resource.SERVICES, owner)
    for resource in (Resource.PODS, Resource.NODES, Resource.SECRETS):
        for key in differing(getattr(old, resource.field), getattr(new, resource.field)):
            yield Origin(resource, key)
    for key in differing(old.config_maps, new.config_maps):
        was, now = ((maps[key].data or {}) if key in maps else {} for maps in (old.config_maps, new.config_maps))
        differ = (name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
        yield from (Origin(Resource.CONFIGMAPS, key, name) for name in differ)
