"""Addresses and the carrier of one interface, as the kernel tells them; and addresses taken off.

Sockets of its own around pyroute2's messages: an event costs microseconds, and a socket that overflowed (ENOBUFS) is
opened anew and everything read again.
"""

import errno
import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.marshal import MarshalRtnl
from pyroute2.netlink.rtnl.rtmsg import rtmsg

_NEWLINK, _DELLINK, _GETLINK, _NEWADDR, _DELADDR, _GETADDR = 16, 17, 18, 20, 21, 22
_NEWROUTE, _DELROUTE, _GETROUTE = 24, 25, 26
_NEWNEIGH, _GETNEIGH, _NDA_DST = 28, 30, 1
_NUD_VALID = 0x80 | 0x40 | 0x02 | 0x10 | 0x04 | 0x08
"""NUD_PERMANENT, NUD_NOARP, NUD_REACHABLE, NUD_PROBE, NUD_STALE, NUD_DELAY: the kernel sends at once."""
_REQUEST, _ACK, _DUMP, _CREATE = 0x1, 0x4, 0x300, 0x600
_ERROR, _DONE = 2, 3
_GROUPS = 0x1 | 0x10 | 0x100
"""RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR."""
_SO_RCVBUFFORCE = 33
_BUFFER_BYTES = 8 << 20
_UP_AND_RUNNING = 0x1 | 0x10000
"""IFF_UP, IFF_LOWER_UP."""
_HEADER = struct.Struct("=IHHII")
_TIMEOUT_S = 2.0
_FIB_MATCH = 0x2000
"""RTM_F_FIB_MATCH: the entry of the table itself, which says where it is from."""
_SET_UP_HERE = frozenset({3, 4})
"""RTPROT_BOOT, RTPROT_STATIC."""
_ELSEWHERE = {4: "192.0.2.1", 6: "2001:db8::1"}
"""Addresses for documentation: nobody has a route of their own for them."""
_SOCK_DIAG = 4
_BY_FAMILY, _DESTROY = 20, 21
_LOCAL_TABLE, _BOOT, _HOST, _LOCAL = 255, 3, 254, 2
"""RT_TABLE_LOCAL, RTPROT_BOOT, RT_SCOPE_HOST, RTN_LOCAL."""


@dataclass(slots=True)
class LinkState:
    """``index`` is 0 where there is no such interface; ``addresses`` maps each to the length of its prefix."""

    index: int = 0
    carrier: bool = False
    addresses: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Route:
    """The way to everywhere else: ``gateway`` is "" where it is none; ``learned`` from others, not set up here."""

    family: int
    gateway: str
    learned: bool


def _socket(groups: int = 0, protocol: int = socket.NETLINK_ROUTE) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    opened.bind((0, groups))
    return opened


class Link:
    """Follows one interface by name. :meth:`read` applies what the kernel told to ``state``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = LinkState()
        self.resyncs = 0
        self._marshal = MarshalRtnl()
        self._events = self._opened()
        self.state = self._dump()

    def fileno(self) -> int:
        """Return the descriptor to wait for; it changes when :meth:`read` says so."""
        return self._events.fileno()

    def _opened(self) -> socket.socket:
        opened = _socket(_GROUPS)
        opened.setblocking(False)
        with suppress(PermissionError):
            opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        return opened

    def read(self) -> bool:
        """Apply what has come since; True if the socket had overflowed and was replaced, everything read anew."""
        while True:
            try:
                data = self._events.recv(1 << 16)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._events.close()
                self._events = self._opened()
                self.state = self._dump()
                self.resyncs += 1
                return True
            for kind, message in _messages(data):
                self._apply(kind, message)

    def _apply(self, kind: int, message: bytes) -> None:
        if kind in {_NEWADDR, _DELADDR}:
            if struct.unpack_from("=I", message, 20)[0] != self.state.index:
                return
            told = self._parsed(message)
            address = told.get_attr("IFA_LOCAL") or told.get_attr("IFA_ADDRESS")
            if kind == _NEWADDR:
                self.state.addresses[address] = told["prefixlen"]
            else:
                self.state.addresses.pop(address, None)
        elif kind in {_NEWLINK, _DELLINK}:
            index = struct.unpack_from("=i", message, 20)[0]
            told = self._parsed(message)
            if told.get_attr("IFLA_IFNAME") != self._name:
                return
            if kind == _DELLINK:
                self.state = LinkState()
            elif index != self.state.index:
                self.state = self._dump()
            else:
                self.state.carrier = told["flags"] & _UP_AND_RUNNING == _UP_AND_RUNNING

    def _parsed(self, message: bytes) -> Any:
        return next(iter(self._marshal.parse(message)))

    def _dump(self) -> LinkState:
        state = LinkState()
        with _socket() as asked:
            asked.settimeout(_TIMEOUT_S)
            with suppress(OSError):
                state.index = socket.if_nametoindex(self._name)
            if not state.index:
                return state
            question = ifinfmsg()
            question["index"] = state.index
            for answer in self._answers(asked, question, _GETLINK, _REQUEST):
                state.carrier = answer["flags"] & _UP_AND_RUNNING == _UP_AND_RUNNING
            for answer in self._answers(asked, ifaddrmsg(), _GETADDR, _REQUEST | _DUMP):
                if answer["index"] == state.index:
                    address = answer.get_attr("IFA_LOCAL") or answer.get_attr("IFA_ADDRESS")
                    state.addresses[address] = answer["prefixlen"]
        return state

    def _answers(self, asked: socket.socket, question: Any, kind: int, flags: int) -> Iterator[Any]:
        _send(asked, question, kind, flags)
        while True:
            for found, message in _messages(asked.recv(1 << 18)):
                if found in {_ERROR, _DONE}:
                    return
                yield self._parsed(message)
                if not flags & _DUMP:
                    return

    def remove(self, address: str) -> None:
        """Take an address off the interface; one that is not there is fine.

        Raises:
            OSError: the kernel refused.
        """
        order = ifaddrmsg()
        order["family"] = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET
        order["prefixlen"] = self.state.addresses.get(address, ip_address(address).max_prefixlen)
        order["index"] = self.state.index
        order["attrs"] = [("IFA_LOCAL", address), ("IFA_ADDRESS", address)]
        with _socket() as asked:
            asked.settimeout(_TIMEOUT_S)
            _send(asked, order, _DELADDR, _REQUEST | _ACK)
            _check(asked.recv(1 << 16), {errno.EADDRNOTAVAIL})
        self.state.addresses.pop(address, None)

    def reaches(self, address: str) -> bool:
        """Return whether the kernel knows where to send what goes to a neighbour. Source: rtnetlink(7), RTM_GETNEIGH.

        Raises:
            OSError: the kernel does not tell.
        """
        packed = ip_address(address).packed
        family = socket.AF_INET6 if len(packed) == 16 else socket.AF_INET
        body = struct.pack("=BxHiHBB", family, 0, self.state.index, 0, 0, 0)
        body += struct.pack("=HH", 4 + len(packed), _NDA_DST) + packed
        with _socket() as asked:
            asked.settimeout(_TIMEOUT_S)
            asked.send(_HEADER.pack(_HEADER.size + len(body), _GETNEIGH, _REQUEST, 1, 0) + body)
            answer = asked.recv(1 << 16)
        _check(answer, {errno.ENOENT})
        return any(
            kind == _NEWNEIGH and bool(struct.unpack_from("=H", message, _HEADER.size + 8)[0] & _NUD_VALID)
            for kind, message in _messages(answer)
        )

    def close(self) -> None:
        """Give the socket back."""
        self._events.close()


def _send(asked: socket.socket, message: Any, kind: int, flags: int) -> None:
    message["header"] = {"type": kind, "flags": flags, "sequence_number": 1, "pid": 0}
    message.encode()
    asked.send(bytes(message.data))


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the kind and the bytes of each message of a datagram."""
    place = 0
    while place + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, place)
        if length < _HEADER.size:
            return
        yield kind, data[place : place + length]
        place += (length + 3) & ~3


def route_out(family: int) -> Route | None:
    """Return the route that leads to addresses elsewhere; None where there is none.

    Raises:
        OSError: the kernel does not tell.
    """
    question = rtmsg()
    question["family"] = socket.AF_INET6 if family == 6 else socket.AF_INET
    question["dst_len"] = 128 if family == 6 else 32
    question["flags"] = _FIB_MATCH
    question["attrs"] = [("RTA_DST", _ELSEWHERE[family])]
    with _socket() as asked:
        asked.settimeout(_TIMEOUT_S)
        _send(asked, question, _GETROUTE, _REQUEST)
        for kind, message in _messages(asked.recv(1 << 16)):
            if kind == _ERROR:
                code = -struct.unpack_from("=i", message, 16)[0]
                if code in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
                    return None
                raise OSError(code, os.strerror(code))
            found = next(iter(MarshalRtnl().parse(message)))
            return Route(family, found.get_attr("RTA_GATEWAY") or "", found["proto"] not in _SET_UP_HERE)
    return None


def dump_sockets(states: int) -> Iterator[bytes]:
    """Return a message for each TCP socket in one of the ``states`` (bits), of both families. Source: sock_diag(7).

    Raises:
        OSError: the kernel does not tell.
    """
    with _socket(protocol=_SOCK_DIAG) as asked:
        asked.settimeout(_TIMEOUT_S)
        for family in (socket.AF_INET, socket.AF_INET6):
            body = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 0, states)
            asked.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST | _DUMP, 1, 0) + body)
            done = False
            while not done:
                for kind, message in _messages(asked.recv(1 << 18)):
                    if kind == _ERROR:
                        code = -struct.unpack_from("=i", message, 16)[0]
                        raise OSError(code, os.strerror(code))
                    done = done or kind == _DONE
                    if kind == _BY_FAMILY:
                        yield message


def destroy_sockets(found: Iterable[bytes]) -> None:
    """Destroy the sockets of messages that :func:`dump_sockets` gave, as by an error; their ends get a reset.

    Raises:
        OSError: the kernel cannot, or this process may not.
    """
    with _socket(protocol=_SOCK_DIAG) as asked:
        asked.settimeout(_TIMEOUT_S)
        for message in found:
            family, state = struct.unpack_from("BB", message, 16)
            body = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 1 << state) + message[20:68]
            asked.send(_HEADER.pack(_HEADER.size + len(body), _DESTROY, _REQUEST | _ACK, 1, 0) + body)
            _check(asked.recv(1 << 16), {errno.ENOENT, errno.ESTALE, errno.ENODATA})


def local_route(address: str, *, there: bool) -> None:
    """Have the kernel take an address for this host's own, or no more; no interface has it, and none is asked for.

    Raises:
        OSError: the kernel refused.
    """
    version = ip_address(address).version
    order = rtmsg()
    order["family"] = socket.AF_INET6 if version == 6 else socket.AF_INET
    order["dst_len"] = ip_address(address).max_prefixlen
    order["table"], order["proto"], order["scope"], order["type"] = _LOCAL_TABLE, _BOOT, _HOST, _LOCAL
    order["attrs"] = [("RTA_DST", address), ("RTA_OIF", socket.if_nametoindex("lo"))]
    with _socket() as asked:
        asked.settimeout(_TIMEOUT_S)
        flags = _REQUEST | _ACK | (_CREATE if there else 0)
        _send(asked, order, _NEWROUTE if there else _DELROUTE, flags)
        _check(asked.recv(1 << 16), {errno.EEXIST, errno.ESRCH})


def _check(answer: bytes, fine: Collection[int]) -> None:
    for kind, message in _messages(answer):
        code = -struct.unpack_from("=i", message, 16)[0] if kind == _ERROR else 0
        if code and code not in fine:
            raise OSError(code, os.strerror(code))
