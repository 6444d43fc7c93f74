"""Where no endpoint may be: traffic sent there would reach the balancer itself, or the cloud behind it, and no pod."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from pyconfd.presets import values

Network = IPv4Network | IPv6Network

METADATA = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
        ),
    )
)
"""Where clouds give a machine its credentials. Source: manuals of AWS, Alibaba Cloud, Azure, Oracle Cloud, Google."""

_UNSPECIFIED = IPv4Network("0.0.0.0/8")
_BROADCAST = IPv4Address("255.255.255.255")
_NAT64 = IPv6Network("64:ff9b::/96")
"""Source: RFC 6052, 2.1."""

_SPECIAL_V4 = re.compile(r"(?:0|127|169\.254|22[4-9]|23[0-9]|100\.100\.100\.200|168\.63\.129\.16|192\.0\.0\.192|255)\b")
"""What can be special at all; nearly every address is told by this alone, and there may be 100,000."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where endpoints may be. ``own`` are the balancer's addresses; ``allowed`` are networks that are never refused."""

    own: frozenset[str] = frozenset()
    allowed: tuple[Network, ...] = ()

    @property
    def of_nodes(self) -> "Places":
        """Where nodes may be: the balancer may be one itself, and no Service or pod says where a node is."""
        return replace(self, own=frozenset())

    def wrong(self, address: str) -> str:
        """Return why no endpoint may be at ``address`` (in its usual spelling), or "".

        An IPv6 address that stands for one of IPv4 (mapped, 6to4, NAT64) is judged as both.
        """
        if ":" not in address and address not in self.own and not _SPECIAL_V4.match(address):
            return ""
        parsed = values.address(address)
        if parsed is None or any(parsed in network for network in self.allowed):
            return ""
        for each in (parsed, *_embedded(parsed)):
            what = _special(each) or ("an address of the balancer itself" if str(each) in self.own else "")
            if what and not any(each in network for network in self.allowed):
                return (
                    f"this is {what}, and no pod: no traffic goes there; where it has to, list its network in the"
                    " setting claims.allow_endpoints"
                )
        return ""


ANYWHERE = Places()
"""Judges by the address alone."""


@lru_cache(maxsize=4096)
def network(text: str) -> Network:
    """Read a network or a single address; raises ValueError."""
    return ip_network(text, strict=False)


def _embedded(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address]:
    """Return the IPv4 address that one of IPv6 leads to."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            yield address.ipv4_mapped
        elif address.sixtofour is not None:
            yield address.sixtofour
        elif address in _NAT64:
            yield IPv4Address(int(address) & 0xFFFF_FFFF)


def _special(address: IPv4Address | IPv6Address) -> str:
    if address in METADATA:
        return "the address of a cloud's metadata"
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast or address == _BROADCAST:
        return "a multicast or broadcast address"
    if address.is_unspecified or address in _UNSPECIFIED:
        return "no address of a machine"
    return ""
