"""Record sets, changes and zones in Route 53's words."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address

from pyconfd.errors import ConfigurationError, Problem, RejectedInput, TransientError

ADDRESS_TYPES = ("A", "AAAA")
"""The types that a node publishes."""


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


class ThrottledError(TransientError):
    """The account sent too many requests; all of its programs share one limit."""
