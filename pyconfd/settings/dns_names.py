"""What each name of ``pyconfd dns`` has of its own: kinds of values, and the tables ``[[dns.records]]``."""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from pyconfd.presets.values import address, host_name
from pyconfd.settings.kinds import Boolean, Choice, Count, NotAcceptedError, Text, choice_of
from pyconfd.settings.tables import Tables


class AddressSource(StrEnum):
    """Where a node's own address comes from."""

    FIXED = "fixed"
    """``address`` and ``address6``."""
    IMDS_PUBLIC = "imds-public"
    IMDS_PRIVATE = "imds-private"
    INTERFACE = "interface"


def dns_name(text: str) -> str:
    """Return a name to publish, without a final dot.

    Raises:
        NotAcceptedError: it is none, or an address.
    """
    try:
        name = host_name(text)
    except ValueError:
        name = ""
    if "." not in name or name.replace(".", "").isdigit() or ":" in name:
        raise NotAcceptedError("a name like lb.example.com", text)
    return name


@dataclass(frozen=True)
class OwnAddress(Text):
    """An address in its usual spelling, or ""; ``version`` 0 is either."""

    what: str = "an IP address"
    metavar: str = "ADDRESS"
    version: int = 0

    def parse(self, value: object) -> str:
        """Return the address."""
        text = super().parse(value)
        parsed = address(text)
        if text and (parsed is None or self.version not in {0, parsed.version}):
            raise NotAcceptedError(self.what, value)
        return str(parsed) if parsed else ""


@dataclass(frozen=True)
class Weight(Text):
    """A weight of Route 53 as text, "0" to "255"; "" is none."""

    what: str = "a whole number from 0 to 255"
    pattern: str = "25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9]"
    metavar: str = "NUMBER"

    def parse(self, value: object) -> str:
        """Return the digits; TOML may give a number."""
        return super().parse(str(value) if isinstance(value, int) and not isinstance(value, bool) else value)


NODE = Text("a name", r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
OWNER = Text(
    "a name of up to 40 letters, digits, '.', '_' and '-'",
    r"[A-Za-z0-9]([A-Za-z0-9._-]{0,38}[A-Za-z0-9])?",
    optional=False,
)
"""With the longest name of a node a SetIdentifier stays below Route 53's 128 characters."""
ID = Text("an id", r"[A-Za-z0-9-]{1,64}")
MODE = Choice(("multivalue", "shared", "vip"))
TTL_S = Count(1, 86400)
MIN_RECORDS = Count(1, 100)
SOURCE = choice_of(AddressSource)
V4 = OwnAddress("an IPv4 address", version=4)
V6 = OwnAddress("an IPv6 address", version=6)
INTERFACE = Text("an interface", r"[A-Za-z0-9_.@:-]{1,15}")


@dataclass(frozen=True, slots=True)
class NameSettings:
    """One name with all that is kept of it; the fields mean what those of ``[dns]`` mean."""

    name: str
    owner: str
    zone_id: str
    private: bool
    mode: str
    ttl_s: int
    weight: str
    health_check_id: str
    min_records: int
    vip: str
    address_source: AddressSource
    address: str
    address6: str
    interface: str


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """One table ``[[dns.records]]``; None is what ``[dns]`` says."""

    name: str
    owner: str | None = None
    zone_id: str | None = None
    private: bool | None = None
    mode: str | None = None
    ttl_s: int | None = None
    weight: str | None = None
    health_check_id: str | None = None
    min_records: int | None = None
    vip: str | None = None
    address_source: AddressSource | None = None
    address: str | None = None
    address6: str | None = None
    interface: str | None = None


@dataclass(frozen=True)
class _Name(Text):
    """A name to publish."""

    def parse(self, value: object) -> str:
        """Return the name."""
        return dns_name(super().parse(value))


RECORDS = Tables(
    name="dns.records",
    item="record",
    keys=MappingProxyType(
        {
            "name": _Name(optional=False),
            "owner": OWNER,
            "zone_id": ID,
            "private": Boolean(),
            "mode": MODE,
            "ttl_s": TTL_S,
            "weight": Weight(),
            "health_check_id": ID,
            "min_records": MIN_RECORDS,
            "vip": OwnAddress(),
            "address_source": SOURCE,
            "address": V4,
            "address6": V6,
            "interface": INTERFACE,
        }
    ),
    required=("name",),
    make=RecordSettings,
    title=lambda record: str(record.name),
)
