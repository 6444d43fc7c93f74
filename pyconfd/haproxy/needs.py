"""How many file descriptors and how much memory a configuration makes HAProxy ask for. Pure.

``haproxy -c`` does not look: it accepts what the start then refuses. The formula is HAProxy's own, measured with 2.6,
3.0, 3.2 and 3.4 (``Maxsock`` of ``show info``): two descriptors for each connection, one for each listener and each
check, a few for each thread and peer.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from pyconfd.haproxy.proxies import default_server_words, inherited
from pyconfd.haproxy.sections import Line, Section, parse

AUTOMATIC_MAXCONN = 100
"""Without ``maxconn`` HAProxy takes what its limit gives, but never fewer. Source: ``DEFAULT_MAXCONN``."""

_RESERVED = 10
_WORKER_CLI = 1
_STATS_MAXCONN = 10
"""Source: ``stats maxconn`` in the configuration manual, 3.1."""
_MASTER_CLI = 11
"""What ``-S`` adds up to HAProxy 3.0; since 3.1 the worker does not count the sockets of its master."""
_EACH_THREAD = 3
_EACH_PEER = 3

_WORKER_BYTES = 15_000_000
_BACKEND_BYTES = 12_000
_SERVER_BYTES, _SERVER_BYTES_EACH_THREAD = 5_000, 550
"""Resident after the start, 2.6: 100,000 servers in 10,000 backends 0.7 GB with 2 threads, 1.1 GB with 8."""

_AFTER_GLOBAL = re.compile(r"^[ \t]*(?:defaults|frontend|backend|listen)\b", re.MULTILINE)
_GLOBAL = re.compile(r"^[ \t]*global\b", re.MULTILINE)
_RANGE = re.compile(r":\d+-\d+$")


@dataclass(frozen=True, slots=True)
class Needs:
    """What one worker asks for at its start.

    ``maxconn`` is 0 where the text does not set it; then ``descriptors`` is the least with which HAProxy starts.
    ``line`` is that of ``maxconn`` (or ``ulimit-n``), 0 for none. ``ceiling`` is ``fd-hard-limit``, 0 for none.
    ``asked`` says that ``descriptors`` is the text's own ``ulimit-n``; ``strict`` is False where HAProxy would start
    with too few (``no strict-limits``).
    """

    descriptors: int
    memory_bytes: int
    servers: int = 0
    checks: int = 0
    listeners: int = 0
    maxconn: int = 0
    line: int = 0
    ceiling: int = 0
    asked: bool = False
    strict: bool = True

    @property
    def reload_memory_bytes(self) -> int:
        """Of both workers while the former one ends its sessions."""
        return 2 * self.memory_bytes


@dataclass(slots=True)
class _Counted:
    servers: int = 0
    backends: int = 0
    checks: int = 0
    listeners: int = 0
    peers: int = 0
    splices: bool = False
    narrowed: bool = False


def needs(text: str, *, threads: int, version: str = "") -> Needs:
    """Count what ``text`` asks for; ``threads`` where it does not set them itself.

    Exact for plain text; what stands between ``.if`` and ``.endif`` or in a variable is taken as absent, so that the
    result is rather too small. ``version`` is that of HAProxy where it is known.
    """
    sections = parse(text)
    settings = _Global(sections)
    counted = _count(sections, settings.number("nbthread") or threads)
    return _sum(settings, counted, threads, version)


def at_most(text: str, *, threads: int, version: str = "") -> Needs:
    """Return an upper bound of :func:`needs` in a fraction of its time: words are counted, little is parsed.

    Most configurations are far from every limit, and for those it is enough.
    """
    ending = _AFTER_GLOBAL.search(text)
    head = text[: ending.start()] if ending else text
    elsewhere = text.count("global") > head.count("global") and _GLOBAL.search(text, len(head))
    listeners = _listeners_at_most(text)
    if elsewhere or listeners is None or "server-template" in text:
        return needs(text, threads=threads, version=version)
    servers = text.count("server")
    agents = text.count("agent-check")
    checks = servers * (2 if agents else 1) + agents if "check" in text else 0
    peers = text.count("peers") and _EACH_PEER * (text.count("peer") + servers)
    counted = _Counted(
        servers=servers,
        backends=text.count("backend") + text.count("listen"),
        checks=checks,
        listeners=listeners + text.count("peers"),
        peers=peers,
        splices="splice-" in text,
    )
    return _sum(_Global(parse(head)), counted, threads, version)


def _listeners_at_most(text: str) -> int | None:
    """Count the addresses of whatever looks like a bind; None where a range or shards have to be read."""
    if "shards" in text:
        return None
    found = 0
    position = text.find("bind")
    while position >= 0:
        end = text.find("\n", position)
        line = text[position:end] if end >= 0 else text[position:]
        if any(_RANGE.search(address) for word in line.split() for address in word.split(",")):
            return None
        found += 1 + line.count(",")
        position = text.find("bind", position + len(line))
    return found


def _sum(settings: "_Global", counted: _Counted, threads: int, version: str) -> Needs:
    threads = settings.number("nbthread") or threads
    maxconn = settings.number("maxconn")
    connections = maxconn or AUTOMATIC_MAXCONN
    pipes = settings.number("maxpipes")
    if not pipes and counted.splices and not counted.narrowed:
        pipes = max(1, connections // 4)
    descriptors = (
        _RESERVED
        + _WORKER_CLI
        + (_MASTER_CLI if re.match(r"2\.|3\.0(?:\D|$)", version) else 0)
        + (settings.number("stats", "maxconn") or _STATS_MAXCONN)
        + settings.stats_sockets()
        + 2 * connections
        + 2 * pipes
        + _EACH_THREAD * threads
        + counted.listeners
        + counted.checks
        + counted.peers
    )
    asked = settings.number("ulimit-n")
    each_server = _SERVER_BYTES + _SERVER_BYTES_EACH_THREAD * threads
    return Needs(
        descriptors=asked or descriptors,
        memory_bytes=_WORKER_BYTES + counted.servers * each_server + counted.backends * _BACKEND_BYTES,
        servers=counted.servers,
        checks=counted.checks,
        listeners=counted.listeners,
        maxconn=maxconn,
        line=settings.line_of("ulimit-n" if asked else "maxconn"),
        ceiling=settings.number("fd-hard-limit"),
        asked=asked > 0,
        strict=settings.strict(),
    )


class _Global:
    """The lines of all global sections; of two that say the same thing the last counts."""

    def __init__(self, sections: tuple[Section, ...]) -> None:
        self._lines = [line for section in sections if section.keyword == "global" for line in section.lines]

    def number(self, *keywords: str) -> int:
        """Return the number behind ``keywords``; 0 where there is none, or none that can be told from the text."""
        found = self._having(keywords)
        if not found or any(line.conditional for line in found):
            return 0
        value = found[-1].words[len(keywords) : len(keywords) + 1]
        return int(value[0]) if value and value[0].isdecimal() else 0

    def line_of(self, keyword: str) -> int:
        found = self._having((keyword,))
        return found[-1].number if found else 0

    def stats_sockets(self) -> int:
        return sum(not line.conditional for line in self._having(("stats", "socket")))

    def strict(self) -> bool:
        said = self._having(("strict-limits",)) + self._having(("no", "strict-limits"))
        return not said or max(said, key=lambda line: line.number).words[0] != "no"

    def _having(self, keywords: tuple[str, ...]) -> list[Line]:
        return [line for line in self._lines if line.words[: len(keywords)] == keywords]


def _count(sections: tuple[Section, ...], threads: int) -> _Counted:
    counted = _Counted()
    bases, _ = inherited(sections)
    for section in sections:
        lines = [line for line in section.lines if not line.conditional]
        if section.keyword in {"frontend", "listen", "log-forward"}:
            counted.listeners += sum(_listeners(line, threads) for line in lines)
        if section.keyword in {"backend", "listen"}:
            counted.backends += 1
            _count_servers(counted, lines, bases[section.number].server_words)
        if section.keyword == "defaults":
            counted.checks += default_server_words(section).count("agent-check")
        if section.keyword == "peers":
            peers = sum(line.words[0] in {"peer", "server"} for line in lines)
            counted.peers += _EACH_PEER * peers
            counted.listeners += bool(peers)
        if section.keyword in {"defaults", "frontend", "listen", "backend"}:
            options = [line.words for line in lines]
            counted.splices |= any(words[0] == "option" and "splice-" in words[-1] for words in options)
            counted.narrowed |= any(words[0] in {"maxconn", "fullconn", "no"} for words in options)
    return counted


def _count_servers(counted: _Counted, lines: list[Line], words: tuple[str, ...]) -> None:
    off = any(line.words == ("disabled",) for line in lines)
    for line in lines:
        keyword = line.words[0]
        if keyword == "default-server":
            words = (*words, *line.words[1:])
            counted.checks += line.words.count("agent-check")
        elif keyword in {"server", "server-template"}:
            template = keyword == "server-template"
            number = _templated(line.words) if template else 1
            own = line.words[4 if template else 3 :]
            counted.servers += number
            # HAProxy counts an agent once when it reads the word, and once more for each server that has one.
            counted.checks += own.count("agent-check")
            if not off:
                checked = _switched((*words, *own), "check"), _switched((*words, *own), "agent-check")
                counted.checks += number * sum(checked)


def _templated(words: tuple[str, ...]) -> int:
    """Return the number of servers of ``server-template PREFIX 10`` or ``PREFIX 1-10``."""
    first, dash, last = words[2].partition("-") if len(words) > 2 else ("", "", "")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        return 0
    return max(0, int(last) - int(first) + 1) if dash else int(first)


def _switched(words: tuple[str, ...], keyword: str) -> bool:
    return next((word == keyword for word in reversed(words) if word in {keyword, f"no-{keyword}"}), False)


def _listeners(line: Line, threads: int) -> int:
    """Return the sockets of a ``bind`` or ``dgram-bind`` line: addresses times ports times shards."""
    if line.words[0] not in {"bind", "dgram-bind"} or len(line.words) < 2:
        return 0
    shards = 1
    for word, value in zip(line.words[2:], islice(line.words, 3, None), strict=False):
        if word == "shards":
            shards = threads if value == "by-thread" else min(threads, int(value)) if value.isdecimal() else 1
    return shards * sum(_ports(line.words[1]))


def _ports(addresses: str) -> Iterator[int]:
    for address in addresses.split(","):
        if address:
            found = re.search(r":(\d+)-(\d+)$", address)
            yield int(found[2]) - int(found[1]) + 1 if found else 1
