"""The TXT record sets at ``_pyconfd.NAME`` that say whose the records of a name are.

The prefix is a label of its own: joined to the name it would leave the zone at its apex, and could exceed 63
characters. Each node has one (what it publishes), and each owner one more, whose generation is the compare-and-swap
that keeps two nodes from leaving at once.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyconfd.dns.records import Policy, RecordSet, record_set
from pyconfd.settings import Mode

HERITAGE = "pyconfd"
LABEL = "_pyconfd"
_GENERATION = "+generation"  # not a valid name of a node, nor one that begins like the next
_ADOPTED = "adopted:"
_STRING = 255
"""Characters in one string of a TXT record. Source: RFC 1035, 3.3."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What a node says of itself beside its records; ``doubt`` names the node that takes it for dead, "" for none."""

    owner: str
    node: str
    addresses: tuple[str, ...]
    sequence: int = 1
    doubt: str = ""

    @property
    def adopted(self) -> bool:
        """True for a record that was there before pyconfd and has no node yet."""
        return self.node.startswith(_ADOPTED)


@dataclass(frozen=True, slots=True)
class NameOwner:
    """The owner of a name, how it is kept, and how often something was taken out of the answer."""

    owner: str
    mode: Mode
    generation: int


def marker_name(name: str) -> str:
    """Return the name of the TXT record sets of ``name``."""
    return f"{LABEL}.{name}"


def identifier_of(owner: str, node: str) -> str:
    """Return the SetIdentifier of a node's record sets."""
    return f"pyconfd:{owner}:{node}"


def adopted_node(address: str) -> str:
    """Return the name under which an address is kept that no node has published yet."""
    return f"{_ADOPTED}{address}"


def marker_record(name: str, marker: Marker, ttl_s: int) -> RecordSet:
    """Return the TXT record set of a node."""
    pairs = {
        "node": marker.node,
        "ip": "+".join(marker.addresses),
        "seq": str(marker.sequence),
        **({"doubt": marker.doubt} if marker.doubt else {}),
    }
    return _record(name, marker.owner, marker.node, pairs, ttl_s)


def owner_record(name: str, owner: NameOwner, ttl_s: int) -> RecordSet:
    """Return the TXT record set of an owner."""
    pairs = {"mode": owner.mode.value, "generation": str(owner.generation)}
    return _record(name, owner.owner, _GENERATION, pairs, ttl_s)


def _record(name: str, owner: str, who: str, pairs: Mapping[str, str], ttl_s: int) -> RecordSet:
    text = ",".join(f"{key}={value}" for key, value in {"heritage": HERITAGE, "owner": owner, **pairs}.items())
    parts = (f'"{text[begin : begin + _STRING]}"' for begin in range(0, len(text), _STRING))
    return record_set(marker_name(name), "TXT", ttl_s, [" ".join(parts)], Policy.MULTIVALUE, identifier_of(owner, who))


def markers_of(records: Iterable[RecordSet]) -> dict[tuple[str, str], tuple[Marker, RecordSet]]:
    """Parse what nodes say at a name, by owner and node, with the record sets that carry it."""
    found = {}
    for record in records:
        pairs = _pairs(record)
        owner, node = pairs.get("owner", ""), pairs.get("node", "")
        if owner and node and record.identifier == identifier_of(owner, node):
            addresses = tuple(filter(None, pairs.get("ip", "").split("+")))
            marker = Marker(owner, node, addresses, _number(pairs.get("seq", "")), pairs.get("doubt", ""))
            found[owner, node] = (marker, record)
    return found


def owners_of(records: Iterable[RecordSet]) -> dict[str, tuple[NameOwner, RecordSet]]:
    """Parse what owners say at a name, with the record sets that carry it."""
    found = {}
    for record in records:
        pairs = _pairs(record)
        owner, mode = pairs.get("owner", ""), pairs.get("mode", "")
        if owner and mode in set(Mode) and record.identifier == identifier_of(owner, _GENERATION):
            found[owner] = (NameOwner(owner, Mode(mode), _number(pairs.get("generation", ""))), record)
    return found


def _pairs(record: RecordSet) -> dict[str, str]:
    """Parse the text of a marker. Callers compare the SetIdentifier with it: a copy of the text counts for nothing."""
    if record.type != "TXT" or len(record.values) != 1:
        return {}
    text = "".join(re.findall(r'"([^"]*)"', record.values[0]))
    pairs = {key: value for key, _, value in (part.partition("=") for part in text.split(","))}
    return pairs if pairs.get("heritage") == HERITAGE else {}


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
