"""Record sets, changes and zones in Route 53's words, and the markers that say whose the records of a name are.

Markers are TXT record sets at ``_pyconfd.NAME``. The prefix is a label of its own: joined to the name it would leave
the zone at its apex, and could exceed 63 characters. Each node has one (what it publishes), and each owner one more,
whose generation is the compare-and-swap that keeps two nodes from leaving at once.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address

from pyconfd.errors import ConfigurationError, Problem, RejectedInput, TransientError
from pyconfd.settings import Mode

ADDRESS_TYPES = ("A", "AAAA")
"""The types that a node publishes."""

HERITAGE = "pyconfd"
LABEL = "_pyconfd"
_GENERATION = "+generation"  # not a valid name of a node, nor one that begins like the next
_ADOPTED = "adopted:"
_STRING = 255
"""Characters in one string of a TXT record. Source: RFC 1035, 3.3."""


def normalised(name: str) -> str:
    r"""Return a DNS name as Route 53 compares it: lower case, with its final dot, ``\052`` as ``*``."""
    plain = name.lower().replace("\\052", "*")
    return plain if plain.endswith(".") else f"{plain}."


class Policy(StrEnum):
    """How Route 53 chooses among the record sets of one name and type; OTHER is one that pyconfd never writes."""

    SIMPLE = "simple"
    MULTIVALUE = "multivalue"
    WEIGHTED = "weighted"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class RecordSet:
    """One record set. ``name`` is normalised, ``values`` are sorted; ``ttl_s`` is None only for an alias.

    ``policy`` OTHER and ``alias`` are only read: such a record set is not pyconfd's.
    """

    name: str
    type: str
    ttl_s: int | None
    values: tuple[str, ...]
    policy: Policy = Policy.SIMPLE
    identifier: str = ""
    weight: int | None = None
    health_check_id: str = ""
    alias: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it one record set: name, type and SetIdentifier."""
        return self.name, self.type, self.identifier


def record_set(  # noqa: PLR0917 - in the order in which zone files have them
    name: str, kind: str, ttl_s: int, values: Iterable[str], policy: Policy = Policy.SIMPLE, identifier: str = ""
) -> RecordSet:
    """Return a record set with its name and values in the form in which they are compared."""
    return RecordSet(normalised(name), kind, ttl_s, canonical(kind, values), policy, identifier)


def canonical(kind: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return values sorted, IPv6 addresses in their usual spelling; what cannot be parsed stays as it is."""
    return tuple(sorted({_address(value) if kind == "AAAA" else value for value in values}))


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        return text


class RecordAction(StrEnum):
    """What a change does. Never UPSERT: it would overwrite what another node wrote in between."""

    DELETE = "DELETE"
    CREATE = "CREATE"


@dataclass(frozen=True, slots=True)
class RecordChange:
    """One change of a batch; a DELETE names the whole record set as it was read."""

    action: RecordAction
    record: RecordSet

    def __str__(self) -> str:
        record = self.record
        which = f" [{record.identifier}]" if record.identifier else ""
        return f"{self.action} {record.name} {record.type}{which} {' '.join(record.values)}"


def swapped(former: RecordSet | None, wanted: RecordSet | None) -> tuple[RecordChange, ...]:
    """Return the changes from one record set to another; None is absent. They fail where ``former`` is not there."""
    if former == wanted:
        return ()
    gone = (RecordChange(RecordAction.DELETE, former),) if former else ()
    return (*gone, RecordChange(RecordAction.CREATE, wanted)) if wanted else gone


@dataclass(frozen=True, slots=True)
class Zone:
    """A hosted zone; ``zone_id`` without ``/hostedzone/``."""

    zone_id: str
    name: str
    private: bool = False


def inside(name: str, zone: str) -> bool:
    """Return whether a name is a zone's own or below it, on a label boundary."""
    name, zone = normalised(name), normalised(zone)
    return name == zone or name.endswith(f".{zone}")


def zone_of(name: str, zones: Iterable[Zone], *, private: bool) -> Zone:
    """Return the public (or private) zone with the longest name that ``name`` is in.

    Raises:
        ConfigurationError: there is none, or two of the same name.
    """
    kind = "private" if private else "public"
    fitting = [zone for zone in zones if zone.private is private and inside(name, zone.name)]
    longest = max((len(normalised(zone.name)) for zone in fitting), default=0)
    best = sorted((zone for zone in fitting if len(normalised(zone.name)) == longest), key=lambda zone: zone.zone_id)
    if not best:
        remedy = "set dns.zone_id, or dns.private if it is the other kind"
        raise ConfigurationError(Problem("dns.names", f"no {kind} hosted zone has {name}", remedy))
    if len(best) > 1:
        both = " and ".join(f"{zone.zone_id} ({zone.name})" for zone in best)
        message = f"{name} fits {both}, both {kind}"
        raise ConfigurationError(Problem("dns.zone_id", message, "set dns.zone_id to the one that is meant"))
    return best[0]


class RefusedBatchError(RejectedInput):
    """Nothing of a batch was done: a record set is not as it was read, or breaks a rule. Reading again tells which."""


class NoZoneError(RejectedInput):
    """There is no hosted zone of this id, or no longer."""


class ThrottledError(TransientError):
    """The account sent too many requests; all of its programs share one limit."""


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
