"""What the clients of Kubernetes and etcd share over urllib3: why a request failed, lines of a stream, keep-alive."""

import socket
import ssl
from enum import StrEnum

import urllib3.exceptions

from pyconfd.printable import clean

MAX_LINE_BYTES = 16 << 20
"""etcd holds objects up to 1.5 MB."""

KEEPALIVE: tuple[tuple[int, int, int], ...] = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 6000),
)
"""A quiet watch cannot tell a dead network from a quiet cluster: the kernels ask each other, and give up after 6 s."""

RETRYABLE = (urllib3.exceptions.HTTPError, OSError, ValueError)
"""What urllib3 and the sockets under it raise; ValueError is a read of a TLS socket that was shut down meanwhile."""


class TransportFailure(StrEnum):
    """Why there is no answer."""

    UNREACHABLE = "unreachable"
    RESET = "reset"
    TIMEOUT = "timeout"
    TLS = "tls"


_KINDS: tuple[tuple[tuple[type[Exception], ...], TransportFailure, str], ...] = (
    # urllib3 counts a refused connection as a kind of timeout, so it comes first.
    ((urllib3.exceptions.NewConnectionError,), TransportFailure.UNREACHABLE, "cannot connect"),
    ((urllib3.exceptions.ConnectTimeoutError,), TransportFailure.TIMEOUT, "no connection within the time limit"),
    ((urllib3.exceptions.ReadTimeoutError, TimeoutError), TransportFailure.TIMEOUT, "no answer within the time limit"),
    ((urllib3.exceptions.SSLError, ssl.SSLError), TransportFailure.TLS, "TLS"),
    ((urllib3.exceptions.ProxyError,), TransportFailure.UNREACHABLE, "the proxy does not connect"),
    ((urllib3.exceptions.HTTPError, OSError), TransportFailure.RESET, "the connection broke"),
)


def transport_failure(error: Exception) -> tuple[TransportFailure, str]:
    """Return why a request failed with one of ``RETRYABLE``, and a message."""
    for classes, kind, words in _KINDS:
        if isinstance(error, classes):
            reason = "" if kind is TransportFailure.TIMEOUT else f": {clean(_innermost(error), 200)}"
            return kind, words + reason
    # A ValueError quotes what it did not like, which may be a header with a token.
    return TransportFailure.RESET, f"the request or its answer cannot be made out ({type(error).__name__})"


def _innermost(error: BaseException) -> str:
    """Return the reason under urllib3's wrappings: the operating system's or OpenSSL's message."""
    for inner in (error.__cause__, error.__context__, *error.args):
        # What int() or a parser raised for half an answer explains nothing.
        if isinstance(inner, BaseException) and inner is not error and not isinstance(inner, ValueError):
            return _innermost(inner)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


class LineFramer:
    """Cuts a stream of bytes into lines; what follows the last newline is no line."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._pending_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, without blank ones.

        Raises:
            ValueError: a line is longer than the limit.
        """
        first, *rest_of_lines = data.split(b"\n")
        self._append(first)
        lines: list[bytes] = []
        for part in rest_of_lines:
            lines.append(b"".join(self._parts))
            self._parts = []
            self._pending_bytes = 0
            self._append(part)
        return [line for line in lines if line.strip()]

    def _append(self, part: bytes) -> None:
        self._pending_bytes += len(part)
        if self._pending_bytes > self._max_bytes:
            raise ValueError(f"a line is longer than {self._max_bytes} bytes")
        self._parts.append(part)
