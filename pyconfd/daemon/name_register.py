"""The owners of names and their reservations, over restarts: ``owners.json`` in the state directory."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pyconfd.daemon.translation import FormerNames
from pyconfd.errors import Problem
from pyconfd.model.reservation import Name, NameRegister, Owner, Reservation
from pyconfd.system.state_file import StateFile

FILE_NAME = "owners.json"
_EFFECT = "names of objects that are gone are not kept for their namespace across a restart until it can be"


class OwnerRow(msgspec.Struct, array_like=True, frozen=True):
    """Preset, place, name, and the fields of Owner; what a newer version adds at the end is ignored."""

    preset: str
    place: str
    name: str
    kind: str
    namespace: str
    object: str
    since: str

    @property
    def holds(self) -> Name:
        """Which name it is about."""
        return Name(self.place, self.name)

    @property
    def owner(self) -> Owner:
        """Who has it."""
        return Owner(self.kind, self.namespace, self.object, self.since)


class _ReservationRow(msgspec.Struct, array_like=True):
    """A row of preset, place, name, and the fields of Reservation."""

    preset: str
    place: str
    name: str
    namespace: str
    since: str
    until: float
    owner: str


class _NamesDocument(msgspec.Struct):
    owners: list[OwnerRow] = []
    reservations: list[_ReservationRow] = []


class NameRegisterFile:
    """What the loop remembers; ``keep_s`` is how long a name stays with the namespace of an owner that is gone."""

    def __init__(self, state_dir: str = "", keep_s: float = 0.0) -> None:
        self._file = StateFile(Path(state_dir, FILE_NAME), _NamesDocument, effect=_EFFECT) if state_dir else None
        self._keep_s = keep_s
        self._register = _register_of(self._file.load() if self._file else None)
        self._written = self._register

    def at(self, now: float) -> FormerNames:
        """Return what is remembered at ``now``, in seconds since the epoch."""
        return FormerNames(self._register, now, self._keep_s)

    def keep(self, register: NameRegister) -> None:
        """Remember this; :meth:`flush` writes it."""
        self._register = register

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
        [OwnerRow(preset, *name, *owner) for preset, mine in register.owners.items() for name, owner in mine.items()],
        [
            _ReservationRow(
                preset, *name, reservation.namespace, reservation.since, reservation.until, reservation.owner
            )
            for preset, mine in register.reservations.items()
            for name, reservation in mine.items()
        ],
    )


def _register_of(document: _NamesDocument | None) -> NameRegister:
    if document is None:
        return NameRegister()
    return NameRegister(
        _by_preset((row.preset, row.holds, row.owner) for row in document.owners),
        _by_preset(
            (row.preset, Name(row.place, row.name), Reservation(row.namespace, row.since, row.until, row.owner))
            for row in document.reservations
        ),
    )


def _by_preset(rows: Iterator[tuple[str, Name, Any]]) -> Mapping[str, Mapping[Name, Any]]:
    found: dict[str, dict[Name, Any]] = {}
    for preset, name, item in rows:
        found.setdefault(preset, {})[name] = item
    return found
