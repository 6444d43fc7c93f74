"""Which changes of servers go first where there are many, and what the sections say after them. Pure.

A backend with a thousand new servers must not keep the one server of another backend waiting.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import NamedTuple

from pyconfd.haproxy.config.text import Section, parse
from pyconfd.model.operations import AddServer, Command, ServerCommand, ServerState, SetState

SLICE = 100
"""Servers that are changed before pyconfd looks at newer events: 20 to 40 ms with the answers of HAProxy 2.6."""


class _Lines(NamedTuple):
    """The server lines that the process runs and those that it shall run, by name, and the text around the former."""

    running: Mapping[str, str]
    wanted: Mapping[str, str]
    around: tuple[str, str]

    @classmethod
    def of(cls, texts: tuple[str, str]) -> "_Lines":
        (old,), (new,) = map(parse, texts)
        raw = texts[0].split("\n")
        own = {line.number - 1 for line in old.lines if line.words[0] == "server"}
        first = min(own, default=1)
        around = "\n".join(raw[:first]), "\n".join(line for at, line in enumerate(raw) if at >= first and at not in own)
        return cls(_server_lines(old), _server_lines(new), around)

    def text(self, lines: Mapping[str, str]) -> str:
        """Return the section with these server lines in the place of those that it has."""
        before, after = self.around
        return "\n".join((before, *lines.values(), after))


@dataclass(frozen=True, slots=True)
class ServerChanges:
    """Changes of one section's servers that need no reload.

    ``texts`` are those of the section before and after; ``is_all``: nothing but servers differs. ``lines`` are those of
    both, None where they were not needed yet: most changes are few, and go at once.
    """

    texts: tuple[str, str]
    commands: tuple[ServerCommand, ...]
    is_all: bool
    lines: _Lines | None = None

    @property
    def whole(self) -> str:
        """What the section says when all ``commands`` are carried out."""
        if self.is_all:
            return self.texts[1]
        lines = self.lines or _Lines.of(self.texts)
        return lines.text(lines.wanted)

    def split(self, servers: Collection[str]) -> tuple["ServerChanges", "ServerChanges"]:
        """Return the changes of these servers, and the rest; all of them and nothing where these are all."""
        rest = tuple(command for command in self.commands if command.server not in servers)
        if not rest:
            return self, replace(self, commands=())
        lines = self.lines or _Lines.of(self.texts)
        names = dict.fromkeys(chain(lines.running, lines.wanted))
        now = {name: (lines.wanted if name in servers else lines.running).get(name) for name in names}
        running = {name: line for name, line in now.items() if line is not None}
        text = lines.text(running)
        first = tuple(command for command in self.commands if command.server in servers)
        return ServerChanges((self.texts[0], text), first, is_all=True), replace(
            self, texts=(text, self.texts[1]), commands=rest, lines=lines._replace(running=running)
        )

    def in_turn(self, *, only_additions: bool) -> list[str]:
        """Return the servers to change, one that comes and one that goes by turns: never fewer than before serve."""
        coming: list[str] = []
        others: list[str] = []
        for command in self.commands:
            (coming if is_addition(command) else others).append(command.server)
        if only_additions:
            return list(dict.fromkeys(coming))
        pairs = chain.from_iterable(zip_longest(coming, others))
        return list(dict.fromkeys(name for name in pairs if name is not None))


def is_addition(command: Command) -> bool:
    """Return whether a command brings a server that takes traffic: what points to its backend comes after that."""
    return isinstance(command, AddServer) or (isinstance(command, SetState) and command.state is ServerState.READY)


def _server_lines(section: Section) -> Mapping[str, str]:
    return {line.words[1]: line.raw for line in section.lines if line.words[0] == "server" and len(line.words) > 1}
