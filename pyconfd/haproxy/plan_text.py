"""Commands of a plan in words: for ``plan``, status and log. Pure; never the content of a certificate."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import assert_never

from pyconfd.haproxy.runtime_text import Line, filled_map, lines_of, parted, prepare_map, published
from pyconfd.model.plan import (
    AddBackend,
    AddCertificate,
    AddMapEntries,
    AddServer,
    ChangeMapEntries,
    Command,
    ReloadReason,
    RemoveBackend,
    RemoveCertificate,
    RemoveMapEntries,
    RemoveServer,
    ReplaceMap,
    SetState,
    SetWeight,
    UpdateCertificate,
)

MOST_NAMED = 5
"""Entries of a map that are named in one line."""

_LATER = "deleted when its last session has ended"


def described(command: Command) -> str:  # noqa: C901, PLR0911, PLR0912 - one case for each command
    """Return one line that says what a command does, in HAProxy's words as far as it has any."""
    match command:
        case AddBackend():
            mode = f", mode {command.mode}" if command.mode else ""
            return f"add backend {command.backend} from {command.defaults}{mode}"
        case RemoveBackend():
            return f"remove backend {command.backend} with {_counted(len(command.servers), 'server')}: {_LATER}"
        case AddServer():
            return " ".join(("add server", f"{command.backend}/{command.server}", command.address, *command.words))
        case RemoveServer():
            at = f" ({command.address})" if command.address else ""
            return f"remove server {command.backend}/{command.server}{at}: drained, {_LATER}"
        case SetWeight():
            meaning = "" if command.weight else " (keeps its sessions, gets no new ones)"
            return f"set server {command.backend}/{command.server} weight {command.weight}{meaning}"
        case SetState():
            return f"set server {command.backend}/{command.server} state {command.state}"
        case AddMapEntries():
            return f"add to map {command.path}: {_named(' '.join(pair) for pair in command.entries)}"
        case ChangeMapEntries():
            return f"change in map {command.path}: {_named(' '.join(pair) for pair in command.entries)}"
        case RemoveMapEntries():
            return f"remove from map {command.path}: {_named(command.keys)}"
        case ReplaceMap():
            count = _counted(len(command.entries), "entry", "entries")
            return f"load map {command.path} anew: {count}, all at once"
        case UpdateCertificate():
            return f"update certificate {command.path}"
        case AddCertificate():
            return f"add certificate {command.path} to {command.crt_list}"
        case RemoveCertificate():
            return f"remove certificate {command.path} from {command.crt_list}"
        case _:
            assert_never(command)


def summarised(commands: Iterable[Command]) -> str:
    """Return ``2 servers added, 1 weight set``: how many of which kind, in the order in which they first come."""
    counts = Counter[tuple[str, str, str]]()
    for command in commands:
        counts[_KINDS[type(command)]] += _size(command)
    return ", ".join(f"{_counted(count, one, many)} {verb}" for (one, many, verb), count in counts.items())


_KINDS: Mapping[type[Command], tuple[str, str, str]] = MappingProxyType(
    {
        AddBackend: ("backend", "backends", "added"),
        RemoveBackend: ("backend", "backends", "removed"),
        AddServer: ("server", "servers", "added"),
        RemoveServer: ("server", "servers", "removed"),
        SetWeight: ("weight", "weights", "set"),
        SetState: ("state", "states", "set"),
        AddMapEntries: ("map entry", "map entries", "added"),
        ChangeMapEntries: ("map entry", "map entries", "changed"),
        RemoveMapEntries: ("map entry", "map entries", "removed"),
        ReplaceMap: ("map", "maps", "loaded anew"),
        AddCertificate: ("certificate", "certificates", "added"),
        UpdateCertificate: ("certificate", "certificates", "updated"),
        RemoveCertificate: ("certificate", "certificates", "removed"),
    }
)


def _size(command: Command) -> int:
    if isinstance(command, AddMapEntries | ChangeMapEntries):
        return len(command.entries)
    return len(command.keys) if isinstance(command, RemoveMapEntries) else 1


def reason_text(reason: ReloadReason) -> str:
    """Return a reason in words."""
    return reason.value.replace("_", " ")


def transcript(commands: Sequence[Command]) -> Iterator[str]:
    """Return the lines as they go over the socket; ``VERSION`` stands for the number that HAProxy gives to a map."""
    made, others = parted(commands)
    for command in made:
        yield from _transcript(command)
    yield from (published(command).text for command in made if isinstance(command, AddBackend))
    for command in others:
        yield from _transcript(command)


def _transcript(command: Command) -> Iterator[str]:
    if isinstance(command, ReplaceMap):
        yield from _shown(prepare_map(command))
        for line in filled_map(command, ": VERSION"):
            yield from _shown(line)
        return
    parts: tuple[Command, ...] = (command, *command.servers) if isinstance(command, RemoveBackend) else (command,)
    for part in parts:
        yield from (text for line in lines_of(part) for text in _shown(line))


def _shown(line: Line) -> Iterator[str]:
    head, separator, payload = line.text.partition("\n")
    yield head
    if not separator:
        return
    if "ssl cert" in head:
        yield f"({len(payload.encode())} bytes of certificate and key, not shown)"
    else:
        yield from payload.splitlines()
    yield ""


def _named(items: Iterable[str]) -> str:
    left = iter(items)
    named = list(islice(left, MOST_NAMED))
    more = sum(1 for _ in left)
    return ", ".join([*named, *([f"and {more} more"] if more else [])])


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
