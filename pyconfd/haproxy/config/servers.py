"""What the lines of a proxy mean for its servers: algorithm, inherited keywords, what ``add server`` takes. Pure.

Source: HAProxy configuration manual, 4.2 ``balance``, ``default-server``, ``hash-type``; management manual, 9.3
``add server``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pyconfd.haproxy.config.text import Section
from pyconfd.model.listener import parsed
from pyconfd.model.operations import PLAIN_CHARACTERS, AddServer, RemoveServer, ServerState

DYNAMIC_ALGORITHMS = frozenset({"roundrobin", "leastconn", "first", "random"})
"""Algorithms that take servers at any time; the hashing ones do with ``hash-type consistent``."""

_HASHING = frozenset({"source", "uri", "url_param", "hdr", "rdp-cookie", "hash"})

_NEVER_LIVE = frozenset(
    [
        "log-bufsize",
        "log-proto",
        "max-reuse",
        "namespace",
        "non-stick",
        "redir",
        "resolve-net",
        "resolve-opts",
        "resolve-prefer",
        "resolvers",
        "socks4",
        "tcp-ut",
    ]
)
"""Keywords that ``add server`` refuses in every version, or that would be another server than the file's."""

_DROPPED = frozenset({"init-addr"})
"""Says how names are resolved at the start: of no meaning for an IP address, and refused by ``add server``."""

_CANCELS = MappingProxyType(
    {
        "enabled": "disabled",
        "ssl-reuse": "no-ssl-reuse",
        "stick": "non-stick",
        "tls-tickets": "no-tls-tickets",
        **{
            f"no-{word}": word
            for word in [
                "agent-check",
                "backup",
                "check",
                "check-reuse-pool",
                "check-send-proxy",
                "check-ssl",
                "send-proxy",
                "send-proxy-v2",
                "send-proxy-v2-ssl",
                "send-proxy-v2-ssl-cn",
                "ssl",
                "tfo",
            ]
        },
    }
)
"""Keywords that take another one back; where nothing is to be taken back they say what is so anyway. ``add server``
takes few of them."""

_PLAIN = re.compile(rf"[{PLAIN_CHARACTERS}]+")

MAX_WORDS = 60
"""Most words behind the address in ``add server``: a command has 64, and the rest is ignored before 3.4."""

_TARGET = re.compile(r"(?:ipv[46]@)?(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]*|[0-9a-fA-F:.]*))(?::(?P<port>[0-9]+))?")


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a ``defaults`` section says about servers, and all ``lines`` of it. ``name`` is "" for one without."""

    name: str = ""
    lines: tuple[tuple[str, ...], ...] = ()
    algorithm: tuple[str, ...] = ()
    hash_type: str = ""
    server_words: tuple[str, ...] = ()
    cookie: bool = False


@dataclass(frozen=True, slots=True)
class ConfiguredServer:
    """A server line: ``words`` are those after the address, ``effective`` has those of ``default-server`` before."""

    backend: str
    name: str
    address: str
    words: tuple[str, ...]
    effective: tuple[str, ...]
    conditional: bool = False

    @property
    def addition(self) -> AddServer:
        """The operation that adds it."""
        return AddServer(self.backend, self.name, self.address, self.effective)

    @property
    def removal(self) -> RemoveServer:
        """The operation that drains and deletes it."""
        return RemoveServer(self.backend, self.name, self.address, self.effective)

    @property
    def state(self) -> ServerState:
        """The administrative state that it begins with."""
        return ServerState.MAINT if self.addition.disabled else ServerState.READY

    @property
    def weight(self) -> int | None:
        """Its weight, None where that is not a number."""
        pairs = zip(self.effective, self.effective[1:], strict=False)
        known = "weight" not in self.effective or all(value.isdigit() for word, value in pairs if word == "weight")
        return self.addition.weight if known else None


@dataclass(frozen=True, slots=True)
class ConfiguredBackend:
    """The servers of one backend by name; ``algorithm`` is what forbids to add one at run time, "" for nothing."""

    name: str
    servers: Mapping[str, ConfiguredServer]
    algorithm: str = ""

    def obstacle(self, server: ConfiguredServer, *, cookies: bool) -> str:
        """Return what forbids to add one of its servers while HAProxy runs, "" for nothing."""
        if self.algorithm:
            return f"balance {self.algorithm} takes no server while it runs"
        return why_not_addable(server, cookies=cookies)


def parent_of(keyword: str, options: tuple[str, ...]) -> str | None:
    """Return the name of the defaults section that a proxy with these words behind its name inherits from.

    "" is the last one above it, None is none. Only sections above it count.
    """
    if options[:1] == ("from",) and len(options) > 1:
        return options[1]
    return None if keyword == "defaults" else ""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The ``defaults`` sections above a place: what the ``last`` of them gives, and each that has a name."""

    last: Inherited = Inherited()
    named: Mapping[str, Inherited] = field(default_factory=lambda: MappingProxyType({}))

    def base(self, keyword: str, options: tuple[str, ...]) -> Inherited:
        """Return what a section with these words behind its name inherits at this place."""
        parent = parent_of(keyword, options)
        if parent is None:
            return Inherited()
        return self.named.get(parent, Inherited()) if parent else self.last

    def below(self, section: Section) -> "Defaults":
        """Return those above what follows ``section``, one of ``defaults``."""
        last = _with(self.base(section.keyword, section.options), section)
        return Defaults(last, MappingProxyType({**self.named, section.name: last}) if section.name else self.named)


def _with(base: Inherited, section: Section) -> Inherited:
    return Inherited(
        section.name,
        (*base.lines, *(line.words for line in section.lines)),
        _last(section, "balance") or base.algorithm,
        (_last(section, "hash-type") or (base.hash_type,))[0],
        (*base.server_words, *default_server_words(section)),
        bool(_last(section, "cookie")) or base.cookie,
    )


def _last(section: Section, keyword: str) -> tuple[str, ...]:
    return next((line.words[1:] for line in reversed(section.lines) if line.words[0] == keyword), ())


def default_server_words(section: Section) -> tuple[str, ...]:
    """Return the words of all ``default-server`` lines, in order."""
    return tuple(word for line in section.lines if line.words[0] == "default-server" for word in line.words[1:])


def servers_of(section: Section, base: Inherited) -> tuple[ConfiguredServer, ...]:
    """Return the server lines in order; ``default-server`` counts for those below it."""
    found = []
    words = base.server_words
    for line in section.lines:
        if line.words[0] == "default-server":
            words = (*words, *line.words[1:])
        elif line.words[0] == "server" and len(line.words) > 2:
            _, name, address, *rest = line.words
            own = tuple(rest)
            effective = _effective((*words, *own))
            found.append(ConfiguredServer(section.name, name, address, own, effective, line.conditional))
    return tuple(found)


def _effective(words: tuple[str, ...]) -> tuple[str, ...]:
    if _DROPPED.isdisjoint(words) and _CANCELS.keys().isdisjoint(words):
        return words
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in _DROPPED:
            skip = True
        elif word in _CANCELS:
            kept = [one for one in kept if one != _CANCELS[word]]
        else:
            kept.append(word)
    return tuple(kept)


def is_plain(word: str) -> bool:
    """Return whether a word can stand in a command on the socket as it is."""
    return _PLAIN.fullmatch(word) is not None


def takes_servers(section: Section, base: Inherited) -> str:
    """Return "" where servers can be added at any time, else the algorithm that forbids it."""
    algorithm = _last(section, "balance") or base.algorithm or ("roundrobin",)
    name = algorithm[0].partition("(")[0]
    hash_type = (_last(section, "hash-type") or (base.hash_type,))[0]
    if name in DYNAMIC_ALGORITHMS or (name in _HASHING and hash_type == "consistent"):
        return ""
    return " ".join(algorithm)


def why_not_addable(server: ConfiguredServer, *, cookies: bool) -> str:
    """Return "" where ``add server`` can make this server, else what forbids it; ``cookies`` where it takes them."""
    if server.conditional:
        return "its line stands between .if and .endif"
    if not is_literal(server.address):
        return f"{server.address} is no IP address with a port"
    words = (server.name, server.address, *server.effective)
    # A plain word is one with anything plain beside it, and an empty one is not plain.
    if not (all(words) and is_plain("".join(words))):
        word = next(word for word in words if not is_plain(word))
        return f"the word {word!r} cannot be sent over the socket"
    if len(server.effective) > MAX_WORDS:
        return f"it has more than {MAX_WORDS} keywords and values"
    refused = (_NEVER_LIVE | (frozenset() if cookies else {"cookie"})).intersection(server.effective)
    return f"add server does not take {' and '.join(sorted(refused))}" if refused else ""


def is_literal(target: str) -> bool:
    """Return whether the address of a server line is an IP address with a port, which the process shows as it is."""
    found = _TARGET.fullmatch(target)
    if found is None or not found["port"]:
        return False
    try:
        parsed(found["v6"] or found["host"] or "")
    except ValueError:
        return False
    return True
