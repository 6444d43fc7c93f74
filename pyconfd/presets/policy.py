"""Policy: who may claim what by the operator's rules, and where endpoints may be."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from pyconfd.model.snapshot import Key, Snapshot
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
"""What can be special at all; this alone decides for nearly every address, and there may be 100,000."""


@dataclass(frozen=True, slots=True)
class AllowedAddresses:
    """Where endpoints may be: in ``networks``, or anywhere where there are none.

    ``own`` are the balancer's addresses, ``api_servers`` those of API servers; ``allowed`` are networks that are never
    refused.
    """

    own: frozenset[str] = frozenset()
    allowed: tuple[Network, ...] = ()
    api_servers: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @property
    def of_nodes(self) -> "AllowedAddresses":
        """Where nodes may be: one may be the balancer, or have an API server, and no tenant says where a node is."""
        return replace(self, own=frozenset(), api_servers=frozenset(), networks=())

    def wrong(self, address: str) -> str:
        """Return why no endpoint may be at ``address`` (in its usual spelling), or "".

        An IPv6 address that stands for one of IPv4 (mapped, 6to4, NAT64) is judged as both.
        """
        known = address in self.own or address in self.api_servers
        if not (self.networks or known or ":" in address or _SPECIAL_V4.match(address)):
            return ""
        parsed = values.address(address)
        if parsed is None or any(parsed in network for network in self.allowed):
            return ""
        for each in (parsed, *_embedded(parsed)):
            what = _special(each) or self._known(str(each))
            if what and not any(each in network for network in self.allowed):
                return (
                    f"this is {what}, and no pod: no traffic goes there; where it has to, list its network in the"
                    " setting claims.allow_endpoints"
                )
        if self.networks and not any(parsed in each for each in self.networks):
            return "no traffic goes there: it is in none of the networks of the setting claims.endpoint_networks"
        return ""

    def _known(self, address: str) -> str:
        if address in self.own:
            return "an address of the balancer itself"
        return "an address of an API server" if address in self.api_servers else ""


API_SERVICE = Key("default", "kubernetes")
"""The Service of the API servers, and the objects with its endpoints: the API servers write these themselves."""


def _api_servers(snapshot: Snapshot) -> frozenset[str]:
    """Return the addresses that API servers say they have."""
    of_slice, endpoints = snapshot.endpointslices.get(API_SERVICE), snapshot.endpoints.get(API_SERVICE)
    found = {text for each in (of_slice.endpoints if of_slice else ()) or () for text in each.addresses}
    found |= {each.ip for subset in (endpoints.subsets if endpoints else ()) or () for each in subset.addresses or ()}
    return frozenset(known[0] for text in found if (known := values.canonical_address(text)))


@lru_cache(maxsize=4096)
def network(text: str) -> Network:
    """Read a network or a single address; raises ValueError."""
    if "%" in text:  # Python takes any text for the zone of an IPv6 address, line breaks too
        raise ValueError(text)
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


PortRanges = tuple[tuple[int, int], ...]
"""Inclusive ranges."""

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""An escape or a set of a regular expression, read from left to right as PCRE does: one may hold signs of the other."""
_DOT, _DIGIT, _OTHER = "\n", "\r", "\t"
_MARKS = {"\\.": _DOT, "[.]": _DOT, "\\d": _DIGIT, "[0-9]": _DIGIT}
_LITERAL_END = re.compile(rf"{_DOT}((?:[A-Za-z0-9_-]+{_DOT})*[A-Za-z0-9_-]+)\$\Z")
"""The end of a marked expression that says by which domain all names end that it matches."""
_OPTIONAL_PORT = re.compile(rf"\((?:\?:)?:{_DIGIT}[+*]\)\?\$\Z")
"""What stands there for clients that send the port with the host."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What the namespaces that match one of the patterns may claim; None is anything, () is nothing.

    ``domains`` are the names that claimed ones end with, whole labels: ``example.com`` allows itself and what is below.
    ``addresses`` are the networks in which it may name an address of the balancer to listen on; by default it names
    none, and listens where everybody does. ``policies`` are the words of policies that it may say, or patterns.
    """

    namespaces: tuple[str, ...]
    domains: tuple[str, ...] | None = None
    protocols: tuple[str, ...] | None = None
    ports: PortRanges | None = None
    addresses: tuple[Network, ...] = ()
    policies: tuple[str, ...] | None = None


class PolicyBounds(NamedTuple):
    """``[policies]`` of the settings: the most that words of policies may say; 0 is no bound."""

    body: int = 0
    timeout_ms: int = 0
    auth_timeout_ms: int = 5_000


NO_BOUNDS = PolicyBounds()


@dataclass(frozen=True, slots=True)
class ClaimOptions:
    """``[claims]`` of the settings; by default everybody may claim anything.

    The first of ``rules`` that names a namespace decides about it; where there are rules, a namespace that none names
    may claim nothing. ``allow_endpoints`` are networks at which endpoints are served whatever they are,
    ``endpoint_networks`` all networks where they may be, none for no limit; ``own_addresses`` are the balancer's beside
    those of its interfaces. ``shared_hosts`` are hosts to which every namespace may add paths: as they are,
    ``*.example.com`` for all below it, or ``*``. ``bounds`` are those of words of policies. ``nginx_body`` is the
    largest body, in bytes, for Ingresses of ingress-nginx that say nothing of it; 0 is any size.
    """

    rules: tuple[Rule, ...] = ()
    allow_endpoints: tuple[Network, ...] = ()
    own_addresses: frozenset[str] = frozenset()
    endpoint_networks: tuple[Network, ...] = ()
    shared_hosts: frozenset[str] = frozenset()
    bounds: PolicyBounds = NO_BOUNDS
    nginx_body: int = 1 << 20

    def places(self, snapshot: Snapshot) -> AllowedAddresses:
        """Return where endpoints may be."""
        host = snapshot.host
        own, api_servers = host.addresses | self.own_addresses, host.api_servers | _api_servers(snapshot)
        return AllowedAddresses(own, self.allow_endpoints, api_servers, self.endpoint_networks)

    def domain(self, namespace: str, name: str) -> str:
        """Return why objects of ``namespace`` may not claim a host name (``~`` or ``^`` begin an expression), or "".

        Requests that name an address of the balancer are nobody's: one of a scanner, or of a client without a name.
        """
        allowed = self._of(namespace).domains
        if name in self.own_addresses and name not in (allowed or ()):
            return "an address of the balancer is everybody's, and no host: choose a name, or list it (claims.rules)"
        if allowed is None:
            return ""
        if name.startswith(("~", "^")):
            ends_with = _literal_end(name)
            if not ends_with:
                return _refused(namespace, "a regular expression unless it ends like \\.example\\.com$", ())
            name = f"x.{ends_with}"
        if any(name == each or name.endswith(f".{each}") for each in allowed):
            return ""
        return _refused(namespace, "this name", allowed)

    def protocol(self, namespace: str, name: str) -> str:
        """Return why objects of ``namespace`` may not ask for a protocol, or ""."""
        allowed = self._of(namespace).protocols
        return "" if allowed is None or name in allowed else _refused(namespace, "this protocol", allowed)

    def port(self, namespace: str, number: int) -> str:
        """Return why objects of ``namespace`` may not ask for a port to be bound, or ""."""
        allowed = self._of(namespace).ports
        if allowed is None or in_ranges(number, allowed):
            return ""
        return _refused(namespace, "this port", (str(a) if a == b else f"{a}-{b}" for a, b in allowed))

    def address(self, namespace: str, address: IPv4Address | IPv6Address) -> str:
        """Return why objects of ``namespace`` may not name an address to listen on, or ""."""
        allowed = self._of(namespace).addresses
        if address.is_unspecified or any(address in network for network in allowed):
            return ""
        return _refused(namespace, "this address", map(str, allowed))

    def word(self, namespace: str, name: str) -> str:
        """Return why objects of ``namespace`` may not say a word of policies, or ""."""
        allowed = self._of(namespace).policies
        if allowed is None or any(fnmatchcase(name, each) for each in allowed):
            return ""
        return _refused(namespace, "this policy", allowed)

    def _of(self, namespace: str) -> Rule:
        if not self.rules:
            return _ANYTHING
        for rule in self.rules:
            if any(fnmatchcase(namespace, each) for each in rule.namespaces):
                return rule
        return _NOTHING


_ANYTHING = Rule(("*",), addresses=(network("0.0.0.0/0"), network("::/0")))
_NOTHING = Rule(("*",), (), (), (), policies=())
ANYTHING = ClaimOptions()
"""Everybody may claim anything."""


def in_ranges(number: int, ranges: PortRanges) -> bool:
    """Return whether a port is in one of the ranges."""
    return any(first <= number <= last for first, last in ranges)


def _refused(namespace: str, what: str, allowed: Iterable[str]) -> str:
    listed = ", ".join(allowed)
    may = f"; it may claim: {listed}" if listed else ""
    return f"the namespace {namespace} may not claim {what} (setting claims.rules){may}"


def _literal_end(expression: str) -> str:
    """Return the domain that all matches of an expression end with, "" where it does not say so plainly."""
    marked = _TOKEN.sub(lambda found: _MARKS.get(found[0], _OTHER), expression)
    marked = _OPTIONAL_PORT.sub("$", marked)
    found = _LITERAL_END.search(marked)
    if found is None or "\\\\" in expression:
        return ""
    previous = ""
    while previous != marked:
        previous, marked = marked, re.sub(r"\([^()]*\)", _OTHER, marked)
    if set("|()[]") & set(marked):
        return ""
    return found[1].replace(_DOT, ".").lower()
