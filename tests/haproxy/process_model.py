"""A model of what a running HAProxy holds and what the commands of a plan do to it; random configurations for it.

It is as strict as the real one: a server that is there cannot be added, one that is not there cannot be changed.
``tests/haproxy/test_runtime.py`` shows the same commands to a real HAProxy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from pyconfd.haproxy.config.changes import entries_of
from pyconfd.haproxy.config.index import index_of
from pyconfd.haproxy.config.servers import servers_of
from pyconfd.haproxy.config.text import parse
from pyconfd.model.operations import (
    AddBackend,
    AddCertificate,
    AddListLines,
    AddMapEntries,
    AddServer,
    ChangeMapEntries,
    Command,
    RemoveBackend,
    RemoveCertificate,
    RemoveListLines,
    RemoveMapEntries,
    RemoveServer,
    ReplaceMap,
    ServerState,
    SetState,
    SetWeight,
    UpdateCertificate,
)
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering


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
        """Return what a process holds that has just loaded ``rendering``."""
        index = index_of(rendering.text)
        backends = {}
        for key, section in zip(index.keys, parse(rendering.text), strict=True):
            if key.keyword == "backend":
                servers = servers_of(section, index.base(key))
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
            case AddListLines():
                # What a directory has is known from its certificates.
                if command.crt_list in self.maps:
                    self.maps[command.crt_list] += entries_of("\n".join(command.lines)) or ()
            case RemoveListLines():
                gone = entries_of("\n".join(command.lines)) or ()
                if command.crt_list in self.maps:
                    self.maps[command.crt_list] = [line for line in self.maps[command.crt_list] if line not in gone]

    def comparable(self) -> tuple[object, ...]:
        """Return what two models are compared by: a state counts, the keyword that gave it does not."""
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


_TEXT = """global
    maxconn 100
{global_lines}defaults base
    mode http
    balance {balance}
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    default-server check inter 3s{default}
defaults last
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    default-server check inter 5s weight 7
frontend fe
    bind {bind} ssl crt {certificates}/0.pem crt {certificates}/
    http-request set-header x-path %[path,map_beg({maps}/paths.map)]
    use_backend %[req.hdr(host),map_str({maps}/hosts.map)]
"""


@dataclass(frozen=True)
class Place:
    """Where files are and what is listened on; ``pems`` are the certificates by their short names."""

    maps: str = "/m"
    certificates: str = "/c"
    bind: str = ":80"
    global_lines: str = ""
    pems: Mapping[str, str] = field(default_factory=lambda: {"P": "P\n", "Q": "Q\n"})


@dataclass(frozen=True)
class State:
    """Backends by name: servers (address and words by name), inherited defaults and an option."""

    static: bool
    other_default: bool
    backends: Mapping[str, tuple[Mapping[str, tuple[str, str]], str, str]]
    hosts: Mapping[str, str]
    paths: tuple[tuple[str, str], ...]
    certificates: Mapping[str, str]

    def rendering(self, place: Place) -> Rendering:
        """Return it as a configuration, each backend in a piece of its own."""
        head = _TEXT.format(
            global_lines=place.global_lines,
            balance="source" if self.static else "roundrobin",
            default=" rise 1" if self.other_default else "",
            bind=place.bind,
            certificates=place.certificates,
            maps=place.maps,
        )
        pieces = [Piece("01", head)]
        for name, (members, inherits, extra) in self.backends.items():
            lines = "".join(f"    server {one} {at} id {ord(one)}{word}\n" for one, (at, word) in members.items())
            pieces.append(Piece("02", f"# {name}\nbackend {name}{inherits}\n{extra}{lines}\n"))
        maps = {"hosts.map": self.hosts.items(), "paths.map": self.paths}
        files = [
            OutputFile(FileKind.MAP, f"{place.maps}/{name}", "".join(f"{key} {value}\n" for key, value in entries))
            for name, entries in maps.items()
        ]
        files += [
            OutputFile(FileKind.CERTIFICATE, f"{place.certificates}/{name}", place.pems[pem])
            for name, pem in self.certificates.items()
        ]
        return Rendering(tuple(pieces), tuple(sorted(files, key=lambda file: file.path)))


_ADDRESSES = {name: f"127.0.0.{number}:1" for number, name in enumerate("abcde", start=1)} | {"f": "[::1]:1"}
_BACKENDS = ["b1", "b2", "b3", "b4"]

_rarely = st.integers(0, 9).map(lambda number: number == 0)
_words = st.sampled_from(
    ["", " weight 0", " weight 20", " disabled", " backup", " weight 20 disabled", " maxconn 5", " no-check"]
)
_names = st.sampled_from(sorted(_ADDRESSES))
_servers = st.dictionaries(
    _names, st.tuples(st.sampled_from(["127.0.0.1:1", "127.0.0.2:1", "[::1]:1"]), _words), max_size=4
)
_backends = st.tuples(
    _servers, st.sampled_from([" from base", " from last", ""]), st.sampled_from(["", "    option redispatch\n"])
)
_values = st.sampled_from(["b1", "b2"])
_hosts = st.dictionaries(st.sampled_from(["h1", "h2", "h3"]), _values, max_size=3)
_paths = st.lists(st.tuples(st.sampled_from(["/", "/a", "/a/b"]), _values), max_size=3).map(tuple)
_certificates = st.dictionaries(st.sampled_from(["site.pem", "two.pem"]), st.sampled_from("PQ"))

states = st.builds(
    State,
    static=_rarely,
    other_default=_rarely,
    backends=st.dictionaries(st.sampled_from(_BACKENDS), _backends, max_size=4),
    hosts=_hosts,
    paths=_paths,
    certificates=_certificates,
)


@st.composite
def _edited(draw: st.DrawFn, state: State) -> State:
    """Change one thing, most often a server; one that comes back has mostly the address that it had."""
    kind = draw(st.sampled_from(["server"] * 10 + ["hosts", "hosts", "paths", "certificates", "certificates", "rare"]))
    if kind == "server" and state.backends:
        backend, name = draw(st.sampled_from(sorted(state.backends))), draw(_names)
        members, inherits, extra = state.backends[backend]
        others = {one: server for one, server in members.items() if one != name}
        if name in members and draw(st.booleans()):
            changed = others
        else:
            address = draw(st.sampled_from([_ADDRESSES[name]] * 9 + ["127.0.0.9:1"]))
            address = members[name][0] if name in members and not draw(_rarely) else address
            changed = {**others, name: (address, draw(st.one_of(st.sampled_from(["", " weight 20"]), _words)))}
        return replace(state, backends={**state.backends, backend: (changed, inherits, extra)})
    if kind == "hosts":
        return replace(state, hosts=draw(_hosts))
    if kind == "paths":
        return replace(state, paths=draw(_paths))
    if kind == "certificates":
        return replace(state, certificates=draw(_certificates))
    match draw(st.sampled_from(["backend", "backend", "backend", "static", "default"])):
        case "static":
            return replace(state, static=not state.static)
        case "default":
            return replace(state, other_default=not state.other_default)
    backend = draw(st.sampled_from(_BACKENDS))
    kept = {name: one for name, one in state.backends.items() if name != backend}
    return replace(state, backends=kept if backend in state.backends else {**kept, backend: draw(_backends)})


@st.composite
def successors(draw: st.DrawFn, *, length: int = 12) -> list[State]:
    """Return states that each differ from the one before in a few respects."""
    found = [replace(draw(states), static=False)]
    for _ in range(draw(st.integers(length // 2, length))):
        state = found[-1]
        if len(found) > 1 and draw(st.integers(0, 2)) == 0:
            found.append(found[-2])  # so that what has just gone comes back
            continue
        for _ in range(draw(st.integers(1, 3))):
            state = draw(_edited(state))
        found.append(state)
    return found
