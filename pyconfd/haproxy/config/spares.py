"""Empty backends that the file holds, and that serve new ones until the next reload: what HAProxy says of them.

Before 3.4 HAProxy takes no new backend while it runs, and 3.4.7 may die of one. So the file has some that are empty; a
new one gets its servers into one of these, and a map leads from its name to the spare. The map is in the process only:
a worker that loads the file has all backends under their own names, and every spare is free again. Nothing outside of
here knows the names of spares: what is sent names the spare where it has to, what is answered names the backend.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType

from pyconfd.model.operations import MOST_NAMED
from pyconfd.model.spares import MAP_NAME, spare_kind

_TO_SERVERS = re.compile(
    r"(?P<verb>(?:add|del|set) server |(?:enable|disable) (?:server|health|agent) |shutdown sessions server "
    r"|show servers state |show stat )(?P<backend>[^/\s]+)(?P<rest>.*)",
    re.DOTALL,
)
"""Commands that name a backend, and how it goes on."""
_MAP = re.compile(rf"^\d+ \((?P<path>\S*/{re.escape(MAP_NAME)})\) ", re.MULTILINE)
_ENTRY = re.compile(r"^0x[0-9a-f]+ (\S+) (\S+)$", re.MULTILINE)
_ROW = re.compile(r"(?P<id>(?:\d+ )?)(?P<backend>[^ ,]+)(?=[ ,])")
"""Where a row of ``show servers state`` or ``show stat`` names a backend; a server may have any name."""
_FILLED = re.compile(r"^\d+ (?P<spare>spare-\S+) ", re.MULTILINE)

LISTS = ("show backend", "show map")
"""What to ask a worker for its spares, and then for the entries of their map."""


@dataclass(frozen=True, slots=True)
class Spares:
    """The spares of one worker.

    ``map_path`` is the map that leads to them, "" where it has none: then none is used. ``names`` are all spares,
    ``serving`` those in use, by the backend that each serves; a section that has the name of the backend has its old
    sessions only. ``used`` are the spares that have servers or had some. ``emptied`` are backends that were removed and
    are there until the next reload.
    """

    map_path: str = ""
    names: frozenset[str] = frozenset()
    serving: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    used: frozenset[str] = frozenset()
    emptied: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Return whether a reload would give backends their names, or remove some."""
        return bool(self.serving or self.emptied)

    @property
    def free(self) -> frozenset[str]:
        """The spares that were not used in this worker."""
        return self.names - self.used

    def free_of(self, kind: str) -> Iterator[str]:
        """Return the spares of the defaults section ``kind`` that were not used in this worker, by their numbers."""
        return (name for name in _by_kind(self.names).get(kind, ()) if name not in self.used)

    @property
    def are_scarce(self) -> bool:
        """Whether less than a quarter of some kind is free: one shall be there when the next backend comes."""
        of_kind = _by_kind(self.names) if self.used else {}
        counts = Counter(map(spare_kind, self.used))
        return any(4 * (len(of_kind[kind]) - count) < len(of_kind[kind]) for kind, count in counts.items())

    def without_free(self) -> "Spares":
        """Return these for a change that may use none of them."""
        return replace(self, names=self.used)

    @property
    def served(self) -> list[str]:
        """The backends that spares serve, sorted: not those that were removed since."""
        return sorted(self.serving.keys() - self.emptied)

    @property
    def details(self) -> tuple[str, ...]:
        """What a reload puts in order, in words."""
        served = [f"backend {backend} is served by {self.serving[backend]}" for backend in self.served]
        gone = [f"backend {backend} was removed" for backend in sorted(self.emptied)]
        more = [f"and {len(served) + len(gone) - MOST_NAMED} more"] if len(served) + len(gone) > MOST_NAMED else []
        return (*[*served, *gone][:MOST_NAMED], *more)

    def using(self, backend: str, spare: str) -> "Spares":
        """Return these after ``spare`` began to serve ``backend``."""
        serving = MappingProxyType({**self.serving, backend: spare})
        return replace(self, serving=serving, used=self.used | {spare}, emptied=self.emptied - {backend})

    def without(self, backend: str) -> "Spares":
        """Return these after ``backend`` was removed."""
        return replace(self, emptied=self.emptied | {backend})

    def sent(self, line: str) -> str:
        """Return ``line`` as it goes over the socket: of a backend that a spare serves it names the spare."""
        found = _TO_SERVERS.fullmatch(line) if self.serving else None
        spare = self.serving.get(found["backend"]) if found else None
        return f"{found['verb']}{spare}{found['rest']}" if found and spare else line

    def understood(self, line: str, answer: str) -> str:
        """Return the ``answer`` to ``line`` with the names of backends in the place of their spares.

        It is without the sections and spares that these backends were served by before.
        """
        if not self.serving or " map " in line or not line.startswith("show "):
            return answer
        names: dict[str, str | None] = dict.fromkeys((*self.serving, *self.used))
        names |= {spare: backend for backend, spare in self.serving.items()}
        return "\n".join(row for each in answer.split("\n") if (row := _named(each, names)) is not None)


@lru_cache(maxsize=8)
def _by_kind(names: frozenset[str]) -> Mapping[str, Sequence[str]]:
    """Return the spares of each kind by their numbers; they stay the same for as long as their worker lives."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(names, key=lambda name: (len(name), name)):
        found[spare_kind(name)].append(name)
    return dict(found)


def _named(row: str, names: Mapping[str, str | None]) -> str | None:
    """Return a row with the name that its backend has in ``names``; None where it has none there."""
    found = _ROW.match(row)
    if found is None or found["backend"] not in names or row.startswith(",FRONTEND,", found.end()):
        return row
    name = names[found["backend"]]
    return None if name is None else f"{found['id']}{name}{row[found.end() :]}"


NO_SPARES = Spares()


def map_path(answers: Iterable[str]) -> str:
    """Return the path of the map that leads to spares, by the answers to :data:`LISTS`; "" where there is none."""
    _, maps = answers
    found = _MAP.search(maps)
    return found["path"] if found else ""


def spares_of(path: str, backends: str, entries: str, servers: str) -> Spares:
    """Return the spares of a worker, by what ``show backend``, ``show map PATH`` and ``show servers state`` say."""
    names = frozenset(name for name in backends.split("\n") if spare_kind(name))
    serving = dict(_ENTRY.findall(entries))
    used = frozenset(serving.values()) | frozenset(_FILLED.findall(servers)) & names
    return Spares(path, names, MappingProxyType(serving), used)
