"""The connections that an address left behind: reset, so that their clients try again at once instead of waiting."""

import struct
from collections.abc import Collection
from contextlib import suppress
from ipaddress import ip_address

from pyconfd.vip.netlink import destroy_sockets, dump_sockets, local_route

_CONNECTED = sum(1 << state for state in (1, 3, 4, 5, 8, 9, 11))
"""Of TCP's states those of a connection: not listening, not closed, not TIME_WAIT, which belongs to nobody."""


def reset_sessions(addresses: Collection[str]) -> str:
    """Reset the TCP connections to addresses that this node no longer has; give "" or why that failed.

    A reset of IPv4 leaves only from an address that is this host's: for these few milliseconds the kernel takes them
    for its own again, without an interface.
    """
    packed = {ip_address(address).packed: address for address in addresses}
    try:
        found = [message for message in dump_sockets(_CONNECTED) if _local(message) in packed]
        theirs = {packed[_local(message)] for message in found}
        for address in sorted(theirs):
            local_route(address, there=True)
        try:
            destroy_sockets(found)
        finally:
            for address in sorted(theirs):
                with suppress(OSError):
                    local_route(address, there=False)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _local(message: bytes) -> bytes:
    """Return the local address of a message of the kernel's list of sockets; IPv4 in IPv6 is IPv4."""
    (family,) = struct.unpack_from("B", message, 16)
    address = message[24:28] if family == 2 else message[24:40]
    return address[12:] if address[:12] == _MAPPED else address


_MAPPED = bytes(10) + b"\xff\xff"
