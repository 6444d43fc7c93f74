"""Calls to etcd v3 over its JSON gateway, at the first of the ordered endpoints that answers.

The gateway maps etcd's gRPC calls to POST requests: keys and values are base64, numbers may be strings, and what is
zero is left out. Source: etcd, Documentation/dev-guide/api_grpc_gateway.md. The exceptions of urllib3 end here.
"""

import json
import os
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog
import urllib3

from pyconfd.errors import Problem, TransientError, first_line
from pyconfd.model.status import ApiServerState
from pyconfd.printable import clean
from pyconfd.settings import EtcdSettings
from pyconfd.system.http import RETRYABLE, LineFramer, transport_failure

log = structlog.get_logger(__name__)

CONNECT_TIMEOUT_S = 2.0
AVOIDED_S = 30.0
"""How long an endpoint that failed comes last; then it is tried in its place again."""
_SHOWN_CHARACTERS = 160
_READ_BYTES = 1 << 16

_Answer = TypeVar("_Answer")
_Result = TypeVar("_Result")


class EtcdFailure(StrEnum):
    """One way for a call to fail."""

    UNREACHABLE = "unreachable"
    RESET = "reset"
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
        EtcdFailure.RESET,
        EtcdFailure.TIMEOUT,
        EtcdFailure.TLS,
        EtcdFailure.UNAVAILABLE,
        EtcdFailure.BAD_ANSWER,
    }
)
"""The failures after which another endpoint may do better; the others would be the same everywhere."""

_REMEDIES = {
    EtcdFailure.UNREACHABLE: "is etcd up, and does the network let this machine reach it?",
    EtcdFailure.RESET: "did etcd end or restart? it is tried again and again",
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
    return EtcdError(kind, place, f"etcd: {_shown(message)}")


def _shown(text: str) -> str:
    return clean(" ".join(text.split()), _SHOWN_CHARACTERS) or "nothing"


@dataclass(frozen=True, slots=True)
class StoredValue:
    """What a key holds. ``mod_revision`` changes with each write, ``create_revision`` when it is created again.

    ``lease`` is 0 where it stays for ever.
    """

    content: bytes
    mod_revision: int
    create_revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Compared:
    """The answer of a transaction: whether its comparisons held, and the revision that it made."""

    succeeded: bool
    revision: int


class _KeyValue(msgspec.Struct):
    key: bytes = b""
    value: bytes = b""
    mod_revision: int = 0
    create_revision: int = 0
    lease: int = 0


class _RangeAnswer(msgspec.Struct):
    kvs: list[_KeyValue] = []


class _Header(msgspec.Struct):
    revision: int


class _TransactionAnswer(msgspec.Struct):
    header: _Header
    succeeded: bool = False


class _GrantAnswer(msgspec.Struct):
    id: int = msgspec.field(name="ID")


class _Renewed(msgspec.Struct):
    ttl: int = msgspec.field(name="TTL", default=0)


class _KeepAliveAnswer(msgspec.Struct):
    """A stream of etcd's: each answer is below ``result``. The TTL of a lease that has ended is 0, and left out."""

    result: _Renewed


class _LoginAnswer(msgspec.Struct):
    token: str


class _EmptyAnswer(msgspec.Struct):
    """Nothing of it is used."""


class Stream:
    """The answers to a watch, line by line."""

    def __init__(self, url: str, answer: urllib3.BaseHTTPResponse) -> None:
        self._url = url
        self._answer = answer

    def lines(self) -> Iterator[bytes]:
        """Return each line as it comes, until etcd or :meth:`interrupt` ends it.

        Raises:
            EtcdError: the connection broke, or was silent for too long.
        """
        framer = LineFramer()
        with _translated(self._url):
            while data := self._answer.read1(_READ_BYTES):
                yield from framer.feed(data)

    def interrupt(self) -> None:
        """End :meth:`lines`, from another thread; the socket is closed by :meth:`close`."""
        try:
            self._answer.shutdown()
        except (OSError, RuntimeError, ValueError, AttributeError):
            return  # it has ended already

    def close(self) -> None:
        """Close the connection."""
        self._answer.close()


class _Endpoint:
    """One endpoint, and how it does. Not for several threads at once."""

    def __init__(self, url: str, settings: EtcdSettings) -> None:
        self.state = ApiServerState(url)
        self.avoided_until_s = 0.0
        self.token = ""
        """What a login returned; etcd may have forgotten it."""
        self._settings = settings
        # With each connection urllib3 reads the files again, so that a renewed certificate counts.
        self._pool = urllib3.PoolManager(
            ca_certs=settings.ca or ssl.get_default_verify_paths().cafile,
            cert_file=settings.cert or None,
            key_file=settings.key or None,
            cert_reqs="CERT_REQUIRED",
            maxsize=2,  # a watch keeps one
        )

    def call(self, path: str, body: dict[str, Any], kind: type[_Answer]) -> _Answer:
        with _translated(self.state.url):
            # Not strict: the gateway writes 64-bit numbers as strings.
            return msgspec.json.decode(self._post(path, body, self._settings.timeout_s).data, type=kind, strict=False)

    def watch(self, key: bytes, silence_s: float) -> Stream:
        with _translated(self.state.url):
            return Stream(self.state.url, self._post("/watch", {"create_request": {"key": _text(key)}}, silence_s))

    def login(self, user: str, password: str) -> None:
        self.token = ""
        self.token = self.call("/auth/authenticate", {"name": user, "password": password}, _LoginAnswer).token

    def close(self) -> None:
        self._pool.clear()

    def _post(self, path: str, body: dict[str, Any], timeout_s: float) -> urllib3.BaseHTTPResponse:
        settings = self._settings
        for file in filter(None, (settings.ca, settings.cert, settings.key)):
            if not os.access(file, os.R_OK):  # OpenSSL's own error names no file
                raise EtcdError(EtcdFailure.CREDENTIALS, file, "cannot be read")
        answer = self._pool.request(
            "POST",
            f"{self.state.url.rstrip('/')}/v3{path}",
            json=body,
            headers={"Authorization": self.token} if self.token else {},
            timeout=urllib3.Timeout(connect=min(CONNECT_TIMEOUT_S, timeout_s), read=timeout_s),
            retries=False,
            preload_content=path != "/watch",
        )
        if answer.status == 200:
            return answer
        text = answer.data.decode("utf-8", "replace")
        answer.close()
        raise error_of_answer(self.state.url, text)


class EtcdClient:
    """etcd as pyconfd needs it; keys are bytes. All calls are for one thread, :meth:`states` is for any.

    ``quiet`` leaves it to another client to log how the endpoints do. Every call raises EtcdError, after every endpoint
    that may do better was tried.
    """

    def __init__(self, settings: EtcdSettings, *, quiet: bool = False) -> None:
        self._settings = settings
        self._endpoints = [_Endpoint(url, settings) for url in settings.endpoints]
        self._quiet = quiet

    def read(self, key: bytes) -> StoredValue | None:
        """Return what a key holds now (a linearizable read), None where there is no such key."""
        found = self._call("/kv/range", {"key": _text(key)}, _RangeAnswer).kvs
        return (
            StoredValue(found[0].value, found[0].mod_revision, found[0].create_revision, found[0].lease)
            if found
            else None
        )

    def keys(self, prefix: bytes) -> tuple[bytes, ...]:
        """Return the keys that begin with ``prefix``, sorted."""
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        body = {"key": _text(prefix), "range_end": _text(end), "keys_only": True}
        return tuple(sorted(found.key for found in self._call("/kv/range", body, _RangeAnswer).kvs))

    def put(self, key: bytes, content: bytes) -> None:
        """Write a key."""
        self._call("/kv/put", {"key": _text(key), "value": _text(content)}, _EmptyAnswer)

    def transact(self, compare: Sequence[dict[str, Any]], success: Sequence[dict[str, Any]]) -> Compared:
        """Do ``success`` if all of ``compare`` holds, as one step; see :func:`at_revision` and its siblings.

        After a time-out it is not known whether it was done: read the keys again where that matters.
        """
        answer = self._call("/kv/txn", {"compare": list(compare), "success": list(success)}, _TransactionAnswer)
        return Compared(answer.succeeded, answer.header.revision)

    def grant(self, ttl_s: int) -> int:
        """Return a new lease."""
        return self._call("/lease/grant", {"TTL": ttl_s}, _GrantAnswer).id

    def keep_alive(self, lease: int) -> bool:
        """Renew a lease; return False where it has ended."""
        return self._call("/lease/keepalive", {"ID": lease}, _KeepAliveAnswer).result.ttl > 0

    def revoke(self, lease: int) -> None:
        """End a lease, and with it the keys that hang on it."""
        self._call("/lease/revoke", {"ID": lease}, _EmptyAnswer)

    def watch(self, key: bytes, silence_s: float) -> Stream:
        """Watch a key at the endpoint that answers."""
        return self._at_some(lambda endpoint: endpoint.watch(key, silence_s))

    def states(self) -> tuple[ApiServerState, ...]:
        """Return the state of each endpoint, in order."""
        return tuple(endpoint.state for endpoint in self._endpoints)

    def close(self) -> None:
        """Close all connections."""
        for endpoint in self._endpoints:
            endpoint.close()

    def _call(self, path: str, body: dict[str, Any], kind: type[_Answer]) -> _Answer:
        return self._at_some(lambda endpoint: endpoint.call(path, body, kind))

    def _at_some(self, call: Callable[[_Endpoint], _Result]) -> _Result:
        """Call at each endpoint in order until one answers; those that failed lately come last."""
        now_s = time.monotonic()
        errors = []
        for endpoint in sorted(self._endpoints, key=lambda each: each.avoided_until_s > now_s):
            try:
                result = self._logged_in(endpoint, call)
            except EtcdError as error:
                self._failed(endpoint, error)
                errors.append(error)
                if error.kind not in NEXT_ENDPOINT:
                    break
            else:
                self._answered(endpoint)
                return result
        raise errors[-1]

    def _logged_in(self, endpoint: _Endpoint, call: Callable[[_Endpoint], _Result]) -> _Result:
        user = self._settings.user
        if not user:
            return call(endpoint)
        if endpoint.token:
            try:
                return call(endpoint)
            except EtcdError as error:
                # Tokens end with the etcd that made them, or with their time: log in once more.
                if error.kind is not EtcdFailure.STALE_TOKEN:
                    raise
        endpoint.login(user, self._password())
        return call(endpoint)

    def _password(self) -> str:
        path = self._settings.password_file
        try:
            return Path(path).read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise EtcdError(EtcdFailure.CREDENTIALS, path, f"no password: {_shown(str(error))}") from error

    def _failed(self, endpoint: _Endpoint, error: EtcdError) -> None:
        problem, message = error.problems[0], first_line(error.problems)
        is_news = endpoint.state.last_error != message
        endpoint.state = replace(
            endpoint.state, in_use=False, healthy=False, last_error=message, last_error_at=time.time()
        )
        if error.kind in NEXT_ENDPOINT:
            endpoint.avoided_until_s = time.monotonic() + AVOIDED_S
        if is_news and not self._quiet:
            url = endpoint.state.url
            log.warning("etcd.failed", endpoint=url, problem=problem.message, remedy=problem.remedy)

    def _answered(self, endpoint: _Endpoint) -> None:
        is_news = bool(endpoint.state.last_error) or not endpoint.state.in_use
        endpoint.avoided_until_s = 0.0
        for other in self._endpoints:
            if other is endpoint:
                now = time.time()
                other.state = replace(other.state, in_use=True, healthy=True, last_error="", last_ok_at=now)
            elif other.state.in_use:
                other.state = replace(other.state, in_use=False)
        if is_news and not self._quiet:
            log.info("etcd.answered", endpoint=endpoint.state.url)


def at_revision(key: bytes, mod_revision: int) -> dict[str, Any]:
    """Return the comparison that a key was last written at this revision; 0 that there is none."""
    return {"key": _text(key), "target": "MOD", "result": "EQUAL", "mod_revision": mod_revision}


def created_at(key: bytes, create_revision: int) -> dict[str, Any]:
    """Return the comparison that a key has existed since this revision; 0 that there is none."""
    return {"key": _text(key), "target": "CREATE", "result": "EQUAL", "create_revision": create_revision}


def exists(key: bytes) -> dict[str, Any]:
    """Return the comparison that there is such a key."""
    return {"key": _text(key), "target": "CREATE", "result": "GREATER", "create_revision": 0}


def putting(key: bytes, content: bytes, lease: int = 0) -> dict[str, Any]:
    """Return the operation that writes a key, for as long as ``lease`` lasts if that is not 0."""
    about: dict[str, Any] = {"key": _text(key), "value": _text(content)}
    return {"request_put": {**about, "lease": lease} if lease else about}


def deleting(key: bytes) -> dict[str, Any]:
    """Return the operation that deletes a key."""
    return {"request_delete_range": {"key": _text(key)}}


def _text(data: bytes) -> str:
    return b64encode(data).decode()


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Turn what the libraries raise into EtcdError."""
    try:
        yield
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise EtcdError(EtcdFailure.BAD_ANSWER, url, f"not an answer of etcd: {_shown(str(error))}") from error
    except RETRYABLE as error:
        kind, message = transport_failure(error)
        raise EtcdError(EtcdFailure(kind), url, message) from error
