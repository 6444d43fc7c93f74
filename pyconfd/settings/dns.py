"""The section of ``pyconfd dns``: names in Route 53 that follow the nodes that can serve."""

from dataclasses import dataclass, fields
from typing import Annotated
from urllib.parse import urlsplit

from pyconfd.presets.values import host_name
from pyconfd.settings.dns_names import (
    ID,
    INTERFACE,
    MIN_RECORDS,
    MODE,
    NODE,
    OWNER,
    RECORDS,
    SOURCE,
    TTL_S,
    V4,
    V6,
    AddressSource,
    NameSettings,
    OwnAddress,
    RecordSettings,
    Weight,
    dns_name,
)
from pyconfd.settings.kinds import Boolean, Count, Listing, NotAcceptedError, Seconds, Text
from pyconfd.settings.setting import Setting


def frontend(text: str) -> str:
    """Return the address of a frontend of this node, ``http://HOST:PORT/PATH`` or ``tcp://HOST:PORT``.

    Raises:
        NotAcceptedError: it is none.
    """
    try:
        parts = urlsplit(text)
        good = parts.scheme in {"http", "tcp"} and bool(parts.hostname) and "@" not in text
        good = good and (parts.scheme == "http" or parts.port is not None)
    except ValueError:
        good = False
    if not good:
        raise NotAcceptedError("http://HOST:PORT/PATH or tcp://HOST:PORT", text)
    return text


def _suffix(text: str) -> str:
    try:
        return host_name(text.removeprefix("*.").removeprefix("."))
    except ValueError:
        raise NotAcceptedError("a domain like example.com, which allows what is below it too", text) from None


@dataclass(frozen=True, slots=True)
class DnsSettings:
    """``[dns]``: which names, with what records, from when on; without names there is nothing to do."""

    names: Annotated[
        tuple[str, ...],
        Setting(
            "names that point at this node while it can serve", Listing(dns_name, metavar="NAME,..."), empty="none"
        ),
    ] = ()
    records: Annotated[
        tuple[RecordSettings, ...],
        Setting(
            "names that are kept otherwise than dns.names, each a table [[dns.records]] with name and, of the settings"
            " below, maybe owner, zone_id, private, mode, ttl_s, weight, health_check_id, min_records, vip,"
            " address_source, address, address6 and interface",
            RECORDS,
            empty="none",
        ),
    ] = ()
    annotation_suffixes: Annotated[
        tuple[str, ...],
        Setting(
            "domains below which the names of the annotation haproxy.unity3d.com/route53 (preset hosts) are published"
            " too",
            Listing(_suffix, metavar="DOMAIN,..."),
            empty="the annotation is not looked at",
        ),
    ] = ()
    annotation_zones: Annotated[
        tuple[str, ...],
        Setting(
            "hosted zones in which names of the annotation may be",
            Listing(ID.parse, metavar="ID,..."),
            empty="any that has them",
        ),
    ] = ()
    annotation_names: Annotated[int, Setting("most names that the annotation may add", Count(1, 1000))] = 20
    annotation_grace_s: Annotated[
        float,
        Setting(
            "how long a name must be gone from the annotation, all being well with the cluster, before this node"
            " withdraws from it",
            Seconds(above=False),
        ),
    ] = 3600.0
    in_daemon: Annotated[
        bool,
        Setting(
            "pyconfd run and consume keep the names too, in a process of its own; false: pyconfd-dns.service does",
            Boolean(),
        ),
    ] = False
    owner: Annotated[
        str,
        Setting(
            "whose records these are: the same on all nodes of one set, another for each other set",
            OWNER,
        ),
    ] = "pyconfd"
    node: Annotated[str, Setting("name of this node among those of its owner", NODE, empty="the host name")] = ""
    zone_id: Annotated[
        str,
        Setting("hosted zone of all names", ID, empty="for each name the zone with the longest name that it is in"),
    ] = ""
    private: Annotated[bool, Setting("look for the zone among private ones rather than public ones", Boolean())] = False
    mode: Annotated[
        str,
        Setting(
            "multivalue: a record for each node; shared: one record with all addresses; vip: one record with the"
            " address of the node that holds dns.vip",
            MODE,
        ),
    ] = "multivalue"
    ttl_s: Annotated[int, Setting("how long an answer may be kept, in seconds", TTL_S)] = 60
    weight: Annotated[
        str,
        Setting("weight of this node's records, 0 to 255; all nodes or none have one", Weight(), empty="none"),
    ] = ""
    health_check_id: Annotated[
        str, Setting("Route 53 health check that takes this node's records out when it is dead", ID, empty="none")
    ] = ""
    address_source: Annotated[AddressSource, Setting("where this node's own address comes from", SOURCE)] = (
        AddressSource.FIXED
    )
    address: Annotated[
        str,
        Setting(
            "IPv4 address of this node, for address_source fixed",
            V4,
            empty="none",
        ),
    ] = ""
    address6: Annotated[
        str,
        Setting(
            "IPv6 address of this node, for address_source fixed",
            V6,
            empty="none",
        ),
    ] = ""
    interface: Annotated[
        str,
        Setting(
            "network interface, for address_source interface",
            INTERFACE,
            empty="none",
        ),
    ] = ""
    vip: Annotated[
        str,
        Setting("floating address; only its holder is active", OwnAddress(), empty="none"),
    ] = ""
    frontends: Annotated[
        tuple[str, ...],
        Setting(
            "frontends of this node that must answer: http://127.0.0.1:80/ (any status) or tcp://127.0.0.1:443",
            Listing(frontend, metavar="URL,..."),
            empty="none",
        ),
    ] = ()
    min_records: Annotated[
        int, Setting("never withdraw where fewer records of other nodes would be left", MIN_RECORDS)
    ] = 1
    rise: Annotated[int, Setting("good looks in a row after which this node joins", Count(1, 100))] = 2
    fall: Annotated[int, Setting("bad looks in a row after which this node withdraws", Count(1, 100))] = 3
    look_s: Annotated[float, Setting("time between two looks at this node", Seconds(least=0.1, above=False))] = 1.0
    hold_s: Annotated[float, Setting("who withdrew stays out for so long", Seconds(least=0, above=False))] = 60.0
    joins_an_hour: Annotated[
        int, Setting("most times an hour that this node joins again; to withdraw is not limited", Count(1, 1000))
    ] = 6
    interval_s: Annotated[
        float, Setting("how often the records are read where nothing happens", Seconds(least=1, above=False))
    ] = 60.0
    nodes: Annotated[
        int, Setting("nodes that are expected to share the account's 5 requests a second", Count(1, 200))
    ] = 4
    reaper: Annotated[bool, Setting("take out nodes that neither answer on the network nor in Route 53", Boolean())] = (
        False
    )
    reap_after_s: Annotated[
        float,
        Setting("how long each of these two must last", Seconds(least=10, above=False)),
    ] = 300.0
    reap_port: Annotated[int, Setting("port at which other nodes are asked, for the reaper", Count(1, 65535))] = 80
    accept_dead_nodes: Annotated[
        bool,
        Setting("a node that crashed stays in the answer until somebody runs pyconfd dns forget", Boolean()),
    ] = False
    endpoint_url: Annotated[
        str,
        Setting("another implementation of Route 53", Text("an http(s) URL", r"https?://[^@\s]+"), empty="AWS"),
    ] = ""
    timeout_s: Annotated[float, Setting("longest wait for an answer of Route 53", Seconds())] = 10.0


_OWN = tuple(field.name for field in fields(NameSettings) if field.name != "name")


def name_of(dns: DnsSettings, name: str) -> NameSettings:
    """Return how a name is kept that has no table of its own."""
    return NameSettings(name, **{key: getattr(dns, key) for key in _OWN})


def names_of(dns: DnsSettings) -> tuple[NameSettings, ...]:
    """Return all names of the settings, each with all that is kept of it."""
    return (*(name_of(dns, name) for name in dns.names), *(_of_table(dns, record) for record in dns.records))


def _of_table(dns: DnsSettings, record: RecordSettings) -> NameSettings:
    own = {key: getattr(record, key) for key in _OWN}
    return NameSettings(
        record.name, **{key: getattr(dns, key) if value is None else value for key, value in own.items()}
    )
