"""The table of removed directives, and the few that have an exact successor. Read by :mod:`pyconfd.haproxy.removed`.

Exact means: as HAProxy 1.8 read the line, for every request. Most have none: ``reqrep`` and its like match the whole
line of a header as it was received, with its letters and blanks, and HAProxy no longer sees that line.

Source: HAProxy 1.8's configuration manual, ``http_process_req_common()`` and ``http_process_res_common()``.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pyconfd.haproxy.words import Word
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
class Entry:
    """A directive by its first ``words``, gone ``since``, with what to do where ``exact`` finds nothing.

    Sections in ``valid_in`` have one of the same name. ``applies`` tells which lines are gone (from the values after
    the directive); their text has ``part``, a pattern. ``negatable``: ``no`` means the same before the successor.
    """

    words: tuple[str, ...]
    since: tuple[int, int]
    advice: str
    exact: Rule = lambda _words: None
    valid_in: frozenset[str] = frozenset()
    applies: Callable[[list[str]], bool] = lambda _values: True
    part: str = ""
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


def _http_rewrites(short: str, rule: str, sample: str) -> Iterator[Entry]:
    adding = f"write: {rule} set-header NAME VALUE, which replaces one that was sent, or add-header, in its order"
    deleting = f"write: {rule} del-header NAME, for any case of its letters, or NAME -m reg REGEX"
    replacing = f"write: {rule} replace-header NAME REGEX TEXT for a value"
    stopping = f"write: {rule} deny (or allow, tarpit) if {{ {sample}.fhdr(NAME) -m reg -i REGEX }}, in its order"
    if short == "req":
        replacing += ", http-request replace-pathq REGEX TEXT for a path"
    yield Entry((f"{short}add",), (2, 1), adding, _add_header(rule))
    yield Entry((f"{short}idel",), (2, 1), deleting, _delete_header(rule))
    yield Entry((f"{short}del",), (2, 1), deleting)
    for case in ("", "i"):
        yield Entry((f"{short}{case}rep",), (2, 1), replacing)
        yield Entry((f"{short}{case}deny",), (2, 1), stopping)


def _request_rewrites(case: str) -> Iterator[Entry]:
    condition = "if { req.fhdr(NAME) -m reg -i REGEX }"
    yield Entry((f"req{case}allow",), (2, 1), f"write: http-request allow {condition}, in its order")
    yield Entry((f"req{case}tarpit",), (2, 1), f"write: http-request tarpit {condition}, in its order")
    yield Entry((f"req{case}pass",), (2, 1), "remove the line; rules are not tried in turn any more")
    yield Entry((f"req{case}setbe",), (2, 1), f"write: use_backend NAME {condition}")


REMOVED: tuple[Entry, ...] = (
    *_http_rewrites("req", "http-request", "req"),
    *_http_rewrites("rsp", "http-response", "res"),
    *_request_rewrites(""),
    *_request_rewrites("i"),
    Entry(("block",), (2, 1), "write: http-request deny, before all other rules", _renamed("http-request", "deny")),
    Entry(("redispatch",), (2, 1), "write: option redispatch", _renamed("option", "redispatch"), negatable=True),
    *(
        Entry(words, (2, 1), f"write: timeout {side}", _renamed("timeout", side))
        for name, side in (("clitimeout", "client"), ("srvtimeout", "server"), ("contimeout", "connect"))
        for words in ((name,), ("timeout", name))
    ),
    Entry(("cliexp",), (2, 1), "write: http-request replace-header NAME REGEX TEXT"),
    Entry(("srvexp",), (2, 1), "write: http-response replace-header NAME REGEX TEXT"),
    Entry(("option", "forceclose"), (2, 0), "write: option httpclose, in the frontend and in each of its backends"),
    Entry(("option", "http-tunnel"), (2, 1), "remove the line; every request of a connection is read now"),
    Entry(("option", "http-use-htx"), (2, 1), "there is nothing else", _removed_for()),
    Entry(("option", "http_proxy"), (2, 5), "write: http-request set-dst and set-uri, after do-resolve"),
    Entry(
        ("option", "independant-streams"),
        (2, 1),
        "write: option independent-streams",
        _renamed("option", "independent-streams"),
        negatable=True,
    ),
    Entry(("monitor-net",), (2, 5), "write: http-request return status 200 if { src NET }, before all other rules"),
    Entry(("mode", "health"), (2, 5), "write: mode http  and  http-request return status 200"),
    Entry(("grace",), (2, 5), "remove the line, or write: grace TIME in global", valid_in=_GLOBAL),
    Entry(("appsession",), (1, 6), "write: stick-table, stick on req.cook(NAME), stick store-response res.cook(NAME)"),
    Entry(("nbproc",), (2, 5), f"remove the line; {_ONE_PROCESS}", _removed_for("1")),
    Entry(("tune.chksize",), (2, 5), "remove the line; tune.bufsize counts"),
    Entry(("debug",), (2, 5), "remove the line; start haproxy with -d instead", valid_in=_NOT_GLOBAL),
    Entry(("nosepoll",), (2, 1), "remove the line, or write: noepoll"),
    Entry(("bind-process",), (2, 7), f"remove the line; {_ONE_PROCESS}", _removed_for("1", "all", "odd")),
    Entry(("stats", "bind-process"), (2, 7), f"remove the line; {_ONE_PROCESS}", _removed_for("1", "all", "odd")),
    Entry(("bind",), (2, 7), "write thread instead of process", applies=_has_process, part="process"),
    Entry(("stats", "socket"), (2, 7), f"remove only process; {_ONE_PROCESS}", applies=_has_process, part="process"),
    Entry(
        ("option", "httpchk"),
        (3, 0),
        "write: option httpchk  and  http-check send meth METHOD uri PATH ver VERSION hdr NAME VALUE",
        _hidden_headers,
        applies=lambda values: "\r\n" in "".join(values),
        part=r"\\r",
    ),
)
"""Each entry is tried by ``tests/haproxy/test_removed.py`` on the haproxy that is installed."""
