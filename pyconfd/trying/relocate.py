"""A rendered configuration moved to loopback: it binds, connects to and needs nothing of the machine it was made for.

Each line stays where it is, one that cannot be used becomes a comment, so that line numbers in messages are those of
the rendering.

Source of the keywords: the configuration manual of HAProxy 2.6 to 3.4, 3.1 (global), 4.2, 5.1 (bind), 5.2 (server).
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyconfd.errors import RejectedInput, TransientError
from pyconfd.haproxy.config.text import SECTION_KEYWORDS, Word, parse, split_words
from pyconfd.model.context import Context
from pyconfd.model.rendering import FragmentSet, Piece, Rendering
from pyconfd.render.cluster_templates import Fallback
from pyconfd.render.engine import Rendered, Renderer
from pyconfd.trying.loopback import AddressOwner, Loopback

MOST_PORTS = 64
"""Of a range of ports as many are bound."""

_LEFT_OUT = re.compile(
    r"(?:global (?:chroot|cpu-map|daemon|fd-hard-limit|[gu]id|group|localpeer|maxconn|noreuseport|pidfile|prealloc-fd"
    r"|setcap|ulimit-n|unix-bind|user)"
    r"|\S+ (?:bind-process|email-alert|nbproc|parse-resolv-conf|source)"
    # Health checks that only the real program passes: servers are checked by a connection then.
    r"|\S+ option (?:external-check|ldap-check|mysql-check|pgsql-check|smtpchk)"
    r"|\S+ http-check expect|\S+ tcp-check expect(?!.*\+PONG))(?!\S)"
    # Logs stay on this machine: standard output, a ring, or what the global section says.
    r"|\S+ log (?!global|stdout|stderr|ring@|fd@)"
    r"|program "
)
"""Section, directive and its words, of lines that need rights, another network or a real pod."""

_LISTENS = {"bind": 1, "dgram-bind": 1, "peer": 2, "stats": 2}
_CONNECTS = {"dispatch": 1, "mailer": 2, "nameserver": 2, "server": 2, "server-template": 3, "default-server": 0}
"""Which word of a directive is its address."""

_LISTENER_FLAGS = re.compile(r"accept-proxy|defer-accept|transparent|v4v6|v6only")
_LISTENER_VALUES = re.compile(r"accept-netscaler-cip|gid|group|interface|mode|namespace|uid|user")
_SERVER_FLAGS = re.compile(r"agent-check|tfo|(?:check-)?send-proxy(?:-v2(?:-ssl(?:-cn)?)?)?")
_SERVER_VALUES = re.compile(
    r"addr|agent-(?:addr|inter|port|send)|ca-file|check-proto|crl-file|crt|init-addr|interface|namespace|port|proto"
    r"|proxy-v2-options|resolve-(?:net|opts|prefer)|resolvers|socks4|source|usesrc|verify|verifyhost"
)
"""Options without and with a value that need rights, another network, a proxy before this one, or files."""

_CERTIFICATES = ("crt", "ca-file", "crt-list")
_TCP = re.compile(r"(?:(?:ip|tcp|mptcp)?[46v]*@)?(?P<host>[^@]*?):(?P<first>\d+)(?:-(?P<last>\d+))?")
_UNIX = re.compile(r"(?:(?:unix|uxst)@)?(?P<path>/.*)|(?:unix|uxst)@(?P<relative>.+)")


_OWN_SOCKET = re.compile(r"^\s*bind\s+(?:(?:unix|uxst)@)?(?P<path>/\S+)", re.MULTILINE)
"""Where frontends listen for connections of the same configuration."""


class Relocation:
    """Moves texts; what it moved before stays as it is, since a former text may stand in for a refused template.

    ``last`` is what was rendered last, on loopback, and ``notes`` are sentences about what is not as it was written.
    """

    def __init__(self, loopback: Loopback) -> None:
        self._loopback = loopback
        self._moved: set[int] = set()
        self._section = ""
        self._crt_base = ""
        self._own_sockets: frozenset[str] = frozenset()
        self._declared: frozenset[str] = frozenset()
        self.notes: dict[str, None] = {}
        self.last: tuple[Context, Rendering] | None = None

    def move(self, rendering: Rendering) -> Rendering:
        """Return the same configuration on loopback. Raises: TransientError: no port is free."""
        self._section, self._crt_base, self.notes = "", "", {}
        self._own_sockets |= {found["path"] for piece in rendering.pieces for found in _OWN_SOCKET.finditer(piece.text)}
        self._declared = frozenset(file.path for file in rendering.files)
        return Rendering(tuple(map(self._piece, rendering.pieces)), rendering.files)

    def _piece(self, piece: Piece) -> Piece:
        if hash(piece.text) in self._moved:
            return piece
        text = "\n".join(map(self._line, piece.text.split("\n")))
        self._moved.add(hash(text))
        return Piece(piece.fragment, text)

    def _line(self, line: str) -> str:
        words = split_words(line)
        if not words:
            return line
        if words[0].value in SECTION_KEYWORDS:
            self._section = words[0].value
        statement = " ".join([self._section, *(word.value for word in words)])
        if _LEFT_OUT.match(statement):
            if words[0].value == "log":
                self.notes.setdefault(f"nothing is logged to {_expanded(words[1:2])}")
            return f"# try: {line.strip()}"
        moved = self._words(words)
        if moved is None:
            return f"# try: {line.strip()}"
        if moved == [word.written for word in words]:
            return line
        return f"{line[: len(line) - len(line.lstrip())]}{' '.join(moved)}"

    def _words(self, words: Sequence[Word]) -> list[str] | None:
        """Return the words as they are to be written, None to leave the line out."""
        written, first = [word.written for word in words], words[0].value
        at = _LISTENS.get(first) or _CONNECTS.get(first)
        if first == "crt-base":
            self._crt_base = _expanded(words[1:2])
        if first == "default-server":
            return [written[0], *_server_options(words[1:])]
        if at is None or len(words) <= at or (first == "stats" and words[1].value != "socket"):
            return written
        address = _expanded(words[at : at + 1])
        if first in _LISTENS:
            found = [place for each in address.split(",") for place in self._listeners(each)]
            options = self._certified(_without(words[at + 1 :], _LISTENER_FLAGS, _LISTENER_VALUES))
            return [*written[:at], ",".join(found), *options] if found else None
        return [*written[:at], self._target(address), *_server_options(words[at + 1 :])]

    def _listeners(self, text: str) -> Iterator[str]:
        if unix := _UNIX.fullmatch(text):
            yield self._loopback.socket(unix["path"] or unix["relative"])
        elif found := _TCP.fullmatch(text):
            first = int(found["first"])
            last = min(int(found["last"] or first), first + MOST_PORTS - 1)
            for port in range(first, last + 1):
                host, here = self._loopback.listener(found["host"].strip("[]*"), port)
                yield f"{host}:{here}"
        elif text:
            self.notes.setdefault(f"{text} is not bound: it is no TCP address with a port")

    def _target(self, text: str) -> str:
        unix = _UNIX.fullmatch(text)
        if unix and unix["path"] in self._own_sockets:
            return self._loopback.socket(unix["path"])
        found = _TCP.fullmatch(text)
        host, port = (found["host"].strip("[]"), int(found["first"])) if found and not found["last"] else (text, 0)
        there, here = self._loopback.server(host or text, port)
        return f"{there}:{here}"

    def _certified(self, options: Sequence[Word]) -> list[str]:
        """Return options of a bind with a stand-in for each certificate that is not on this machine."""
        moved: list[str] = []
        for former, word in zip(("", *(option.value for option in options)), options, strict=False):
            if former not in _CERTIFICATES or word.value.startswith("@"):
                moved.append(word.written)
                continue
            path = os.path.join(self._crt_base, _expanded([word]))  # noqa: PTH118 - an empty base stays empty
            moved.append(path if path in self._declared else self._loopback.certificate(path))
            if moved[-1] != path:
                moved[-2] = "crt" if former == "crt-list" else moved[-2]
                self.notes.setdefault(f"the certificate {word.value} is not here: a self-signed one stands in for it")
        return moved


def _server_options(words: Sequence[Word]) -> list[str]:
    kept = [word.written for word in _without(words, _SERVER_FLAGS, _SERVER_VALUES)]
    return [*kept, "verify", "none"] if "ssl" in kept else kept


def _without(words: Sequence[Word], flags: re.Pattern[str], values: re.Pattern[str]) -> list[Word]:
    kept: list[Word] = []
    rest = iter(words)
    for word in rest:
        if values.fullmatch(word.value):
            next(rest, None)
        elif not flags.fullmatch(word.value):
            kept.append(word)
    return kept


def _expanded(words: Sequence[Word]) -> str:
    return "".join(os.path.expandvars(word.value) for word in words)


class RelocatingRenderer(Renderer):
    """Renders as the templates say, and moves the text; ``found`` are the fragments."""

    def __init__(self, found: FragmentSet, *arguments: Any, relocation: Relocation) -> None:
        super().__init__(found, *arguments)
        self.found = found
        self._relocation = relocation

    def render(self, context: Context, *, curdate: str, fallback: Fallback | None = None) -> Rendered:
        """Do what Renderer does; that a port cannot be had is a RejectedInput too."""
        rendered = super().render(context, curdate=curdate, fallback=fallback)
        try:
            moved = self._relocation.move(rendered.rendering)
        except TransientError as error:
            raise RejectedInput(*error.problems) from error
        self._relocation.last = context, moved
        return replace(rendered, rendering=moved)


def owners_in(text: str, loopback: Loopback) -> dict[str, AddressOwner]:
    """Return whom the stand-ins stand for that a configuration on loopback names, by what they answer."""
    servers = (line.words for section in parse(text) for line in section.lines if line.words[0] == "server")
    there = {words[2] for words in servers if len(words) > 2}
    return {name: owner for name, (owner, address) in loopback.owners.items() if address in there}
