"""A rendered configuration by its lines: which section, fragment and server stand where. Pure."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from pyconfd.haproxy.config.text import SECTION_KEYWORDS, name_of, words
from pyconfd.model.listener import canonical
from pyconfd.model.rendering import Rendering

_WITH_SERVERS = frozenset({"backend", "listen"})
_TAGS = re.compile(r"\{%.*?(?:%\}|$)|\{#.*?(?:#\}|$)")
_EXPRESSION = re.compile(r"\{\{.*?(?:\}\}|$)")


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


class SectionHeader(NamedTuple):
    """The line that opens a section; at line 0 what stands above the first one."""

    keyword: str
    name: str
    line: int

    @property
    def title(self) -> str:
        """``backend be_shop``, or ``global``."""
        return f"{self.keyword} {self.name}".strip() or "the lines above the first section"


class RenderedConfig:
    """The sections and servers of a Rendering.

    It is read in one pass of its own: with 100,000 servers, to parse it as a whole would take most of the second that
    an explanation may take.
    """

    def __init__(self, rendering: Rendering) -> None:
        self.rendering = rendering
        self.lines = rendering.text.removesuffix("\n").split("\n")
        self.sections = [SectionHeader("", "", 0)]
        self.servers: list[ServerLine] = []
        self._by_address: defaultdict[str, list[ServerLine]] = defaultdict(list)
        section = self.sections[0]
        for number, line in enumerate(self.lines, start=1):
            found = words(line) if line.lstrip()[:1] not in {"", "#"} else ()
            if not found:
                continue
            if found[0] in SECTION_KEYWORDS:
                section = SectionHeader(found[0], name_of(found)[0], number)
                self.sections.append(section)
            elif found[0] == "server" and section.keyword in _WITH_SERVERS and len(found) > 2:
                server = ServerLine(section.name, found[1], *host_and_port(found[2]), number)
                self.servers.append(server)
                self._by_address[server.address].append(server)

    def at(self, address: str, port: int = 0) -> list[ServerLine]:
        """Return the servers at an address, of any port where that is 0."""
        return [each for each in self._by_address.get(address, ()) if port in {0, each.port}]

    def section_at(self, number: int) -> SectionHeader:
        """Return the section in which a line stands; a comment above a section is about that one."""
        number = next((at for at in range(number, len(self.lines) + 1) if words(self.lines[at - 1])), number)
        return self.sections[bisect_right(self.sections, number, key=attrgetter("line")) - 1]

    def place_of(self, number: int) -> str:
        """Return the fragment and the line of its rendered text."""
        return place_of(self.rendering, number)


def place_of(rendering: Rendering, number: int) -> str:
    """Return the fragment of a line, and its line there."""
    fragment, line = rendering.place_of(number)
    if not fragment:
        return ""
    return f"{fragment} {'' if fragment.endswith('.conf') else 'rendered '}line {line}"


def host_and_port(written: str) -> tuple[str, int]:
    """Return address and port of a server line; port 0 where there is none."""
    host, colon, port = written.rpartition(":")
    if not colon or not port.isdigit():
        host, port = written, "0"
    if ":" not in host and "@" not in host:  # nearly always, and there may be 100,000
        return host, int(port)
    return canonical(host.rpartition("@")[2].strip("[]")), int(port)


def template_lines(source: str, rendered: str) -> tuple[tuple[int, str], ...]:
    """Return the lines of a template that can have given a rendered one, with their numbers; the most special ones.

    Those are the lines whose words outside of Jinja's delimiters are all in it, in order, from begin to end; of
    several the one with the most such text. None for an empty line.
    """
    found: list[tuple[int, str]] = []
    most = 1
    for number, line in enumerate(source.split("\n"), start=1):
        literals = _EXPRESSION.split(_TAGS.sub("", line.strip()).strip())
        size = sum(map(len, literals))
        if size >= most and _could_give(literals, rendered.strip()):
            found, most = [*(found if size == most else ()), (number, line.strip())], size
    return tuple(found)


def _could_give(literals: Sequence[str], text: str) -> bool:
    first, *middle, last = literals if len(literals) > 1 else (*literals, "")
    if len(literals) == 1:
        return first == text
    if not (text.startswith(first) and text.endswith(last)):
        return False
    at = len(first)
    for literal in middle:
        found = text.find(literal, at)
        if found < 0:
            return False
        at = found + len(literal)
    return at + len(last) <= len(text)
