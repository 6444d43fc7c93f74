"""A zone of somebody who has other records too, and nodes that plan and change in it."""

from dataclasses import replace

from pyconfd.dns.planner import DnsNode, NamePlan, Wish, plan
from pyconfd.dns.records import Policy, RecordSet, Zone, record_set
from pyconfd.dns.route53 import Route53
from pyconfd.settings import NameSettings
from tests.dns.strict import StrictRoute53

ZONE = Zone("Z1", "example.com.")
NAME = "lb.example.com"
SPEC = NameSettings(name=NAME, owner="prod")


def node(number: int, *, v6: bool = False) -> DnsNode:
    return DnsNode(f"n{number}", f"192.0.2.{number + 1}", f"2001:db8::{number + 1:x}" if v6 else "")


def foreign() -> tuple[RecordSet, ...]:
    """Records of somebody else: at the name too, where another routing policy lets them stand."""
    return (
        record_set("www.example.com", "A", 300, ["203.0.113.1"]),
        record_set("example.com", "MX", 300, ["10 mail.example.com."]),
        record_set("x.lb.example.com", "CNAME", 5, ["elsewhere.example.org."]),
        record_set(NAME, "TXT", 300, ['"v=spf1 -all"']),
        record_set(NAME, "CAA", 300, ['0 issue "ca.example.net"']),
        replace(record_set("old.example.com", "A", 60, ()), ttl_s=None, alias=True),
    )


def beside() -> RecordSet:
    """A multivalue record set of another owner at the very name."""
    return record_set(NAME, "A", 17, ["203.0.113.9"], Policy.MULTIVALUE, "by-hand")


def zone_with(*records: RecordSet) -> StrictRoute53:
    provider = StrictRoute53(ZONE)
    provider.put(ZONE.zone_id, *foreign(), *records)
    return provider


def carry_out(provider: Route53, found: NamePlan, zone: Zone = ZONE) -> NamePlan:
    if found.changes:
        provider.change(zone.zone_id, found.changes)
    return found


def turn(provider: Route53, spec: NameSettings, who: DnsNode, wish: Wish, zone: Zone = ZONE) -> NamePlan:
    """One node reads, plans and changes."""
    return carry_out(provider, plan(spec, who, wish, provider.records(zone.zone_id, spec.name)), zone)
