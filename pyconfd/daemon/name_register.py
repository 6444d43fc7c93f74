"""Which namespace has which name, over restarts: ``owners.json`` in the state directory."""

from pathlib import Path
from typing import Protocol

import msgspec

from pyconfd.daemon.translation import FormerNames
from pyconfd.errors import Problem
from pyconfd.model.ownership import NOTHING_RECORDED, Recorded, merged
from pyconfd.model.reservation import Name, NameRegister, Owner, Reservation
from pyconfd.system.state_file import StateFile

FILE_NAME = "owners.json"
_EFFECT = "names of objects that are gone are not kept for their namespace across a restart until it can be"


class NameRow(msgspec.Struct, array_like=True, frozen=True):
    """Scope, place, name, the fields of Owner, and until when it is kept; what is added at the end is ignored."""

    scope: str
    place: str
    name: str
    kind: str
    namespace: str
    object: str
    since: str
    until: float

    @property
    def holds(self) -> Name:
        """Which name it is about."""
        return Name(self.place, self.name)

    @property
    def reservation(self) -> Reservation:
        """Who has it."""
        return Reservation(Owner(self.kind, self.namespace, self.object, self.since), self.until)


class _NamesDocument(msgspec.Struct):
    names: list[NameRow] = []


class SharedNames(Protocol):
    """What all load balancers of a cluster remember together; safe in any thread."""

    @property
    def is_ready(self) -> bool:
        """Whether it was read, or need not be waited for."""
        ...

    def settled(self) -> Recorded:
        """Return the names that it decides; the same object until there are others."""
        ...

    def offer(self, register: NameRegister, settled: Recorded) -> None:
        """Set what is remembered now, by which ``settled`` was taken in."""
        ...


class NotShared:
    """Nothing is shared with other load balancers."""

    is_ready = True

    def settled(self) -> Recorded:
        """Return nothing."""
        return NOTHING_RECORDED

    def offer(self, register: NameRegister, settled: Recorded) -> None:
        """Do nothing."""


class NameRegisterFile:
    """What the loop remembers; ``keep_s`` is how long a name stays with the namespace of an owner that is gone.

    What ``shared`` decides wins over what is remembered here.
    """

    def __init__(self, state_dir: str = "", keep_s: float = 0.0, shared: SharedNames | None = None) -> None:
        self._file = StateFile(Path(state_dir, FILE_NAME), _NamesDocument, effect=_EFFECT) if state_dir else None
        self._keep_s = keep_s
        self._register = _register_of(self._file.load() if self._file else None)
        self._written = self._register
        self._shared = shared or NotShared()
        self._settled: Recorded = NOTHING_RECORDED
        self._shared.offer(self._register, self._settled)

    @property
    def is_ready(self) -> bool:
        """Whether names may be given: what other load balancers gave is known, or need not be waited for."""
        return self._shared.is_ready

    def at(self, now: float) -> FormerNames:
        """Return what is remembered at ``now``, in seconds since the epoch."""
        settled = self._shared.settled()
        if settled is not self._settled:
            self._register, self._settled = merged(self._register, settled), settled
        return FormerNames(self._register, now, self._keep_s)

    def keep(self, register: NameRegister) -> None:
        """Remember this; :meth:`flush` writes it."""
        self._register = register
        self._shared.offer(register, self._settled)

    def is_due(self, now: float) -> bool:
        """Return whether a reservation has ended."""
        return self._register.is_due(now)

    def flush(self) -> None:
        """Write what changed since the last time."""
        if self._file is None or self._written == self._register:
            return
        if self._file.save(_document(self._register)):
            self._written = self._register

    def problems(self) -> tuple[Problem, ...]:
        """Return why the last writing failed."""
        return () if self._file is None or self._file.problem is None else (self._file.problem,)


def _document(register: NameRegister) -> _NamesDocument:
    return _NamesDocument(
        [
            NameRow(scope, *name, *reservation.owner, reservation.until)
            for scope, mine in register.reservations.items()
            for name, reservation in mine.items()
        ]
    )


def _register_of(document: _NamesDocument | None) -> NameRegister:
    found: dict[str, dict[Name, Reservation]] = {}
    for row in document.names if document is not None else ():
        found.setdefault(row.scope, {})[row.holds] = row.reservation
    return NameRegister.of(found)
