"""ARP, neighbour discovery and VRRP on the wire: frames are parsed and built, and the packet sockets that carry them.

Source: RFC 826, RFC 4861, RFC 5227, RFC 5798, packet(7).
"""

import ctypes
import errno
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

ETH_P_IP, ETH_P_ARP, ETH_P_IPV6 = 0x0800, 0x0806, 0x86DD
VRRP, ICMPV6 = 112, 58
SOLICITATION, ADVERTISEMENT = 135, 136
BROADCAST = b"\xff" * 6
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_IPV6 = struct.Struct("!IHBB16s16s")
_ALL_NODES = IPv6Address("ff02::1").packed
_ALL_NODES_HARDWARE = b"\x33\x33\x00\x00\x00\x01"
_OVERRIDE = 0x20000000
_ETHERNET_BYTES = 14

_ETH_P_ALL = 0x0003
_PACKET_OUTGOING = 4
_SO_ATTACH_FILTER = 26
_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _JUMP_EQUAL, _RETURN = 0x20, 0x28, 0x30, 0x15, 0x06
_KEEP_BYTES = 512
_AT_ONCE = 1000

# The kernel passes on only what is needed, however much traffic there is: ARP, VRRP, neighbour advertisements.
_ADDRESS_TRAFFIC = (
    (_LOAD_HALF, 0, 0, 12),
    (_JUMP_EQUAL, 9, 0, ETH_P_ARP),
    (_JUMP_EQUAL, 0, 2, ETH_P_IP),
    (_LOAD_BYTE, 0, 0, 23),
    (_JUMP_EQUAL, 6, 7, VRRP),
    (_JUMP_EQUAL, 0, 6, ETH_P_IPV6),
    (_LOAD_BYTE, 0, 0, 20),
    (_JUMP_EQUAL, 3, 0, VRRP),
    (_JUMP_EQUAL, 0, 3, ICMPV6),
    (_LOAD_BYTE, 0, 0, 54),
    (_JUMP_EQUAL, 0, 1, ADVERTISEMENT),
    (_RETURN, 0, 0, _KEEP_BYTES),
    (_RETURN, 0, 0, 0),
)

# Addressed to this host. Broadcasts do not count (a switch sends some by itself), nor what leaves this host.
_FOR_THIS_HOST = (
    (_LOAD_WORD, 0, 0, 0xFFFFF004),  # SKF_AD_PKTTYPE
    (_JUMP_EQUAL, 0, 1, 0),  # PACKET_HOST
    (_RETURN, 0, 0, 1),
    (_RETURN, 0, 0, 0),
)


@dataclass(frozen=True, slots=True)
class AddressClaim:
    """An ARP message or neighbour advertisement: ``address`` is at ``hardware``."""

    address: str
    hardware: str


@dataclass(frozen=True, slots=True)
class Advert:
    """A VRRP advert; with priority 0 a master gives up."""

    source: str
    router: int
    priority: int
    hardware: str


def parse(frame: bytes) -> AddressClaim | Advert | None:
    """Parse an Ethernet frame; None for anything else, and for what came through a router (TTL below 255)."""
    if len(frame) < _ETHERNET_BYTES:
        return None
    kind, sender, body = int.from_bytes(frame[12:14], "big"), frame[6:12], frame[14:]
    if kind == ETH_P_ARP and len(body) >= _ARP.size:
        hardware_kind, protocol, _, _, _, claimed, address, _, _ = _ARP.unpack_from(body)
        if (hardware_kind, protocol) == (1, ETH_P_IP) and any(address):
            return AddressClaim(str(IPv4Address(address)), claimed.hex(":"))
    elif kind == ETH_P_IP and len(body) >= 20 and body[9] == VRRP and body[8] == 255:
        return _advert(str(IPv4Address(body[12:16])), body[(body[0] & 15) * 4 :], sender)
    elif kind == ETH_P_IPV6 and len(body) >= 40:
        source, payload = str(IPv6Address(body[8:24])), body[40:]
        if body[6] == VRRP:  # with any hop limit: keepalived 2.2.7 sends unicast adverts with the system's default
            return _advert(source, payload, sender)
        if body[6] == ICMPV6 and body[7] == 255 and len(payload) >= 24 and payload[0] == ADVERTISEMENT:
            return AddressClaim(str(IPv6Address(payload[8:24])), (_target_hardware(payload) or sender).hex(":"))
    return None


def _advert(source: str, body: bytes, sender: bytes) -> Advert | None:
    if len(body) < 8 or body[0] != 0x31:
        return None
    return Advert(source, body[1], body[2], sender.hex(":"))


def _target_hardware(payload: bytes) -> bytes:
    """Return the option of a neighbour advertisement with the hardware address; b"" without one."""
    place = 24
    while place + 8 <= len(payload) and payload[place + 1]:
        if payload[place] == 2:
            return payload[place + 2 : place + 8]
        place += payload[place + 1] * 8
    return b""


@lru_cache(maxsize=256)
def probe(own: bytes, address: str, source: str = "") -> bytes:
    """Build an ARP request or neighbour solicitation; without ``source`` it changes no neighbour table (RFC 5227)."""
    target = ip_address(address)
    if isinstance(target, IPv4Address):
        sender = IPv4Address(source or 0).packed
        body = _ARP.pack(1, ETH_P_IP, 6, 4, 1, own, sender, bytes(6), target.packed)
        return BROADCAST + own + ETH_P_ARP.to_bytes(2, "big") + body
    group = IPv6Address("ff02::1:ff00:0").packed[:13] + target.packed[13:]
    option = struct.pack("!BB6s", 1, 1, own) if source else b""
    message = struct.pack("!BBHI16s", SOLICITATION, 0, 0, 0, target.packed) + option
    return _icmpv6(own, b"\x33\x33" + group[12:], IPv6Address(source or 0).packed, group, message)


def announcements(own: bytes, address: str) -> tuple[bytes, ...]:
    """Build the gratuitous ARP messages, or the neighbour advertisement, that ``address`` is here now."""
    target = ip_address(address)
    if isinstance(target, IPv4Address):
        # As request and as reply: some switches and hosts take only the one form, some only the other.
        return tuple(
            BROADCAST
            + own
            + ETH_P_ARP.to_bytes(2, "big")
            + _ARP.pack(1, ETH_P_IP, 6, 4, operation, own, target.packed, there, target.packed)
            for operation, there in ((1, bytes(6)), (2, own))
        )
    message = struct.pack("!BBHI16sBB6s", ADVERTISEMENT, 0, 0, _OVERRIDE, target.packed, 2, 1, own)
    return (_icmpv6(own, _ALL_NODES_HARDWARE, target.packed, _ALL_NODES, message),)


def farewell(source: str, peer: str, router: int, advert_s: float, addresses: Sequence[str]) -> bytes:
    """Build the VRRP message (without its IP header) with which a master gives up, as it goes to one peer."""
    head = struct.pack("!BBBBH", 0x31, router, 0, len(addresses), int(advert_s * 100) & 0xFFF)
    tail = b"".join(ip_address(address).packed for address in addresses)
    length = len(head) + 2 + len(tail)
    sum_ = checksum(_pseudo_header(source, peer, length) + head + b"\0\0" + tail)
    return head + struct.pack("!H", sum_) + tail


def _pseudo_header(source: str, target: str, length: int) -> bytes:
    ends = ip_address(source).packed + ip_address(target).packed
    return ends + (struct.pack("!BBH", 0, VRRP, length) if len(ends) == 8 else struct.pack("!II", length, VRRP))


def _icmpv6(own: bytes, hardware: bytes, source: bytes, target: bytes, message: bytes) -> bytes:
    sum_ = checksum(source + target + struct.pack("!II", len(message), ICMPV6) + message)
    body = message[:2] + struct.pack("!H", sum_) + message[4:]
    head = _IPV6.pack(6 << 28, len(body), ICMPV6, 255, source, target)
    return hardware + own + ETH_P_IPV6.to_bytes(2, "big") + head + body


def checksum(data: bytes) -> int:
    """Return the Internet checksum. Source: RFC 1071."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _attach(reading: socket.socket, lines: Sequence[tuple[int, int, int, int]]) -> None:
    program = b"".join(struct.pack("HBBI", *line) for line in lines)
    memory = ctypes.create_string_buffer(program)
    reading.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(lines), ctypes.addressof(memory)))


def open_host_traffic(name: str) -> socket.socket:
    """Open a socket that receives one byte of each frame addressed to this host over the interface ``name``.

    Raises:
        OSError: the interface is gone, or this process may not look at it.
    """
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        _attach(opened, _FOR_THIS_HOST)
        opened.bind((name, _ETH_P_ALL))
    except OSError:
        opened.close()
        raise
    return opened


def drain(opened: socket.socket) -> bool:
    """Read what has come; return whether there was anything."""
    heard = False
    with suppress(BlockingIOError):
        for _ in range(_AT_ONCE):
            opened.recv(1)
            heard = True
    return heard


class PacketSocket:
    """Adverts and address claims that pass the interface ``index``, and frames sent over it.

    Raises:
        OSError: the interface is gone, or this process may not look at it.
    """

    def __init__(self, name: str, index: int) -> None:
        self.index = index
        self._reading = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        _attach(self._reading, _ADDRESS_TRAFFIC)
        self._reading.bind((name, _ETH_P_ALL))
        # Sent by another socket: a packet socket does not see its own frames, and that they leave is to be verified.
        self._sending = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        self._sending.bind((name, 0))
        self.hardware: bytes = self._sending.getsockname()[4]

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._reading.fileno()

    def read(self) -> Iterator[tuple[Advert | AddressClaim, bool]]:
        """Return what has passed since, and whether it left this node.

        At most a thousand frames: a flood on the network must not keep the hook from deciding.
        """
        for _ in range(_AT_ONCE):
            try:
                frame, where = self._reading.recvfrom(_KEEP_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENETDOWN:  # reported once; the socket goes on when the interface is up again
                    return
                raise
            parsed = parse(frame)
            if parsed is not None:
                yield parsed, where[2] == _PACKET_OUTGOING

    def send(self, frames: Sequence[bytes]) -> None:
        """Send frames; one that cannot be sent is lost, and the next round sends another."""
        for frame in frames:
            with suppress(OSError):
                self._sending.send(frame)

    def close(self) -> None:
        """Close the sockets."""
        self._reading.close()
        self._sending.close()


def say_farewell(source: str, peers: Sequence[str], router: int, advert_s: float, addresses: Sequence[str]) -> None:
    """Send the advert with priority 0 to each peer, as keepalived does when it is stopped.

    Raises:
        OSError: it cannot be sent.
    """
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    with socket.socket(family, socket.SOCK_RAW, VRRP) as sender:
        if family is socket.AF_INET6:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 255)
        else:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)
        sender.bind((source, 0))
        for peer in peers:
            sender.sendto(farewell(source, peer, router, advert_s, addresses), (peer, 0))
