"""Route 53 in memory with the rules that AWS documents: a batch is done whole or not at all.

Source: Route 53 API Reference, ChangeResourceRecordSets and ResourceRecordSet; Developer Guide, "Supported DNS record
types" and "Quotas".
"""

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

from pyconfd.dns.records import (
    NoZoneError,
    Policy,
    RecordAction,
    RecordChange,
    RecordSet,
    RefusedBatchError,
    Zone,
    inside,
    marker_name,
    normalised,
)
from pyconfd.dns.route53 import Route53
from pyconfd.errors import Problem

MOST_VALUES = 1000
MOST_CHARACTERS = 32_000
MOST_IN_A_GROUP = 100
_TXT = re.compile(r'"[^"]{0,255}"(?: "[^"]{0,255}")*')
_LABEL = re.compile(r"[!-~]{1,63}")


class StrictRoute53(Route53):
    """Hosted zones by id; ``changing`` counts the batches, and ``after_change`` is called after each."""

    def __init__(self, *zones: Zone) -> None:
        self._zones = {zone.zone_id: zone for zone in zones}
        self._content: dict[str, dict[tuple[str, str, str], RecordSet]] = {zone.zone_id: {} for zone in zones}
        self._lock = threading.Lock()
        self.after_change: Callable[[], None] = lambda: None
        self.changing = 0

    def zones(self) -> tuple[Zone, ...]:
        return tuple(self._zones.values())

    def records(self, zone_id: str, name: str) -> tuple[RecordSet, ...]:
        wanted = {normalised(name), normalised(marker_name(name))}
        with self._lock:
            return tuple(item for key, item in sorted(self._zone(zone_id).items()) if key[0] in wanted)

    def change(self, zone_id: str, changes: tuple[RecordChange, ...]) -> None:
        with self._lock:
            self._content[zone_id] = self._changed(zone_id, changes)
            self.changing += 1
        self.after_change()

    def answer(self, name: str, kind: str) -> tuple[str, ...]:
        """What the name would be answered with, health checks left out."""
        found = [item for content in self._content.values() for item in content.values()]
        mine = [item for item in found if item.name == normalised(name) and item.type == kind]
        return tuple(sorted(value for item in mine for value in item.values))

    def everything(self, zone_id: str = "") -> frozenset[RecordSet]:
        zones = [content for key, content in self._content.items() if zone_id in {"", key}]
        return frozenset(item for content in zones for item in content.values())

    def add_zone(self, zone: Zone) -> None:
        self._zones[zone.zone_id] = zone
        self._content[zone.zone_id] = {}

    def delete_zone(self, zone_id: str) -> None:
        del self._zones[zone_id], self._content[zone_id]

    def put(self, zone_id: str, *records: RecordSet) -> None:
        """What somebody else wrote; aliases and policies that pyconfd never writes too."""
        self._content[zone_id] |= {item.key: item for item in records}

    def _zone(self, zone_id: str) -> dict[tuple[str, str, str], RecordSet]:
        if zone_id not in self._content:
            raise NoZoneError(Problem(zone_id, "NoSuchHostedZone"))
        return self._content[zone_id]

    def _changed(self, zone_id: str, changes: Iterable[RecordChange]) -> dict[tuple[str, str, str], RecordSet]:
        content = dict(self._zone(zone_id))
        changes = tuple(changes)
        values = [value for change in changes for value in change.record.values]
        _demand(bool(changes), "a batch without changes")
        _demand(len(values) <= MOST_VALUES, "too many values in a batch")
        _demand(sum(map(len, values)) <= MOST_CHARACTERS, "too many characters in a batch")
        for change in changes:
            record = change.record
            if change.action is RecordAction.DELETE:
                there = content.get(record.key)
                _demand(there is not None, f"tried to delete {record.key} but it was not found")
                _demand(there == record, f"tried to delete {record.key} but the values provided do not match")
                del content[record.key]
            else:
                _demand(record.key not in content, f"tried to create {record.key} but it already exists")
                _well_formed(record, self._zones[zone_id])
                _fits(record, content.values())
                content[record.key] = record
        return content


def _demand(holds: bool, text: str) -> None:
    if not holds:
        raise RefusedBatchError(Problem("", text))


def _well_formed(record: RecordSet, zone: Zone) -> None:
    _demand(inside(record.name, zone.name), f"{record.name} is not permitted in zone {zone.name}")
    labels = record.name.rstrip(".").split(".")
    _demand(len(record.name) <= 255 and all(_LABEL.fullmatch(item) for item in labels), "not a name")
    _demand(record.ttl_s is not None and 0 <= record.ttl_s < 2**31, "not a TTL")
    _demand(bool(record.values) and len(record.values) == len(set(record.values)), "no values, or a value twice")
    _demand(len(record.identifier) <= 128, "the SetIdentifier is too long")
    _demand(bool(record.identifier) is (record.policy is not Policy.SIMPLE), "SetIdentifier and policy go together")
    _demand((record.weight is not None) is (record.policy is Policy.WEIGHTED), "weight and policy go together")
    _demand(record.weight is None or 0 <= record.weight <= 255, "not a weight")
    _demand(record.policy is not Policy.WEIGHTED or len(record.values) == 1, "a weighted record set has one value")
    _demand(record.policy is not Policy.MULTIVALUE or record.type not in {"NS", "CNAME"}, "no multivalue of this type")
    _demand(not record.alias, "not written by this program")
    for value in record.values:
        _demand(_value_fits(record.type, value), f"{value} is no value of {record.type}")
    if record.type == "CNAME":
        _demand(len(record.values) == 1 and record.name != normalised(zone.name), "not a CNAME")


def _value_fits(kind: str, value: str) -> bool:
    try:
        if kind == "A":
            IPv4Address(value)
        elif kind == "AAAA":
            IPv6Address(value)
    except ValueError:
        return False
    return kind != "TXT" or (len(value) <= 4000 and _TXT.fullmatch(value) is not None)


def _fits(record: RecordSet, others: Iterable[RecordSet]) -> None:
    at_name = [item for item in others if item.name == record.name]
    _demand(not any((item.type == "CNAME") != (record.type == "CNAME") for item in at_name), "beside a CNAME")
    group = [item for item in at_name if item.type == record.type]
    same = replace(record, identifier="").policy
    _demand(all(item.policy is same for item in group), "record sets of one name and type have one routing policy")
    _demand(record.policy is not Policy.SIMPLE or not group, "a simple record set is alone")
    _demand(len(group) < MOST_IN_A_GROUP, "too many record sets of one name and type")
