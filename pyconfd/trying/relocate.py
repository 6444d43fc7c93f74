"""A configuration moved to loopback: it binds, connects to and needs nothing of the machine that it was made for. Pure.

The templates see nothing of it: what they rendered is rewritten line by line. Each line stays where it is, one that
cannot be used becomes a comment, so that line numbers in messages are those of the rendering.

Source of the keywords: the configuration manual of HAProxy 2.6 to 3.4, 3.1 (global), 4.2, 5.1 (bind), 5.2 (server).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyconfd.haproxy.sections import SECTION_KEYWORDS
from pyconfd.haproxy.words import Word, split_words
from pyconfd.model.rendering import Piece, Rendering

MOST_PORTS = 64
"""Of a range of ports as many are bound."""
MOST_CONNECTIONS = 1000

_LEFT_OUT_GLOBAL = frozenset(
    [
        "chroot",
        "cpu-map",
        "daemon",
        "fd-hard-limit",
        "gid",
        "group",
        "localpeer",
        "nbproc",
        "noreuseport",
        "pidfile",
        "prealloc-fd",
        "setcap",
        "uid",
        "ulimit-n",
        "unix-bind",
        "user",
    ]
)
_LEFT_OUT_PROXY = frozenset({"email-alert", "source", "nbproc", "bind-process"})
_NEEDS_ANSWERS = frozenset({"mysql-check", "pgsql-check", "ldap-check", "smtpchk", "external-check"})
"""Health checks that only the real program passes."""

_BIND_DROPS: Mapping[str, int] = dict.fromkeys(("accept-proxy", "defer-accept", "transparent", "v4v6", "v6only"), 0) | (
    dict.fromkeys(("accept-netscaler-cip", "gid", "group", "interface", "mode", "namespace", "uid", "user"), 1)
)
"""Words that need rights, another network or a proxy before this one, with the number of words behind each."""

_SERVER_DROPS: Mapping[str, int] = dict.fromkeys(("agent-check", "tfo"), 0) | dict.fromkeys(
    [
        "addr",
        "agent-addr",
        "agent-inter",
        "agent-port",
        "agent-send",
        "ca-file",
        "check-proto",
        "crl-file",
        "crt",
        "init-addr",
        "interface",
        "namespace",
        "port",
        "proto",
        "resolve-net",
        "resolve-opts",
        "resolve-prefer",
        "resolvers",
        "socks4",
        "source",
        "usesrc",
        "verify",
        "verifyhost",
    ],
    1,
)
_SOCKET_DROPS: Mapping[str, int] = dict.fromkeys(("gid", "group", "uid", "user"), 1)
_TCP = frozenset({"", "ipv4", "ipv6", "tcp", "tcp4", "tcp6", "mptcp", "mptcp4", "mptcp6"})
_UNIX = ("/", "unix@", "uxst@")


class Places(Protocol):
    """What stands on loopback in the place of something; the same each time, and itself for what stands there."""

    def listener(self, host: str, port: int) -> tuple[str, int]:
        """Return where to listen instead; ``host`` is "" for any address."""
        ...

    def server(self, host: str, port: int) -> tuple[str, int]:
        """Return where to connect to instead; ``port`` 0 where none is named."""
        ...

    def socket(self, path: str) -> str:
        """Return another path for a UNIX socket."""
        ...

    def certificate(self, path: str) -> str:
        """Return the path of a certificate to load: ``path`` where there is one, else that of a stand-in."""
        ...


@dataclass(slots=True)
class _State:
    """What the lines above say: the open section, and whether its servers are to be checked."""

    places: Places
    environ: Mapping[str, str]
    section: str = ""
    unanswerable: frozenset[str] = frozenset()
    title: str = ""
    crt_base: str = ""
    notes: dict[str, None] = field(default_factory=dict)


def relocate(rendering: Rendering, places: Places, environ: Mapping[str, str]) -> tuple[Rendering, tuple[str, ...]]:
    """Return the same configuration on loopback, and sentences about what is not as it was written.

    ``environ`` are the variables that HAProxy would see.
    """
    state = _State(places, environ, unanswerable=_unanswerable(rendering.text))
    pieces = tuple(
        Piece(piece.fragment, "".join(_moved(line, state) for line in piece.text.splitlines(keepends=True)))
        for piece in rendering.pieces
    )
    return Rendering(pieces, rendering.files), tuple(state.notes)


def _unanswerable(text: str) -> frozenset[str]:
    """Return the sections whose health checks only a real pod passes; "" where it is a ``defaults``."""
    found: set[str] = set()
    title = ""
    for line in text.splitlines():
        words = [word.value for word in split_words(line)]
        if words and words[0] in SECTION_KEYWORDS:
            title = "" if words[0] == "defaults" else " ".join(words[:2])
        elif len(words) > 1 and (
            (words[0] == "option" and words[1] in _NEEDS_ANSWERS)
            or (words[:2] == ["http-check", "expect"])
            or (words[:2] == ["tcp-check", "expect"] and "+PONG" not in words)
        ):
            found.add(title)
    return frozenset(found)


def _moved(line: str, state: _State) -> str:
    end = "\n" if line.endswith("\n") else ""
    bare = line.removesuffix("\n")
    words = split_words(bare)
    if not words:
        return line
    first = words[0].value
    if first in SECTION_KEYWORDS:
        state.section = first
        state.title = " ".join(word.value for word in words[:2])
        return _comment(bare, end) if first == "program" else line
    if state.section == "program":
        return _comment(bare, end)
    mover = _MOVERS.get((state.section, first)) or _MOVERS.get(("", first)) or _left_out(state.section, first)
    if mover is None:
        return line
    moved = mover(words, state)
    if moved is None:
        return _comment(bare, end)
    indent = bare[: len(bare) - len(bare.lstrip())]
    return line if moved == [word.written for word in words] else f"{indent}{' '.join(moved)}{end}"


def _comment(line: str, end: str) -> str:
    return f"# try: {line.strip()}{end}"


_Mover = Callable[[Sequence[Word], _State], list[str] | None]
"""Gives the words of a line as they are to be written, None to leave the line out."""


def _nothing(words: Sequence[Word], state: _State) -> list[str] | None:
    del words, state
    return None


def _left_out(section: str, first: str) -> _Mover | None:
    if section == "global" and first in _LEFT_OUT_GLOBAL:
        return _nothing
    return _nothing if section != "global" and first in _LEFT_OUT_PROXY else None


def _bind(words: Sequence[Word], state: _State) -> list[str] | None:
    if len(words) < 2:
        return [word.written for word in words]
    addresses = [each for text in _expanded(words[1].value, state).split(",") for each in _listeners(text, state)]
    if not addresses:
        return None
    options = _without(words[2:], _BIND_DROPS)
    moved: list[str] = []
    former = ""
    for word in options:
        if former in {"crt", "ca-file", "crt-list"}:
            moved.append(_certificate(word.value, state))
            if former == "crt-list" and moved[-1] != word.value:
                moved[-2] = "crt"
        else:
            moved.append(word.written)
        former = word.value
    return [words[0].written, ",".join(addresses), *moved]


def _certificate(value: str, state: _State) -> str:
    if value.startswith("@"):
        return value
    path = _expanded(value, state)
    found = state.places.certificate(path if path.startswith("/") or not state.crt_base else f"{state.crt_base}/{path}")
    if found != path and not found.endswith(f"/{path}"):
        state.notes.setdefault(f"the certificate {path} is not here: a self-signed one stands in for it")
    return found


def _listeners(text: str, state: _State) -> Iterator[str]:
    """Return the addresses on loopback for one that a line binds."""
    if not text:
        return
    if text.startswith(_UNIX):
        yield state.places.socket(text.rpartition("@")[2])
        return
    family, host, ports = _address(text)
    if family not in _TCP or not _PORTS.fullmatch(ports):
        state.notes.setdefault(f"{text} is not bound: it is no TCP address with a port")
        return
    first, _, last = ports.partition("-")
    for port in range(int(first), min(int(last or first), int(first) + MOST_PORTS - 1) + 1):
        there, here = state.places.listener(host.replace("*", ""), port)
        yield f"{there}:{here}"


_PORTS = re.compile(r"\d+(-\d+)?")


def _address(text: str) -> tuple[str, str, str]:
    """Return family, host without brackets, and port or ports of an address, each "" where it is not there."""
    family, at, rest = text.partition("@")
    if not at:
        family, rest = "", text
    if rest.endswith("]") or ":" not in rest:
        return family, rest.strip("[]"), ""
    host, _, ports = rest.rpartition(":")
    return family, host.strip("[]"), ports


def _server(words: Sequence[Word], state: _State) -> list[str] | None:
    if len(words) < 3:
        return [word.written for word in words]
    return [words[0].written, words[1].written, _target(words[2].value, state), *_server_options(words[3:], state)]


def _server_template(words: Sequence[Word], state: _State) -> list[str] | None:
    if len(words) < 4:
        return [word.written for word in words]
    state.notes.setdefault(f"{words[0].value} {words[1].value} is one server here: names are not looked up")
    name = f"{words[1].value}1"
    return ["server", name, _target(words[3].value, state), *_server_options(words[4:], state)]


def _default_server(words: Sequence[Word], state: _State) -> list[str] | None:
    return [words[0].written, *_server_options(words[1:], state, ends=False)]


def _server_options(words: Sequence[Word], state: _State, *, ends: bool = True) -> list[str]:
    kept = [word.written for word in _without(words, _SERVER_DROPS)]
    if "ssl" in kept:
        kept += ["verify", "none"]
    if ends and state.unanswerable & {"", state.title}:
        kept.append("no-check")
        state.notes.setdefault("health checks that only a real pod passes are off")
    return kept


def _target(text: str, state: _State) -> str:
    expanded = _expanded(text, state)
    family, host, ports = _address(expanded)
    if expanded.startswith(_UNIX) or family not in _TCP or not host:
        host, ports = expanded, ""
    there, here = state.places.server(host, int(ports) if ports.isdigit() else 0)
    return f"{there}:{here}"


def _peer(words: Sequence[Word], state: _State) -> list[str] | None:
    if len(words) < 3:
        return [word.written for word in words]
    address = next(_listeners(_expanded(words[2].value, state), state), "")
    return [words[0].written, words[1].written, address] if address else None


def _connects(words: Sequence[Word], state: _State) -> list[str] | None:
    """Move the last of three words, where it is an address to connect to: ``mailer NAME ADDRESS``."""
    if len(words) < 3:
        return [word.written for word in words]
    return [*(word.written for word in words[:2]), _target(words[2].value, state)]


def _dispatch(words: Sequence[Word], state: _State) -> list[str] | None:
    return [words[0].written, *(_target(word.value, state) for word in words[1:2])]


def _log(words: Sequence[Word], state: _State) -> list[str] | None:
    """Keep logs that stay here: standard output, a ring, or what the global section says."""
    target = words[1].value if len(words) > 1 else ""
    if target.startswith(("stdout", "stderr", "ring@", "fd@")) or target == "global":
        return [word.written for word in words]
    state.notes.setdefault(f"nothing is logged to {_expanded(target, state)}")
    return None


def _stats(words: Sequence[Word], state: _State) -> list[str] | None:
    if len(words) < 3 or words[1].value != "socket":
        return [word.written for word in words]
    addresses = list(_listeners(_expanded(words[2].value, state), state))
    options = [word.written for word in _without(words[3:], _SOCKET_DROPS)]
    return [words[0].written, words[1].written, addresses[0], *options] if addresses else None


def _maxconn(words: Sequence[Word], state: _State) -> list[str] | None:
    del state
    given = words[1].value if len(words) > 1 else ""
    return [words[0].written, str(min(int(given), MOST_CONNECTIONS)) if given.isdigit() else str(MOST_CONNECTIONS)]


def _crt_base(words: Sequence[Word], state: _State) -> list[str] | None:
    """Take it to the paths themselves: a stand-in for a certificate lies elsewhere."""
    state.crt_base = words[1].value.rstrip("/") if len(words) > 1 else ""
    return None


_MOVERS: Mapping[tuple[str, str], _Mover] = {
    ("", "bind"): _bind,
    ("", "dgram-bind"): _bind,
    ("", "default-server"): _default_server,
    ("", "dispatch"): _dispatch,
    ("", "log"): _log,
    ("", "mailer"): _connects,
    ("", "nameserver"): _connects,
    ("", "parse-resolv-conf"): _nothing,
    ("", "peer"): _peer,
    ("", "server"): _server,
    ("", "server-template"): _server_template,
    ("global", "crt-base"): _crt_base,
    ("global", "maxconn"): _maxconn,
    ("global", "stats"): _stats,
}
"""By section ("" for any) and first word."""

_VARIABLE = re.compile(r"\$\{?(\w+)(?:\[[^]]*\])?(?:-([^}]*))?\}?")


def _expanded(text: str, state: _State) -> str:
    return _VARIABLE.sub(lambda found: state.environ.get(found[1]) or found[2] or "", text)


def _without(words: Sequence[Word], drops: Mapping[str, int]) -> list[Word]:
    kept: list[Word] = []
    skip = 0
    for word in words:
        if skip:
            skip -= 1
        elif word.value in drops:
            skip = drops[word.value]
        else:
            kept.append(word)
    return kept
