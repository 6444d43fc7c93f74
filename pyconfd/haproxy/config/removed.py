"""Directives that HAProxy no longer knows, and what to write today; a few have an exact successor.

Exact means: as HAProxy 1.8 read the line, for every request. Most have none: ``reqrep`` and its like match the whole
line of a header as it was received, with its letters and blanks, and HAProxy no longer sees that line.

python-confd, kube2lb, haproxy-kubefigurator and kubernetes-haproxy shipped templates with some of them. The versions
are those that HAProxy's own messages give, or the first one seen to refuse the line.

Source: HAProxy 1.8's configuration manual, ``http_process_req_common()`` and ``http_process_res_common()``.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyconfd.haproxy.config.text import SECTION_KEYWORDS, Word, scan
from pyconfd.render.filters import quote
from pyconfd.render.invalid import InvalidValueError

Token = Word | str
"""A word of the old line, written as it was, or a value that :func:`write` quotes."""

_HEADER = re.compile(r"[A-Za-z0-9_-]+")
_WHOLE_HEADER = re.compile(r"\^([A-Za-z0-9_-]+):(?:\.\*\$?)?")
_OWN_HEADERS = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that HAProxy reads and writes itself: a rule does not change them as ``reqadd`` did."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """What to write instead: ``lines`` if they mean exactly the same (none: remove the line), else ``advice``."""

    lines: tuple[tuple[Token, ...], ...] | None = None
    advice: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether the line can be replaced without asking anybody."""
        return self.lines is not None

    def texts(self) -> tuple[str, ...]:
        """Return the lines to write instead."""
        return tuple(map(write, self.lines or ()))

    def __str__(self) -> str:
        if self.lines is None:
            return f"no line means exactly the same; {self.advice}"
        return f"write: {'  and  '.join(self.texts())}" if self.lines else f"remove the line: {self.advice}"


def write(line: Iterable[Token]) -> str:
    """Write the words of a line; raises InvalidValueError where HAProxy could not read one of them as one word."""
    return " ".join(token.written if isinstance(token, Word) else quote(token) for token in line)


Lines = tuple[tuple[Token, ...], ...]
Rule = Callable[[list[Word]], Lines | None]
"""From the words after the directive to the lines that mean exactly the same; None if there are none."""


@dataclass(frozen=True, slots=True)
class Obsolete:
    """A directive by its first ``words``, gone ``since``, with what to do where ``exact`` finds nothing.

    Sections in ``valid_in`` have one of the same name. ``applies`` tells which lines are gone (from the values after
    the directive). ``negatable``: ``no`` means the same before the successor.
    """

    words: tuple[str, ...]
    since: tuple[int, int]
    advice: str
    exact: Rule = lambda _words: None
    valid_in: frozenset[str] = frozenset()
    applies: Callable[[list[str]], bool] = lambda _values: True
    negatable: bool = False

    def replacement(self, words: list[Word], modifier: list[Word]) -> Replacement:
        """Return what to write for a line of ``modifier`` (``no``), the directive, and ``words``."""
        lines = self.exact(words) if self.negatable or not modifier else None
        found = Replacement(lines and tuple((*modifier, *line) for line in lines), self.advice)
        try:
            found.texts()
        except InvalidValueError:  # a value that HAProxy could not read back as one word
            return Replacement(advice=self.advice)
        return found


def _renamed(*name: str) -> Rule:
    return lambda words: ((*name, *words),)


def _removed_for(*values: str) -> Rule:
    return lambda words: () if " ".join(word.value for word in words) in (values or ("",)) else None


def _condition(words: list[Word]) -> bool:
    return not words or words[0].value in ("if", "unless")


def _add_header(direction: str) -> Rule:
    def exact(words: list[Word]) -> Lines | None:
        name, colon, value = (words[0].value if words else "").partition(":")
        if not colon or not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS or not _condition(words[1:]):
            return None
        # A format, where "%" begins a variable.
        return ((direction, "add-header", name, value.strip(" \t").replace("%", "%%"), *words[1:]),)

    return exact


def _delete_header(direction: str) -> Rule:
    def exact(words: list[Word]) -> Lines | None:
        found = _WHOLE_HEADER.fullmatch(words[0].value) if words else None
        if found is None or found[1].lower() in _OWN_HEADERS or not _condition(words[1:]):
            return None
        return ((direction, "del-header", found[1], *words[1:]),)

    return exact


def _has_process(values: list[str]) -> bool:
    return any(value == "process" and values[at - 1 : at] != ["name"] for at, value in enumerate(values))


def _hidden_headers(words: list[Word]) -> Lines | None:
    if len(words) != 3:
        return None
    version, *lines = words[2].value.split("\r\n")
    headers = [line.partition(":") for line in lines if line]
    if any(not _HEADER.fullmatch(name) or not value.strip(" \t") for name, _colon, value in headers):
        return None
    sent = [token for name, _, value in headers for token in ("hdr", name, value.strip(" \t").replace("%", "%%"))]
    return (("option", "httpchk"), ("http-check", "send", "meth", words[0], "uri", words[1], "ver", version, *sent))


_GLOBAL = frozenset({"global"})
_NOT_GLOBAL = frozenset({"defaults", "frontend", "backend", "listen"})
_ONE_PROCESS = "there is one process, with a thread for each processor, and its maxconn is for all of them"


def _http_rewrites(short: str, rule: str, sample: str) -> Iterator[Obsolete]:
    adding = f"write: {rule} set-header NAME VALUE, which replaces one that was sent, or add-header, in its order"
    deleting = f"write: {rule} del-header NAME, for any case of its letters, or NAME -m reg REGEX"
    replacing = f"write: {rule} replace-header NAME REGEX TEXT for a value"
    stopping = f"write: {rule} deny (or allow, tarpit) if {{ {sample}.fhdr(NAME) -m reg -i REGEX }}, in its order"
    if short == "req":
        replacing += ", http-request replace-pathq REGEX TEXT for a path"
    yield Obsolete((f"{short}add",), (2, 1), adding, _add_header(rule))
    yield Obsolete((f"{short}idel",), (2, 1), deleting, _delete_header(rule))
    yield Obsolete((f"{short}del",), (2, 1), deleting)
    for case in ("", "i"):
        yield Obsolete((f"{short}{case}rep",), (2, 1), replacing)
        yield Obsolete((f"{short}{case}deny",), (2, 1), stopping)


def _request_rewrites(case: str) -> Iterator[Obsolete]:
    condition = "if { req.fhdr(NAME) -m reg -i REGEX }"
    yield Obsolete((f"req{case}allow",), (2, 1), f"write: http-request allow {condition}, in its order")
    yield Obsolete((f"req{case}tarpit",), (2, 1), f"write: http-request tarpit {condition}, in its order")
    yield Obsolete((f"req{case}pass",), (2, 1), "remove the line; rules are not tried in turn any more")
    yield Obsolete((f"req{case}setbe",), (2, 1), f"write: use_backend NAME {condition}")


REMOVED: tuple[Obsolete, ...] = (
    *_http_rewrites("req", "http-request", "req"),
    *_http_rewrites("rsp", "http-response", "res"),
    *_request_rewrites(""),
    *_request_rewrites("i"),
    Obsolete(("block",), (2, 1), "write: http-request deny, before all other rules", _renamed("http-request", "deny")),
    Obsolete(("redispatch",), (2, 1), "write: option redispatch", _renamed("option", "redispatch"), negatable=True),
    *(
        Obsolete(words, (2, 1), f"write: timeout {side}", _renamed("timeout", side))
        for name, side in (("clitimeout", "client"), ("srvtimeout", "server"), ("contimeout", "connect"))
        for words in ((name,), ("timeout", name))
    ),
    Obsolete(("cliexp",), (2, 1), "write: http-request replace-header NAME REGEX TEXT"),
    Obsolete(("srvexp",), (2, 1), "write: http-response replace-header NAME REGEX TEXT"),
    Obsolete(("option", "forceclose"), (2, 0), "write: option httpclose, in the frontend and in each of its backends"),
    Obsolete(("option", "http-tunnel"), (2, 1), "remove the line; every request of a connection is read now"),
    Obsolete(("option", "http-use-htx"), (2, 1), "there is nothing else", _removed_for()),
    Obsolete(("option", "http_proxy"), (2, 5), "write: http-request set-dst and set-uri, after do-resolve"),
    Obsolete(
        ("option", "independant-streams"),
        (2, 1),
        "write: option independent-streams",
        _renamed("option", "independent-streams"),
        negatable=True,
    ),
    Obsolete(("monitor-net",), (2, 5), "write: http-request return status 200 if { src NET }, before all other rules"),
    Obsolete(("mode", "health"), (2, 5), "write: mode http  and  http-request return status 200"),
    Obsolete(("grace",), (2, 5), "remove the line, or write: grace TIME in global", valid_in=_GLOBAL),
    Obsolete(
        ("appsession",), (1, 6), "write: stick-table, stick on req.cook(NAME), stick store-response res.cook(NAME)"
    ),
    Obsolete(("nbproc",), (2, 5), f"remove the line; {_ONE_PROCESS}", _removed_for("1")),
    Obsolete(("tune.chksize",), (2, 5), "remove the line; tune.bufsize counts"),
    Obsolete(("debug",), (2, 5), "remove the line; start haproxy with -d instead", valid_in=_NOT_GLOBAL),
    Obsolete(("nosepoll",), (2, 1), "remove the line, or write: noepoll"),
    Obsolete(("bind-process",), (2, 7), f"remove the line; {_ONE_PROCESS}", _removed_for("1", "all", "odd")),
    Obsolete(("stats", "bind-process"), (2, 7), f"remove the line; {_ONE_PROCESS}", _removed_for("1", "all", "odd")),
    Obsolete(("bind",), (2, 7), "write thread instead of process", applies=_has_process),
    Obsolete(("stats", "socket"), (2, 7), f"remove only process; {_ONE_PROCESS}", applies=_has_process),
    Obsolete(
        ("option", "httpchk"),
        (3, 0),
        "write: option httpchk  and  http-check send meth METHOD uri PATH ver VERSION hdr NAME VALUE",
        _hidden_headers,
        applies=lambda values: "\r\n" in "".join(values),
    ),
)
"""Each entry is tried by ``tests/haproxy/test_removed.py`` on the haproxy that is installed."""


Version = tuple[int, int]

_NAMES = "|".join(r"[ \t]+".join(map(re.escape, entry.words)) for entry in REMOVED)
_CANDIDATE = rf"(?:(?:no|default)[ \t]+)?(?:{_NAMES})(?![^ \t\r\n])"
_SECTION_HEADER = rf"(?:{'|'.join(sorted(SECTION_KEYWORDS))})(?![^ \t\r\n#])"
_ORDERED = r"(?:http-re|re[qs]|rsp|block)|[^ \t\n]*[\"'\\]"
_WORTH_READING = re.compile(rf"[ \t]*(?:{_CANDIDATE}|{_SECTION_HEADER}|{_ORDERED})")
_RANKS = {"block": 0, "http-": 1, "req": 2, "rsp": 2}
_ADDS = 3
_ENDS_RULES = 4


@dataclass(frozen=True, slots=True)
class Removed:
    """A line with such a directive: its ``index`` among the lines, and since when HAProxy refuses it."""

    index: int
    text: str
    directive: str
    since: Version
    replacement: Replacement


def find_in_lines(lines: Sequence[str], *, repeated: bool = False) -> Iterator[Removed]:
    """Yield each removed directive of a configuration.

    A replacement is exact only where it keeps the order in which HAProxy 1.8 applied the rules of a section: ``block``,
    ``http-request``, ``req*``, and ``reqadd`` at last. ``repeated``: the lines are a template's and may stand in a
    loop, which brings the last before the first.
    """
    section = ""
    found: list[Removed] = []
    ranks: list[tuple[str, int, int]] = []
    for index, line in enumerate(lines):
        if not _WORTH_READING.match(line):
            continue
        words, doubt = scan(line)
        if not words:
            continue
        if words[0].value in SECTION_KEYWORDS:
            yield from _in_order(found, ranks, repeated=repeated)
            section, found, ranks = words[0].value, [], []
            continue
        if rank := _rank([word.value for word in words[:2]]):
            ranks.append((rank[0], index, rank[1]))
        if match := _match(words, section):
            found.append(each := Removed(index, line.strip(), *match))
            if doubt:  # an environment variable in the middle of a value
                found[-1] = _without_lines(each)
    yield from _in_order(found, ranks, repeated=repeated)


def _rank(values: list[str]) -> tuple[str, int] | None:
    """Return whether a line is about requests or responses, and when HAProxy 1.8 applied it."""
    direction = "rsp" if values[0].startswith(("rsp", "http-response")) else "req"
    if values in (["http-request", "allow"], ["http-response", "allow"]):
        return direction, _ENDS_RULES
    if values[0] in ("reqadd", "rspadd"):
        return direction, _ADDS
    return next(((direction, rank) for name, rank in _RANKS.items() if values[0].startswith(name)), None)


def _in_order(found: list[Removed], ranks: list[tuple[str, int, int]], *, repeated: bool) -> Iterator[Removed]:
    moved: set[int] = set()
    for direction in ("req", "rsp"):
        ordered = [(index, rank) for which, index, rank in ranks if which == direction]
        if repeated and len({rank for _, rank in ordered}) > 1:
            moved.update(index for index, _ in ordered)
        highest, lowest = 0, _ENDS_RULES
        for index, rank in ordered:
            moved.update([index] if rank < highest else [])
            highest = max(highest, rank)
        for index, rank in reversed(ordered):
            moved.update([index] if rank > lowest else [])
            lowest = min(lowest, rank)
    for each in found:
        yield _without_lines(each) if each.index in moved else each


def _without_lines(found: Removed) -> Removed:
    return replace(found, replacement=replace(found.replacement, lines=None))


def _match(words: list[Word], section: str) -> tuple[str, Version, Replacement] | None:
    values = [word.value for word in words]
    begin = 1 if values[:1] in (["no"], ["default"]) else 0
    for entry in REMOVED:
        end = begin + len(entry.words)
        if tuple(values[begin:end]) != entry.words or (section and section in entry.valid_in):
            continue
        if entry.applies(values[end:]):
            return " ".join(entry.words), entry.since, entry.replacement(words[end:], words[:begin])
    return None


def describe(found: Removed) -> str:
    """Return since when the directive is gone."""
    return f"HAProxy {'.'.join(map(str, found.since))} removed '{found.directive}'"
