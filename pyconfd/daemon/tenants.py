"""Remembers across restarts who had which name: ``owners.json`` in the state directory."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pyconfd.daemon.arbitration import Remembered
from pyconfd.errors import Problem
from pyconfd.model.tenure import Name, Owner, Tenancy, Tenure
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


class _Kept(msgspec.Struct, array_like=True):
    """A row of preset, place, name, and the fields of Tenure; the last one came later than the others."""

    preset: str
    place: str
    name: str
    namespace: str
    since: str
    until: float
    owner: str = ""


class _Document(msgspec.Struct):
    owners: list[OwnerRow] = []
    tenures: list[_Kept] = []


class Tenants:
    """What the loop remembers; ``keep_s`` is how long a name stays with the namespace of an owner that is gone."""

    def __init__(self, state_dir: str = "", keep_s: float = 0.0) -> None:
        self._file = StateFile(Path(state_dir, FILE_NAME), _Document, effect=_EFFECT) if state_dir else None
        self._keep_s = keep_s
        self._tenancy = _tenancy_of(self._file.load() if self._file else None)
        self._written = self._tenancy

    def at(self, now: float) -> Remembered:
        """Return what is remembered at ``now``, in seconds since the epoch."""
        return Remembered(self._tenancy, now, self._keep_s)

    def keep(self, tenancy: Tenancy) -> None:
        """Remember this; :meth:`flush` writes it."""
        if not _same(tenancy, self._tenancy):
            self._tenancy = tenancy

    def is_due(self, now: float) -> bool:
        """Return whether a reservation has ended."""
        return self._tenancy.is_due(now)

    def flush(self) -> None:
        """Write what changed since the last time."""
        if self._file is None or _same(self._written, self._tenancy):
            return
        if self._file.save(_document(self._tenancy)):
            self._written = self._tenancy

    def problems(self) -> tuple[Problem, ...]:
        """Return why the last writing failed."""
        return () if self._file is None or self._file.problem is None else (self._file.problem,)


def _same(old: Tenancy, new: Tenancy) -> bool:
    def alike(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        return before.keys() == after.keys() and all(before[key] is after[key] for key in before)

    return alike(old.owners, new.owners) and alike(old.tenures, new.tenures)


def _document(tenancy: Tenancy) -> _Document:
    return _Document(
        [OwnerRow(preset, *name, *owner) for preset, mine in tenancy.owners.items() for name, owner in mine.items()],
        [
            _Kept(preset, *name, tenure.namespace, tenure.since, tenure.until, tenure.owner)
            for preset, mine in tenancy.tenures.items()
            for name, tenure in mine.items()
        ],
    )


def _tenancy_of(document: _Document | None) -> Tenancy:
    if document is None:
        return Tenancy()
    return Tenancy(
        _by_preset((row.preset, row.holds, row.owner) for row in document.owners),
        _by_preset(
            (row.preset, Name(row.place, row.name), Tenure(row.namespace, row.since, row.until, row.owner))
            for row in document.tenures
        ),
    )


def _by_preset(rows: Iterator[tuple[str, Name, Any]]) -> Mapping[str, Mapping[Name, Any]]:
    found: dict[str, dict[Name, Any]] = {}
    for preset, name, item in rows:
        found.setdefault(preset, {})[name] = item
    return found
