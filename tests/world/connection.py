"""One HTTP connection of the fake API server, in a thread of its own."""

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import msgspec

from tests.world import answers, requests
from tests.world.answers import Answer
from tests.world.faults import Fault, FaultKind
from tests.world.requests import RecordedRequest, Target
from tests.world.resources import discovery
from tests.world.statuses import ApiError, forbidden, no_such_path, unauthorized
from tests.world.watching import Watch

if TYPE_CHECKING:
    from tests.world.apiserver import ApiServer

_HEALTH = {"/healthz", "/livez", "/readyz"}
_EMPTY_SCHEMA = b"\x0a\x032.0"
"""An OpenAPI 2.0 document that describes nothing, as protobuf: field 1, ``swagger``."""
_PORTAL = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body><h1>It works!</h1></body></html>\n"
_REQUEST_FAULTS = (FaultKind.HANG, FaultKind.HOLD, FaultKind.STATUS, FaultKind.HTML)
_WORDS = {
    429: "Too many requests, please try again later.",
    500: "Internal error occurred: etcdserver: request timed out",
    503: "apiserver not ready",
}


class Connection:
    """A socket that the server can cut from any thread."""

    def __init__(self, raw: socket.socket, server: "ApiServer") -> None:
        self.raw: socket.socket = raw
        self.cut = False
        self.client_cn = ""
        self._server = server
        self.thread = threading.Thread(target=self._run, name="fake-api-connection", daemon=True)

    def close(self) -> None:
        """Cut: the client sees the end of the stream, without any farewell of TLS."""
        self.cut = True
        with contextlib.suppress(OSError):
            # The base class's method: an SSLSocket's own one would forget its session under the running thread.
            socket.socket.shutdown(self.raw, socket.SHUT_RDWR)

    def _run(self) -> None:
        # A client that goes away, at any moment and in any way, is the normal end of a connection.
        try:
            with contextlib.suppress(OSError, ValueError):
                if self._server.hangs_at_accept:
                    self._server.wait_until(lambda: self.cut or not self._server.hangs_at_accept)
                if not self.cut:
                    self._serve()
        finally:
            self.raw.close()
            self._server.forget(self)

    def _serve(self) -> None:
        self.raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = self._server.tls
        if context:
            self.raw = context.wrap_socket(self.raw, server_side=True)
            assert isinstance(self.raw, ssl.SSLSocket)
            subject: Any = (self.raw.getpeercert() or {}).get("subject", ())
            self.client_cn = next((value for part in subject for key, value in part if key == "commonName"), "")
        _Handler(self, self._server)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    rbufsize = 1 << 16

    def __init__(self, connection: Connection, server: "ApiServer") -> None:
        self._link = connection
        self._api = server
        self.close_connection = False
        super().__init__(connection.raw, ("", 0), server)  # type: ignore[arg-type]  # only stored by the base class

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass

    def _any(self) -> None:
        path, query = requests.split(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        length = int(headers.get("content-length") or 0)
        body = self.rfile.read(length) if length else b""
        target: Target | None = None
        try:
            if path not in discovery(self._api.cluster.absent) and path not in _HEALTH and path != "/openapi/v2":
                target = requests.route(self.command, path, query)
        finally:
            resource, verb = (target.full_resource, target.verb) if target else ("", "")
            seen = RecordedRequest(self.command, path, query, headers, self._link.client_cn, resource, verb)
            self._api.record(seen)
        self._respond(seen, target, body)

    def handle_one_request(self) -> None:
        """One request; what it raises as ApiError is its answer."""
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or self._link.cut:
            self.close_connection = True
            return
        if not self.parse_request():
            return
        try:
            self._any()
        except ApiError as error:
            self._write(answers.of_error(error))

    def _respond(self, seen: RecordedRequest, target: Target | None, body: bytes) -> None:
        resource, verb = seen.resource or "discovery", seen.verb or "get"
        if (fault := self._api.faults.take(resource, verb, *_REQUEST_FAULTS)) and self._meet(fault, seen, target):
            return
        self._authenticate(seen)
        self._authorize(seen, target)
        if target and target.resource.plural in self._api.cluster.absent:
            raise no_such_path()
        if target is None:
            self._document(seen.path)
        elif target.verb == "watch":
            self._watch(seen, target)
        elif target.verb == "list":
            empty = self._api.faults.take(resource, verb, FaultKind.EMPTY_LIST) is not None
            frozen = self._api.frozen_rv
            self._write(answers.listing(self._api.cluster, target, seen.query, frozen=frozen, empty=empty), seen)
        elif target.verb == "get":
            self._write(answers.single(self._api.cluster, target), seen)
        else:
            self._write(answers.write(self._api.cluster, target, body, seen.headers, seen.query), seen)

    def _meet(self, fault: Fault, seen: RecordedRequest, target: Target | None) -> bool:
        """Whether the fault was the whole answer."""
        match fault.kind:
            case FaultKind.HANG:
                self._api.wait_until(lambda: self._link.cut)
                self.close_connection = True
            case FaultKind.HOLD:
                self._api.wait_until(lambda: self._link.cut or not self._api.faults.active(fault))
                return self._link.cut
            case FaultKind.HTML:
                self._write(Answer(_PORTAL, content_type="text/html; charset=utf-8"))
            case _:
                retry = {} if fault.retry_after_s is None else {"Retry-After": str(fault.retry_after_s)}
                error = (
                    ApiError(fault.code, fault.message) if fault.message else self._refusal(fault.code, seen, target)
                )
                self._write(answers.of_error(error, retry))
        return True

    def _refusal(self, code: int, seen: RecordedRequest, target: Target | None) -> ApiError:
        if code == 401:
            return unauthorized()
        if code == 403 and target:
            return forbidden(seen.client_cn or self._api.user, target)
        if code == 404:
            return no_such_path()
        return ApiError(code, _WORDS.get(code, "the server is unable to handle the request"))

    def _authenticate(self, seen: RecordedRequest) -> None:
        token = self._api.token
        if token and not seen.client_cn and seen.headers.get("authorization") != f"Bearer {token}":
            raise unauthorized()

    def _authorize(self, seen: RecordedRequest, target: Target | None) -> None:
        rules = self._api.rules
        if rules is not None and target is not None and not rules.allow(target, seen.query):
            raise self._refusal(403, seen, target)

    def _document(self, path: str) -> None:
        if path in _HEALTH:
            self._write(Answer(b"ok", content_type="text/plain; charset=utf-8"))
        elif path == "/openapi/v2":
            # What kubectl up to 1.26 validates with; of kinds that it does not describe, kubectl validates nothing.
            self._write(
                Answer(_EMPTY_SCHEMA, content_type="application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
            )
        elif document := discovery(self._api.cluster.absent).get(path):
            self._write(Answer(msgspec.json.encode(document)))
        else:
            raise no_such_path()

    # Writing

    def _head(self, code: int, content_type: str, extra: Mapping[str, str]) -> bytes:
        lines = [
            f"HTTP/1.1 {code} {HTTPStatus(code).phrase}",
            f"Date: {self.date_time_string()}",
            "Cache-Control: no-cache, private",
            f"Content-Type: {content_type}",
            *(f"{name}: {value}" for name, value in extra.items()),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    def _write(self, answer: Answer, seen: RecordedRequest | None = None) -> None:
        half = seen and self._api.faults.take(seen.resource, seen.verb, FaultKind.HALF_BODY)
        length = {"Transfer-Encoding": "chunked"} if answer.chunked else {"Content-Length": str(len(answer.body))}
        head = self._head(answer.code, answer.content_type, {**answer.headers, **length})
        body = answer.body[: len(answer.body) // 2] if half else answer.body
        if self.command == "HEAD":
            body = b""
        elif answer.chunked:
            body = b"%x\r\n%s\r\n" % (len(body), body) + (b"" if half else b"0\r\n\r\n")
        self.connection.sendall(head + body)
        if half:
            self.drop()

    def _watch(self, seen: RecordedRequest, target: Target) -> None:
        stream = ChunkStream(self, self._link)
        watch = Watch(self._api, target, seen.query, stream)
        extra = {"Warning": target.resource.warning} if target.resource.warning else {}
        self.connection.sendall(self._head(200, answers.JSON, {**extra, "Transfer-Encoding": "chunked"}))
        with self._api.counted_watch(target.resource.plural):
            watch.run()

    def drop(self) -> None:
        """Close without the rest of the answer."""
        self.close_connection = True
        self._link.close()


class ChunkStream:
    """The body of a watch's answer."""

    def __init__(self, handler: _Handler, connection: Connection) -> None:
        self._handler, self._link = handler, connection
        self._poll = select.poll()
        self._poll.register(handler.connection, select.POLLIN)

    def gone(self) -> bool:
        """Return whether the client closed, or the server cut the connection."""
        # A client says nothing while it watches: what can be read is its farewell.
        if self._link.cut or self._poll.poll(0):
            self._handler.close_connection = True
        return self._handler.close_connection

    def chunk(self, data: bytes) -> None:
        """Write one chunk."""
        self._handler.connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def finish(self) -> None:
        """End the answer; the connection lives on."""
        self._handler.connection.sendall(b"0\r\n\r\n")

    def drop(self) -> None:
        """Close the connection at once."""
        self._handler.drop()
