"""The files that templates declare, maps and certificates, and the map entries that they give one by one."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from pyconfd.errors import Problem
from pyconfd.model.rendering import FileKind, OutputFile, runs_of
from pyconfd.render.invalid import InvalidValueError, shown


class Entry(NamedTuple):
    """One key of one map."""

    map: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a map's lines: by key, by the length of the key, or as given.

    In a ``repeated`` map a key may stand several times, with other values.
    """

    ordered: bool = False
    longest_first: bool = False
    repeated: bool = False


class Declared(NamedTuple):
    """A map that is made of entries, declared; ``path`` is where it will be."""

    map: str
    path: str
    order: Order


_BY_KEY = Order()

EntryGroup = tuple[Entry | Declared, ...]
"""What one element of a loop gave."""

Recorded = Entry | Declared | tuple[EntryGroup, ...]
"""An entry from anywhere, or those of a whole remembered loop."""


class SortedMap(NamedTuple):
    """The ``lines`` of a map whose order is that of its keys; ``twice`` are keys that several elements gave."""

    path: str
    lines: list[str]
    twice: frozenset[str]


@dataclass(frozen=True, slots=True)
class MapMemory:
    """What the maps of a rendering were made of, and the files, by path; ``sorted_maps`` are some maps by name."""

    recorded: tuple[Recorded, ...] = ()
    files: Mapping[str, OutputFile] = field(default_factory=lambda: MappingProxyType({}))
    sorted_maps: Mapping[str, SortedMap] = field(default_factory=lambda: MappingProxyType({}))


def content_of(pairs: Mapping[str, str], order: Order) -> str:
    """Return the lines of a map; keys are sorted by their bytes, which is how Python sorts texts as well."""
    keys = list(pairs) if order.ordered else sorted(pairs)
    if order.longest_first:
        keys.sort(key=len, reverse=True)
    return "".join([f"{key} {pairs[key]}\n" for key in keys])


def _lines_of(entries: Iterable[Entry], order: Order) -> str:
    """Return the lines of a map that is made of entries: the first value of a key counts, unless it is repeated."""
    if order.repeated:
        lines = dict.fromkeys(f"{each.key} {each.value}\n" for each in entries)
        return "".join(lines if order.ordered else sorted(lines))
    pairs: dict[str, str] = {}
    for each in entries:
        pairs.setdefault(each.key, each.value)
    return content_of(pairs, order)


_MOST_GROUPS = 100
"""Of changed elements: with more of them all maps are made again."""


def _changed_entries(
    previous: tuple[Recorded, ...], recorded: tuple[Recorded, ...]
) -> tuple[list[Entry], list[Entry]] | None:
    """Return the entries that went and that came; None where that is not plain to see."""
    if len(previous) != len(recorded):
        return None
    gone: list[Entry] = []
    come: list[Entry] = []
    for old, new in zip(previous, recorded, strict=True):
        if old is new:
            continue
        if isinstance(old, Entry | Declared) or isinstance(new, Entry | Declared):
            if old != new:
                return None
            continue
        for run in runs_of(old, new):
            if run.old_end - run.old_start + run.end - run.start > _MOST_GROUPS:
                return None
            before = [*chain.from_iterable(old[run.old_start : run.old_end])]
            after = [*chain.from_iterable(new[run.start : run.end])]
            if any(isinstance(each, Declared) for each in (*before, *after)):
                return None
            gone += [each for each in before if isinstance(each, Entry) and each not in after]
            come += [each for each in after if isinstance(each, Entry) and each not in before]
    return gone, come


def _changed_lines(known: SortedMap, gone: Iterable[Entry], come: Iterable[Entry]) -> list[str] | None:
    """Return the lines of a map with other entries; None where a key is given, or was given, by several elements."""
    lines = list(known.lines)
    for entry in gone:
        line = f"{entry.key} {entry.value}\n"
        place = bisect_left(lines, line)
        if entry.key in known.twice or place == len(lines) or lines[place] != line:
            return None
        del lines[place]
    for entry in come:
        place = bisect_left(lines, f"{entry.key} ")
        if entry.key in known.twice or (place < len(lines) and lines[place].startswith(f"{entry.key} ")):
            return None
        lines.insert(place, f"{entry.key} {entry.value}\n")
    return lines


def _sorted_map(path: str, entries: list[Entry], content: str) -> SortedMap:
    lines = [f"{line}\n" for line in content.split("\n")[:-1]]
    counted = Counter(each.key for each in entries) if len(lines) < len(entries) else {}
    return SortedMap(path, lines, frozenset(key for key, number in counted.items() if number > 1))


def _updated(recorded: tuple[Recorded, ...], previous: MapMemory) -> MapMemory | None:
    """Return what follows from the former maps after a few entries changed; None where they have to be made again."""
    changed = _changed_entries(previous.recorded, recorded)
    if changed is None:
        return None
    files, maps = dict(previous.files), dict(previous.sorted_maps)
    for name in {each.map for entries in changed for each in entries}:
        known = maps.get(name)
        parts = ([each for each in entries if each.map == name] for entries in changed)
        lines = _changed_lines(known, *parts) if known is not None else None
        if known is None or lines is None:
            return None
        maps[name] = SortedMap(known.path, lines, known.twice)
        files[known.path] = OutputFile(FileKind.MAP, known.path, "".join(lines))
    return MapMemory(recorded, files, maps)


def _by_map(recorded: tuple[Recorded, ...]) -> tuple[dict[str, list[Entry]], dict[str, Declared]]:
    """Return the entries of each map, and the first declaration of each."""
    maps: dict[str, list[Entry]] = {}
    declared: dict[str, Declared] = {}
    for each in _each(recorded):
        if isinstance(each, Entry):
            maps.setdefault(each.map, []).append(each)
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


_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_PATH = re.compile(r"/[A-Za-z0-9._/@+=-]*")
"""A path with other characters would need quotes, which differ inside ``map(...)`` and outside of it."""
_ENDING = {FileKind.MAP: ".map", FileKind.CERTIFICATE: ".pem"}
_KEY = re.compile(r"[^\s#\x00-\x20\x7f][^\s\x00-\x20\x7f]*")
_COLLECTED = object()
"""Stands for the entries that map_entry gives."""
_TWICE = ("is declared twice with different content", "give one of them another name")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Declarations:
    """What one rendering declares below ``files_dir``; its methods are the functions of that name in templates."""

    def __init__(self, files_dir: str) -> None:
        self._files_dir = files_dir.rstrip("/")
        self._files: dict[str, OutputFile] = {}
        self._collected: dict[str, Declared] = {}
        self.recorded: list[Recorded] = []
        """Map entries, in the order of the templates."""

    @property
    def files(self) -> int:
        """How many files were declared with their content."""
        return len(self._files)

    def repeat(self, recorded: tuple[Recorded, ...]) -> bool:
        """Record once more what a fragment gave; nothing, and False, where another one declares a map of that name."""
        declared = [each for each in recorded if isinstance(each, Declared)]
        if any(each.path in self._files or self._collected.get(each.map, each) != each for each in declared):
            return False
        self._collected.update((each.map, each) for each in declared)
        self.recorded += recorded
        return True

    def finished(self, previous: MapMemory) -> tuple[tuple[OutputFile, ...], MapMemory, tuple[Problem, ...]]:
        """Return everything declared, sorted by path, and what to give as ``previous`` next time.

        A map whose entries are those of ``previous`` is the same object.
        """
        recorded = tuple(self.recorded)
        memory, problems = (previous, ()) if recorded == previous.recorded else self._collect(recorded, previous)
        files = {**memory.files, **self._files}
        if len(files) < len(memory.files) + len(self._files):
            twice = sorted(memory.files.keys() & self._files.keys())
            problems = (*problems, *(Problem(path, *_TWICE) for path in twice))
        # With a problem nothing is remembered, so that it is found again.
        kept = previous if problems else memory
        return tuple(files[path] for path in sorted(files, key=str.encode)), kept, problems

    @staticmethod
    def _collect(recorded: tuple[Recorded, ...], previous: MapMemory) -> tuple[MapMemory, tuple[Problem, ...]]:
        if (updated := _updated(recorded, previous)) is not None:
            return updated, ()
        maps, declared = _by_map(recorded)
        files: dict[str, OutputFile] = {}
        by_key: dict[str, SortedMap] = {}
        for name, (_map, path, order) in declared.items():
            entries = maps.pop(name, [])
            file = OutputFile(FileKind.MAP, path, _lines_of(entries, order))
            known = previous.files.get(path)
            files[path] = known if known is not None and known == file else file
            if order == _BY_KEY:
                by_key[name] = _sorted_map(path, entries, file.content)
        unused = tuple(
            Problem(
                f"map {shown(name)}",
                "templates give it entries with map_entry, but none declares it",
                f"write {{{{ map_file({name!r}) }}}} where its path belongs, or leave the entries out",
            )
            for name in maps
        )
        return MapMemory(recorded, files, by_key), unused

    def map_entry(self, name: object, key: object, value: object) -> str:
        """Add an entry to the map ``name``, which ``map_file(name)`` declares; the first value of a key counts.

        Raises:
            InvalidValueError: the key is empty, has a space or begins with ``#``; the value is empty or more than one
                line.

        """
        self.recorded.append(Entry(str(name), *_valid(str(name), "the entry", key, value)))
        return ""

    def map_file(
        self,
        name: object,
        entries: Any = _COLLECTED,
        *,
        ordered: bool = False,
        longest_first: bool = False,
        repeated: bool = False,
    ) -> str:
        """Declare the map ``name`` and give its path, for ``map(...)`` and its relatives.

        ``entries`` is a mapping or a list of pairs; they are sorted by key in byte order. Where the first match counts
        (``map_beg``, ``map_end``, ``map_sub``, ``map_reg``), ``longest_first`` puts longer keys before shorter ones and
        ``ordered`` keeps the order given. A map may be empty. Declaring the same content twice declares it once.
        Without ``entries`` it holds what :meth:`map_entry` gives, before this call or after it; with ``repeated`` one
        key may then have several values, each on a line of its own, as a list of certificates may name one twice.

        Raises:
            InvalidValueError: a key is empty, has a space or begins with ``#``; a value is empty or more than one
                line; one key has two values; the name is unfit or has other content already.

        """
        order = Order(ordered, longest_first, repeated)
        if entries is _COLLECTED:
            return self._collect_later(str(name), order)
        pairs = entries.items() if isinstance(entries, Mapping) else entries
        return self._declare(FileKind.MAP, name, content_of(_map_entries(str(name), pairs), order))

    def _collect_later(self, name: str, order: Order) -> str:
        path = self._path(FileKind.MAP, name)
        declared = Declared(name, path, order)
        if path in self._files or self._collected.setdefault(name, declared) != declared:
            raise self._clash(FileKind.MAP, name)
        self.recorded.append(declared)
        return path

    def certificate_file(self, name: object, pem: object) -> str:
        """Declare the certificate ``name`` (certificates and private key in PEM) and give its path, for ``crt``.

        Blank lines and carriage returns go: a blank line would end a payload on HAProxy's runtime socket.

        Raises:
            InvalidValueError: it is no PEM text; the name is unfit or has other content already.

        """
        # Never show the content: it may be a private key.
        lines = [line.strip() for line in str(pem).replace("\r", "\n").split("\n")]
        content = "".join(f"{line}\n" for line in lines if line)
        if "-----BEGIN " not in content or "-----END " not in content:
            raise InvalidValueError(
                f"certificate {shown(name)} is no PEM text",
                "give the certificate, its chain and its private key in PEM, one after the other",
            )
        if "\0" in content:
            raise InvalidValueError(f"certificate {shown(name)} has a NUL character", "give PEM text")
        return self._declare(FileKind.CERTIFICATE, name, content)

    def _declare(self, kind: FileKind, name: object, content: str) -> str:
        path = self._path(kind, name)
        known = self._files.setdefault(path, OutputFile(kind, path, content))
        if known.content != content or (kind is FileKind.MAP and str(name) in self._collected):
            raise self._clash(kind, name)
        return path

    def _path(self, kind: FileKind, name: object) -> str:
        if not _NAME.fullmatch(str(name)):
            raise InvalidValueError(
                f"{shown(name)} cannot name a file", "use letters, digits, '.', '_' and '-', and no '.' at the start"
            )
        path = f"{self._files_dir}/{kind.value}/{name}{_ENDING[kind]}"
        if not _PATH.fullmatch(path):
            raise InvalidValueError(
                f"the path {shown(path)} has characters that need quotes in haproxy.cfg",
                "set haproxy.files_dir to an absolute path of letters, digits and . _ - / @ + =",
            )
        return path

    @staticmethod
    def _clash(kind: FileKind, name: object) -> InvalidValueError:
        what, remedy = _TWICE
        return InvalidValueError(f"{kind.name.lower()} {shown(name)} {what}", remedy)


def _map_entries(name: str, pairs: Iterable[Any]) -> dict[str, str]:
    values: dict[str, str] = {}
    for number, pair in enumerate(pairs, 1):
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise InvalidValueError(
                f"entry {number} of map {shown(name)} is no pair: {shown(pair)}", "give a mapping or (key, value) pairs"
            )
        key, value = _valid(name, f"entry {number}", *pair)
        if values.setdefault(key, value) != value:
            raise InvalidValueError(
                f"key {shown(key)} of map {shown(name)} has two values: {shown(values[key])} and {shown(value)}",
                "decide for one of them in the template",
            )
    return values


def _valid(name: str, which: str, key: object, value: object) -> tuple[str, str]:
    key, value = str(key), str(value)
    if not _KEY.fullmatch(key):
        raise InvalidValueError(
            f"{which} of map {shown(name)} has the key {shown(key)}", "a key is one word that does not begin with '#'"
        )
    if not value.strip() or value != value.strip() or _UNPRINTABLE.search(value):
        raise InvalidValueError(
            f"key {shown(key)} of map {shown(name)} has the value {shown(value)}",
            "a value is one line, not empty, without spaces at its ends",
        )
    return key, value
