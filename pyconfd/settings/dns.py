"""``[dns]``: names in Route 53 that follow the nodes that can serve."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta

from pyconfd.settings.setting import YEAR_S, TextForm, setting
from pyconfd.settings.values import (
    Address,
    Address4,
    Address6,
    DnsName,
    Duration,
    DurationOrZero,
    Frontend,
    Suffix,
    whole,
)


class AddressSource(StrEnum):
    """Where a node's own address comes from; FIXED is ``address`` and ``address6``."""

    FIXED = "fixed"
    IMDS_PUBLIC = "imds-public"
    IMDS_PRIVATE = "imds-private"
    INTERFACE = "interface"


class Mode(StrEnum):
    """How a name points at nodes."""

    MULTIVALUE = "multivalue"
    """Each node has a record set of its own."""
    SHARED = "shared"
    """One record set with the addresses of all."""
    VIP = "vip"
    """One record set with the address of the node that holds the floating address."""


# With the longest name of a node a SetIdentifier stays below Route 53's 128 characters.
_Owner = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,38}[A-Za-z0-9])?$",
        min_length=1,
        description="a name of up to 40 letters, digits, '.', '_' and '-'",
    ),
]
_NodeName = Annotated[str, whole(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", "a name")]
_Id = Annotated[str, TextForm("ID"), whole(r"[A-Za-z0-9-]{1,64}", "an id")]
_Ttl = Annotated[int, Meta(ge=1, le=86400)]
_Weight = Annotated[int, Meta(ge=0, le=255)]
_MinRecords = Annotated[int, Meta(ge=1, le=100)]
_Interface = Annotated[str, whole(r"[A-Za-z0-9_.@:-]{1,15}", "an interface")]


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """One table ``[[dns.records]]``; None is what ``[dns]`` says."""

    name: DnsName
    owner: _Owner | None = None
    zone_id: _Id | None = None
    private: bool | None = None
    mode: Mode | None = None
    ttl_s: _Ttl | None = None
    weight: _Weight | None = None
    health_check_id: _Id | None = None
    min_records: _MinRecords | None = None
    vip: Address | None = None
    address_source: AddressSource | None = None
    address: Address4 | None = None
    address6: Address6 | None = None
    interface: _Interface | None = None


@dataclass(frozen=True, slots=True)
class DnsSettings:
    """``[dns]``: which names, with what records, from when on; without names there is nothing to do."""

    names: tuple[DnsName, ...] = setting((), "names that point at this node while it can serve")
    records: tuple[RecordSettings, ...] = setting(
        (),
        "names that are kept otherwise than dns.names, each a table [[dns.records]] with name and, of the settings"
        " below, maybe owner, zone_id, private, mode, ttl_s, weight, health_check_id, min_records, vip,"
        " address_source, address, address6 and interface",
    )
    annotation_suffixes: tuple[Suffix, ...] = setting(
        (),
        "domains below which the names of the annotation haproxy.unity3d.com/route53 (preset hosts) are published too",
        empty="the annotation is not looked at",
    )
    annotation_zones: tuple[_Id, ...] = setting(
        (), "hosted zones in which names of the annotation may be", empty="any that has them"
    )
    annotation_names: Annotated[int, Meta(ge=1, le=1000)] = setting(20, "most names that the annotation may add")
    annotation_grace_s: DurationOrZero = setting(
        3600.0,
        "how long a name must be gone from the annotation, all being well with the cluster, before this node"
        " withdraws from it",
    )
    in_daemon: bool = setting(
        False, "pyconfd run and consume keep the names too, in a process of its own; false: pyconfd-dns.service does"
    )
    owner: _Owner = setting(
        "pyconfd", "whose records these are: the same on all nodes of one set, another for each other set"
    )
    node: _NodeName = setting("", "name of this node among those of its owner", empty="the host name")
    zone_id: _Id = setting(
        "", "hosted zone of all names", empty="for each name the zone with the longest name that it is in"
    )
    private: bool = setting(False, "look for the zone among private ones rather than public ones")
    mode: Mode = setting(
        Mode.MULTIVALUE,
        "multivalue: a record for each node; shared: one record with all addresses; vip: one record with the"
        " address of the node that holds dns.vip",
    )
    ttl_s: _Ttl = setting(60, "how long an answer may be kept, in seconds")
    weight: _Weight | None = setting(None, "weight of this node's records, 0 to 255; all nodes or none have one")
    health_check_id: _Id = setting("", "Route 53 health check that takes this node's records out when it is dead")
    address_source: AddressSource = setting(AddressSource.FIXED, "where this node's own address comes from")
    address: Address4 = setting("", "IPv4 address of this node, for address_source fixed")
    address6: Address6 = setting("", "IPv6 address of this node, for address_source fixed")
    interface: _Interface = setting("", "network interface, for address_source interface")
    vip: Address = setting("", "floating address; only its holder is active")
    frontends: tuple[Frontend, ...] = setting(
        (), "frontends of this node that must answer: http://127.0.0.1:80/ (any status) or tcp://127.0.0.1:443"
    )
    min_records: _MinRecords = setting(1, "never withdraw if fewer records of other nodes would remain")
    rise: Annotated[int, Meta(ge=1, le=100)] = setting(2, "good checks in a row after which this node joins")
    fall: Annotated[int, Meta(ge=1, le=100)] = setting(3, "bad checks in a row after which this node withdraws")
    look_s: Annotated[float, Meta(ge=0.1, le=YEAR_S)] = setting(1.0, "time between two checks of this node")
    hold_s: DurationOrZero = setting(60.0, "a withdrawn node stays out for so long")
    joins_an_hour: Annotated[int, Meta(ge=1, le=1000)] = setting(
        6, "most times an hour that this node joins again; to withdraw is not limited"
    )
    interval_s: Annotated[float, Meta(ge=1, le=YEAR_S)] = setting(
        60.0, "how often the records are read without changes"
    )
    nodes: Annotated[int, Meta(ge=1, le=200)] = setting(
        4, "nodes that are expected to share the account's 5 requests a second"
    )
    reaper: bool = setting(False, "take out nodes that neither answer on the network nor in Route 53")
    reap_after_s: Annotated[float, Meta(ge=10, le=YEAR_S)] = setting(300.0, "how long each of these two must last")
    reap_port: Annotated[int, Meta(ge=1, le=65535)] = setting(80, "port at which other nodes are asked, for the reaper")
    accept_dead_nodes: bool = setting(
        False, "accept that a node that crashed stays in the answer until pyconfd dns forget takes it out"
    )
    endpoint_url: Annotated[str, whole(r"https?://[^@\s]+", "an http(s) URL")] = setting(
        "", "another implementation of Route 53", empty="AWS"
    )
    timeout_s: Duration = setting(10.0, "longest wait for an answer of Route 53")


@dataclass(frozen=True, slots=True)
class NameSettings(DnsSettings):
    """One name with all that is kept of it: what ``[dns]`` says, or its own table instead.

    It must be in one of ``annotation_zones`` where any are given, which is so for names of the annotation only.
    """

    name: str = ""


def name_of(dns: DnsSettings, name: str) -> NameSettings:
    """Return how a name is kept that has no table of its own."""
    return _named(dns, {"name": name})


def names_of(dns: DnsSettings) -> tuple[NameSettings, ...]:
    """Return all names of the settings, each with all that is kept of it."""
    own = replace(dns, annotation_zones=())
    return (*(name_of(own, name) for name in dns.names), *(_named(own, _values(record)) for record in dns.records))


def _named(dns: DnsSettings, own: Mapping[str, Any]) -> NameSettings:
    return NameSettings(**_values(dns) | {key: value for key, value in own.items() if value is not None})


def _values(made: DnsSettings | RecordSettings) -> dict[str, Any]:
    return {each.name: getattr(made, each.name) for each in fields(made)}
