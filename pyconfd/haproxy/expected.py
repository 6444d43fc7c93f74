"""What the configuration says about the servers of one proxy, as far as the process can be held against it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyconfd.haproxy.index import Index, Key
from pyconfd.haproxy.proxies import Inherited, Server, is_literal, servers_of, takes_servers, why_not_addable
from pyconfd.model.plan import AddServer, ServerState

_WITH_SERVERS = frozenset({"backend", "listen"})


@dataclass(frozen=True, slots=True)
class ExpectedServer:
    """A server as the file has it. ``weight`` is None where the text does not tell it."""

    server: AddServer
    weight: int | None
    line: Server
    algorithm: str = ""
    cookies: bool = False

    @property
    def literal(self) -> bool:
        """Whether its address is one that the process shows as it is."""
        return is_literal(self.server.address)

    @property
    def obstacle(self) -> str:
        """What forbids to add it while HAProxy runs, "" for nothing."""
        if self.algorithm:
            return f"balance {self.algorithm} takes no server while it runs"
        return why_not_addable(self.line, cookies=self.cookies)

    @property
    def state(self) -> ServerState:
        """The administrative state that it begins with."""
        return ServerState.MAINT if self.server.disabled else ServerState.READY


@dataclass(frozen=True, slots=True)
class ExpectedBackend:
    """The servers of one backend by name."""

    name: str
    servers: Mapping[str, ExpectedServer]


def keys_with_servers(index: Index) -> list[Key]:
    """Return the sections that may have servers, in order."""
    return [key for key in index.bases if key.keyword in _WITH_SERVERS and not key.position]


def keys_of(index: Index, backend: str) -> Iterator[Key]:
    """Return the section of this name that may have servers, if there is one."""
    keys = (Key(keyword, backend) for keyword in sorted(_WITH_SERVERS))
    return (key for key in keys if key in index.texts)


def expected_backend(index: Index, key: Key, *, cookies: bool) -> ExpectedBackend | None:
    """Return the servers of a section; None where the text alone does not say which there are.

    That is so for ``server-template``, lines between ``.if`` and ``.endif``, names out of variables, two servers or
    sections of one name, and sections that are disabled. ``cookies`` where ``add server`` takes them.
    """
    section = index.section(key)
    if section is None or key._replace(position=1) in index.texts:
        return None
    unclear = {"disabled", "server-template"}
    if any(line.words[0] in unclear or (line.conditional and line.words[0] == "server") for line in section.lines):
        return None
    base = index.bases.get(key, Inherited())
    found = servers_of(section, base)
    names = {server.name for server in found}
    if len(names) != len(found) or any("$" in name for name in names):
        return None
    algorithm = takes_servers(section, base)
    servers = {server.name: _expected(key.name, server, algorithm, cookies=cookies) for server in found}
    return ExpectedBackend(key.name, servers)


def _expected(backend: str, server: Server, algorithm: str, *, cookies: bool) -> ExpectedServer:
    added = AddServer(backend, server.name, server.address, server.effective)
    pairs = zip(server.effective, server.effective[1:], strict=False)
    known = "weight" not in server.effective or all(value.isdigit() for word, value in pairs if word == "weight")
    return ExpectedServer(added, added.weight if known else None, server, algorithm, cookies)
