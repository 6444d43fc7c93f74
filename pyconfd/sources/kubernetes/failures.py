"""What can go wrong between pyconfd and an API server, as values that decisions are made on."""

from collections.abc import Hashable
from enum import StrEnum

from pyconfd.errors import Problem, TransientError


class Failure(StrEnum):
    """One way for a request to fail."""

    UNREACHABLE = "unreachable"
    RESET = "reset"
    TIMEOUT = "timeout"
    TLS = "tls"
    SERVER_ERROR = "server_error"
    BAD_ANSWER = "bad_answer"
    THROTTLED = "throttled"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    EXPIRED = "expired"
    REFUSED = "refused"
    CREDENTIALS = "credentials"
    INTERRUPTED = "interrupted"


NEXT_SERVER = frozenset(
    {
        Failure.UNREACHABLE,
        Failure.RESET,
        Failure.TIMEOUT,
        Failure.TLS,
        Failure.SERVER_ERROR,
        Failure.BAD_ANSWER,
    }
)
"""The failures after which another API server may do better; the others would be the same everywhere."""

OF_ALL = NEXT_SERVER | {Failure.UNAUTHORIZED, Failure.CREDENTIALS}
"""The failures that end for all resources at once."""

NOT_READABLE = frozenset({Failure.FORBIDDEN, Failure.NOT_FOUND})
"""The resource cannot be read until an operator changes something."""

NEED_OPERATOR = NOT_READABLE | {Failure.UNAUTHORIZED, Failure.CREDENTIALS}
"""Failures that an operator has to repair; a command that runs once does not wait for that."""

_OF_STATUS = {
    401: Failure.UNAUTHORIZED,
    403: Failure.FORBIDDEN,
    404: Failure.NOT_FOUND,
    410: Failure.EXPIRED,
    429: Failure.THROTTLED,
}

_REMEDIES = {
    Failure.UNREACHABLE: "is the API server up, and does the network (or a proxy) let this machine reach it?",
    Failure.RESET: "did the server, or a proxy before it, end or restart? it is tried again and again",
    Failure.SERVER_ERROR: "look at the log of the API server; it is tried again and again",
    Failure.TIMEOUT: "is the server up, reachable from here, and neither overloaded nor hanging?",
    Failure.TLS: "does kubernetes.ssl_ca hold the CA that signed this server's certificate, for this host name?",
    Failure.BAD_ANSWER: "is this the address of a Kubernetes API server, and not of a proxy or a portal before it?",
    Failure.UNAUTHORIZED: "the credentials are not accepted: look at the client certificate or the token",
    Failure.FORBIDDEN: "give the account its rights: pyconfd rbac prints the manifest",
    Failure.NOT_FOUND: "does this cluster serve that API? EndpointSlices need Kubernetes 1.21 or later",
}
_CLOCK = "is the clock of this machine right (timedatectl)? if so, renew the server's certificate"


class ApiError(TransientError):
    """A request to one API server failed.

    ``retry_after_s`` is what the server asked for, or None; ``status`` is the HTTP code, or 0 where none came.
    """

    def __init__(
        self, kind: Failure, place: str, message: str, *, status: int = 0, retry_after_s: float | None = None
    ) -> None:
        self.kind = kind
        self.status = status
        self.retry_after_s = retry_after_s
        out_of_time = kind is Failure.TLS and any(words in message for words in ("not yet valid", "has expired"))
        super().__init__(Problem(place, message, _CLOCK if out_of_time else _REMEDIES.get(kind, "")))


class BrokenWatchError(ApiError):
    """The stream of a watch cannot be continued from where it is: it sent an ERROR event, or what is no event."""


class Denials:
    """Which 403 is believed: not the first one of a request that was allowed before, of whatever kind it is.

    An API server that has just started does not know all Roles yet.
    """

    def __init__(self) -> None:
        self._allowed: set[Hashable] = set()

    def allowed(self, request: Hashable) -> None:
        """Record that a kind of request was allowed."""
        self._allowed.add(request)

    def is_first(self, failure: ApiError, request: Hashable) -> bool:
        """Return whether this is the first 403 since a kind of request was allowed."""
        if failure.kind is not Failure.FORBIDDEN or request not in self._allowed:
            return False
        self._allowed.remove(request)
        return True


def failure_of_status(status: int) -> Failure:
    """Return the failure that an HTTP status, or the code of a Status object, stands for."""
    if status in _OF_STATUS:
        return _OF_STATUS[status]
    if 500 <= status <= 599:
        return Failure.SERVER_ERROR
    return Failure.REFUSED if 400 <= status <= 499 else Failure.BAD_ANSWER
