"""What goes over the interface: adverts, and who claims which address; and what is sent on it."""

import ctypes
import errno
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress

from pyconfd.vip.frames import (
    ADVERTISEMENT,
    ETH_P_ARP,
    ETH_P_IP,
    ETH_P_IPV6,
    ICMPV6,
    VRRP,
    Advert,
    Claim,
    farewell,
    parse,
)

_ETH_P_ALL = 0x0003
_OUTGOING = 4
_SO_ATTACH_FILTER = 26
_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _JUMP_EQUAL, _RETURN = 0x20, 0x28, 0x30, 0x15, 0x06
_KEEP_BYTES = 512
_AT_ONCE = 1000

# The kernel passes on only what is asked for, however much traffic there is: ARP, VRRP, neighbour advertisements.
_FILTER = (
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

# Addressed to this host: neither to everybody, as what a switch sends by itself, nor what leaves it.
_FOR_THIS_HOST = (
    (_LOAD_WORD, 0, 0, 0xFFFFF004),  # SKF_AD_PKTTYPE
    (_JUMP_EQUAL, 0, 1, 0),  # PACKET_HOST
    (_RETURN, 0, 0, 1),
    (_RETURN, 0, 0, 0),
)


class Ears:
    """Whether anything comes in for this host over the interface ``name``.

    Raises:
        OSError: the interface is gone, or this process may not look at it.
    """

    def __init__(self, name: str) -> None:
        self._reading = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        try:
            _attach(self._reading, _FOR_THIS_HOST)
            self._reading.bind((name, _ETH_P_ALL))
        except OSError:
            self.close()
            raise

    def heard(self) -> bool:
        """Return whether anything came in since."""
        heard = False
        with suppress(BlockingIOError):
            for _ in range(_AT_ONCE):
                self._reading.recv(1)
                heard = True
        return heard

    def close(self) -> None:
        """Give the socket back."""
        self._reading.close()


def _attach(reading: socket.socket, lines: Sequence[tuple[int, int, int, int]]) -> None:
    program = b"".join(struct.pack("HBBI", *line) for line in lines)
    memory = ctypes.create_string_buffer(program)
    reading.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(lines), ctypes.addressof(memory)))


class Wire:
    """The interface ``index``: :meth:`read` gives what passed, the rest sends.

    Raises:
        OSError: the interface is gone, or this process may not look at it.
    """

    def __init__(self, name: str, index: int) -> None:
        self.index = index
        self._reading = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        _attach(self._reading, _FILTER)
        self._reading.bind((name, _ETH_P_ALL))
        # A packet socket does not see what it sends itself, and that is to be verified.
        self._sending = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        self._sending.bind((name, 0))
        self.hardware: bytes = self._sending.getsockname()[4]

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._reading.fileno()

    def read(self) -> Iterator[tuple[Advert | Claim, bool]]:
        """Return what has passed since, and whether it left this node; ends when there is nothing more.

        Not all at once: whoever floods the network must not keep this node from deciding.
        """
        for _ in range(_AT_ONCE):
            try:
                frame, where = self._reading.recvfrom(_KEEP_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENETDOWN:  # told once, and it goes on when the interface is up again
                    return
                raise
            said = parse(frame)
            if said is not None:
                yield said, where[2] == _OUTGOING

    def send(self, frames: Sequence[bytes]) -> None:
        """Send frames; what cannot be sent now is not sent, the next round tries again."""
        for frame in frames:
            with suppress(OSError):
                self._sending.send(frame)

    def close(self) -> None:
        """Give the sockets back."""
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
