"""Calls to etcd at whichever of the ordered endpoints answers, logged in where a user is set."""

import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog
from etcd3gw import Etcd3Client
from etcd3gw.lease import Lease

from pyconfd.errors import first_line
from pyconfd.etcd.failures import NEXT_ENDPOINT, EtcdError, EtcdFailure, shown
from pyconfd.etcd.gateway import Gateway, Stream
from pyconfd.model.status import ApiServerState
from pyconfd.settings import EtcdSettings

log = structlog.get_logger(__name__)

AVOIDED_S = 30.0
"""How long an endpoint that failed comes last; then it is tried in its place again."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Value:
    """What a key holds. ``mod_revision`` changes with each write, ``create_revision`` when it is created anew.

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


@dataclass(slots=True)
class _Endpoint:
    gateway: Gateway
    avoided_until_s: float = 0.0
    in_use: bool = False
    healthy: bool = False
    last_ok_at: float = 0.0
    last_error: str = ""
    last_error_at: float = 0.0


class EtcdClient:
    """etcd as pyconfd needs it; keys are bytes. All calls are for one thread, :meth:`states` is for any.

    ``quiet`` leaves it to another client to log how the endpoints fare. Every call raises EtcdError, after every
    endpoint that may do better was tried.
    """

    def __init__(self, settings: EtcdSettings, *, quiet: bool = False) -> None:
        self._settings = settings
        self._endpoints = [_Endpoint(Gateway(url, settings)) for url in settings.endpoints]
        self._quiet = quiet
        self._lock = threading.Lock()

    def read(self, key: bytes) -> Value | None:
        """Return what a key holds now (a linearizable read), None where there is no such key."""
        found = self._ask(lambda client: client.get(key, metadata=True))
        if not found:
            return None
        content, about = found[0]
        revisions = int(about["mod_revision"]), int(about["create_revision"])
        return Value(content, *revisions, int(about.get("lease", 0)))

    def keys(self, prefix: bytes) -> tuple[bytes, ...]:
        """Return the keys that begin with ``prefix``, sorted."""
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        body = {"key": _text(prefix), "range_end": _text(end), "keys_only": True}
        answer = self._ask(lambda client: client.post(client.get_url("/kv/range"), json=body))
        return tuple(sorted(b64decode(item["key"]) for item in answer.get("kvs", ())))

    def put(self, key: bytes, content: bytes) -> None:
        """Write a key."""
        self._ask(lambda client: client.put(key, content))

    def transact(self, compare: Sequence[dict[str, Any]], success: Sequence[dict[str, Any]]) -> Compared:
        """Do ``success`` if all of ``compare`` holds, as one step; see :func:`at_revision` and its siblings.

        After a time-out nobody knows whether it was done: whoever cares looks.
        """
        body = {"compare": list(compare), "success": list(success), "failure": []}
        answer = self._ask(lambda client: client.transaction(body))
        return Compared(bool(answer.get("succeeded", False)), int(answer["header"]["revision"]))

    def grant(self, ttl_s: int) -> int:
        """Return a new lease."""
        return self._ask(lambda client: client.lease(ttl_s)).id

    def keep_alive(self, lease: int) -> bool:
        """Begin the time of a lease anew; False where it has ended."""
        return self._ask(lambda client: Lease(lease, client).refresh()) > 0

    def revoke(self, lease: int) -> None:
        """End a lease, and with it the keys that hang on it."""
        self._ask(lambda client: Lease(lease, client).revoke())

    def watch(self, key: bytes, silence_s: float) -> Stream:
        """Watch a key at the endpoint that answers."""
        return self._at_some(lambda gateway: gateway.watch(key, silence_s))

    def states(self) -> tuple[ApiServerState, ...]:
        """Return the state of each endpoint, in order."""
        with self._lock:
            return tuple(
                ApiServerState(
                    url=endpoint.gateway.url,
                    in_use=endpoint.in_use,
                    healthy=endpoint.healthy,
                    last_ok_at=endpoint.last_ok_at,
                    last_error=endpoint.last_error,
                    last_error_at=endpoint.last_error_at,
                )
                for endpoint in self._endpoints
            )

    def close(self) -> None:
        """Close all connections."""
        for endpoint in self._endpoints:
            endpoint.gateway.close()

    def _ask(self, call: Callable[[Etcd3Client], _Result]) -> _Result:
        return self._at_some(lambda gateway: gateway.ask(call))

    def _at_some(self, call: Callable[[Gateway], _Result]) -> _Result:
        """Call at each endpoint in order until one answers; those that failed lately come last."""
        now_s = time.monotonic()
        errors = []
        for endpoint in sorted(self._endpoints, key=lambda each: each.avoided_until_s > now_s):
            try:
                result = self._with_token(endpoint.gateway, call)
            except EtcdError as error:
                self._failed(endpoint, error)
                errors.append(error)
                if error.kind not in NEXT_ENDPOINT:
                    break
            else:
                self._answered(endpoint)
                return result
        raise errors[-1]

    def _with_token(self, gateway: Gateway, call: Callable[[Gateway], _Result]) -> _Result:
        if not self._settings.user:
            return call(gateway)
        if not gateway.logged_in:
            gateway.login(self._settings.user, self._password())
        try:
            return call(gateway)
        except EtcdError as error:
            if error.kind is not EtcdFailure.STALE_TOKEN:
                raise
        gateway.login(self._settings.user, self._password())
        return call(gateway)

    def _password(self) -> str:
        path = self._settings.password_file
        try:
            return Path(path).read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise EtcdError(EtcdFailure.CREDENTIALS, path, f"no password: {shown(str(error))}") from error

    def _failed(self, endpoint: _Endpoint, error: EtcdError) -> None:
        said = first_line(error.problems)
        with self._lock:
            news = endpoint.last_error != said
            endpoint.last_error, endpoint.last_error_at = said, time.time()
            endpoint.in_use = endpoint.healthy = False
            if error.kind in NEXT_ENDPOINT:
                endpoint.avoided_until_s = time.monotonic() + AVOIDED_S
        if news and not self._quiet:
            problem = error.problems[0]
            log.warning("etcd.failed", endpoint=endpoint.gateway.url, problem=problem.message, remedy=problem.remedy)

    def _answered(self, endpoint: _Endpoint) -> None:
        with self._lock:
            news = bool(endpoint.last_error) or not endpoint.in_use
            for other in self._endpoints:
                other.in_use = other is endpoint
            endpoint.healthy, endpoint.last_error, endpoint.avoided_until_s = True, "", 0.0
            endpoint.last_ok_at = time.time()
        if news and not self._quiet:
            log.info("etcd.answered", endpoint=endpoint.gateway.url)


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
