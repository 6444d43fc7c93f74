"""Who may claim what: the operator's rules by namespace, and where endpoints may be."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address

from pyconfd.model.host import HostFacts
from pyconfd.presets.places import Network, Places, network

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
    none, and listens where everybody does.
    """

    namespaces: tuple[str, ...]
    domains: tuple[str, ...] | None = None
    protocols: tuple[str, ...] | None = None
    ports: PortRanges | None = None
    addresses: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimOptions:
    """``[claims]`` of the settings; by default everybody may claim anything.

    The first of ``rules`` that names a namespace decides about it; where there are rules, a namespace that none names
    may claim nothing. ``allow_endpoints`` are networks at which endpoints are served whatever they are;
    ``own_addresses`` are the balancer's beside those of its interfaces.
    """

    rules: tuple[Rule, ...] = ()
    allow_endpoints: tuple[Network, ...] = ()
    own_addresses: frozenset[str] = frozenset()

    def places(self, host: HostFacts) -> Places:
        """Return where endpoints may be."""
        return Places(host.addresses | self.own_addresses, self.allow_endpoints)

    def domain(self, namespace: str, name: str) -> str:
        """Return why objects of ``namespace`` may not claim a host name (``~`` or ``^`` begin an expression), or ""."""
        allowed = self._of(namespace).domains
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

    def _of(self, namespace: str) -> Rule:
        if not self.rules:
            return _ANYTHING
        for rule in self.rules:
            if any(fnmatchcase(namespace, each) for each in rule.namespaces):
                return rule
        return _NOTHING


_ANYTHING = Rule(("*",), addresses=(network("0.0.0.0/0"), network("::/0")))
_NOTHING = Rule(("*",), (), (), ())
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
    former = ""
    while former != marked:
        former, marked = marked, re.sub(r"\([^()]*\)", _OTHER, marked)
    if set("|()[]") & set(marked):
        return ""
    return found[1].replace(_DOT, ".").lower()
