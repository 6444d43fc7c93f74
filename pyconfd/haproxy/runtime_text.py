"""Commands of a plan as lines for the runtime socket, with the answers they must get. Pure.

Source: HAProxy management manual, 9.3; the texts of the answers as 2.6, 3.0, 3.2 and 3.4 give them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, assert_never

from pyconfd.model.plan import (
    AddBackend,
    AddCertificate,
    AddMapEntries,
    AddServer,
    ChangeMapEntries,
    Command,
    RemoveBackend,
    RemoveCertificate,
    RemoveMapEntries,
    RemoveServer,
    ReplaceMap,
    SetState,
    SetWeight,
    UpdateCertificate,
)

BATCH = 2_000
"""Commands sent before the progress is reported; HAProxy takes tens of thousands a second."""

MAX_PAYLOAD_BYTES = 8_000
"""A whole command has to fit a buffer of 16 KiB (``tune.bufsize``)."""

SILENCE = ("",)
_DONE = ("Success!",)
_SAFE = re.compile(r"[A-Za-z0-9_.:/@,=+%*()\[\] -]+(?: <<\n(?:[^\n\r\0]+\n)+)?")
"""One command of words that need no escape, and perhaps a payload: a blank line would end that, or one with nothing but
a carriage return, and what follows would be commands."""


class Line(NamedTuple):
    """One command; its answer has to hold one of ``expected``, where "" stands for an empty one."""

    text: str
    expected: tuple[str, ...] = SILENCE

    def refused(self, answer: str) -> bool:
        """Return whether the answer is not what it should be."""
        return not any((one in answer) if one else not answer.strip() for one in self.expected)

    @property
    def safe(self) -> bool:
        """Whether HAProxy reads it as one command and nothing else."""
        return _SAFE.fullmatch(self.text) is not None

    @property
    def shown(self) -> str:
        """The command without its payload."""
        return self.text.partition(" <<\n")[0]


def lines_of(command: Command) -> list[Line]:  # noqa: C901, PLR0911, PLR0912 - one case for each command
    """Return the lines of one command, in order. A :class:`ReplaceMap` has others, see :func:`prepare_map`."""
    match command:
        case AddBackend():
            mode = f" mode {command.mode}" if command.mode else ""
            return [Line(f"add backend {command.backend} from {command.defaults}{mode}", ("New backend registered",))]
        case AddServer():
            return added(command)
        case RemoveServer():
            return [Line(f"set server {command.backend}/{command.server} state drain")]
        case RemoveBackend():
            return [Line(f"unpublish backend {command.backend}", ("Backend unpublished",))]
        case SetWeight():
            return [Line(f"set server {command.backend}/{command.server} weight {command.weight}")]
        case SetState():
            return [Line(f"set server {command.backend}/{command.server} state {command.state}")]
        case AddMapEntries():
            return [Line(f"add map {command.path} {key} {value}") for key, value in command.entries]
        case ChangeMapEntries():
            return [Line(f"set map {command.path} {key} {value}") for key, value in command.entries]
        case RemoveMapEntries():
            return [Line(f"del map {command.path} {key}") for key in command.keys]
        case ReplaceMap():
            return [prepare_map(command)]
        case UpdateCertificate():
            return updated_certificate(command.path, command.pem)
        case AddCertificate():
            entered = Line(f"add ssl crt-list {command.crt_list} {command.path}", _DONE)
            made = Line(f"new ssl cert {command.path}", ("New empty certificate store",))
            return [made, *updated_certificate(command.path, command.pem), entered]
        case RemoveCertificate():
            return [
                Line(f"del ssl crt-list {command.crt_list} {command.path}", ("deleted in crtlist",)),
                Line(f"del ssl cert {command.path}", ("deleted!",)),
            ]
        case _:
            assert_never(command)


def added(command: AddServer) -> list[Line]:
    """Return the lines that add a server and let it serve."""
    name = f"{command.backend}/{command.server}"
    words = " ".join((name, command.address, *command.words))
    lines = [Line(f"add server {words}", ("New server registered",))]
    if not command.disabled:
        lines.append(Line(f"set server {name} state ready"))
    if command.checked:
        lines.append(Line(f"enable health {name}"))
    if command.agent_checked:
        lines.append(Line(f"enable agent {name}"))
    return lines


def revived(command: AddServer) -> list[Line]:
    """Return the lines that bring back a server which was on its way out."""
    name = f"{command.backend}/{command.server}"
    state = "maint" if command.disabled else "ready"
    return [Line(f"set server {name} state {state}"), Line(f"set server {name} weight {command.weight}")]


def parted(commands: Sequence[Command]) -> tuple[Sequence[Command], Sequence[Command]]:
    """Cut the commands behind the last that makes a new backend or a server: there new backends are published.

    What points to one comes after that.
    """
    if not any(isinstance(command, AddBackend) for command in commands):
        return commands, ()
    end = max(at for at, command in enumerate(commands, start=1) if isinstance(command, AddBackend | AddServer))
    return commands[:end], commands[end:]


def published(command: AddBackend) -> Line:
    """Return the line that lets a new backend take traffic, once its servers are there."""
    return Line(f"publish backend {command.backend}", ("Backend published",))


def updated_certificate(path: str, pem: str) -> list[Line]:
    """Return the lines of one transaction."""
    content = "\n".join(line for line in pem.splitlines() if line.strip())
    return [
        Line(f"set ssl cert {path} <<\n{content}\n", ("Transaction created", "Transaction updated")),
        Line(f"commit ssl cert {path}", _DONE),
    ]


def leftovers(answer: str) -> list[Line]:
    """Return the lines that end the transactions which ``show ssl cert`` names.

    ``set ssl cert`` of one certificate while somebody's transaction on another is open would change that one.
    """
    return [Line(f"abort ssl cert {row[1:]}", ("aborted",)) for row in answer.splitlines() if row.startswith("*")]


def prepare_map(command: ReplaceMap) -> Line:
    """Return the line that begins a version of a map; the answer names its number."""
    return Line(f"prepare map {command.path}", ("New version created: ",))


def filled_map(command: ReplaceMap, answer: str) -> list[Line]:
    """Return the lines that fill the version that ``answer`` names, and commit it."""
    version = answer.rpartition(":")[2].strip()
    chunks: list[list[str]] = [[]]
    size = 0
    for key, value in command.entries:
        entry = f"{key} {value}"
        size += len(entry.encode()) + 1
        if size > MAX_PAYLOAD_BYTES and chunks[-1]:
            chunks.append([])
            size = len(entry.encode()) + 1
        chunks[-1].append(entry)
    filled = [Line(f"add map @{version} {command.path} <<\n" + "\n".join(chunk) + "\n") for chunk in chunks if chunk]
    return [*filled, Line(f"commit map @{version} {command.path}")]


def batches(commands: Sequence[Command]) -> Iterator[Sequence[Command]]:
    """Cut the commands; a map that is loaded anew is a batch of its own, in its place."""
    batch: list[Command] = []
    for command in commands:
        alone = isinstance(command, ReplaceMap)
        if batch and (alone or len(batch) >= BATCH):
            yield batch
            batch = []
        batch.append(command)
        if alone:
            yield batch
            batch = []
    if batch:
        yield batch


def is_same(words: tuple[str, ...], command: AddServer) -> bool:
    """Return whether a server that comes back is the one that left; the weight may differ."""
    former = replace(command, words=words)
    return _without_weight(former.words) == _without_weight(command.words)


def _without_weight(words: tuple[str, ...]) -> list[str]:
    places = {at + offset for at, word in enumerate(words) if word == "weight" for offset in (0, 1)}
    return [word for at, word in enumerate(words) if at not in places]
