"""Route 53 over boto3, which only this module knows; it is imported when the first client is made.

A change is not waited for until it is INSYNC: the SDK's waiter can take half an hour, and no decision depends on it.
"""

import os
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pyconfd.dns.records import (
    NoZoneError,
    Policy,
    RecordChange,
    RecordSet,
    RefusedBatchError,
    ThrottledError,
    Zone,
    canonical,
    marker_name,
    normalised,
)
from pyconfd.errors import Problem, RejectedInput, TransientError

ATTEMPTS = 3
CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 10.0
METADATA_HOSTS = ("169.254.169.254", "fd00:ec2::254")
"""Source: Amazon EC2 User Guide, Access instance metadata."""
_METADATA_ENDPOINT = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_PAGE = 300
"""Source: Route 53 API Reference, ListResourceRecordSets: at most 300 record sets in a page."""
_MOST_PAGES = 40
"""Route 53 needs no such limit; other implementations (moto) page for ever inside a group of one name."""
_REGION = "us-east-1"
"""Where requests are signed for: Route 53 is one service for all regions."""
_ROUTED = ("Region", "Failover", "GeoLocation", "GeoProximityLocation", "CidrRoutingConfig", "TrafficPolicyInstanceId")
_BUSY = frozenset({"Throttling", "ThrottlingException", "PriorRequestNotComplete", "RequestLimitExceeded"})
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"})
"""Credentials that were good once, or whose key was deleted: others may be in their place by now."""


class ExpiredCredentialsError(TransientError):
    """AWS takes these credentials no more."""


def metadata_without_proxy(environ: MutableMapping[str, str]) -> None:
    """Name the hosts of instance metadata in NO_PROXY: a proxy would answer for its own instance."""
    own = urlsplit(environ.get(_METADATA_ENDPOINT, "")).hostname
    former = environ.get("no_proxy") or environ.get("NO_PROXY", "")
    wanted = [*filter(None, former.split(",")), *METADATA_HOSTS, *([own] if own else [])]
    environ["no_proxy"] = environ["NO_PROXY"] = ",".join(dict.fromkeys(wanted))


class Route53:
    """The hosted zones that the credentials of this machine reach; ``endpoint_url`` is another implementation's.

    ``before_request`` is called before each request that leaves, those that botocore tries again too. All calls raise
    TransientError, or RejectedInput where a retry does not help. botocore reads files of credentials once, so once
    these have expired the next call is another client's, which reads them again.
    """

    def __init__(
        self,
        endpoint_url: str = "",
        *,
        read_timeout_s: float = READ_TIMEOUT_S,
        before_request: Callable[[], None] | None = None,
    ) -> None:
        self._endpoint_url, self._read_timeout_s = endpoint_url, read_timeout_s
        self._before_request = before_request
        self._client: Any = self._new_client()

    def _new_client(self) -> Any:
        import boto3  # noqa: PLC0415 - takes a third of a second, and most commands do without
        import botocore.session  # noqa: PLC0415 - the same
        from botocore.config import Config  # noqa: PLC0415 - the same

        metadata_without_proxy(os.environ)
        config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=self._read_timeout_s,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        )
        core = botocore.session.get_session()
        core.set_default_client_config(config)  # else STS, which hands out a role's keys, may hang for minutes
        session = boto3.session.Session(botocore_session=core)
        region = session.region_name or _REGION
        with _translated("AWS"):
            client = session.client("route53", region_name=region, endpoint_url=self._endpoint_url or None)
        if before_request := self._before_request:
            client.meta.events.register("before-send.route53", lambda **_: before_request())
        return client

    @contextmanager
    def _asked(self, place: str) -> Iterator[Any]:
        """Return the client; its errors become ours."""
        self._client = self._client or self._new_client()
        try:
            with _translated(place):
                yield self._client
        except ExpiredCredentialsError:
            self._client = None
            raise

    def zones(self) -> tuple[Zone, ...]:
        """Return the hosted zones of the account."""
        with self._asked("hosted zones") as client:
            pages = client.get_paginator("list_hosted_zones").paginate()
            return tuple(_zone(item) for page in pages for item in page["HostedZones"])

    def records(self, zone_id: str, name: str) -> tuple[RecordSet, ...]:
        """Return the record sets at a name and at its marker name; for most zones in one request.

        Source: Route 53 API Reference, ListResourceRecordSets: sorted by name, its labels reversed.
        """
        first, last = normalised(name), normalised(marker_name(name))
        found: dict[tuple[str, str, str], RecordSet] = {}
        start: dict[str, str] = {"StartRecordName": first}
        for _ in range(_MOST_PAGES):
            with self._asked(zone_id) as client:
                page = client.list_resource_record_sets(HostedZoneId=zone_id, MaxItems=str(_PAGE), **start)
            for item in page["ResourceRecordSets"]:
                record = _record(item)
                if record.name in {first, last}:
                    found[record.key] = record
            following = normalised(page.get("NextRecordName", "."))
            if not page["IsTruncated"] or _sorted_as(following) > _sorted_as(last):
                return tuple(found.values())
            start = _next(page) if following in {first, last} else {"StartRecordName": last}
        raise TransientError(Problem(zone_id, f"the list of {first} does not end", "ask the maker of this endpoint"))

    def change(self, zone_id: str, changes: tuple[RecordChange, ...]) -> None:
        """Carry out all changes or none.

        Raises:
            RefusedBatchError: a record set is not as a change says, or must not be.
        """
        batch = [{"Action": change.action.value, "ResourceRecordSet": _as_request(change.record)} for change in changes]
        with self._asked(zone_id) as client:
            client.change_resource_record_sets(HostedZoneId=zone_id, ChangeBatch={"Changes": batch})


def _next(page: dict[str, Any]) -> dict[str, str]:
    names = {"NextRecordName": "StartRecordName", "NextRecordType": "StartRecordType"}
    names["NextRecordIdentifier"] = "StartRecordIdentifier"
    return {start: page[key] for key, start in names.items() if page.get(key)}


def _sorted_as(name: str) -> str:
    """Return the text by which Route 53 sorts: ``com.example.www.``."""
    return ".".join(reversed(name.rstrip(".").split("."))) + "."


def _zone(item: dict[str, Any]) -> Zone:
    private = bool(item.get("Config", {}).get("PrivateZone"))
    return Zone(item["Id"].removeprefix("/hostedzone/"), normalised(item["Name"]), private)


def _record(item: dict[str, Any]) -> RecordSet:
    policy = Policy.SIMPLE
    if any(item.get(key) for key in _ROUTED):
        policy = Policy.OTHER
    elif item.get("MultiValueAnswer"):
        policy = Policy.MULTIVALUE
    elif item.get("Weight") is not None:
        policy = Policy.WEIGHTED
    return RecordSet(
        normalised(item["Name"]),
        item["Type"],
        item.get("TTL"),
        canonical(item["Type"], (value["Value"] for value in item.get("ResourceRecords", ()))),
        policy,
        item.get("SetIdentifier", ""),
        item.get("Weight"),
        item.get("HealthCheckId", ""),
        "AliasTarget" in item,
    )


def _as_request(record: RecordSet) -> dict[str, Any]:
    values = [{"Value": value} for value in record.values]
    request = {"Name": record.name, "Type": record.type, "TTL": record.ttl_s, "ResourceRecords": values}
    if record.identifier:
        request["SetIdentifier"] = record.identifier
    if record.policy is Policy.MULTIVALUE:
        request["MultiValueAnswer"] = True
    if record.weight is not None:
        request["Weight"] = record.weight
    if record.health_check_id:
        request["HealthCheckId"] = record.health_check_id
    return request


@contextmanager
def _translated(place: str) -> Iterator[None]:
    """Turn the SDK's exceptions into ours."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as above

    try:
        yield
    except ClientError as error:
        answer = error.response.get("Error", {})
        code, text = answer.get("Code", ""), answer.get("Message", "") or str(error)
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code == "InvalidChangeBatch":
            raise RefusedBatchError(Problem(place, text)) from error
        if code in _BUSY:
            message = f"Route 53 answers {code}: {text}"
            raise ThrottledError(Problem(place, message, "5 requests a second are all that an account has")) from error
        if code in _EXPIRED:
            remedy = "renew the credentials of this machine; they are read again with the next request"
            raise ExpiredCredentialsError(Problem(place, f"{code}: {text}", remedy)) from error
        if code == "NoSuchHostedZone":
            remedy = "aws route53 list-hosted-zones shows those that exist"
            raise NoZoneError(Problem(place, f"{code}: {text}", remedy)) from error
        if status >= 500:
            raise TransientError(Problem(place, f"Route 53 answers {status} {code}")) from error
        raise RejectedInput(Problem(place, f"{code}: {text}", _remedies.get(code, ""))) from error
    except BotoCoreError as error:
        raise TransientError(Problem(place, str(error), "docs/route53.md says what is needed")) from error


_remedies = {
    "AccessDenied": "give the instance's role the policy of docs/route53.md",
    "NoSuchHealthCheck": "set dns.health_check_id to one of: aws route53 list-health-checks",
    "SignatureDoesNotMatch": "set the clock of this machine (timedatectl), or its secret key",
}
