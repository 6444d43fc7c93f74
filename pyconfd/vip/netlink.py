"""The kernel over netlink: one interface's addresses and carrier, neighbours, routes, and TCP sockets.

Messages are pyroute2's, sockets are plain ones: its own wait without a time-out, and need an event loop (2 ms) each.

Source: netlink(7), rtnetlink(7), sock_diag(7).
"""

import errno
import os
import socket
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, NamedTuple

from pyroute2 import netlink
from pyroute2.netlink import diag, rtnl
from pyroute2.netlink.rtnl import ndmsg as nd
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import IFF_LOWER_UP, IFF_UP, ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

_HEADER = struct.Struct("=IHHII")
_EVENTS = rtnl.RTMGRP_LINK | rtnl.RTMGRP_IPV4_IFADDR | rtnl.RTMGRP_IPV6_IFADDR
_UP_AND_RUNNING = IFF_UP | IFF_LOWER_UP
_NUD_VALID = nd.NUD_PERMANENT | nd.NUD_NOARP | nd.NUD_REACHABLE | nd.NUD_PROBE | nd.NUD_STALE | nd.NUD_DELAY
"""The kernel sends at once to a neighbour in one of these states."""
_FIB_MATCH = 0x2000
"""RTM_F_FIB_MATCH: the answer is the entry of the table, with the protocol that added it."""
_CONFIGURED = frozenset({rtnl.rt_proto["boot"], rtnl.rt_proto["static"]})
_LOCAL_TABLE = 255
"""RT_TABLE_LOCAL."""
_ELSEWHERE = {4: "192.0.2.1", 6: "2001:db8::1"}
"""Addresses for documentation: no network has a route of its own for them."""

_CONNECTED = diag.SS_CONN | 1 << diag.SS_SYN_RECV
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
        events = _socket(_EVENTS)
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
        if kind in {rtnl.RTM_NEWADDR, rtnl.RTM_DELADDR} and _index(message) == self.index:
            address, prefix = _address(message)
            if kind == rtnl.RTM_NEWADDR:
                self.addresses[address] = prefix
            else:
                self.addresses.pop(address, None)
        elif kind in {rtnl.RTM_NEWLINK, rtnl.RTM_DELLINK}:
            link = _decode(ifinfmsg, message)
            if link.get_attr("IFLA_IFNAME") != self._name:
                return
            if kind == rtnl.RTM_DELLINK:
                self.index, self.carrier, self.addresses = 0, False, {}
            elif link["index"] != self.index:  # removed and created again
                self._resync()
            else:
                self.carrier = link["flags"] & _UP_AND_RUNNING == _UP_AND_RUNNING

    def _resync(self) -> None:
        """Read everything; a dump takes long where there are thousands of addresses, so only here."""
        self.index, self.carrier, self.addresses = 0, False, {}
        with suppress(OSError):
            self.index = socket.if_nametoindex(self._name)
        if not self.index:
            return
        try:
            for message in _request(_encode(ifinfmsg, rtnl.RTM_GETLINK, index=self.index)):
                self.carrier = _decode(ifinfmsg, message)["flags"] & _UP_AND_RUNNING == _UP_AND_RUNNING
        except OSError as error:
            if error.errno != errno.ENODEV:  # else it was removed in between, and an event says so
                raise
        for message in _request(_encode(ifaddrmsg, rtnl.RTM_GETADDR, netlink.NLM_F_DUMP)):
            if _index(message) == self.index:
                address, prefix = _address(message)
                self.addresses[address] = prefix

    def remove(self, address: str) -> None:
        """Remove an address from the interface; one that is absent is fine.

        Raises:
            OSError: the kernel refused.
        """
        order = _encode(
            ifaddrmsg, rtnl.RTM_DELADDR, netlink.NLM_F_ACK,
            family=_family(address), index=self.index,
            prefixlen=self.addresses.get(address, ip_address(address).max_prefixlen),
            attrs=[("IFA_LOCAL", address), ("IFA_ADDRESS", address)],
        )  # fmt: skip
        _order(order, ignored={errno.EADDRNOTAVAIL})
        self.addresses.pop(address, None)

    def reaches(self, address: str) -> bool:
        """Return whether the kernel knows the hardware address of a neighbour.

        Raises:
            OSError: the kernel does not answer.
        """
        request = _encode(
            nd.ndmsg, rtnl.RTM_GETNEIGH, family=_family(address), ifindex=self.index, attrs=[("NDA_DST", address)]
        )
        try:
            found = list(_request(request))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
            return False
        return any(_decode(nd.ndmsg, message)["state"] & _NUD_VALID for message in found)


@dataclass(frozen=True, slots=True)
class DefaultRoute:
    """The default route of an IP version: ``gateway`` is "" for none; ``learned`` from others, not configured here."""

    family: int
    gateway: str
    learned: bool


class RouteEntry(NamedTuple):
    """The entry of the table by which an address is reached: 0 is the ``prefix`` of the default route."""

    prefix: int
    gateway: str
    learned: bool


def default_route(family: int) -> DefaultRoute | None:
    """Return the route to addresses outside of the network; None where there is none.

    Raises:
        OSError: the kernel does not answer.
    """
    found = route_to(_ELSEWHERE[family])
    return DefaultRoute(family, found.gateway, found.learned) if found is not None else None


def route_to(address: str) -> RouteEntry | None:
    """Return the route to an address; None where there is none.

    Raises:
        OSError: the kernel does not answer.
    """
    target = ip_address(address)
    request = _encode(
        rtmsg, rtnl.RTM_GETROUTE,
        family=_family(str(target)), dst_len=target.max_prefixlen, flags=_FIB_MATCH, attrs=[("RTA_DST", str(target))],
    )  # fmt: skip
    try:
        route = _decode(rtmsg, next(_request(request)))
    except OSError as error:
        if error.errno in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
            return None
        raise
    return RouteEntry(route["dst_len"], route.get_attr("RTA_GATEWAY") or "", route["proto"] not in _CONFIGURED)


def listeners() -> Mapping[int, Collection[int]]:
    """Return the listening TCP sockets by port, of both IP versions: the user who opened each.

    Raises:
        OSError: the kernel does not answer.
    """
    found: dict[int, set[int]] = {}
    for message in _tcp_sockets(1 << diag.SS_LISTEN):
        listener = _decode(diag.inet_diag_msg, message)
        found.setdefault(listener["idiag_sport"], set()).add(listener["idiag_uid"])
    return found


def reset_connections(addresses: Collection[str]) -> None:
    """Reset the TCP connections to addresses that this node no longer has.

    Their clients try again at once: a client that waits for an answer sends nothing, so the new holder cannot tell it.

    Raises:
        OSError: the kernel refused.
    """
    packed = {ip_address(address).packed: address for address in addresses}
    found = [message for message in _tcp_sockets(_CONNECTED) if _local_address(message) in packed]
    theirs = sorted({packed[_local_address(message)] for message in found})
    # The reset leaves only from an address that is this host's. A local route makes it so for these milliseconds,
    # on no interface: nothing of it is seen on the network.
    for address in theirs:
        _local_route(address, rtnl.RTM_NEWROUTE, netlink.NLM_F_CREATE)
    try:
        for message in found:
            order = _destroy(message)
            _order(order, protocol=netlink.NETLINK_SOCK_DIAG, ignored={errno.ENOENT, errno.ESTALE, errno.ENODATA})
    finally:
        for address in theirs:
            with suppress(OSError):
                _local_route(address, rtnl.RTM_DELROUTE)


def _tcp_sockets(states: int) -> Iterator[bytes]:
    for family in (socket.AF_INET, socket.AF_INET6):
        request = _encode(
            diag.inet_diag_req, diag.SOCK_DIAG_BY_FAMILY, netlink.NLM_F_DUMP,
            sdiag_family=family, sdiag_protocol=socket.IPPROTO_TCP, idiag_states=states, idiag_src=0, idiag_dst=0,
        )  # fmt: skip
        yield from _request(request, protocol=netlink.NETLINK_SOCK_DIAG)


# A busy balancer has tens of thousands of connections, and pyroute2 needs 60 us to decode one: the two functions below
# use the bytes of inet_diag_msg, in which the socket's id (ports, addresses, interface, cookie) begins at 20.


def _local_address(message: bytes) -> bytes:
    """Return the local address of a socket; one of IPv4 on an IPv6 socket is one of IPv4."""
    (family,) = struct.unpack_from("B", message, 16)
    address = message[24:28] if family == socket.AF_INET else message[24:40]
    return address[12:] if address[:12] == _MAPPED else address


def _destroy(message: bytes) -> bytes:
    """Return the request to destroy a socket, as by an error: its peer gets a reset."""
    family, state = struct.unpack_from("BB", message, 16)
    body = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 1 << state) + message[20:68]
    flags = netlink.NLM_F_REQUEST | netlink.NLM_F_ACK
    return _HEADER.pack(_HEADER.size + len(body), diag.SOCK_DESTROY, flags, 1, 0) + body


def _local_route(address: str, kind: int, flags: int = 0) -> None:
    order = _encode(
        rtmsg, kind, netlink.NLM_F_ACK | flags,
        family=_family(address), dst_len=ip_address(address).max_prefixlen, table=_LOCAL_TABLE,
        proto=rtnl.rt_proto["boot"], scope=rtnl.rt_scope["host"], type=rtnl.rt_type["local"],
        attrs=[("RTA_DST", address), ("RTA_OIF", socket.if_nametoindex("lo"))],
    )  # fmt: skip
    _order(order, ignored={errno.EEXIST, errno.ESRCH})


def _socket(groups: int = 0, protocol: int = netlink.NETLINK_ROUTE) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    opened.bind((0, groups))
    return opened


def _request(request: bytes, *, protocol: int = netlink.NETLINK_ROUTE) -> Iterator[bytes]:
    """Send a request and return the messages of its answer: one, or all of a dump."""
    with _socket(protocol=protocol) as opened:
        opened.settimeout(_TIMEOUT_S)
        opened.send(request)
        while True:
            for kind, message in _messages(opened.recv(1 << 18)):
                if kind == netlink.NLMSG_ERROR:
                    code = -struct.unpack_from("=i", message, _HEADER.size)[0]
                    if code:
                        raise OSError(code, os.strerror(code))
                    return
                if kind == netlink.NLMSG_DONE:
                    return
                yield message
                if not _HEADER.unpack_from(message)[2] & netlink.NLM_F_MULTI:
                    return


def _order(order: bytes, *, ignored: Collection[int], protocol: int = netlink.NETLINK_ROUTE) -> None:
    """Send a request that changes something, and wait until it is done; the errors ``ignored`` count as done."""
    try:
        for _ in _request(order, protocol=protocol):
            pass
    except OSError as error:
        if error.errno not in ignored:
            raise


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the kind and the bytes of each message of a datagram.

    Not decoded, as pyroute2's Marshal would: that costs 0.1 ms for each address of other interfaces.
    """
    place = 0
    while place + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, place)
        if length < _HEADER.size:
            return
        yield kind, data[place : place + length]
        place += (length + 3) & ~3


def _encode(message: Any, kind: int, flags: int = 0, /, **fields: Any) -> bytes:
    """Return a request of one of pyroute2's classes."""
    request = message().setvalue(fields)
    request["header"].update(type=kind, flags=netlink.NLM_F_REQUEST | flags, sequence_number=1)
    request.encode()
    return bytes(request.data)


def _decode(message: Any, data: bytes) -> Any:
    """Return a message of one of pyroute2's classes."""
    decoded = message(data)
    decoded.decode()
    return decoded


def _index(message: bytes) -> int:
    """Return the interface of a message about an address, without decoding it."""
    index: int = struct.unpack_from("=I", message, _HEADER.size + 4)[0]
    return index


def _address(message: bytes) -> tuple[str, int]:
    """Return the address and the prefix length of a message about an address."""
    address = _decode(ifaddrmsg, message)
    # IFA_ADDRESS is the far end of a point-to-point link, and the only one of IPv6.
    return address.get_attr("IFA_LOCAL") or address.get_attr("IFA_ADDRESS"), address["prefixlen"]


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
