"""Remembers what the last reconciliation saw and made, and since when things are so, for explanations.

Only references are kept, and each value is replaced as a whole, so that any thread may read them at any time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyconfd.model.condition import Age
from pyconfd.model.context import Context, Refusal, news
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.outcome import Outcome
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.preset import PresetOptions

_Cause = tuple[ObjectRef, str, str]
"""What makes two refusals the same one: object, field and reason; its words may change meanwhile."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One reconciliation.

    ``desired`` is what it rendered, None where it could not; ``serving`` the running configuration since.
    ``without_hold`` is what it would have been without what is held, None where that is nothing.
    """

    snapshot: Snapshot
    options: PresetOptions
    context: Context
    desired: Rendering | None
    refused: tuple[Refusal, ...] = ()
    serving: Rendering | None = None
    without_hold: Context | None = None


class Memory:
    """What the loop tells it; times are seconds since the epoch."""

    def __init__(self) -> None:
        self.seen: Seen | None = None
        self.complete: Snapshot | None = None
        """The Snapshot that was applied last, with all of its changes."""
        self.outcome_since = 0.0
        self._kind: tuple[type[Outcome], str] | None = None
        self._ages: MappingProxyType[Refusal, Age] = MappingProxyType({})
        self._refused: tuple[Refusal, ...] | None = None

    def concluded(self, seen: Seen, outcome: Outcome, now: float) -> None:
        """Record what was made of a Snapshot and what became of it; what is refused as before keeps its age."""
        kind = type(outcome), getattr(outcome, "hold_id", "")
        if kind != self._kind:
            self._kind, self.outcome_since = kind, now
        refused = seen.refused
        if refused != self._refused:
            # What is refused when this process looks for the first time may have been so for long.
            fresh, ages = Age(now, at_least=self._refused is None), self._ages.copy()
            came, gone = news(refused, self._refused or ())
            former = {cause_of(each): ages.pop(each, fresh) for each in gone}
            self._ages = MappingProxyType(ages | {each: former.get(cause_of(each), fresh) for each in came})
            self._refused = refused
        self.seen = seen

    def ages(self) -> Mapping[Refusal, Age]:
        """Return since when each thing is refused."""
        return self._ages


def cause_of(refusal: Refusal) -> _Cause:
    """Return what a refusal is known again by."""
    return refusal.ref, refusal.field, refusal.reason.value
