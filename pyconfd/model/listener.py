"""Where something listens, or asks to: an address and a TCP port, and who has it already."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from types import MappingProxyType
from typing import NamedTuple, Self

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}", re.ASCII)
"""The one spelling of an IPv4 address."""


def parsed(text: str) -> IPv4Address | IPv6Address:
    """Read an address; raises ValueError.

    Four numbers are handed over as such: ``ipaddress`` takes the text apart in Python, which takes five times as long.
    """
    return IPv4Address(bytes(map(int, text.split(".")))) if IPV4.fullmatch(text) else ip_address(text)


def canonical(text: str) -> str:
    """Return an address in its usual spelling; what is none stays."""
    try:
        return str(ip_address(text)) if ":" in text else text
    except ValueError:
        return text


ANY_IPV4 = "0.0.0.0"  # noqa: S104 - compared with, never bound
ANY_IPV6 = "::"
ANY = frozenset({ANY_IPV4, ANY_IPV6})


@dataclass(frozen=True, slots=True, order=True)
class Listener:
    """An address and a TCP port.

    ``address`` is an IP address in its usual spelling, "0.0.0.0" or "::" for any of the family; "" where it is not
    known, so that it may be any. "::" takes IPv4 as well unless it is ``v6only``.
    """

    address: str
    port: int
    v6only: bool = False

    @classmethod
    def at(cls, address: str, port: int, *, v6only: bool = False) -> Self:
        """Read an address as HAProxy does: ``*`` is any IPv4; what is no IP address (a host name) may be any."""
        return cls(_canonical(address), port, v6only)

    def overlaps(self, other: "Listener") -> bool:
        """Return whether both want some of the same connections."""
        return self.port == other.port and not _taken(self).isdisjoint(_wanted(other))

    def covers(self, other: Self) -> bool:
        """Return whether all that ``other`` listens on is here as well: the same address, or any of its family."""
        if self.port != other.port:
            return False
        if self.address == other.address:
            return other.v6only or not self.v6only
        if self.address == ANY_IPV6:
            return bool(other.address) and (":" in other.address or not self.v6only)
        return self.address == ANY_IPV4 and bool(other.address) and ":" not in other.address

    def __str__(self) -> str:
        """Return address and port as HAProxy writes them."""
        if not self.address:
            return f"port {self.port}"
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class Holder(NamedTuple):
    """Who listens where; ``owner`` is fit to begin a sentence with."""

    listener: Listener
    owner: str


class Listeners:
    """Who listens where, or may; never changed. To ask takes the same time however many there are."""

    __slots__ = ("_by_part", "_owners")

    def __init__(self, owners: Mapping[Listener, str] = MappingProxyType({})) -> None:
        self._owners = dict(owners)
        self._by_part: dict[tuple[int, str], Holder] = {}
        for listener, owner in self._owners.items():
            holder = Holder(listener, owner)
            for part in _taken(listener):
                self._by_part.setdefault((listener.port, part), holder)

    def holder(self, wanted: Listener) -> Holder | None:
        """Return who has what ``wanted`` asks for, or a part of it; None where it is free."""
        for part in sorted(_wanted(wanted)):
            found = self._by_part.get((wanted.port, part))
            if found is not None:
                return found
        return None

    def holder_of_address(self, wanted: Listener) -> Holder | None:
        """Return who has the very address that ``wanted`` names, or one that is not known; not who has all addresses.

        Where one HAProxy binds ``*:80`` and ``192.0.2.7:80``, Linux gives a connection to the more specific socket.
        """
        same = (Listener(address, wanted.port, v6only) for address in (wanted.address, "") for v6only in (False, True))
        return next((Holder(each, self._owners[each]) for each in same if each in self._owners), None)

    def with_owner(self, owner: str, listeners: Iterable[Listener]) -> "Listeners":
        """Return these with more; who has a listener keeps it."""
        more = {listener: owner for listener in sorted(listeners) if listener not in self._owners}
        return Listeners({**self._owners, **more}) if more else self

    @property
    def owners(self) -> Mapping[Listener, str]:
        """Who has each listener."""
        return MappingProxyType(self._owners)

    def __iter__(self) -> Iterator[Listener]:
        """Return each listener."""
        return iter(self._owners)

    def __len__(self) -> int:
        """Return how many listeners there are."""
        return len(self._owners)

    def __eq__(self, other: object) -> bool:
        """Return whether the same have the same."""
        return isinstance(other, Listeners) and self._owners == other._owners

    def __hash__(self) -> int:
        """Return the same for equal ones."""
        return hash(frozenset(self._owners.items()))

    def __repr__(self) -> str:
        """Return what it was made of."""
        return f"Listeners({self._owners!r})"


NOBODY = Listeners()
"""Nothing is taken."""


def asked_for(taken: Mapping[Listener, str], claims: frozenset[Listener]) -> Mapping[Listener, str]:
    """Return the claims that cannot be had since what they were bound as is taken, and by whom.

    Where a claim is bound just as it was asked for, only that one is meant; a template may also bind a claim's port
    elsewhere, so what no claim names exactly is put down to all that overlap it.
    """
    index: dict[int, list[Listener]] = {}
    if taken:
        for claim in sorted(claims):
            index.setdefault(claim.port, []).append(claim)
    found: dict[Listener, str] = {}
    for listener, owner in taken.items():
        exact = [listener] if listener in claims else []
        for claim in exact or (each for each in index.get(listener.port, ()) if each.overlaps(listener)):
            found.setdefault(claim, owner)
    return found


@lru_cache(maxsize=65_536)
def _canonical(address: str) -> str:
    if address == "*":
        return ANY_IPV4
    try:
        parsed = ip_address(address)
    except ValueError:
        return ""
    if isinstance(parsed, IPv6Address):
        if parsed.scope_id:
            parsed = IPv6Address(int(parsed))
        parsed = parsed.ipv4_mapped or parsed
    return str(parsed)


_BOTH = frozenset({"any ipv4", "any ipv6", "some ipv4", "some ipv6"})
_TAKEN = {
    "": _BOTH,
    ANY_IPV4: frozenset({"any ipv4", "some ipv4"}),
    ANY_IPV6: _BOTH,
}
_SOME = frozenset({"some ipv4", "some ipv6"})
_WANTED = {"": _SOME, ANY_IPV4: frozenset({"some ipv4"}), ANY_IPV6: _SOME}
_IPV6_TAKEN = frozenset({"any ipv6", "some ipv6"})
_IPV6_WANTED = frozenset({"some ipv6"})


def _taken(listener: Listener) -> frozenset[str]:
    """Return what a listener takes away: its address; any address of its family if it has all; and that it has some."""
    address = listener.address
    if address == ANY_IPV6 and listener.v6only:
        return _IPV6_TAKEN
    known = _TAKEN.get(address)
    return known if known is not None else frozenset({address, "some ipv6" if ":" in address else "some ipv4"})


def _wanted(listener: Listener) -> frozenset[str]:
    """Return what must not be taken by another for a listener to be had whole."""
    address = listener.address
    if address == ANY_IPV6 and listener.v6only:
        return _IPV6_WANTED
    known = _WANTED.get(address)
    return known if known is not None else frozenset({address, "any ipv6" if ":" in address else "any ipv4"})
