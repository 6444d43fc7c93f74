"""The text of haproxy.cfg: words, lines, sections, binds, sockets, marker, passwords. Pure; raises on no text.

Source: the configuration manual of HAProxy, 2.1 (format), 2.2 (quoting and escaping), 2.4 (conditional blocks),
4.2 ``bind``; ``parse_line()`` (tools.c, 2.6 to 3.2).
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

from pyconfd.model.context import EndpointTotals
from pyconfd.model.listener import ANY_IPV6, Listener, canonical
from pyconfd.system.secrecy import redacted, without_secrets

_PLAIN = re.compile(r"[^'\"\\# \t]+")
_STRONG = re.compile(r"'([^']*)'")
_WEAK = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
# HAProxy keeps the backslash of an escape that it does not know, and reads the character after it as any other:
# "\." and "\1" reach a regular expression as they are, and a tab after a backslash ends the word.
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|[ \\#\"'ntr])")
_WEAK_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|[ \\#\"'ntr$])")
_VARIABLE = re.compile(r"(?:[^\\$]|\\.)*\$", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


class Word(NamedTuple):
    """``value`` is what HAProxy reads (variables unexpanded), ``written`` is what stands in the file."""

    value: str
    written: str


def split_words(line: str) -> list[Word]:
    """Split a line without its newline; a comment ends it, an unmatched quote is taken as it stands."""
    return scan(line)[0]


def scan(line: str) -> tuple[list[Word], str]:
    """Return the words, and what makes them depend on more than the line ("" for nothing).

    That is an unmatched quote, an environment variable, an escaped byte, or a backslash at the end.
    """
    words: list[Word] = []
    value, start, index, doubt = "", -1, 0, ""
    while index < len(line) and line[index] != "#":
        char = line[index]
        if char in " \t":
            if start >= 0:
                words.append(Word(value, line[start:index]))
            value, start, index = "", -1, index + 1
            continue
        if start < 0:
            start = index
        if found := _PLAIN.match(line, index):
            value += found[0]
        elif found := _STRONG.match(line, index):
            value += found[1]
        elif found := _WEAK.match(line, index):
            doubt = doubt or _doubt_of(found[1])
            value += _WEAK_ESCAPE.sub(_unescaped, found[1])
        elif found := _ESCAPE.match(line, index):
            doubt = doubt or ("an escaped byte (\\x)" if found[1][0] == "x" else "")
            value += _unescaped(found)
        else:
            doubt = doubt or _doubt_of_char(line, index)
            value, index = value + char, index + 1
            continue
        index = found.end()
    if start >= 0:
        words.append(Word(value, line[start:index]))
    return words, doubt


def _unescaped(found: re.Match[str]) -> str:
    char = found[1]
    return chr(int(char[1:], 16)) if len(char) > 1 else _ESCAPED.get(char, char)


def _doubt_of(weak: str) -> str:
    """Return what in a text in double quotes HAProxy would fill in."""
    if "\\x" in weak:
        return "an escaped byte (\\x)"
    return "an environment variable (a $ in double quotes)" if _VARIABLE.match(weak) else ""


def _doubt_of_char(line: str, index: int) -> str:
    if line[index] in "'\"":
        return "a quote that is not closed"
    following = line[index + 1 : index + 2]
    return "" if following not in ("", "x") else "a backslash at the end of the line" if not following else "a \\x"


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
    ``dual_stack`` is True for an IPv6 bind that takes IPv4 as well. ``judged`` is False for what does not follow from
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
        """Return its address with each of its ports; nothing where that does not follow from the text."""
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


def parse(text: str, first: int = 1) -> tuple[Section, ...]:
    """Return the sections of ``text`` in order; a line that opens none belongs to the section before it.

    Its lines are numbered from ``first``. Of a whole configuration with thousands of backends they take some 14 times
    the memory of the text: who wants some of its sections asks :func:`sections_of`.
    """
    sections: list[Section] = []
    header: tuple[str, str, int, tuple[str, ...]] = ("", "", 0, ())
    lines: list[Line] = []
    depth = 0

    def close() -> None:
        keyword, name, number, options = header
        if keyword or lines:
            sections.append(Section(keyword, name, number, tuple(lines), options))

    for number, raw in enumerate(text.split("\n"), start=first):
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


def sections_of(text: str, *keywords: str) -> Iterator[Section]:
    """Return the sections of these kinds; all are parsed only where a search does not find them for certain."""
    starts: list[tuple[str, int]] = []
    depth = 0
    for found in _OPENS.finditer(text):
        depth += (found["condition"] == "if") - (found["condition"] == "endif")
        if found["written_otherwise"] or (found["header"] and depth):
            return (section for section in parse(text) if section.keyword in keywords)
        if found["header"]:
            starts.append((found["header"], found.start()))
    return _parsed(text, starts, keywords)


def _parsed(text: str, starts: Sequence[tuple[str, int]], keywords: Collection[str]) -> Iterator[Section]:
    line, counted = 1, 0
    for (keyword, start), (_, end) in pairwise([*starts, ("", len(text))]):
        if keyword in keywords:
            line, counted = line + text.count("\n", counted, start), start
            yield from parse(text[start:end], line)


def binds(text: str) -> tuple[Bind, ...]:
    """Return every bind of the frontends and listens of ``text``, one for each address of a comma-separated list."""
    found: list[Bind] = []
    for section in sections_of(text, "frontend", "listen"):
        for line in section.lines:
            if line.words[0] == "bind" and len(line.words) > 1:
                found += [_bind(section.title, line, address) for address in line.words[1].split(",") if address]
    return tuple(found)


@lru_cache(maxsize=4)
def stats_sockets(text: str, first: str = "") -> tuple[str, ...]:
    """Return the paths of the UNIX sockets that ``stats socket`` opens in the global sections, outside ``.if``.

    ``first`` is a path that comes before them, "" for none.
    """
    lines = (line for section in sections_of(text, "global") for line in section.lines if not line.conditional)
    named = (
        line.words[2].removeprefix("unix@")
        for line in lines
        if line.words[:2] == ("stats", "socket") and line.words[2:]
    )
    found = (path for path in named if path.startswith("/") and "$" not in path)
    return tuple(dict.fromkeys(path for path in (first, *found) if path))


_OPENS = re.compile(
    rf"^[ \t]*(?:(?P<header>{'|'.join(sorted(SECTION_KEYWORDS))})(?=[ \t\r\n#]|$)"
    r"|\.(?P<condition>if|endif)\b|(?P<written_otherwise>[^\s#\"'\\]*[\"'\\]))",
    re.MULTILINE,
)


_HARD_STOP = re.compile(r"^[ \t]*hard-stop-after[ \t]+(\d+)(us|ms|s|m|h|d)?[ \t]*(?:#.*)?$", re.MULTILINE)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
"""Units of time; without one it is milliseconds. Source: HAProxy configuration manual, 2.5."""


def hard_stop_after(text: str) -> float | None:
    """Return after how many seconds HAProxy ends a worker that a reload has replaced; None where it never does."""
    found = _HARD_STOP.findall(text)
    return int(found[-1][0]) * _SECONDS[found[-1][1]] if found else None


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
    return canonical(host)


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


def edit_lines(text: str, wanted: str, edit: Callable[[str], str]) -> str:
    """Return ``text`` with each line that contains ``wanted`` edited.

    An expression over the whole text holds the interpreter's lock all the while: 20 to 45 ms with 5,000 services.
    """
    parts: list[str] = []
    done, at = 0, text.find(wanted)
    while at >= 0:
        begin, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        end = len(text) if end < 0 else end
        parts += [text[done:begin], edit(text[begin:end])]
        done, at = end, text.find(wanted, end)
    return "".join((*parts, text[done:]))


_SERVER = re.compile(r"^[ \t]*server[ \t][^\n]*\n?", re.MULTILINE)
_IDLE = re.compile(r"^[ \t]*(?:#[^\n]*)?\n", re.MULTILINE)
_PART = 100_000


def structure_of(text: str) -> str:
    """Return the SHA-256 of ``text`` without server lines, comments and blank lines; endpoints do not change it."""
    total, start = sha256(), 0
    while start < len(text):
        # In parts, between which other threads get the interpreter's lock.
        end = text.find("\n", start + _PART) + 1 or len(text)
        total.update(_IDLE.sub("", _SERVER.sub("", text[start:end])).encode())
        start = end
    return total.hexdigest()


_MARKER = re.compile(r'(?:^|["\s])pyconfd:([0-9a-f]{64})"?$')
"""``show info`` puts a value with a quote in it between quotes."""
_DESCRIPTION = re.compile(r"^[ \t]*[\"'\\]*description\b", re.MULTILINE)
_TAIL = re.compile(r"\nglobal\n    description [^\n]*pyconfd:([0-9a-f]{64})\"?\n\Z")
_HEAD = "\n# Added by pyconfd: `show info` of a worker that runs this text names it.\nglobal\n    description "


def mark(text: str, digest: str) -> str:
    """Return ``text`` with the marker of ``digest`` (64 hexadecimal digits) behind it; a description in it is kept."""
    end = "" if text.endswith("\n") or not text else "\n"
    words = [_quoted(word) for word in _description(text)]
    return f"{text}{end}{_HEAD}{' '.join([*words, f'pyconfd:{digest}'])}\n"


def digest_of(description: str) -> str | None:
    """Return the digest in the ``description`` that a worker shows, or None where pyconfd's marker is not in it."""
    found = _MARKER.search(description.strip())
    return found[1] if found else None


def _description(text: str) -> tuple[str, ...]:
    last: Line | None = None
    # Most texts have no such word, and a plain search is hundreds of times faster than the expression.
    if "description" not in text or _DESCRIPTION.search(text) is None:
        return ()
    for section in sections_of(text, "global"):
        for line in section.lines:
            if line.words[0] == "description" and not line.conditional:
                last = line
    return last.words[1:] if last else ()


def _quoted(word: str) -> str:
    """Quote for HAProxy; a ``$`` stays open to variables, as it was in the operator's own line."""
    if word and not re.search(r"[\s\\\"'#]", word):
        return word
    return '"' + re.sub(r"([\\\"])", r"\\\1", word).replace("\n", r"\n").replace("\r", r"\r").replace("\t", r"\t") + '"'


def digest_in(text: str) -> str | None:
    """Return the digest of the marker in an installed ``text``, or None where it has none."""
    if found := _TAIL.search(text, max(0, len(text) - 1000)):  # as pyconfd writes it
        return found[1]
    return digest_of(" ".join(_description(text)))


_NAMES_A_SECRET = re.compile(
    r"(?i)(?:^|[-_./(])(?:password|passwd|passphrase|secret|token|api[-_]?key|authorization|auth[-_]?key)s?\)?$"
)
_AUTH = re.compile(r"(?i)\bAUTH[ \t]+([^\r\n]+)")
_SUSPECT = re.compile(r"(?i)passw|passphrase|secret|token|api.?key|auth")
_SCHEMES = frozenset({"basic", "bearer"})


def passwords_in(text: str) -> frozenset[str]:
    """Return what stands where a password does: of users, ``stats auth``, ``AUTH``, behind names such as ``token``."""
    lines = (line for line in text.split("\n") if _SUSPECT.search(line))
    return frozenset(secret for line in lines for secret in _of_line(words(line)) if len(secret) > 1)


def without_passwords(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a configuration, or a difference of two, without what it holds of passwords and without ``secrets``."""
    return redacted(without_secrets(text, passwords_in(text) | {*secrets}))


def _of_line(line: tuple[str, ...]) -> Iterator[str]:
    for position, word in enumerate(line):
        following = line[position + 1] if position + 1 < len(line) else ""
        if line[max(0, position - 1) : position + 1] == ("stats", "auth"):
            yield following
            yield following.partition(":")[2]
        elif _NAMES_A_SECRET.search(word):
            yield following
            scheme, _, rest = following.partition(" ")
            if scheme.lower() in _SCHEMES:
                yield rest or (line[position + 2] if position + 2 < len(line) else "")
    if line[:2] == ("tcp-check", "send"):
        for sent in _AUTH.findall(" ".join(line[2:])):
            yield from sent.split()


_PROXIES = frozenset({"backend", "listen"})


def endpoint_totals(text: str) -> EndpointTotals:
    """Return how many servers there are, and, as what is claimed, how many are neither disabled nor of weight 0."""
    claimed = total = 0
    for section in parse(text):
        if section.keyword not in _PROXIES:
            continue
        for line in section.lines:
            if line.words[0] == "server" and len(line.words) > 2:
                total += 1
                claimed += _takes_traffic(line.words[3:])
            elif line.words[0] == "server-template" and len(line.words) > 3:
                total += 1
                claimed += _takes_traffic(line.words[4:])
    return EndpointTotals(claimed, total)


def _takes_traffic(options: tuple[str, ...]) -> bool:
    return "disabled" not in options and ("weight", "0") not in pairwise(options)
