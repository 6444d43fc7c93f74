"""What stands on loopback in the place of addresses, sockets and certificates of a configuration."""

import errno
import ipaddress
import os
import random
import shutil
import socket
import ssl
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pyconfd.errors import Problem, TransientError
from pyconfd.haproxy.config.certificates import stub_pem
from pyconfd.model.listener import canonical
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets.endpoints import slices_by_service, slices_of_endpoints
from pyconfd.sources.file import FollowedFiles
from pyconfd.trying.own_haproxy import short_folder
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


@dataclass(frozen=True, slots=True)
class AddressOwner:
    """``name`` is ``namespace/pod``, or what else is known; ``services`` are ``namespace/name``, sorted."""

    name: str
    services: tuple[str, ...] = ()


class EndpointOwners:
    """Who is behind the addresses of a Snapshot: pods, nodes, and the Services that they serve."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._names: dict[str, str] = {}
        self._services: dict[str, set[str]] = defaultdict(set)
        for address, service, pod in _behind_services(snapshot):
            self._services[address].add(service)
            if pod or address not in self._names:
                self._names[address] = pod or f"{service} at {address}"
        self._names.update({pod.status.pod_ip: _text(key) for key, pod in snapshot.pods.items() if pod.status.pod_ip})
        self._nodes = {
            address.address: node.metadata.name
            for node in snapshot.nodes.values()
            for address in node.status.addresses or ()
        }
        self._by_node_port = {
            port.node_port: _text(key)
            for key, service_record in snapshot.services.items()
            for port in service_record.spec.ports or ()
            if port.node_port
        }

    def at(self, host: str, port: int) -> AddressOwner:
        """Return who answers at an address."""
        host = canonical(host.partition("%")[0])
        if host in self._nodes:
            service = self._by_node_port.get(port, "")
            name = f"{service} through {self._nodes[host]}" if service else f"{self._nodes[host]} port {port}"
            return AddressOwner(name, (service,) if service else ())
        unknown = f"{host}:{port}" if port else host
        return AddressOwner(self._names.get(host, unknown), tuple(sorted(self._services.get(host, ()))))


def _behind_services(snapshot: Snapshot) -> Iterator[tuple[str, str, str]]:
    """Return address, Service and pod ("" for none) of each endpoint."""
    of_endpoints = ((key, slices_of_endpoints(record)) for key, record in snapshot.endpoints.items())
    for key, slices in (*slices_by_service(snapshot.endpointslices).items(), *of_endpoints):
        for endpoint in (endpoint for piece in slices for endpoint in piece.endpoints or ()):
            pod = _text(Key(key.namespace, endpoint.target_ref.name)) if endpoint.target_ref else ""
            for address in endpoint.addresses:
                yield address, _text(key), pod


def _text(key: Key) -> str:
    return f"{key.namespace}/{key.name}"


class Loopback:
    """Assigns each listener, server, socket and certificate its stand-in, once; leaving the ``with`` ends them.

    ``source`` says who is behind an address of the cluster. A port is kept from other programs from when it is chosen,
    until haproxy, of the same user, binds it too.
    """

    def __init__(self, folder: Path, source: FollowedFiles) -> None:
        self._source = source
        self._known = source.snapshot(), EndpointOwners(source.snapshot())
        self._stack = ExitStack()
        self._chance = random.SystemRandom()
        self._certificate = _self_signed(folder)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(self._certificate)
        self._tls.set_alpn_protocols(["http/1.1"])
        self._stand_ins = self._stack.enter_context(StandIns())
        self._network = ipaddress.IPv4Address(f"127.{self._chance.randrange(64, 250)}.0.0")
        self._hosts: dict[str, str] = {}
        self._sockets: dict[str, str] = {}
        self._servers: dict[tuple[str, int], tuple[str, int]] = {}
        self.listeners: dict[tuple[str, int], int] = {}
        """The port on 127.0.0.1 of each address and port that was to be bound ("" is any address)."""
        self.owners: dict[str, tuple[AddressOwner, str]] = {}
        """Who a stand-in stands for, and its ADDRESS:PORT, by the name that it answers with."""

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
        """Return a free port on 127.0.0.1, ``wanted`` if that can be had; it is returned once.

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
        if (host, port) not in self._servers:
            self._servers[host, port] = self._stand_in(host, port)
        return self._servers[host, port]

    def _stand_in(self, host: str, port: int) -> tuple[str, int]:
        address = self._hosts.setdefault(host, str(self._network + 1 + len(self._hosts)))
        if self._known[0] is not self._source.snapshot():
            self._known = self._source.snapshot(), EndpointOwners(self._source.snapshot())
        owner = self._known[1].at(host, port)
        name = owner.name
        while name in self.owners:
            name = f"{owner.name} port {port}" if name == owner.name else f"{name}'"
        wanted = port if port >= _FIRST_OF_ALL else (port or _POD_PORT - _ABOVE_PRIVILEGED) + _ABOVE_PRIVILEGED
        for here in (wanted, 0):
            try:
                made = self._stand_ins.add(name, address, here, tls=self._tls, plain_too=True)
            except (OSError, OverflowError) as error:
                if getattr(error, "errno", None) in {errno.EMFILE, errno.ENFILE}:
                    message = f"too many open files after {len(self.owners)} stand-ins"
                    raise TransientError(Problem("try", message, "raise the limit: ulimit -n 65536")) from error
                continue
            self.owners[name] = owner, f"{made.address}:{made.port}"
            return made.address, made.port
        raise TransientError(Problem("loopback", f"no port is free on {address}", "end some programs"))

    def socket(self, path: str) -> str:
        """Return a path in a folder of its own, short enough for a socket."""
        if not self._sockets:
            folder = short_folder("try-")
            self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self._sockets[""] = str(folder)
        return self._sockets.setdefault(path, f"{self._sockets['']}/{len(self._sockets)}")

    def certificate(self, path: str) -> str:
        """Return ``path`` where something is there, else the path of a self-signed certificate."""
        return path if os.access(path, os.R_OK) else str(self._certificate)


def _self_signed(folder: Path) -> Path:
    made = folder / "self-signed.pem"
    made.touch(0o600)
    made.write_text(stub_pem(), "utf-8")
    return made
