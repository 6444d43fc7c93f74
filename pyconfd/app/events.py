"""What is told in the cluster itself: Kubernetes Events on refused objects, where these are switched on."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

from pyconfd.daemon.memory import Seen
from pyconfd.errors import Problem
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.snapshot import KIND_OF, Key, Snapshot
from pyconfd.model.status import EventCounts
from pyconfd.settings import Settings
from pyconfd.sources.kubernetes.events import EventWriter, RefusedObject
from pyconfd.status.redaction import public_refusal

_FIELD_OF = {kind: resource.field for resource, kind in KIND_OF.items()}


class _Teller(Protocol):
    def start(self, culprits: Callable[[], Sequence[RefusedObject]]) -> None: ...

    def problems(self) -> tuple[Problem, ...]: ...

    def counts(self) -> EventCounts: ...


class _Nobody:
    """Events are off."""

    def start(self, culprits: Callable[[], Sequence[RefusedObject]]) -> None:
        """Look at nothing."""

    def problems(self) -> tuple[Problem, ...]:
        """Return none."""
        return ()

    def counts(self) -> EventCounts:
        """Return none."""
        return EventCounts()


def told_in_the_cluster(settings: Settings, parts: ExitStack) -> _Teller:
    """Return what writes Events, closed with ``parts``; raises ConfigurationError where no API server is known."""
    if not settings.events.enabled:
        return _Nobody()
    writer = EventWriter(settings.kubernetes, every_s=settings.events.every_s)
    parts.callback(writer.stop)
    return writer


def culprits(seen: Seen | None) -> list[RefusedObject]:
    """Return the refused objects of the last reconciliation as anybody may see them."""
    if seen is None:
        return []
    return [RefusedObject(public_refusal(each), _uid(each.ref, seen.snapshot)) for each in seen.refused]


def _uid(ref: ObjectRef, snapshot: Snapshot) -> str:
    records = getattr(snapshot, _FIELD_OF.get(ref.kind, ""), {})
    found = records.get(Key(ref.namespace, ref.name))
    return found.metadata.uid if found is not None else ""
