"""One line of the access log, as the shipped fragments have HAProxy write it."""

import re

import msgspec

WHO = {
    "C": "the client closed the connection",
    "S": "the server refused or closed the connection",
    "P": "HAProxy refused it",
    "L": "HAProxy answered it itself",
    "R": "HAProxy had no memory, port or socket left",
    "I": "HAProxy found an error of its own",
    "D": "the server went down",
    "U": "a server that came back took it over",
    "K": "an operator ended it",
    "c": "the client sent nothing in time",
    "s": "the server sent nothing in time",
}
WHEN = {
    "R": "before the request was complete",
    "Q": "while it waited for a free server",
    "C": "while HAProxy connected to the server",
    "H": "before the response began",
    "D": "while data went to and fro",
    "L": "while the rest went to the client",
    "T": "while HAProxy held it back",
}
"""The two letters by which HAProxy says why a session ended. Source: configuration manual, 8.5."""


NO_SERVER = "<NOSRV>"
"""The name of the server of a request that none got. Source: the same chapter, 8.2."""


class LoggedRequest(msgspec.Struct, frozen=True):
    """A request, or a connection without requests (``method`` is "" then).

    ``time`` is that of its begin, in seconds since the epoch. Members that end in ``_ms`` are milliseconds, -1 where it
    did not come to that. ``end`` has HAProxy's two letters. ``object`` is the one that sent it to its backend,
    ``KIND/NAMESPACE/NAME``; "" where none did, or where the name of the backend says it.
    """

    time: float
    client: str
    client_port: int
    bytes: int
    queue_ms: int
    connect_ms: int
    total_ms: int
    retries: str
    end: str
    listener: str
    backend: str
    server: str
    tls: str = ""
    sni: str = ""
    object: str = ""
    method: str = ""
    host: str = ""
    path: str = ""
    version: str = ""
    status: int = 0
    idle_ms: int = -1
    request_ms: int = -1
    response_ms: int = -1
    id: str = ""

    @property
    def pod(self) -> str:
        """The pod that the server is; "" where it is none. The names of servers are POD:ADDRESS:PORT."""
        pod, *address = self.server.split(":")
        return pod if len(address) > 1 and pod != "_" else ""

    @property
    def why(self) -> str:
        """Why it ended, in words; "" where both sides had said all."""
        if self.end[:2] == "SC" and self.server == NO_SERVER:
            return "no server took it: the backend has none that is up"
        who, when = WHO.get(self.end[:1], ""), WHEN.get(self.end[1:2], "")
        # What it answers itself it does once the request is there.
        return f"{who} {when}" if who and when and self.end[0] not in "LP" else who


_DECODER = msgspec.json.Decoder(LoggedRequest)


def parse(line: bytes) -> LoggedRequest | None:
    """Return what a line says; None where it is none of the shipped fragments'."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class AskedFor(msgspec.Struct, frozen=True, gc=False):
    """What a line says of what a client asked for; the members are those of :class:`LoggedRequest`.

    ``host`` and ``path`` of requests; ``tls`` is "" or "-" without TLS.
    """

    listener: str
    client: str = ""
    method: str = ""
    host: str = ""
    path: str = ""
    tls: str = ""
    sni: str = ""
    backend: str = ""


_ASKED_FOR = msgspec.json.Decoder(AskedFor)
MOST_PATH_BYTES = 1024
"""A longer path is cut. Source: pyconfd/fragments/client.j2."""
_TEXT = re.compile(
    rb" \[[0-9]{2}/[A-Za-z]{3}/[0-9:.]+\] (?P<listener>[^\s~]+)(?P<tls>~?) (?P<backend>[^\s/]+)/\S+ [-+0-9/]+ [-+0-9]+ "
)
_URI = re.compile(rb'"([^\s"]+) https?://([^/\s"?]+)([/?][^\s"]*)? HTTP/[0-9.]+"$')


class UnreadableLine(ValueError):  # noqa: N818 - it says what the line is
    """A line of a log says nothing of where a request goes; the text says why."""


def asked_for(line: bytes) -> AskedFor:
    """Return what a line asked for, behind what a collector of logs may have written before it.

    HAProxy's own ``httplog`` has the host of requests that came by HTTP/2 and 3 only.

    Raises:
        UnreadableLine: it does not say that.
    """
    start = line.find(b"{")
    if start < 0:
        return _asked_in_text(line)
    try:
        found = _ASKED_FOR.decode(line[start:] if start else line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _TEXT.search(line) is not None:
            return _asked_in_text(line)
        raise UnreadableLine(f"not a line of the shipped log format: {error}") from None
    if len(found.path) >= MOST_PATH_BYTES or len(found.path.encode()) >= MOST_PATH_BYTES:
        raise UnreadableLine(f"its path may be cut: the log has the first {MOST_PATH_BYTES:,} bytes")
    return found


def _asked_in_text(line: bytes) -> AskedFor:
    found = _TEXT.search(line)
    if found is None:
        raise UnreadableLine("neither JSON of the shipped log format nor HAProxy's httplog")
    asked = _URI.search(line, found.end())
    if asked is None:
        raise UnreadableLine("HAProxy's text format has no host of it: set log_format of [templates.vars] to json")
    method, host, path, listener, backend = (
        each.decode("utf-8", "replace")
        for each in (asked[1], asked[2], asked[3] or b"/", found["listener"], found["backend"])
    )
    name = host[: host.rfind(":", host.rfind("]") + 1)] if ":" in host[host.rfind("]") + 1 :] else host
    name = name.rstrip(".").lower()
    path = path if path.startswith("/") else f"/{path}"
    # The text has no name of the hello: that of the request is the likeliest.
    tls, sni = ("TLS", name) if found["tls"] else ("", "")
    return AskedFor(listener, "", method, name, path, tls, sni, backend)
