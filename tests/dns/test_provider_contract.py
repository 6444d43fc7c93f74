"""What every provider keeps to. moto judges the wire; what it lets through that Route 53 refuses is asked of the
strict one only."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import boto3
import pytest

from pyconfd.dns.records import (
    NoZoneError,
    Policy,
    RecordAction,
    RecordChange,
    RecordSet,
    RefusedBatchError,
    Zone,
    marker_name,
    record_set,
    swapped,
)
from pyconfd.dns.route53 import Route53
from pyconfd.errors import RejectedInput
from tests.dns.stage import NAME, ZONE
from tests.dns.strict import StrictRoute53
from tests.dns.strict_http import StrictServer
from tests.dns.wire import FaultProxy

A = record_set(NAME, "A", 60, ["192.0.2.1"])


def own(kind: str = "A", value: str = "192.0.2.1", identifier: str = "pyconfd:prod:n0") -> RecordSet:
    return record_set(NAME, kind, 60, [value], Policy.MULTIVALUE, identifier)


@pytest.fixture(params=["strict", "strict over HTTP", "moto"])
def both(request: pytest.FixtureRequest) -> Iterator[tuple[Route53, Zone]]:
    if request.param == "strict":
        yield StrictRoute53(ZONE), ZONE
        return
    if request.param == "strict over HTTP":
        request.getfixturevalue("credentials")
        with StrictServer(StrictRoute53(ZONE), page=2) as server:
            yield Route53(f"http://127.0.0.1:{server.port}"), ZONE
        return
    proxy: FaultProxy = request.getfixturevalue("proxy")
    zone: Zone = request.getfixturevalue("new_zone")("example.com.")
    yield Route53(proxy.url), zone


def read(both: tuple[Route53, Zone], name: str = NAME) -> set[RecordSet]:
    return set(both[0].records(both[1].zone_id, name))


def change(both: tuple[Route53, Zone], *changes: RecordChange) -> None:
    both[0].change(both[1].zone_id, changes)


@pytest.mark.parametrize(
    "record",
    [
        A,
        record_set(NAME, "A", 60, ["192.0.2.2", "192.0.2.1"]),
        own(),
        own("AAAA", "2001:db8::1"),
        replace(record_set(NAME, "A", 60, ["192.0.2.1"], Policy.WEIGHTED, "x"), weight=0),
        record_set(marker_name(NAME), "TXT", 60, ['"heritage=pyconfd,owner=prod"'], Policy.MULTIVALUE, "x"),
        record_set("*.example.com", "A", 60, ["192.0.2.1"]),
    ],
)
def test_what_was_written_is_read_as_it_was_and_can_be_deleted(both: tuple[Route53, Zone], record: RecordSet) -> None:
    name = record.name.removeprefix("_pyconfd.")
    change(both, *swapped(None, record))
    assert read(both, name) == {record}
    change(both, *swapped(record, None))
    assert read(both, name) == set()


def test_only_the_records_of_the_name_are_given(both: tuple[Route53, Zone]) -> None:
    others = [
        record_set(f"{label}.example.com", "A", 60, ["192.0.2.1"])
        for label in ("a", "lb2", "lb-x", "1.lb", "z.lb", "z")
    ]
    marker = record_set(marker_name(NAME), "TXT", 60, ['"x"'])
    for record in (*others, A, marker):
        change(both, *swapped(None, record))
    assert read(both) == {A, marker}


def test_what_is_there_or_not_there_or_of_another_zone_is_refused(both: tuple[Route53, Zone]) -> None:
    change(both, *swapped(None, A))
    with pytest.raises(RefusedBatchError):
        change(both, *swapped(None, A))
    for record, wanted in ((OTHER, None), (None, record_set("lb.example.org", "A", 60, ["192.0.2.1"]))):
        with pytest.raises(RejectedInput):
            change(both, *swapped(record, wanted))
    assert read(both) == {A}


def test_a_zone_that_is_not_there_is_an_error(both: tuple[Route53, Zone]) -> None:
    with pytest.raises(NoZoneError, match="NoSuchHostedZone"):
        both[0].records("Z0000000000000", NAME)


OTHER = record_set("x.example.com", "A", 60, ["192.0.2.1"])
ALIAS = record_set(NAME, "CNAME", 60, ["x.example.org."])
MANY = [record_set(f"n{number}.example.com", "A", 60, ["192.0.2.1"]) for number in range(1001)]


@pytest.mark.parametrize(
    ("there", "changes"),
    [
        # A DELETE that is not exact undoes its whole batch.
        *(
            ([A], [*swapped(None, OTHER), *swapped(stale, None)])
            for stale in (
                replace(A, ttl_s=30),
                replace(A, values=("192.0.2.2",)),
                replace(A, values=("192.0.2.1", "192.0.2.2")),
                replace(A, health_check_id="hc"),
            )
        ),
        # What is no record set of Route 53.
        *(
            ([], swapped(None, wrong))
            for wrong in (
                own("A", "192.0.2.300"),
                own("AAAA", "192.0.2.1"),
                own("A", "::1"),
                own(identifier=""),
                own(identifier="x" * 129),
                own("CNAME", "x.example.org."),
                replace(own(), ttl_s=-1),
                replace(A, identifier="x"),
                replace(A, values=()),
                replace(A, weight=3),
                replace(own(), policy=Policy.WEIGHTED, weight=256),
                replace(own(), policy=Policy.WEIGHTED, weight=1, values=("192.0.2.1", "192.0.2.2")),
                record_set("lb.notexample.com", "A", 60, ["192.0.2.1"]),
                record_set(f"{'x' * 64}.example.com", "A", 60, ["192.0.2.1"]),
                record_set(NAME, "TXT", 60, ["no quotes"]),
                record_set(NAME, "TXT", 60, [f'"{"x" * 256}"']),
                record_set("example.com", "CNAME", 60, ["x.example.org."]),
            )
        ),
        # Policies are not mixed, and nothing stands beside a CNAME.
        ([A], swapped(None, own())),
        ([own()], swapped(None, A)),
        ([own()], swapped(None, replace(own(identifier="y"), policy=Policy.WEIGHTED, weight=1))),
        ([A], swapped(None, ALIAS)),
        ([ALIAS], swapped(None, record_set(NAME, "TXT", 60, ['"x"']))),
        # A batch is neither empty nor too large.
        ([], []),
        ([], [RecordChange(RecordAction.CREATE, record) for record in MANY]),
    ],
)
def test_the_strict_one_refuses_what_route_53_refuses(there: list[RecordSet], changes: list[RecordChange]) -> None:
    provider = StrictRoute53(ZONE)
    for record in there:
        provider.change(ZONE.zone_id, swapped(None, record))
    with pytest.raises(RefusedBatchError):
        provider.change(ZONE.zone_id, tuple(changes))
    assert provider.everything() == set(there)


def test_zones_are_told_apart_by_name_and_kind(proxy: FaultProxy, new_zone: Callable[..., Zone]) -> None:
    made = {new_zone("zones.example.com."), new_zone("zones.example.com.", private=True)}
    assert made <= set(Route53(proxy.url).zones())


def test_aliases_and_other_policies_are_seen_as_what_they_are(proxy: FaultProxy, new_zone: Callable[..., Zone]) -> None:
    zone = new_zone("example.com.")
    client = boto3.client("route53", endpoint_url=proxy.url)
    target = {"HostedZoneId": "Z2", "DNSName": "elb.example.net", "EvaluateTargetHealth": False}
    for item in (
        {"Name": "alias.example.com", "Type": "A", "AliasTarget": target},
        {
            "Name": "geo.example.com",
            "Type": "A",
            "TTL": 60,
            "SetIdentifier": "eu",
            "GeoLocation": {"ContinentCode": "EU"},
            "ResourceRecords": [{"Value": "192.0.2.1"}],
        },
    ):
        batch = {"Changes": [{"Action": "CREATE", "ResourceRecordSet": item}]}
        client.change_resource_record_sets(HostedZoneId=zone.zone_id, ChangeBatch=batch)
    (alias,) = Route53(proxy.url).records(zone.zone_id, "alias.example.com")
    (geo,) = Route53(proxy.url).records(zone.zone_id, "geo.example.com")
    assert (alias.alias, alias.policy, alias.values) == (True, Policy.SIMPLE, ())
    assert (geo.alias, geo.policy, geo.identifier) == (False, Policy.OTHER, "eu")
