"""Record sets and changes, in Route 53's words; plain values."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import ip_address

ADDRESS_TYPES = ("A", "AAAA")
"""The types that a node publishes."""


def normalised(name: str) -> str:
    r"""Return a DNS name as Route 53 compares it: lower case, with its final dot, ``\052`` as ``*``."""
    plain = name.lower().replace("\\052", "*")
    return plain if plain.endswith(".") else f"{plain}."


def inside(name: str, zone: str) -> bool:
    """Return whether a name is a zone's own or below it, on a label boundary."""
    name, zone = normalised(name), normalised(zone)
    return name == zone or name.endswith(f".{zone}")


class Policy(StrEnum):
    """How Route 53 chooses among the record sets of one name and type; OTHER is one that pyconfd never writes."""

    SIMPLE = "simple"
    MULTIVALUE = "multivalue"
    WEIGHTED = "weighted"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class RecordSet:
    """One record set. ``name`` is normalised, ``values`` are sorted; ``ttl_s`` is None only for an alias.

    ``policy`` OTHER and ``alias`` are never written here, only looked at: such a record set is somebody else's.
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
    """Return values sorted, IPv6 addresses in their usual spelling; what cannot be read stays as it is."""
    return tuple(sorted({_address(value) if kind == "AAAA" else value for value in values}))


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        return text


class Action(StrEnum):
    """What a change does. UPSERT is left out on purpose: it overwrites what somebody else wrote in between."""

    DELETE = "DELETE"
    CREATE = "CREATE"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a batch; a DELETE names the whole record set as it was read."""

    action: Action
    record: RecordSet


def swapped(former: RecordSet | None, wanted: RecordSet | None) -> tuple[Change, ...]:
    """Return the changes from one record set to another; None is absent. They fail where ``former`` is not true."""
    if former == wanted:
        return ()
    gone = (Change(Action.DELETE, former),) if former else ()
    return (*gone, Change(Action.CREATE, wanted)) if wanted else gone


def with_values(record: RecordSet, values: Iterable[str]) -> RecordSet:
    """Return a record set with other values."""
    return replace(record, values=canonical(record.type, values))


@dataclass(frozen=True, slots=True)
class Zone:
    """A hosted zone; ``zone_id`` without ``/hostedzone/``."""

    zone_id: str
    name: str
    private: bool = False
