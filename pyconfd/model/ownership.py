"""What all load balancers of a cluster remember together: whose each name is, as documents, and compared. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import msgspec

from pyconfd.model.reservation import (
    NEVER,
    NO_OWNERS,
    NO_RESERVATIONS,
    Name,
    NameRegister,
    Owner,
    Owners,
    Reservation,
    Reservations,
    owned_by,
)
from pyconfd.model.versioned import versioned

BY_OBJECT = "addresses"
"""The scope in which an object has a name, and not its namespace: two objects of one may not swap addresses."""

MOST_NAMES = 20_000
"""How many names of one namespace are recorded."""

MOST_SHARDS = 16
_SHARD_BYTES = 700_000
"""Source: a ConfigMap has at most 1 MiB (``MaxSecretSize`` in Kubernetes' pkg/apis/core); the rest is for JSON's own
escapes in the request."""

_UNTIL_S = 60
"""Names that are kept for objects in quarantine are kept longer each second: the record says it by the minute."""

Recorded = Mapping[str, Reservations]
NOTHING_RECORDED: Recorded = {}


class RecordedName(NamedTuple):
    """One recorded name; ``kind`` and ``object`` are "" where the namespace has it, whichever object asks."""

    namespace: str
    scope: str
    name: Name
    until: int = 0
    kind: str = ""
    object: str = ""

    @property
    def reservation(self) -> Reservation:
        """Who has it."""
        by_namespace = owned_by(self.namespace)
        owner = Owner(self.kind, self.namespace, self.object, NEVER) if self.kind else by_namespace
        return Reservation(owner, float(self.until))


@dataclass(frozen=True, slots=True)
class OwnershipDocuments:
    """The texts that hold a register; ``left_out`` counts the names by namespace that there was no room for."""

    shards: tuple[str, ...]
    left_out: Mapping[str, int]


def documents(
    register: NameRegister, *, most_names: int = MOST_NAMES, most_shards: int = MOST_SHARDS
) -> OwnershipDocuments:
    """Return what to record of a register; the same for equal ones, in whatever order their names came.

    Where all names do not fit, namespaces with the most names lose some first.
    """
    rows = sorted(_rows(register))
    while True:
        seen: Counter[str] = Counter()
        kept: list[RecordedName] = []
        for row in rows:
            seen[row.namespace] += 1
            if seen[row.namespace] <= most_names:
                kept.append(row)
        shards = tuple(_shards(kept))
        if len(shards) <= most_shards:
            return OwnershipDocuments(shards, {each: n - most_names for each, n in seen.items() if n > most_names})
        most_names //= 2


def recorded_of(shards: Iterable[str]) -> Recorded:
    """Return what documents say; raises ValueError where one of them is not as :func:`documents` writes it."""
    found: dict[str, dict[Name, Reservation]] = {}
    for text in shards:
        for row in _parsed(text):
            found.setdefault(row.scope, {})[row.name] = row.reservation
    return found


def is_same_owner(scope: str, one: Owner, other: Owner) -> bool:
    """Return whether two load balancers agree about a name of a scope."""
    return one[:3] == other[:3] if scope == BY_OBJECT else one.namespace == other.namespace


def differences(own: NameRegister, recorded: Recorded, now: float) -> dict[tuple[str, Name], Reservation]:
    """Return the recorded names that another one, or nobody, has in ``own``; what ended by ``now`` counts no more."""
    found: dict[tuple[str, Name], Reservation] = {}
    for scope, rows in recorded.items():
        mine = own.reservations.get(scope, NO_RESERVATIONS)
        for name, row in rows.items():
            have = mine.get(name)
            if have is not None and is_same_owner(scope, have.owner, row.owner):
                continue
            if not row.until or row.until > now:
                found[scope, name] = row
    return found


def merged(own: NameRegister, recorded: Recorded) -> NameRegister:
    """Return ``own`` where each recorded name is whose it is recorded to be; what only ``own`` has stays.

    A name that no object asks for begins its time with the next translation.
    """
    owners: dict[str, Owners] = dict(own.owners)
    reservations: dict[str, Reservations] = dict(own.reservations)
    waiting, is_new = set(own.waiting), False
    for scope, rows in recorded.items():
        known = reservations.get(scope, NO_RESERVATIONS)
        changed = {
            name: row
            for name, row in rows.items()
            if name not in known or not is_same_owner(scope, known[name].owner, row.owner)
        }
        if not changed:
            continue
        reservations[scope] = versioned(known).with_changes(changed, ())
        had = owners.get(scope, NO_OWNERS)
        given = {name: row.owner for name, row in changed.items() if not row.until}
        owners[scope] = {**{name: owner for name, owner in had.items() if name not in changed}, **given}
        waiting.difference_update((scope, name) for name in given)
        waiting.update((scope, name) for name, row in changed.items() if row.until)
        is_new = True
    return NameRegister(owners, reservations, frozenset(waiting)) if is_new else own


def _rows(register: NameRegister) -> Iterator[RecordedName]:
    for scope, mine in register.reservations.items():
        for name, (owner, until) in mine.items():
            by_object = (owner.kind, owner.name) if scope == BY_OBJECT else ("", "")
            yield RecordedName(owner.namespace, scope, name, ceil(until / _UNTIL_S) * _UNTIL_S, *by_object)


_Document = dict[str, dict[str, dict[str, list[list[str | int]]]]]
"""By namespace, scope and place: the name, and where there is more to say when it ends, kind and name of its object."""


def _shards(rows: Sequence[RecordedName]) -> Iterator[str]:
    """Return the rows in order, in texts of at most about ``_SHARD_BYTES``."""
    document: _Document = {}
    size = 0
    for row in rows:
        line = _line(row)
        # What stands around it is counted each time: at most what a text has.
        needed = len(msgspec.json.encode((line, row.namespace, row.scope, row.name.place)))
        if document and size + needed > _SHARD_BYTES:
            yield msgspec.json.encode(document).decode()
            document, size = {}, 0
        places = document.setdefault(row.namespace, {}).setdefault(row.scope, {})
        if row.name.place in places:
            needed = len(msgspec.json.encode(line)) + 1
        places.setdefault(row.name.place, []).append(line)
        size += needed
    if document:
        yield msgspec.json.encode(document).decode()


def _line(row: RecordedName) -> list[str | int]:
    line: list[str | int] = [row.name.name, row.until, row.kind, row.object]
    while len(line) > 1 and not line[-1]:
        line.pop()
    return line


class _RecordedLine(msgspec.Struct, array_like=True, frozen=True):
    name: str
    until: int = 0
    kind: str = ""
    object: str = ""


def _parsed(text: str) -> Iterator[RecordedName]:
    try:
        document: Any = msgspec.json.decode(text, type=dict[str, dict[str, dict[str, list[_RecordedLine]]]])
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    for namespace, scopes in document.items():
        for scope, places in scopes.items():
            for place, lines in places.items():
                for line in lines:
                    yield RecordedName(namespace, scope, Name(place, line.name), line.until, line.kind, line.object)
