"""Map entries that templates give one by one, and the maps that are made of them at the end of a rendering."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from pyconfd.model.rendering import OutputFile


class Entry(NamedTuple):
    """One key of one map."""

    map: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a map's lines: by key, by the length of the key, or as given."""

    ordered: bool = False
    longest_first: bool = False


class Declared(NamedTuple):
    """A map that is made of entries, declared; ``path`` is where it will be."""

    map: str
    path: str
    order: Order


EntryGroup = tuple[Entry | Declared, ...]
"""What one element of a loop gave."""

Recorded = Entry | Declared | tuple[EntryGroup, ...]
"""An entry from anywhere, or those of a whole remembered loop."""


@dataclass(frozen=True, slots=True)
class MapMemory:
    """What the maps of a rendering were made of, and the files, by path."""

    recorded: tuple[Recorded, ...] = ()
    files: Mapping[str, OutputFile] = field(default_factory=lambda: MappingProxyType({}))


class Entries:
    """The entries of one rendering, in the order of the templates."""

    def __init__(self) -> None:
        self._recorded: list[Recorded] = []

    def add(self, entry: Entry | Declared) -> None:
        """Record one entry or declaration."""
        self._recorded.append(entry)

    def add_loop(self, groups: tuple[EntryGroup, ...]) -> None:
        """Record what a remembered loop gave."""
        if groups:
            self._recorded.append(groups)

    def repeat(self, recorded: tuple[Recorded, ...]) -> None:
        """Record once more what was recorded in a former rendering."""
        self._recorded += recorded

    def mark(self) -> int:
        """Return the place for :meth:`taken_since`."""
        return len(self._recorded)

    def taken_since(self, mark: int) -> EntryGroup:
        """Take back what was recorded since then, to be given to :meth:`add_loop`."""
        if len(self._recorded) == mark:
            return ()
        taken = tuple(each for each in self._recorded[mark:] if isinstance(each, Entry | Declared))
        del self._recorded[mark:]
        return taken

    @property
    def recorded(self) -> tuple[Recorded, ...]:
        """Everything so far."""
        return tuple(self._recorded)


def content_of(pairs: Mapping[str, str], order: Order) -> str:
    """Return the lines of a map; keys are sorted by their bytes, which is how Python sorts texts as well."""
    keys = list(pairs) if order.ordered else sorted(pairs)
    if order.longest_first:
        keys.sort(key=len, reverse=True)
    return "".join([f"{key} {pairs[key]}\n" for key in keys])


def first_of_each_key(recorded: tuple[Recorded, ...]) -> tuple[dict[str, dict[str, str]], dict[str, Declared]]:
    """Return the entries of each map, the first value of a key counts; and the first declaration of each."""
    maps: dict[str, dict[str, str]] = {}
    declared: dict[str, Declared] = {}
    for each in _each(recorded):
        if isinstance(each, Entry):
            maps.setdefault(each.map, {}).setdefault(each.key, each.value)
        else:
            declared.setdefault(each.map, each)
    return maps, declared


def _each(recorded: tuple[Recorded, ...]) -> Iterator[Entry | Declared]:
    for one in recorded:
        if isinstance(one, Entry | Declared):
            yield one
        else:
            for group in one:
                yield from group
