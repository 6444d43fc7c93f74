"""The kernel over netlink: one interface's addresses and carrier, neighbours, routes, and TCP sockets.

Sockets and messages of its own: pyroute2 would take half of the memory of a process that must not be the first one
that the kernel kills, and decodes each event a hundred times slower.

Source: netlink(7), rtnetlink(7), sock_diag(7), and linux/rtnetlink.h for the numbers.
"""

import errno
import os
import socket
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address

_HEADER = struct.Struct("=IHHII")
_REQUEST, _ACK, _DUMP, _CREATE = 0x1, 0x4, 0x300, 0x600
_ERROR, _DONE = 2, 3
_NEWLINK, _DELLINK, _GETLINK, _NEWADDR, _DELADDR, _GETADDR = 16, 17, 18, 20, 21, 22
_NEWROUTE, _DELROUTE, _GETROUTE, _GETNEIGH = 24, 25, 26, 30

_LINK, _IFLA_IFNAME = struct.Struct("=BxHiII"), 3
_ADDRESS, _IFA_ADDRESS, _IFA_LOCAL = struct.Struct("=BBBBI"), 1, 2
_ROUTE, _RTA_DST, _RTA_OIF, _RTA_GATEWAY = struct.Struct("=8BI"), 1, 4, 5
_NEIGHBOUR, _NDA_DST = struct.Struct("=B3xiHBB"), 1

_GROUPS = 0x1 | 0x10 | 0x100
"""RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR."""
_UP_AND_RUNNING = 0x1 | 0x10000
"""IFF_UP, IFF_LOWER_UP."""
_NUD_VALID = 0x80 | 0x40 | 0x02 | 0x10 | 0x04 | 0x08
"""NUD_PERMANENT, NUD_NOARP, NUD_REACHABLE, NUD_PROBE, NUD_STALE, NUD_DELAY: the kernel sends at once."""
_FIB_MATCH = 0x2000
"""RTM_F_FIB_MATCH: the answer is the entry of the table, with the protocol that added it."""
_CONFIGURED = frozenset({3, 4})
"""RTPROT_BOOT, RTPROT_STATIC."""
_LOCAL_TABLE, _BOOT, _HOST, _LOCAL = 255, 3, 254, 2
"""RT_TABLE_LOCAL, RTPROT_BOOT, RT_SCOPE_HOST, RTN_LOCAL."""
_ELSEWHERE = {4: "192.0.2.1", 6: "2001:db8::1"}
"""Addresses for documentation: no network has a route of its own for them."""

_SOCK_DIAG, _BY_FAMILY, _DESTROY = 4, 20, 21
_LISTEN = 1 << 10
_CONNECTED = sum(1 << state for state in (1, 3, 4, 5, 8, 9, 11))
"""Of TCP's states those of a connection: not listening, not closed, not TIME_WAIT, which belongs to no process."""
_MAPPED = bytes(10) + b"\xff\xff"

_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 8 << 20
_TIMEOUT_S = 2.0


class Link:
    """The interface ``name``: ``index`` (0 where there is none), ``carrier``, ``addresses`` with their prefix lengths.

    :meth:`read` brings them up to date with the kernel's events.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.index, self.carrier = 0, False
        self.addresses: dict[str, int] = {}
        self.resyncs = 0
        self._events = self._subscribe()
        self._resync()

    def fileno(self) -> int:
        """Return the descriptor to wait for; it is another one after :meth:`read` returned True."""
        return self._events.fileno()

    def _subscribe(self) -> socket.socket:
        events = _socket(_GROUPS)
        events.setblocking(False)
        with suppress(PermissionError):
            events.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        return events

    def read(self) -> bool:
        """Apply the events that have come; return True if some were lost and everything was read again."""
        while True:
            try:
                data = self._events.recv(1 << 16)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                # Events were lost. The socket can stay deaf after that, so it is replaced before the dump.
                self._events.close()
                self._events = self._subscribe()
                self._resync()
                self.resyncs += 1
                return True
            for kind, message in _messages(data):
                self._apply(kind, message)

    def _apply(self, kind: int, message: bytes) -> None:
        if kind in {_NEWADDR, _DELADDR}:
            index, address, prefix = _address(message)
            if index == self.index and kind == _NEWADDR:
                self.addresses[address] = prefix
            elif index == self.index:
                self.addresses.pop(address, None)
        elif kind in {_NEWLINK, _DELLINK}:
            _, _, index, flags, _ = _LINK.unpack_from(message, _HEADER.size)
            name = _attributes(message, _LINK.size).get(_IFLA_IFNAME, b"").rstrip(b"\0").decode()
            if name != self._name:
                return
            if kind == _DELLINK:
                self.index, self.carrier, self.addresses = 0, False, {}
            elif index != self.index:  # removed and created again
                self._resync()
            else:
                self.carrier = flags & _UP_AND_RUNNING == _UP_AND_RUNNING

    def _resync(self) -> None:
        """Read everything; a dump takes long where there are thousands of addresses, so only here."""
        self.index, self.carrier, self.addresses = 0, False, {}
        with suppress(OSError):
            self.index = socket.if_nametoindex(self._name)
        if not self.index:
            return
        try:
            for message in _request(_GETLINK, _LINK.pack(0, 0, self.index, 0, 0)):
                self.carrier = _LINK.unpack_from(message, _HEADER.size)[3] & _UP_AND_RUNNING == _UP_AND_RUNNING
        except OSError as error:
            if error.errno != errno.ENODEV:  # else it was removed in between, and an event says so
                raise
        for message in _request(_GETADDR, _ADDRESS.pack(0, 0, 0, 0, 0), _DUMP):
            index, address, prefix = _address(message)
            if index == self.index:
                self.addresses[address] = prefix

    def remove(self, address: str) -> None:
        """Take an address off the interface; one that is not there is fine.

        Raises:
            OSError: the kernel refused.
        """
        packed = ip_address(address).packed
        body = _ADDRESS.pack(_family(packed), self.addresses.get(address, len(packed) * 8), 0, 0, self.index)
        body += _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed)
        _order(_DELADDR, body, ignored={errno.EADDRNOTAVAIL})
        self.addresses.pop(address, None)

    def reaches(self, address: str) -> bool:
        """Return whether the kernel knows the hardware address of a neighbour.

        Raises:
            OSError: the kernel does not answer.
        """
        packed = ip_address(address).packed
        body = _NEIGHBOUR.pack(_family(packed), self.index, 0, 0, 0) + _attribute(_NDA_DST, packed)
        try:
            found = list(_request(_GETNEIGH, body))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return False
        return any(_NEIGHBOUR.unpack_from(message, _HEADER.size)[2] & _NUD_VALID for message in found)


@dataclass(frozen=True, slots=True)
class DefaultRoute:
    """The default route of an IP version: ``gateway`` is "" for none; ``learned`` from others, not configured here."""

    family: int
    gateway: str
    learned: bool


def default_route(family: int) -> DefaultRoute | None:
    """Return the route to addresses outside of the network; None where there is none.

    Raises:
        OSError: the kernel does not answer.
    """
    target = ip_address(_ELSEWHERE[family]).packed
    body = _ROUTE.pack(_family(target), len(target) * 8, 0, 0, 0, 0, 0, 0, _FIB_MATCH) + _attribute(_RTA_DST, target)
    try:
        message = next(_request(_GETROUTE, body))
    except OSError as error:
        if error.errno in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
            return None
        raise
    added_by = _ROUTE.unpack_from(message, _HEADER.size)[5]
    gateway = _attributes(message, _ROUTE.size).get(_RTA_GATEWAY)
    return DefaultRoute(family, str(ip_address(gateway)) if gateway else "", added_by not in _CONFIGURED)


def listeners() -> Mapping[int, Sequence[tuple[int, int]]]:
    """Return the listening TCP sockets by port, of both IP versions: the inode of each and its user's number.

    Raises:
        OSError: the kernel does not answer.
    """
    found: dict[int, list[tuple[int, int]]] = {}
    for message in _tcp_sockets(_LISTEN):
        (port,) = struct.unpack_from("!H", message, 20)
        user, inode = struct.unpack_from("=II", message, 80)
        found.setdefault(port, []).append((inode, user))
    return found


def reset_connections(addresses: Collection[str]) -> str:
    """Reset the TCP connections to addresses that this node no longer has; return "" or why that failed.

    Their clients try again at once: a client that waits for an answer sends nothing, so the new holder cannot tell it.
    """
    packed = {ip_address(address).packed: address for address in addresses}
    try:
        found = [message for message in _tcp_sockets(_CONNECTED) if _local_address(message) in packed]
        theirs = sorted({packed[_local_address(message)] for message in found})
        # The reset leaves only from an address that is this host's. A local route makes it so for these milliseconds,
        # on no interface: nothing of it is seen on the network.
        for address in theirs:
            _local_route(address, _NEWROUTE, _CREATE)
        try:
            for message in found:
                family, state = struct.unpack_from("BB", message, 16)
                body = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 1 << state) + message[20:68]
                _order(_DESTROY, body, protocol=_SOCK_DIAG, ignored={errno.ENOENT, errno.ESTALE, errno.ENODATA})
        finally:
            for address in theirs:
                with suppress(OSError):
                    _local_route(address, _DELROUTE)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _tcp_sockets(states: int) -> Iterator[bytes]:
    for family in (socket.AF_INET, socket.AF_INET6):
        body = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 0, states)
        yield from _request(_BY_FAMILY, body, _DUMP, protocol=_SOCK_DIAG)


def _local_address(message: bytes) -> bytes:
    """Return the local address of a socket; one of IPv4 on an IPv6 socket is one of IPv4."""
    (family,) = struct.unpack_from("B", message, 16)
    address = message[24:28] if family == socket.AF_INET else message[24:40]
    return address[12:] if address[:12] == _MAPPED else address


def _local_route(address: str, kind: int, flags: int = 0) -> None:
    packed = ip_address(address).packed
    body = _ROUTE.pack(_family(packed), len(packed) * 8, 0, 0, _LOCAL_TABLE, _BOOT, _HOST, _LOCAL, 0)
    body += _attribute(_RTA_DST, packed) + _attribute(_RTA_OIF, struct.pack("=I", socket.if_nametoindex("lo")))
    _order(kind, body, flags=flags, ignored={errno.EEXIST, errno.ESRCH})


def _socket(groups: int = 0, protocol: int = socket.NETLINK_ROUTE) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    opened.bind((0, groups))
    return opened


def _request(kind: int, body: bytes, flags: int = 0, *, protocol: int = socket.NETLINK_ROUTE) -> Iterator[bytes]:
    """Send a request and return the messages of its answer: one, or with ``_DUMP`` all of them."""
    with _socket(protocol=protocol) as opened:
        opened.settimeout(_TIMEOUT_S)
        opened.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, 1, 0) + body)
        while True:
            for found, message in _messages(opened.recv(1 << 18)):
                if found == _ERROR:
                    code = -struct.unpack_from("=i", message, _HEADER.size)[0]
                    if code:
                        raise OSError(code, os.strerror(code))
                    return
                if found == _DONE:
                    return
                yield message
                if flags & _DUMP != _DUMP:
                    return


def _order(
    kind: int, body: bytes, *, ignored: Collection[int], flags: int = 0, protocol: int = socket.NETLINK_ROUTE
) -> None:
    """Send a request that changes something, and wait until it is done; the errors ``ignored`` count as done."""
    try:
        for _ in _request(kind, body, _ACK | flags, protocol=protocol):
            pass
    except OSError as error:
        if error.errno not in ignored:
            raise


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the kind and the bytes of each message of a datagram."""
    place = 0
    while place + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, place)
        if length < _HEADER.size:
            return
        yield kind, data[place : place + length]
        place += (length + 3) & ~3


def _attributes(message: bytes, fixed: int) -> dict[int, bytes]:
    """Return the attributes behind the ``fixed`` part of a message, by their numbers."""
    found, place = {}, _HEADER.size + fixed
    while place + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, place)
        if length < 4:
            break
        found[kind] = message[place + 4 : place + length]
        place += (length + 3) & ~3
    return found


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value


def _address(message: bytes) -> tuple[int, str, int]:
    """Return the interface, the address and the prefix length of a message about an address."""
    _, prefix, _, _, index = _ADDRESS.unpack_from(message, _HEADER.size)
    attributes = _attributes(message, _ADDRESS.size)
    # IFA_ADDRESS is the far end of a point-to-point link, and the only one of IPv6.
    return index, str(ip_address(attributes.get(_IFA_LOCAL) or attributes[_IFA_ADDRESS])), prefix


def _family(packed: bytes) -> int:
    return socket.AF_INET6 if len(packed) == 16 else socket.AF_INET
