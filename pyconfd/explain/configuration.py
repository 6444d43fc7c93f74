"""A rendered configuration by its lines: which section, fragment and server stand where. Pure."""

import ipaddress
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

from pyconfd.haproxy.config.text import SECTION_KEYWORDS, name_of, words
from pyconfd.model.rendering import Rendering

_WITH_SERVERS = frozenset({"backend", "listen"})
_WITH_NAMES = frozenset({"backend", "frontend", "listen", "peers", "resolvers", "userlist", "defaults"})
_K = TypeVar("_K")
_DELIMITERS = (("{{", "}}"), ("{%", "%}"), ("{#", "#}"))


class ServerLine(NamedTuple):
    """A ``server`` line; ``address`` is an IP address in its usual spelling, or a name; ``line`` counts from 1."""

    backend: str
    name: str
    address: str
    port: int
    line: int

    @property
    def target(self) -> str:
        """Address and port as they are written."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class Header(NamedTuple):
    """The line that opens a section, at ``line``."""

    keyword: str
    name: str
    line: int

    @property
    def title(self) -> str:
        """``backend be_shop``, or ``global``."""
        return f"{self.keyword} {self.name}".strip() or "the lines above the first section"


@dataclass(frozen=True, slots=True)
class _Servers:
    """All servers in columns: name and address as they are written, where the line begins, the number of the section.

    100,000 objects would take longer to make than all the rest.
    """

    names: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    sections: list[int] = field(default_factory=list)

    def add(self, name: str, target: str, at: int, section: int) -> None:
        self.names.append(name)
        self.targets.append(target)
        self.starts.append(at)
        self.sections.append(section)


_LINE = re.compile(
    r"^[ \t]*(?:(?P<server>server)[ \t]+(?P<name>[^\s#\"'\\]+)[ \t]+(?P<target>[^\s#\"'\\]+)(?=\s|$)"
    rf"|(?P<keyword>{'|'.join(sorted(SECTION_KEYWORDS))})(?=[\s#]|$)[^\n]*"
    r"|(?P<otherwise>server[ \t]|[^\s#\"'\\]*[\"'\\])[^\n]*)",
    re.MULTILINE,
)
"""A server as nearly all are written, the header of a section, and what has to be split into words to be either."""


class Places(Generic[_K]):
    """Numbers by what stands there; nearly always one, so that a list is made only for several."""

    def __init__(self, found: Iterable[tuple[_K, int]]) -> None:
        self._numbers: dict[_K, int | list[int]] = {}
        for key, number in found:
            known = self._numbers.setdefault(key, number)
            if isinstance(known, list):
                known.append(number)
            elif known != number:
                self._numbers[key] = [known, number]

    def of(self, key: _K) -> Sequence[int]:
        """Return the numbers of one key, in order."""
        found = self._numbers.get(key, ())
        return (found,) if isinstance(found, int) else found


@dataclass(frozen=True)
class Configuration:
    """What one Rendering says; each view of it is made when it is first asked for.

    Nothing is made for each of 100,000 servers that is not asked about.
    """

    rendering: Rendering

    @cached_property
    def _scanned(self) -> tuple[list[tuple[str, str, int]], _Servers]:
        """The headers (keyword, name, where the line begins) and the servers of the sections that have some."""
        headers, servers = [("", "", 0)], _Servers()
        has_servers = False
        for found in _LINE.finditer(self.rendering.text):
            if found["server"]:
                if has_servers:
                    servers.add(found["name"], found["target"], found.start(), len(headers) - 1)
                continue
            split = words(found[0])
            if split and split[0] in SECTION_KEYWORDS:
                headers.append((split[0], name_of(split)[0], found.start()))
                has_servers = split[0] in _WITH_SERVERS
            elif has_servers and len(split) > 2 and split[0] == "server":
                servers.add(split[1], split[2], found.start(), len(headers) - 1)
        return headers, servers

    @cached_property
    def _starts(self) -> list[int]:
        """Where each line begins."""
        return list(accumulate((len(line) + 1 for line in self.lines), initial=0))

    def _told(self, numbers: Iterable[int]) -> tuple[ServerLine, ...]:
        headers, servers = self._scanned
        return tuple(
            ServerLine(
                headers[servers.sections[number]][1],
                servers.names[number],
                *host_and_port(servers.targets[number]),
                bisect_right(self._starts, servers.starts[number]),
            )
            for number in numbers
        )

    @cached_property
    def _by_address(self) -> Places[str]:
        return Places((host_and_port(target)[0], number) for number, target in enumerate(self._scanned[1].targets))

    def at(self, address: str, port: int = 0) -> tuple[ServerLine, ...]:
        """Return the servers at an address, of any port where that is 0."""
        return tuple(each for each in self._told(self._by_address.of(address)) if port in {0, each.port})

    def of_backend(self, name: str) -> tuple[ServerLine, ...]:
        """Return the servers of one backend."""
        headers, servers = self._scanned
        own = {number for number, header in enumerate(headers) if header[1] == name}
        return self._told(number for number, section in enumerate(servers.sections) if section in own)

    def called(self, name: str) -> tuple[ServerLine, ...]:
        """Return the servers of this name."""
        return self._told(number for number, each in enumerate(self._scanned[1].names) if each == name)

    def on_line(self, number: int) -> tuple[ServerLine, ...]:
        """Return the server of this line, if it is one."""
        first, last = (bisect_left(self._scanned[1].starts, at) for at in self._starts[number - 1 : number + 1])
        return self._told(range(first, last))

    @property
    def server_names(self) -> Iterator[str]:
        """The name of each server."""
        return iter(self._scanned[1].names)

    @property
    def server_count(self) -> int:
        """How many servers there are."""
        return len(self._scanned[1].names)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the sections that have one, each once."""
        headers, _ = self._scanned
        return tuple(dict.fromkeys(name for keyword, name, _ in headers if name and keyword in _WITH_NAMES))

    def sections(self, name: str) -> tuple[Header, ...]:
        """Return the sections of this name."""
        return tuple(self._header(each) for each in self._scanned[0] if each[1] == name and each[0])

    def section_at(self, number: int) -> Header:
        """Return the section in which a line stands; a comment above a section is about that one."""
        number = next((at for at in range(number, len(self.lines) + 1) if words(self.lines[at - 1])), number)
        end = self._starts[number] if number < len(self._starts) else len(self.rendering.text)
        return self._header([each for each in self._scanned[0] if each[2] < end][-1])

    def _header(self, found: tuple[str, str, int]) -> Header:
        keyword, name, at = found
        return Header(keyword, name, bisect_right(self._starts, at))

    @cached_property
    def lines(self) -> Sequence[str]:
        """The lines without their ends."""
        return self.rendering.text.removesuffix("\n").split("\n")

    def place_of(self, number: int) -> str:
        """Name the fragment and the line of what it rendered to."""
        fragment, line = self.rendering.place_of(number)
        if not fragment:
            return ""
        return f"{fragment} {'' if fragment.endswith('.conf') else 'rendered '}line {line}"


def host_and_port(written: str) -> tuple[str, int]:
    """Return address and port of a server line; port 0 where there is none."""
    host, colon, port = written.rpartition(":")
    if not colon or not port.isdigit():
        host, port = written, "0"
    return canonical(host.rpartition("@")[2]), int(port)


def canonical(address: str) -> str:
    """Return an IP address in its usual spelling without brackets; anything else as it is."""
    text = address.removeprefix("[").removesuffix("]")
    if ":" not in text:
        return text  # of an IPv4 address there is no other spelling
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text


def template_lines(source: str, rendered: str) -> tuple[tuple[int, str], ...]:
    """Return the lines of a template that can have given a rendered one, with their numbers; the most special ones.

    Those are the lines whose words outside of Jinja's delimiters are all in it, in order, from begin to end; of
    several the one with the most such text. None for an empty line.
    """
    wanted = rendered.strip()
    best: list[tuple[int, str]] = []
    most = 0
    for number, line in enumerate(source.split("\n"), start=1):
        literal = _literal(line.strip())
        size = sum(map(len, literal))
        if size < most or size == 0 or not _gives(literal, wanted):
            continue
        if size > most:
            best, most = [], size
        best.append((number, line.strip()))
    return tuple(best)


def _literal(line: str) -> list[str]:
    """Return what stands outside of the delimiters; a tag adds nothing, an expression anything."""
    for opening, closing in _DELIMITERS[1:]:
        line = _without(line, opening, closing, "")
    return _without(line, *_DELIMITERS[0], "\0").strip().split("\0")


def _without(line: str, opening: str, closing: str, instead: str) -> str:
    begin = line.find(opening)
    while begin >= 0:
        end = line.find(closing, begin)
        if end < 0:
            return line[:begin] + instead
        line = line[:begin] + instead + line[end + len(closing) :]
        begin = line.find(opening, begin + len(instead))
    return line


def _gives(literal: Sequence[str], wanted: str) -> bool:
    first, *rest = literal
    if not rest:
        return first == wanted
    if not wanted.startswith(first):
        return False
    position = len(first)
    for part in rest[:-1]:
        found = wanted.find(part, position)
        if found < 0:
            return False
        position = found + len(part)
    return wanted.endswith(rest[-1]) and len(wanted) - len(rest[-1]) >= position
