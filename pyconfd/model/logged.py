"""One line of the access log, as the shipped fragments have HAProxy write it."""

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
