"""What HAProxy says of a configuration, told with fragments and lines, the text there, and what to do."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from pyconfd.errors import Clues, Problem
from pyconfd.haproxy.passwords import passwords_in
from pyconfd.haproxy.removed import find_in_lines
from pyconfd.haproxy.words import split_words
from pyconfd.model.rendering import Rendering
from pyconfd.render.invalid import did_you_mean
from pyconfd.system.secrecy import without_secrets

_MESSAGE = re.compile(r"\[(?P<level>[A-Z]+)\]\s*(?:\S+\s+)?\(\d+\)\s*:\s*(?:config\s*:\s*)?(?P<text>.*)")
_NOISE = re.compile(
    r"Error\(s\) found in configuration file|Fatal errors found|Failed to initialize server\(s\) addr"
    r"|\[\S+\.main\(\)\] Some protocols failed to start|haproxy version is|path to executable is"
)
_HEADER = re.compile(r"^[ \t]*(?P<kind>frontend|backend|listen|defaults)[ \t]+(?P<name>[^ \t\n#]+)", re.MULTILINE)
_ACL = re.compile(r"^[ \t]*acl[ \t]+([^ \t\n]+)", re.MULTILINE)
_PROXY = re.compile(r"(?i:proxy|frontend|backend|listen|server) '?(?P<proxy>[A-Za-z0-9_.:-]+)'?")
_BESIDE = re.compile(r"(?<=already defined at )line (\d+)")
_SHOWN = 120
_ALERTS = frozenset({"ALERT", "EMERG", "CRIT", "ERROR"})


def explain_check_output(output: str, rendering: Rendering, path: str, *, warnings: bool = True) -> tuple[Problem, ...]:
    """Turn what ``haproxy -c`` or a failed start printed about the file ``path`` into problems, alerts first.

    ``place`` is the fragment and the line of what it rendered to; errors without a line are placed by the name of
    the proxy. The message shows that line. Repeated messages are given once. If HAProxy failed in words that are not
    understood, they are given as they are.
    """
    text = _Text(rendering, path)
    alerts: dict[Problem, None] = {}
    others: dict[Problem, None] = {}
    for level, message in _messages(output):
        if level in _ALERTS:
            alerts.setdefault(text.problem(message))
        elif level == "WARNING" and warnings:
            others.setdefault(text.problem(message))
    if not alerts and not others and "no listener" in output:
        alerts.setdefault(
            Problem("", "no section of the configuration has a bind", "add a fragment with a frontend and a bind")
        )
    return (*alerts, *others)


def _messages(output: str) -> Iterator[tuple[str, str]]:
    """Return level and text of each message; the lines that continue it (`` | ...``) are joined to it."""
    level, parts = "", [""]
    for line in output.split("\n"):
        if found := _MESSAGE.match(line):
            if parts[0]:
                yield level, " ".join(parts)
            level, parts = found["level"], [found["text"].strip()]
            if _NOISE.match(parts[0]) or level == "NOTICE":
                parts = [""]
        elif parts[0] and (continued := re.match(r"\s+\|\s?(.*)", line)):
            parts.append(continued[1].strip())
    if parts[0]:
        yield level, " ".join(parts)


@dataclass(frozen=True)
class _Hint:
    """``remedy`` is given the match, the line that is blamed and the whole text."""

    pattern: re.Pattern[str]
    remedy: Callable[[re.Match[str], str, "_Text"], str]


class _Text:
    """A rendering as HAProxy read it from ``path``."""

    def __init__(self, rendering: Rendering, path: str) -> None:
        self.rendering = rendering
        self.lines = rendering.text.split("\n")
        self._passwords: frozenset[str] | None = None
        self._reference = re.compile(re.escape(path) + r":(\d+)")
        self._ends = list(accumulate(piece.text.count("\n") for piece in rendering.pieces))

    def problem(self, message: str) -> Problem:
        found = self._reference.search(message)
        number = int(found[1]) if found else self._line_by_name(message)
        line = self.lines[number - 1] if 0 < number <= len(self.lines) else ""
        clues = self._clues(number, message)
        prefix = rf"(?i:parsing |binding )?\[{self._reference.pattern}\]\s*:?\s*"
        message = re.sub(f"^{prefix}", "", message)
        told = self._reference.sub(lambda one: self.place(int(one[1])), message)
        told = _BESIDE.sub(lambda one: self.place(int(one[1])), told)
        told = told.strip().rstrip(".")
        # Before it is cut: a part of a password is a secret too.
        told, shown = self.public(told), self.public(line.strip())
        shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
        return Problem(
            self.place(number) if line else "haproxy.cfg",
            f"{told}: {shown}" if shown and shown not in told else told,
            self.public(self._remedy(message, line, number)),
            self._place_of(number)[0] if line else "",
            clues,
        )

    def _clues(self, blamed: int, message: str) -> Clues:
        """Return the line that is blamed, then those that the message names beside it."""
        others = [int(found) for found in (*self._reference.findall(message), *_BESIDE.findall(message))]
        numbers = [number for number in dict.fromkeys((blamed, *others)) if 0 < number <= len(self.lines)]
        return Clues(lines=tuple(self._place_of(number) for number in numbers))

    def _place_of(self, number: int) -> tuple[str, int]:
        """Return what :meth:`Rendering.place_of` gives, fast enough for thousands of messages."""
        at = bisect_left(self._ends, number)
        if at == len(self._ends):
            return "", number
        return self.rendering.pieces[at].fragment, number - (self._ends[at - 1] if at else 0)

    def public(self, message: str) -> str:
        """Return a message without the passwords of the configuration."""
        if self._passwords is None:
            self._passwords = passwords_in(self.rendering.text)
        return without_secrets(message, self._passwords)

    def place(self, number: int) -> str:
        """Name the fragment and line that gave line ``number`` of the whole text."""
        fragment, line = self._place_of(number)
        if not fragment:
            return f"haproxy.cfg line {number}"
        return f"{fragment} {'' if fragment.endswith('.conf') else 'rendered '}line {line}"

    def names(self, *kinds: str) -> list[str]:
        """Return the names of the sections of these kinds."""
        return [found["name"] for found in _HEADER.finditer(self.rendering.text) if found["kind"] in kinds]

    def _line_by_name(self, message: str) -> int:
        """Return the line of the named proxy that has the quoted word, or its header; 0 if there is no such proxy."""
        named = _PROXY.search(message)
        if named is None:
            return 0
        wanted = set(re.findall(r"'([^']+)'", message)) - {named["proxy"]}
        inside, header, best, most = False, 0, 0, 0
        for number, line in enumerate(self.lines, 1):
            if found := _HEADER.match(line):
                inside = found["name"] == named["proxy"] and found["kind"] != "defaults"
                header = header or (number if inside else 0)
            elif inside and (count := len(wanted & {word.value for word in split_words(line)})) > most:
                best, most = number, count
        return best or header

    def _remedy(self, message: str, line: str, number: int) -> str:
        for removed in find_in_lines(self.lines) if line else ():
            if removed.index == number - 1:
                return str(removed.replacement)
        for hint in _HINTS:
            if found := hint.pattern.search(message):
                return hint.remedy(found, line, self)
        return ""


def _says(remedy: str) -> Callable[[re.Match[str], str, _Text], str]:
    return lambda _found, _line, _text: remedy


def _errorfile(_found: re.Match[str], line: str, _text: _Text) -> str:
    written = [word.written for word in split_words(line)]
    code, file = written[1:3] if len(written) > 2 else ("503", "FILE")
    return (
        f"write: http-error status {code} content-type text/html file {file}  (an errorfile must be a whole HTTP "
        f"response: its first line is 'HTTP/1.0 {code} ...', then headers, then an empty line)"
    )


def _close(names: Iterable[str], otherwise: str, name: str) -> str:
    hint = did_you_mean(name, names)
    return f"{hint} {otherwise}" if hint.startswith("did") else otherwise


def _missing_backend(found: re.Match[str], _line: str, text: _Text) -> str:
    return _close(text.names("backend", "listen"), f"add: backend {found[1]}", found[1])


def _missing_acl(found: re.Match[str], _line: str, text: _Text) -> str:
    known = _ACL.findall(text.rendering.text)
    return _close(known, f"define it above in the same section: acl {found[1]} ...", found[1])


def _file(found: re.Match[str], _line: str, _text: _Text) -> str:
    return f"does {found[1]} exist, and may HAProxy's user read it? map_file() and certificate_file() write such files"


_NO_FILE = (
    r"(?:error opening file|unable to stat|failed to open pattern file|open the ca-file|unable to load"
    r"|cannot open|unable to open)[^/]*(/[^\s'>]+)"
)
_HINTS: tuple[_Hint, ...] = tuple(
    _Hint(re.compile(pattern), remedy if callable(remedy) else _says(remedy))
    for pattern, remedy in (
        (r"unable to parse headers|unable to load errorfile|errorfile.*invalid", _errorfile),
        (
            r"unable to load certificate|no start line|inconsistencies between private key and certificate",
            "the file must hold the certificate, its chain and the private key that belongs to it, in PEM",
        ),
        (_NO_FILE, _file),
        (r"unable to find required (?:use_backend|default_backend): '([^']+)'", _missing_backend),
        (
            r"unable to find (?:stick-table|table) '([^']+)'",
            "add a section of that name with a stick-table, or correct the name",
        ),
        (r"unable to find server '([^']+)'|unable to find required server", "correct the name, or add the server"),
        (r"unable to find required resolvers '([^']+)'", "add: resolvers NAME, with a nameserver"),
        (r"no such ACL : '([^']+)'", _missing_acl),
        (r"incompatible", "give both sections the same mode"),
        (r"unmatched quote", "write values from the cluster with the filter quote: {{ value | quote }}"),
        (r"another server named", "name servers with the filter server_name, or loop over {{ endpoints | servers }}"),
        (r"custom id \d+ already used", "take ids from server_ids(names) or from {{ endpoints | servers }}"),
        (r"has the same name as", "names of sections must differ: put a prefix before them, and use | identifier"),
        (r"is not permitted in|invalid character", "make names with the filter identifier"),
        (r"could not resolve address", "write an IP address, or add: init-addr last,libc,none  and resolvers"),
        (
            r"missing timeouts",
            "add a defaults section before it with timeout connect, timeout client and timeout server",
        ),
        (r"regex.*(?i:jit|no more memory)", "MemoryDenyWriteExecute=yes in the unit forbids them: set it to no"),
        (
            r"Address already in use\)? for \[.*?:(\d+)\]",
            lambda found, _line, _text: f"see who has the port: ss -ltnp 'sport = :{found[1]}'",
        ),
        (
            r"Cannot assign requested address",
            "no interface has it: see ip address and net.ipv4.ip_nonlocal_bind",
        ),
        (r"cannot bind socket \(Permission denied\)", "ports below 1024 need CAP_NET_BIND_SERVICE in HAProxy's unit"),
        (r"Cannot raise FD limit|Not enough FD", "raise LimitNOFILE in HAProxy's unit, or lower maxconn"),
        (r"verify is enabled by default but no CA file", "add ca-file FILE to the server line, or verify none"),
        (r"Missing LF on last line", "the file is not whole: is the disk full?"),
        (r"did you mean '([^']+)'", lambda found, _line, _text: f"did you mean {found[1]!r}?"),
        (r"unknown keyword '([^']+)'", "see the configuration manual of the installed version for this section"),
    )
)
"""The first pattern that is found in a message gives the remedy."""
