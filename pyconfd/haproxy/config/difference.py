"""What differs between two configurations, in words: services and servers that came, went and changed. Pure.

A service is a ``backend`` or ``listen`` section here: that is what one becomes in HAProxy.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyconfd.haproxy.config.index import Index, Key, index_of, section_of
from pyconfd.haproxy.config.servers import Inherited, servers_of
from pyconfd.model.moves import Move, moves
from pyconfd.model.rendering import FileKind, Rendering

NAMES_SHOWN = 5
_SERVICES = frozenset({"backend", "listen"})


@dataclass(frozen=True, slots=True)
class ServiceChange:
    """One service: the names of its servers, and how many of its other lines came and went."""

    section: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    lines_added: int = 0
    lines_removed: int = 0

    @property
    def sentence(self) -> str:
        """Say it: ``backend be-shop: server a added, 2 servers removed (b, c)``."""
        parts = [
            *(_names("server", names, what) for names, what in _named(self) if names),
            *([_lines(self.lines_added, self.lines_removed)] if self.lines_added or self.lines_removed else []),
        ]
        return f"{self.section}: {', '.join(parts) or 'comments, blanks or the order of its lines'}"


@dataclass(frozen=True, slots=True)
class Difference:
    """``added`` and ``removed`` are services with their number of servers; the others changed.

    ``sections`` are no services; ``files`` are sentences about maps and certificates; ``moves`` are names
    that other objects have now.
    """

    added: Mapping[str, int]
    removed: Mapping[str, int]
    changed: tuple[ServiceChange, ...]
    sections: tuple[str, ...]
    files: tuple[str, ...]
    moves: tuple[Move, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return all of it, names and services first."""
        return (
            *(move.sentence for move in self.moves),
            *(f"{name} added, {_counted(count, 'server')}" for name, count in self.added.items()),
            *(f"{name} removed, {_counted(count, 'server')}" for name, count in self.removed.items()),
            *(change.sentence for change in self.changed),
            *self.sections,
            *self.files,
        )


def difference(before: Rendering, after: Rendering) -> Difference:
    """Return what differs in ``after``."""
    old, new = index_of(before.text), index_of(after.text)
    gone = [key for key in old.texts if key not in new.texts]
    came = [key for key in new.texts if key not in old.texts]
    exactly = [key for key in new.texts if key in old.texts and _differ(old, new, key)]
    # A comment above a section stands at the end of the one before, which did not change when the next one came.
    both = [key for key in exactly if _servers_differ(old, new, key) or _body(old, key) != _body(new, key)]
    moved = moves(before.owners, after.owners)
    if not (gone or came or both or moved):
        both = list(dict.fromkeys(_commented(new, key) for key in exactly))
    changes = [(key, _change(old, new, key)) for key in both]
    sections = [
        *(f"{_name(key)} added" for key in came if not _is_service(key)),
        *(f"{_name(key)} removed" for key in gone if not _is_service(key)),
        *(change.sentence for key, change in changes if not _is_service(key)),
    ]
    return Difference(
        {_name(key): len(_servers(new, key)) for key in came if _is_service(key)},
        {_name(key): len(_servers(old, key)) for key in gone if _is_service(key)},
        tuple(change for key, change in changes if _is_service(key)),
        tuple(sections),
        tuple(_files(before, after)),
        moved,
    )


def in_short(sentences: tuple[str, ...], most: int = 3) -> str:
    """Return the first of them on one line, and how many more there are."""
    more = len(sentences) - most
    return "; ".join(sentences[:most]) + (f"; and {more} more" if more > 0 else "")


def _is_service(key: Key) -> bool:
    return key.keyword in _SERVICES


def _name(key: Key) -> str:
    return f"{key.keyword} {key.name}".rstrip()


def _commented(index: Index, key: Key) -> Key:
    """Return what a comment at the end of a section is about: the next section."""
    keys = list(index.texts)
    return keys[min(keys.index(key) + 1, len(keys) - 1)]


def _differ(old: Index, new: Index, key: Key) -> bool:
    return old.texts[key] != new.texts[key] or _servers_differ(old, new, key)


def _servers_differ(old: Index, new: Index, key: Key) -> bool:
    return _is_service(key) and _servers(old, key) != _servers(new, key)


def _body(index: Index, key: Key) -> list[str]:
    """Return the lines of a section without the comments and blanks at its end."""
    lines = index.texts[key].splitlines()
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return lines


def _servers(index: Index, key: Key) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return address and keywords of each server, those of ``default-server`` included, by name."""
    section = section_of(index.texts[key]) if _is_service(key) else None
    if section is None:
        return {}
    found = servers_of(section, index.bases.get(key, Inherited()))
    return {server.name: (server.address, server.effective) for server in found}


def _change(old: Index, new: Index, key: Key) -> ServiceChange:
    before, after = _servers(old, key), _servers(new, key)
    gone, came = _other_lines(old.texts[key], before), _other_lines(new.texts[key], after)
    return ServiceChange(
        _name(key),
        tuple(name for name in after if name not in before),
        tuple(name for name in before if name not in after),
        tuple(name for name in after if name in before and after[name] != before[name]),
        (came - gone).total(),
        (gone - came).total(),
    )


def _other_lines(text: str, servers: Mapping[str, object]) -> Counter[str]:
    """Count the lines that have words and are no servers."""
    lines = Counter[str]()
    for raw in text.splitlines():
        words = raw.split()
        if words and not words[0].startswith("#") and not (words[0] == "server" and words[1:2] and words[1] in servers):
            lines[" ".join(words)] += 1
    return lines


def _files(before: Rendering, after: Rendering) -> Iterator[str]:
    old = {file.path: file for file in before.files}
    new = {file.path: file for file in after.files}
    for path in sorted(old.keys() | new.keys()):
        file = new.get(path) or old[path]
        name = f"{'map' if file.kind is FileKind.MAP else 'certificate'} {path.rpartition('/')[2]}"
        if path not in new:
            yield f"{name} removed"
        elif path not in old:
            yield f"{name} added"
        elif file.kind is FileKind.MAP and old[path].content != new[path].content:
            yield f"{name}: {_entries(old[path].content, new[path].content)}"


def _entries(before: str, after: str) -> str:
    old, new = (dict(_entry(line) for line in text.splitlines() if line.strip()) for text in (before, after))
    came = tuple(key for key in new if key not in old)
    gone = tuple(key for key in old if key not in new)
    changed = tuple(key for key in new if key in old and new[key] != old[key])
    pairs = ((came, "added"), (gone, "removed"), (changed, "changed"))
    return ", ".join(_names("entry", names, what) for names, what in pairs if names) or "the order of its entries"


def _entry(line: str) -> tuple[str, str]:
    key, _, value = line.strip().partition(" ")
    return key, value.strip()


def _named(change: ServiceChange) -> tuple[tuple[tuple[str, ...], str], ...]:
    return (change.added, "added"), (change.removed, "removed"), (change.changed, "changed")


def _names(noun: str, names: tuple[str, ...], what: str) -> str:
    if len(names) == 1:
        return f"{noun} {names[0]} {what}"
    more = f", and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"{_counted(len(names), noun)} {what} ({', '.join(names[:NAMES_SHOWN])}{more})"


def _lines(added: int, removed: int) -> str:
    parts = [f"{_counted(added, 'line')} added"] if added else []
    return ", ".join([*parts, *([f"{_counted(removed, 'line')} removed"] if removed else [])])


def _counted(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
