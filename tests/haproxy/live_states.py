"""Random configurations that differ in what can be changed live, and now and then in what cannot."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering

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
        """Give it as a configuration, each backend in a piece of its own."""
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
    """Give states that each differ from the one before in a few respects."""
    found = [replace(draw(states), static=False)]
    for _ in range(draw(st.integers(length // 2, length))):
        state = found[-1]
        for _ in range(draw(st.integers(1, 3))):
            state = draw(_edited(state))
        found.append(state)
    return found
