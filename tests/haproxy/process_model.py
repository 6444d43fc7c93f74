"""A model of what a running HAProxy holds, and what the commands of a plan do to it.

It is as strict as the real one: a server that is there cannot be added, one that is not there cannot be changed.
``tests/haproxy/test_runtime.py`` shows the same commands to a real HAProxy.
"""

from dataclasses import dataclass, field

from pyconfd.haproxy.config.changes import entries_of
from pyconfd.haproxy.config.index import index_of
from pyconfd.haproxy.config.servers import Inherited, servers_of
from pyconfd.haproxy.config.text import parse
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
    ServerState,
    SetState,
    SetWeight,
    UpdateCertificate,
)
from pyconfd.model.rendering import FileKind, Rendering


@dataclass
class ServerModel:
    """A server: what it was made with, its weight and whether it is in maintenance."""

    address: str
    words: tuple[str, ...]
    weight: int
    maint: bool


@dataclass
class ProcessModel:
    """``backends`` by name and server, ``maps`` and ``certificates`` by path; ``leaving`` get nothing new."""

    backends: dict[str, dict[str, ServerModel]] = field(default_factory=dict)
    maps: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    certificates: dict[str, str] = field(default_factory=dict)
    leaving: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def of(cls, rendering: Rendering) -> "ProcessModel":
        """Give what a process holds that has just loaded ``rendering``."""
        bases = index_of(rendering.text).bases
        backends = {}
        for key, section in zip(bases, (s for s in parse(rendering.text) if s.keyword != "global"), strict=True):
            if key.keyword == "backend":
                servers = servers_of(section, bases.get(key, Inherited()))
                backends[key.name] = {one.name: _made(one.address, one.effective) for one in servers}
        maps = {f.path: list(entries_of(f.content) or ()) for f in rendering.files if f.kind is FileKind.MAP}
        certificates = {f.path: f.content for f in rendering.files if f.kind is FileKind.CERTIFICATE}
        return cls(backends, maps, certificates)

    def execute(self, command: Command) -> None:  # noqa: C901 - one case for each command
        """Do what HAProxy would do."""
        match command:
            case AddBackend():
                assert command.backend not in self.backends
                self.backends[command.backend] = {}
            case RemoveBackend():
                assert {one.server for one in command.servers} == set(self.backends.pop(command.backend))
            case AddServer():
                assert command.server not in self.backends[command.backend]
                self.backends[command.backend][command.server] = _made(command.address, command.words)
            case RemoveServer():
                del self.backends[command.backend][command.server]
                self.leaving.add((command.backend, command.server))
            case SetWeight():
                self.backends[command.backend][command.server].weight = command.weight
            case SetState():
                self.backends[command.backend][command.server].maint = command.state is ServerState.MAINT
            case AddMapEntries():
                assert not {key for key, _ in command.entries} & {key for key, _ in self.maps[command.path]}
                self.maps[command.path] += command.entries
            case ChangeMapEntries():
                changed = dict(command.entries)
                assert changed.keys() <= {key for key, _ in self.maps[command.path]}
                self.maps[command.path] = [(key, changed.get(key, value)) for key, value in self.maps[command.path]]
            case RemoveMapEntries():
                assert set(command.keys) <= {key for key, _ in self.maps[command.path]}
                self.maps[command.path] = [pair for pair in self.maps[command.path] if pair[0] not in command.keys]
            case ReplaceMap():
                self.maps[command.path] = list(command.entries)
            case UpdateCertificate():
                assert command.path in self.certificates
                self.certificates[command.path] = command.pem
            case AddCertificate():
                assert command.path not in self.certificates
                self.certificates[command.path] = command.pem
            case RemoveCertificate():
                del self.certificates[command.path]

    def comparable(self) -> tuple[object, ...]:
        """Give what two models are compared by: a state counts, the keyword that gave it does not."""
        servers = {
            (backend, name): (one.address, _lasting(one.words), one.weight, one.maint)
            for backend, found in self.backends.items()
            for name, one in found.items()
        }
        return servers, {path: sorted(entries) for path, entries in self.maps.items()}, self.certificates


def _made(address: str, words: tuple[str, ...]) -> ServerModel:
    made = AddServer("", "", address, words)
    return ServerModel(address, words, made.weight, made.disabled)


def _lasting(words: tuple[str, ...]) -> list[str]:
    skipped = {at + more for at, word in enumerate(words) if word == "weight" for more in (0, 1)}
    return [word for at, word in enumerate(words) if at not in skipped and word not in {"disabled", "enabled"}]
