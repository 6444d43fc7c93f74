"""Ethernet frames of ARP, neighbour discovery and VRRP, as far as a floating address needs them [pure].

Source: RFC 826, RFC 4861, RFC 5227, RFC 5798.
"""

import struct
from collections.abc import Sequence
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


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody says that ``address`` is at ``hardware``."""

    address: str
    hardware: str


@dataclass(frozen=True, slots=True)
class Advert:
    """A VRRP advert; priority 0 says farewell."""

    source: str
    router: int
    priority: int
    hardware: str


def hardware_text(packed: bytes) -> str:
    """Return a hardware address in its usual spelling."""
    return packed.hex(":")


def parse(frame: bytes) -> Claim | Advert | None:
    """Return what an Ethernet frame says; None for anything else, or from beyond a router."""
    if len(frame) < _ETHERNET_BYTES:
        return None
    kind, sender, body = int.from_bytes(frame[12:14], "big"), frame[6:12], frame[14:]
    if kind == ETH_P_ARP and len(body) >= _ARP.size:
        hardware_kind, protocol, _, _, _, claimed, address, _, _ = _ARP.unpack_from(body)
        if (hardware_kind, protocol) == (1, ETH_P_IP) and any(address):
            return Claim(str(IPv4Address(address)), hardware_text(claimed))
    elif kind == ETH_P_IP and len(body) >= 20 and body[9] == VRRP and body[8] == 255:
        return _advert(str(IPv4Address(body[12:16])), body[(body[0] & 15) * 4 :], sender)
    elif kind == ETH_P_IPV6 and len(body) >= 40:
        source, payload = str(IPv6Address(body[8:24])), body[40:]
        if body[6] == VRRP:  # keepalived 2.2.7 leaves the hop limit of unicast adverts at the system's default
            return _advert(source, payload, sender)
        if body[6] == ICMPV6 and body[7] == 255 and len(payload) >= 24 and payload[0] == ADVERTISEMENT:
            return Claim(str(IPv6Address(payload[8:24])), hardware_text(_target_hardware(payload) or sender))
    return None


def _advert(source: str, body: bytes, sender: bytes) -> Advert | None:
    if len(body) < 8 or body[0] != 0x31:
        return None
    return Advert(source, body[1], body[2], hardware_text(sender))


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
    """Return the question who has ``address``; without ``source`` it changes nobody's tables (RFC 5227, RFC 4862)."""
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
    """Return what tells everybody on the network that ``address`` is here now."""
    target = ip_address(address)
    if isinstance(target, IPv4Address):
        # Some switches and hosts take only the one form, some only the other.
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
    """Return the VRRP message (without its IP header) with which a master gives up, as it goes to one peer."""
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
