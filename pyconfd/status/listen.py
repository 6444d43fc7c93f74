"""The address of the status page: parse it, bind it, find the process that has it."""

import contextlib
import errno
import socket
from dataclasses import dataclass

import psutil

from pyconfd.errors import Problem, TransientError
from pyconfd.settings.values import is_loopback

_BACKLOG = 64


@dataclass(frozen=True, slots=True)
class Listen:
    """``host`` is a name or an address without brackets; ``port`` 0 lets the system choose."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """True if only this machine can connect."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str) -> Listen:
    """Parse ``host:port``, an IPv6 address in brackets, as the setting ``status.listen`` has it."""
    host, _, port = text.rpartition(":")
    return Listen(host.strip("[]"), int(port))


def bind(listen: Listen) -> socket.socket:
    """Return a listening socket.

    Raises:
        TransientError: the address is taken, is not on this machine or may not be used; says by whom where it can.
    """
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise TransientError(_refused(listen, f"the name cannot be resolved: {error}")) from error
    family, kind, protocol, _, address = found[0]
    with contextlib.ExitStack() as undo:
        try:
            listener = undo.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            raise TransientError(_refused(listen, _explained(error, listen))) from error
        undo.pop_all()
    return listener


def _refused(listen: Listen, message: str) -> Problem:
    return Problem(
        f"status.listen = {listen}",
        message,
        'set status.listen to another address, or to "" to go without; the balancer is not affected',
    )


def _explained(error: OSError, listen: Listen) -> str:
    if error.errno == errno.EADDRINUSE:
        owner = _owner(listen.port)
        return f"the address is taken by {owner}" if owner else "the address is taken by another process"
    if error.errno == errno.EADDRNOTAVAIL:
        return "no interface of this machine has that address"
    if error.errno == errno.EACCES:
        return "this user may not listen there (ports below 1024 need CAP_NET_BIND_SERVICE)"
    return f"cannot listen: {error.strerror or error}"


def _owner(port: int) -> str:
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and tuple(connection.laddr)[1:] == (port,) and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.Error, OSError):
        return ""
    return ""
