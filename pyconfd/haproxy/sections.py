"""HAProxy configuration text to sections, lines, words and binds. Pure; never raises on any text.

Source: the configuration manual of HAProxy, 2.1 (format), 2.2 (quoting and escaping), 2.4 (conditional blocks),
4.2 ``bind``.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from pyconfd.haproxy.words import split_words
from pyconfd.model.listener import ANY_IPV6, Listener

SECTION_KEYWORDS = frozenset(
    {
        "acme",
        "backend",
        "cache",
        "crt-store",
        "defaults",
        "fcgi-app",
        "frontend",
        "global",
        "http-errors",
        "listen",
        "log-forward",
        "log-profile",
        "mailers",
        "peers",
        "program",
        "resolvers",
        "ring",
        "traces",
        "userlist",
    }
)
"""Words that open a section when they begin a line. Source: ``REGISTER_CONFIG_SECTION`` in HAProxy 2.6 to 3.4."""

_SPECIAL = re.compile(r"[\\\"'#]")


@dataclass(frozen=True, slots=True)
class Line:
    """A line with words on it; ``number`` counts from 1.

    ``words`` are without quotes and escapes, ``raw`` is as written; ``conditional`` is True between ``.if`` and
    ``.endif``.
    """

    number: int
    words: tuple[str, ...]
    raw: str
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """``keyword`` and ``name`` of the header, its line number and the lines below it.

    Lines above the first header form a section whose keyword is "" at line 0. ``options`` are the words after the
    name (``from NAME``).
    """

    keyword: str
    name: str
    number: int
    lines: tuple[Line, ...]
    options: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """``backend be_shop``, or ``global``."""
        return f"{self.keyword} {self.name}".strip() or "the lines above the first section"


@dataclass(frozen=True, slots=True)
class Bind:
    """One address and port range that a frontend or listen section accepts TCP connections on.

    ``address`` is an IP literal without brackets and zone, or a host name; "0.0.0.0" and "::" mean any.
    ``dual_stack`` is True for an IPv6 bind that takes IPv4 as well. ``judged`` is False for what cannot be told from
    the text alone: UNIX and abstract sockets, inherited descriptors, QUIC, other namespaces, variables.
    """

    proxy: str
    number: int
    text: str
    address: str = ""
    first_port: int = 0
    last_port: int = 0
    dual_stack: bool = False
    interface: str = ""
    transparent: bool = False
    judged: bool = True

    @property
    def identity(self) -> tuple[str, int, int, str]:
        """What two binds have in common when they ask the kernel for the same socket."""
        return self.address, self.first_port, self.last_port, self.interface

    def listener(self, port: int) -> Listener:
        """Return its address with one of its ports."""
        return Listener.at(self.address, port, v6only=self.address == ANY_IPV6 and not self.dual_stack)

    def listeners(self) -> Iterator[Listener]:
        """Return its address with each of its ports; nothing where that cannot be told from the text."""
        if self.judged:
            yield from (self.listener(port) for port in range(self.first_port, self.last_port + 1))


def words(line: str) -> tuple[str, ...]:
    r"""Split one line as HAProxy does: blanks separate, ``\`` escapes, quotes join, ``#`` outside them ends the line.

    Variables stay as they are. A quote that is not closed ends with the line.
    """
    if not _SPECIAL.search(line):
        return tuple(line.split())
    return tuple(word.value for word in split_words(line.rstrip("\r")))


def emptied(text: str, names: Iterable[str]) -> Iterator[str]:
    """Return those of the backends ``names`` that ``text`` has without any server; it is not parsed for that."""
    for name in names:
        found = re.search(rf"(?m)^(?:backend|listen)[ \t]+{re.escape(name)}(?=\s).*((?:\n(?:[ \t#].*)?$)*)", text)
        if found is not None and re.search(r"(?m)^[ \t]+server(?:-template)?[ \t]", found[1]) is None:
            yield name


@lru_cache(maxsize=4)
def parse(text: str) -> tuple[Section, ...]:
    """Return the sections of ``text`` in order; a line that opens none belongs to the section before it.

    The last few configurations are remembered until :func:`forget_parsed`; for parts of one there is
    :func:`parse_part`.
    """
    return parse_part(text)


def forget_parsed() -> None:
    """Give back what :func:`parse` remembers: 80 MB for 100,000 servers, and the next reload has others."""
    parse.cache_clear()


def parse_part(text: str) -> tuple[Section, ...]:
    """Do what :func:`parse` does without remembering it: it would push whole configurations out."""
    sections: list[Section] = []
    header: tuple[str, str, int, tuple[str, ...]] = ("", "", 0, ())
    lines: list[Line] = []
    depth = 0

    def close() -> None:
        keyword, name, number, options = header
        if keyword or lines:
            sections.append(Section(keyword, name, number, tuple(lines), options))

    for number, raw in enumerate(text.split("\n"), start=1):
        found = words(raw)
        if not found:
            continue
        if found[0] in SECTION_KEYWORDS:
            close()
            name, options = name_of(found)
            header, lines = (found[0], name, number, options), []
            continue
        depth += (found[0] == ".if") - (found[0] == ".endif")
        lines.append(Line(number, found, raw, depth > 0))
    close()
    return tuple(sections)


def name_of(found: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the name that the words of a header give to its section, "" for none, and the words after it."""
    if len(found) > 1 and not (found[0] == "defaults" and found[1] == "from"):
        return found[1], found[2:]
    return "", found[1:]


def binds(text: str) -> tuple[Bind, ...]:
    """Return every bind of the frontends and listens of ``text``, one for each address of a comma-separated list."""
    found: list[Bind] = []
    for section in parse(text):
        if section.keyword not in {"frontend", "listen"}:
            continue
        for line in section.lines:
            if line.words[0] == "bind" and len(line.words) > 1:
                found += [_bind(section.title, line, address) for address in line.words[1].split(",") if address]
    return tuple(found)


@lru_cache(maxsize=4)
def stats_sockets(text: str) -> tuple[str, ...]:
    """Return the paths of the UNIX sockets that ``stats socket`` opens in the global sections, outside ``.if``."""
    return tuple(
        line.words[2].removeprefix("unix@")
        for section in _globals(text)
        for line in section.lines
        if line.words[:2] == ("stats", "socket")
        and len(line.words) > 2
        and not line.conditional
        and line.words[2].removeprefix("unix@").startswith("/")
        and "$" not in line.words[2]
    )


_OPENS = re.compile(
    rf"^[ \t]*(?:(?P<header>{'|'.join(sorted(SECTION_KEYWORDS))})(?=[ \t\r\n#]|$)"
    r"|\.(?P<condition>if|endif)\b|(?P<written_otherwise>[^\s#\"'\\]*[\"'\\]))",
    re.MULTILINE,
)


def _globals(text: str) -> tuple[Section, ...]:
    """Return the global sections; all are parsed only where they cannot be told apart at a glance."""
    starts: list[tuple[str, int]] = []
    depth = 0
    for found in _OPENS.finditer(text):
        depth += (found["condition"] == "if") - (found["condition"] == "endif")
        if found["written_otherwise"] or (found["header"] and depth):
            return tuple(section for section in parse(text) if section.keyword == "global")
        if found["header"]:
            starts.append((found["header"], found.start()))
    parts = pairwise([*starts, ("", len(text))])
    wanted = (text[start:end] for (keyword, start), (_, end) in parts if keyword == "global")
    return tuple(section for part in wanted for section in parse_part(part))


_PORTS = re.compile(r"(?:(\d+)(?:-(\d+))?)")
_NOT_TCP = ("unix@", "abns@", "abnsz@", "fd@", "sockpair@", "quic", "udp", "uxst@", "uxdg@", "uxsts@", "mptcp", "/")


def _bind(proxy: str, line: Line, written: str) -> Bind:
    text = f"bind {written}"
    unjudged = Bind(proxy, line.number, text, written, judged=False)
    options = line.words[2:]
    if "$" in written or written.startswith(_NOT_TCP) or "namespace" in options or line.conditional:
        return unjudged
    family, _, rest = written.rpartition("@")
    if family not in {"", "ipv4", "ipv6", "tcp", "tcp4", "tcp6"}:
        return unjudged
    host, colon, port_text = rest.rpartition(":")
    ports = _PORTS.fullmatch(port_text)
    if not colon or ports is None:
        return unjudged
    address = _address(host, family.endswith("6"))
    first = int(ports[1])
    last = int(ports[2]) if ports[2] else first
    if not 0 < first <= last <= 65535:
        return unjudged
    return Bind(
        proxy,
        line.number,
        text,
        address,
        first,
        last,
        dual_stack=address == "::" and "v6only" not in options,
        interface=_value_after("interface", options),
        transparent="transparent" in options,
    )


def _address(host: str, prefers_v6: bool) -> str:
    host = host.removeprefix("[").removesuffix("]").partition("%")[0]
    if host in {"", "*"}:
        return "::" if prefers_v6 else "0.0.0.0"  # noqa: S104 - what the text means, nothing is bound here
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _value_after(keyword: str, options: tuple[str, ...]) -> str:
    for position, word in enumerate(options[:-1]):
        if word == keyword:
            return options[position + 1]
    return ""


def certificate_lists(text: str) -> frozenset[str]:
    """Return the paths of the lists of certificates that binds name (``crt-list``); no other line is parsed."""
    found = [words(line) for line in _lines_with(text, "crt-list")]
    return frozenset(
        path for bind in found if bind[:1] == ("bind",) for word, path in pairwise(bind) if word == "crt-list"
    )


def _lines_with(text: str, wanted: str) -> Iterator[str]:
    """Return the lines that contain ``wanted``: searched for as a plain string, which a regular expression is not."""
    at = text.find(wanted)
    while at >= 0:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text[text.rfind("\n", 0, at) + 1 : end]
        at = text.find(wanted, end)
