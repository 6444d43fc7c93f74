"""What can go wrong between pyconfd and etcd, as values that the policy decides on."""

import json
from enum import StrEnum

from pyconfd.errors import Problem, TransientError

_SHOWN_CHARACTERS = 160


class EtcdFailure(StrEnum):
    """One way for a call to fail."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    TLS = "tls"
    UNAVAILABLE = "unavailable"
    BAD_ANSWER = "bad_answer"
    STALE_TOKEN = "stale_token"  # noqa: S105 - the name of a failure
    LOGIN = "login"
    COMMON_NAME = "common_name"
    FORBIDDEN = "forbidden"
    NO_SPACE = "no_space"
    LEASE_LOST = "lease_lost"
    CREDENTIALS = "credentials"
    REFUSED = "refused"


NEXT_ENDPOINT = frozenset(
    {
        EtcdFailure.UNREACHABLE,
        EtcdFailure.TIMEOUT,
        EtcdFailure.TLS,
        EtcdFailure.UNAVAILABLE,
        EtcdFailure.BAD_ANSWER,
    }
)
"""The failures after which another endpoint may do better; the others would be the same everywhere."""

_REMEDIES = {
    EtcdFailure.UNREACHABLE: "is etcd up, and does the network let this machine reach it?",
    EtcdFailure.TIMEOUT: "is etcd up, reachable from here, and does it have a quorum?",
    EtcdFailure.TLS: "does etcd.ca hold the CA that signed this endpoint's certificate, for this host name?",
    EtcdFailure.UNAVAILABLE: "does the etcd cluster have a leader? etcdctl endpoint status --cluster",
    EtcdFailure.BAD_ANSWER: "is this the client address of an etcd v3, with its JSON gateway?",
    EtcdFailure.STALE_TOKEN: "etcd asks for a user: set etcd.user and etcd.password_file",
    EtcdFailure.COMMON_NAME: "with users, etcd's gateway takes only client certificates that have no common name",
    EtcdFailure.LOGIN: "look at etcd.user and the file etcd.password_file",
    EtcdFailure.FORBIDDEN: "give the user its role: docs/etcd.md has the commands",
    EtcdFailure.NO_SPACE: "compact and defragment etcd, then etcdctl alarm disarm; docs/etcd.md has the commands",
    EtcdFailure.CREDENTIALS: "look at etcd.ca, etcd.cert, etcd.key and etcd.password_file, and who may read them",
}

_BY_WORDS = (
    ("invalid auth token", EtcdFailure.STALE_TOKEN),
    ("revision in header is old", EtcdFailure.STALE_TOKEN),
    ("user name is empty", EtcdFailure.STALE_TOKEN),
    ("invalid user ID or password", EtcdFailure.LOGIN),
    ("authentication is not enabled", EtcdFailure.LOGIN),
    ("CommonName of client", EtcdFailure.COMMON_NAME),
    ("permission denied", EtcdFailure.FORBIDDEN),
    ("database space exceeded", EtcdFailure.NO_SPACE),
    ("lease not found", EtcdFailure.LEASE_LOST),
    ("no leader", EtcdFailure.UNAVAILABLE),
    ("request timed out", EtcdFailure.UNAVAILABLE),
    ("leader changed", EtcdFailure.UNAVAILABLE),
    ("server stopped", EtcdFailure.UNAVAILABLE),
)
"""Source: etcd, api/v3rpc/rpctypes/error.go; the gateway passes these words on, its HTTP codes differ by version."""

_BY_CODE = {14: EtcdFailure.UNAVAILABLE, 4: EtcdFailure.UNAVAILABLE, 16: EtcdFailure.STALE_TOKEN}
"""Source: grpc, status codes UNAVAILABLE, DEADLINE_EXCEEDED and UNAUTHENTICATED."""


class EtcdError(TransientError):
    """A call to one endpoint failed; ``place`` is its URL."""

    def __init__(self, kind: EtcdFailure, place: str, message: str) -> None:
        self.kind = kind
        super().__init__(Problem(place, message, _REMEDIES.get(kind, "")))


def error_of_answer(place: str, body: str) -> EtcdError:
    """Return the error that etcd's gateway describes in ``body``, which may be anything."""
    code, message = 0, body
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict):
        inner = document.get("error")
        # A stream reports an object below "error", a plain call a text and the code beside it.
        fields = inner if isinstance(inner, dict) else document
        found = fields.get("message") or fields.get("error")
        message = found if isinstance(found, str) else body
        number = fields.get("code", fields.get("grpc_code"))
        code = number if isinstance(number, int) else 0
    kind = next((kind for words, kind in _BY_WORDS if words in message), None)
    kind = kind or _BY_CODE.get(code, EtcdFailure.REFUSED if document is not None else EtcdFailure.BAD_ANSWER)
    return EtcdError(kind, place, f"etcd says: {shown(message)}")


def shown(text: str) -> str:
    """Return the beginning of a stranger's text on one line, with what cannot be printed escaped."""
    begin = " ".join(text.split())[:_SHOWN_CHARACTERS]
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in begin) or "nothing"
