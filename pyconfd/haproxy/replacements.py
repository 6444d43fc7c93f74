"""The table of removed directives: how each line is written today. Read by :mod:`pyconfd.haproxy.removed`."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from pyconfd.haproxy.words import Word
from pyconfd.render.filters import format_quote, quote
from pyconfd.render.invalid import InvalidValueError

_HEADER_LINE = re.compile(r"\^?(?P<name>[A-Za-z0-9_-]+):(?:\\?[ ]|\\s)?[*+?]?(?P<rest>.*)", re.DOTALL)
_METHOD = re.compile(r"\^\((?:\[\^[ :\\]*\][*+]|\.\*\??|[A-Z|]+)\)[ ](?P<path>\S+)")
_GROUP = re.compile(r"\\([1-9])")


@dataclass(frozen=True, slots=True)
class Replacement:
    """``lines`` to write instead, none to remove the line; ``note`` says what no line can."""

    lines: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        if not self.lines:
            return self.note or "remove the line"
        text = "write: " + "  and  ".join(self.lines)
        return f"{text} ({self.note})" if self.note else text


Rule = Callable[[list[Word]], Replacement | None]
"""From the words after the directive to what to write; None if this line is still valid."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A directive by its first ``words``, gone ``since``; sections in ``valid_in`` have one of the same name."""

    words: tuple[str, ...]
    since: tuple[int, int]
    replace: Rule
    valid_in: frozenset[str] = frozenset()


def _remove(note: str = "") -> Rule:
    return lambda _words: Replacement((), f"remove the line: {note}" if note else "")


def _advice(note: str) -> Rule:
    return lambda _words: Replacement((), note)


def _renamed(name: str) -> Rule:
    return lambda words: Replacement((" ".join([name, *(word.written for word in words)]),))


def _condition(words: list[Word]) -> tuple[list[Word], str]:
    """Split off ``if ...`` or ``unless ...``, as written and with a space before it."""
    for index, word in enumerate(words):
        if word.written in ("if", "unless"):
            return words[:index], "".join(f" {one.written}" for one in words[index:])
    return words, ""


def _quoted(write: Callable[[str], str], value: str) -> str:
    try:
        return write(value)
    except InvalidValueError:
        return "VALUE"


def _add_header(action: str) -> Rule:
    def replace(words: list[Word]) -> Replacement:
        arguments, condition = _condition(words)
        name, colon, value = (arguments[0].value if arguments else "").partition(":")
        if not colon:
            return Replacement((), f"write: {action} NAME VALUE")
        return Replacement((f"{action} {name} {_quoted(format_quote, value.strip())}{condition}",))

    return replace


def _delete_header(direction: str) -> Rule:
    def replace(words: list[Word]) -> Replacement:
        arguments, condition = _condition(words)
        found = _HEADER_LINE.fullmatch(arguments[0].value) if arguments else None
        if found is None or found["rest"] not in ("", ".*", ".*$"):
            return Replacement((), f"write: {direction} del-header NAME, or for names by pattern: NAME -m reg")
        return Replacement((f"{direction} del-header {found['name']}{condition}",))

    return replace


def _replace_header(direction: str) -> Rule:
    def replace(words: list[Word]) -> Replacement:
        arguments, condition = _condition(words)
        search, substitute = [word.value for word in arguments[:2]] if len(arguments) > 1 else ("", "")
        before, after = _HEADER_LINE.fullmatch(search), _HEADER_LINE.fullmatch(substitute)
        if before and after and before["name"].lower() == after["name"].lower():
            pattern, text = _quoted(quote, before["rest"]), _quoted(format_quote, after["rest"])
            return Replacement((f"{direction} replace-header {before['name']} {pattern} {text}{condition}",))
        path = _METHOD.fullmatch(search)
        if direction == "http-request" and path and (rest := substitute.removeprefix("\\1 ")) != substitute:
            pattern = _quoted(quote, path["path"])
            text = _quoted(format_quote, _GROUP.sub(lambda group: f"\\{int(group[1]) - 1}", rest))
            return Replacement((f"http-request replace-pathq {pattern} {text}{condition}",))
        other = " or replace-path REGEX TEXT" if direction == "http-request" else ""
        return Replacement((), f"write: {direction} replace-header NAME REGEX TEXT{other}")

    return replace


def _match_header(action: str, fetch: str, flag: str) -> Rule:
    def replace(words: list[Word]) -> Replacement:
        arguments, condition = _condition(words)
        found = _HEADER_LINE.fullmatch(arguments[0].value) if arguments else None
        if found is None or condition.startswith(" unless"):
            return Replacement((), f"write: {action} if {{ CONDITION }}, for example path_reg or {fetch}(NAME) -m reg")
        test = f"{{ {fetch}({found['name']}) {flag}-m reg {_quoted(quote, found['rest'])} }}"
        return Replacement((f"{action} if {test}{condition.removeprefix(' if')}",))

    return replace


def _monitor_net(words: list[Word]) -> Replacement:
    nets = " ".join(word.written for word in words)
    return Replacement((f"http-request return status 200 if {{ src {nets} }}",))


def _without_process(directive: str) -> Rule:
    def replace(words: list[Word]) -> Replacement | None:
        at = next((index for index, word in enumerate(words) if word.value == "process"), None)
        if at is None:
            return None
        return Replacement((" ".join([directive, *(word.written for word in words[:at] + words[at + 2 :])]),))

    return replace


def _appsession(words: list[Word]) -> Replacement:
    values = [word.value for word in words]
    options = dict(zip(values[1::2], values[2::2], strict=False))
    name = values[0] if values else "COOKIE"
    return Replacement(
        (
            f"stick-table type string len {options.get('len', '52')} size 1m expire {options.get('timeout', '3h')}",
            f"stick on req.cook({name})",
            f"stick store-response res.cook({name})",
        )
    )


def _httpchk(words: list[Word]) -> Replacement | None:
    values = [word.value for word in words]
    if len(values) < 3 or "\r\n" not in values[2]:
        return None
    version, *lines = values[2].split("\r\n")
    headers = [line.partition(":") for line in lines if ":" in line]
    sent = "".join(f" hdr {name} {_quoted(format_quote, value.strip())}" for name, _colon, value in headers)
    check = f"http-check send meth {values[0]} uri {words[1].written} ver {version}{sent}"
    return Replacement(("option httpchk", check))


def _http_rewrites() -> list[Entry]:
    entries: list[tuple[str, Rule]] = [
        ("reqadd", _add_header("http-request set-header")),
        ("rspadd", _add_header("http-response add-header")),
    ]
    for case, flag in (("", ""), ("i", "-i ")):
        entries += [
            (f"req{case}del", _delete_header("http-request")),
            (f"rsp{case}del", _delete_header("http-response")),
            (f"req{case}rep", _replace_header("http-request")),
            (f"rsp{case}rep", _replace_header("http-response")),
            (f"req{case}deny", _match_header("http-request deny", "req.hdr", flag)),
            (f"req{case}tarpit", _match_header("http-request tarpit", "req.hdr", flag)),
            (f"req{case}allow", _match_header("http-request allow", "req.hdr", flag)),
            (f"rsp{case}deny", _match_header("http-response deny", "res.hdr", flag)),
            (f"req{case}pass", _remove("rules are not tried in turn any more")),
            (f"req{case}setbe", _advice("write: use_backend NAME if { req.hdr(HEADER) -m reg REGEX }")),
        ]
    return [Entry((name,), (2, 1), rule) for name, rule in entries]


_GLOBAL = frozenset({"global"})
_NOT_GLOBAL = frozenset({"defaults", "frontend", "backend", "listen"})

REMOVED: tuple[Entry, ...] = (
    *_http_rewrites(),
    Entry(("reqiadd",), (1, 3), _add_header("http-request set-header")),
    Entry(("block",), (2, 1), _renamed("http-request deny")),
    Entry(("redispatch",), (2, 1), _renamed("option redispatch")),
    Entry(("clitimeout",), (2, 1), _renamed("timeout client")),
    Entry(("srvtimeout",), (2, 1), _renamed("timeout server")),
    Entry(("contimeout",), (2, 1), _renamed("timeout connect")),
    Entry(("timeout", "clitimeout"), (2, 1), _renamed("timeout client")),
    Entry(("timeout", "srvtimeout"), (2, 1), _renamed("timeout server")),
    Entry(("timeout", "contimeout"), (2, 1), _renamed("timeout connect")),
    Entry(("cliexp",), (2, 1), _replace_header("http-request")),
    Entry(("srvexp",), (2, 1), _replace_header("http-response")),
    Entry(("option", "forceclose"), (2, 0), _renamed("option httpclose")),
    Entry(("option", "http-tunnel"), (2, 1), _remove("keep-alive is the default")),
    Entry(("option", "http-use-htx"), (2, 1), _remove("there is nothing else")),
    Entry(("option", "http_proxy"), (2, 5), _advice("write: http-request set-dst and set-uri, after do-resolve")),
    Entry(("option", "independant-streams"), (2, 1), _renamed("option independent-streams")),
    Entry(("monitor-net",), (2, 5), _monitor_net),
    Entry(("mode", "health"), (2, 5), lambda _words: Replacement(("mode http", "http-request return status 200"))),
    Entry(("grace",), (2, 5), _remove("a reload keeps old connections"), _GLOBAL),
    Entry(("appsession",), (1, 6), _appsession),
    Entry(("nbproc",), (2, 5), _remove("one process has a thread for each processor")),
    Entry(("tune.chksize",), (2, 5), _remove("tune.bufsize counts")),
    Entry(("debug",), (2, 5), _remove("start haproxy with -d instead"), _NOT_GLOBAL),
    Entry(("nosepoll",), (2, 1), _remove()),
    Entry(("bind-process",), (2, 7), _remove("all threads of the one process serve")),
    Entry(("stats", "bind-process"), (2, 7), _remove("all threads of the one process serve")),
    Entry(("bind",), (2, 7), _without_process("bind")),
    Entry(("stats", "socket"), (2, 7), _without_process("stats socket")),
    Entry(("option", "httpchk"), (3, 0), _httpchk),
)
"""Each entry is tried by ``tests/haproxy/test_removed.py`` on the haproxy that is installed."""
