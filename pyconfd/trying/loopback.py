"""What stands on loopback in the place of addresses, sockets and certificates of a configuration."""

import errno
import ipaddress
import os
import random
import socket
import ssl
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from pyconfd.errors import Problem, TransientError
from pyconfd.haproxy.stubs import stub_pem
from pyconfd.trying.own_haproxy import short_folder
from pyconfd.trying.owners import Owner
from pyconfd.trying.stand_ins import StandIns

HOST = "127.0.0.1"
_FIRST_OF_ALL = 1024
"""The first port that anybody may bind, also where somebody may more: so it is the same for all."""
_ABOVE_PRIVILEGED = 8000
"""Added to a port that only root may bind: 80 becomes 8080 by it, and 443 becomes 8443."""
_FIRST_PORT, _LAST_PORT = 10_240, 32_000
"""Ports to choose from where the usual one is taken: below those of outgoing connections."""
_TRIES = 200
_POD_PORT = 8080


class Loopback:
    """Gives each listener, server, socket and certificate its stand-in, once; leaving the ``with`` ends them.

    ``owner`` says who is behind an address of the cluster. A port is kept from other programs from when it is chosen,
    until haproxy, of the same user, binds it too.
    """

    def __init__(self, folder: Path, owner: Callable[[str, int], Owner]) -> None:
        self._folder = folder
        self._owner = owner
        self._stack = ExitStack()
        self._chance = random.SystemRandom()
        self._tls = _tls_context()
        self._stand_ins = self._stack.enter_context(StandIns())
        self._network = f"127.{self._chance.randrange(64, 250)}.{self._chance.randrange(1, 250)}"
        self._hosts: dict[str, str] = {}
        self._sockets: dict[str, str] = {}
        self.listeners: dict[tuple[str, int], int] = {}
        """The port on 127.0.0.1 of each address and port that was to be bound ("" is any address)."""
        self.servers: dict[tuple[str, int], tuple[str, int]] = {}
        """The address of the stand-in of each server."""
        self.owners: dict[str, Owner] = {}
        """Who a stand-in stands for, by the name that it answers with."""
        self.addresses: dict[str, tuple[str, int]] = {}
        """Where each of them is."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def listener(self, host: str, port: int) -> tuple[str, int]:
        """Return where to listen instead. Raises: TransientError where no port is free."""
        key = "" if host in {"", "0.0.0.0", "::"} else host, port  # noqa: S104 - nothing is bound there
        if key not in self.listeners:
            self.listeners[key] = self.port(port)
        return HOST, self.listeners[key]

    def port(self, wanted: int) -> int:
        """Return a free port on 127.0.0.1, ``wanted`` if that can be had; nobody else who asks here gets it.

        Raises:
            TransientError: there is none.
        """
        first = wanted if wanted >= _FIRST_OF_ALL else wanted + _ABOVE_PRIVILEGED
        others = (self._chance.randrange(_FIRST_PORT, _LAST_PORT) for _ in range(_TRIES))
        for port in (first, *others):
            holder = socket.socket()
            try:
                holder.bind((HOST, port))
            except (OSError, OverflowError):
                holder.close()
                continue
            # Set after the port was found free: who looks as we did finds it taken; haproxy, or the status page, may
            # listen there all the same.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._stack.callback(holder.close)
            return port
        raise TransientError(Problem("loopback", "no port is free on 127.0.0.1", "end some programs"))

    def server(self, host: str, port: int) -> tuple[str, int]:
        """Return where the stand-in of a server is; it answers from now on. Raises: TransientError."""
        if (host, port) not in self.servers:
            self.servers[host, port] = self._stand_in(host, port)
        return self.servers[host, port]

    def _stand_in(self, host: str, port: int) -> tuple[str, int]:
        address = self._hosts.setdefault(host, self._next_address())
        owner = self._owner(_normal(host), port)
        name = owner.name
        while name in self._stand_ins.pods:
            name = f"{owner.name} port {port}" if name == owner.name else f"{name}'"
        wanted = port if port >= _FIRST_OF_ALL else (port or _POD_PORT - _ABOVE_PRIVILEGED) + _ABOVE_PRIVILEGED
        for here in (wanted, 0):
            try:
                made = self._stand_ins.add_any(name, address, here, tls=self._tls)
            except (OSError, OverflowError) as error:
                code = getattr(error, "errno", None)
                if code in {errno.EMFILE, errno.ENFILE}:
                    message = f"too many open files after {len(self.servers)} stand-ins"
                    raise TransientError(Problem("try", message, "raise the limit: ulimit -n 65536")) from error
                continue
            self.owners[name] = owner
            self.addresses[name] = made.address, made.port
            return made.address, made.port
        raise TransientError(Problem("loopback", f"no port is free on {address}", "end some programs"))

    def _next_address(self) -> str:
        number = len(self._hosts)
        first, second, third = (int(part) for part in self._network.split("."))
        return str(ipaddress.IPv4Address((first << 24) + (second << 16) + (third << 8) + 1 + number))

    def socket(self, path: str) -> str:
        """Return a path in a folder of its own, short enough for a socket."""
        if path not in self._sockets:
            if not self._sockets:
                folder = short_folder("try-")
                self._stack.callback(_remove, folder)
                self._sockets[""] = str(folder)
            self._sockets[path] = f"{self._sockets['']}/{len(self._sockets)}"
        return self._sockets[path]

    def certificate(self, path: str) -> str:
        """Return ``path`` where something is there, else the path of a self-signed certificate."""
        if os.access(path, os.R_OK):
            return path
        return str(_written(self._folder))


def _written(folder: Path) -> Path:
    made = folder / "self-signed.pem"
    if not made.exists():
        made.touch(0o600)
        made.write_text(stub_pem(), "utf-8")
    return made


def _tls_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(stub_pem())
        file.flush()
        context.load_cert_chain(file.name)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def _normal(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        return host
