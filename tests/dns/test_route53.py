"""Route 53's requests over HTTP, with a proxy before them that fails."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pyconfd.dns.planner import NamePlan, Wish
from pyconfd.dns.records import RefusedBatchError, ThrottledError, Zone, record_set, swapped
from pyconfd.dns.route53 import ATTEMPTS, Route53, metadata_without_proxy
from pyconfd.errors import RejectedInput, TransientError
from tests.dns.imds import FakeMetadata
from tests.dns.stage import NAME, SPEC, node, turn
from tests.dns.wire import HANG, LOSE_REPLY, FaultProxy

A = record_set(NAME, "A", 60, ["192.0.2.1"])


@pytest.mark.parametrize("fault", ["Throttling", "PriorRequestNotComplete", "ServiceUnavailable"])
def test_a_busy_route_53_is_asked_again(proxy: FaultProxy, new_zone: Callable[..., Zone], fault: str) -> None:
    zone = new_zone("example.com.")
    proxy.faults = [fault]
    Route53(proxy.url).change(zone.zone_id, swapped(None, A))
    assert proxy.changing == 2
    assert Route53(proxy.url).records(zone.zone_id, NAME) == (A,)


@pytest.mark.parametrize("fault", ["Throttling", "PriorRequestNotComplete"])
def test_one_that_stays_busy_is_told_apart(proxy: FaultProxy, new_zone: Callable[..., Zone], fault: str) -> None:
    zone = new_zone("example.com.")
    proxy.faults = [fault] * ATTEMPTS
    with pytest.raises(ThrottledError, match=fault):
        Route53(proxy.url).records(zone.zone_id, NAME)
    assert len(proxy.seen) == ATTEMPTS


def test_one_that_hangs_ends_by_its_time_out(proxy: FaultProxy, new_zone: Callable[..., Zone]) -> None:
    zone = new_zone("example.com.")
    proxy.faults = [HANG] * ATTEMPTS
    with pytest.raises(TransientError, match=r"[Tt]imed? ?out"):
        Route53(proxy.url, read_timeout_s=0.2).records(zone.zone_id, NAME)


@pytest.mark.parametrize("way", ["assumed", "web identity"])
def test_sts_that_hangs_ends_by_the_same_time_out(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")  # Route53 writes them; this has them put back
    role, config, token = "arn:aws:iam::123456789012:role/dns", tmp_path / "config", tmp_path / "token"
    config.write_text(
        "[profile machine]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = example\n"
        f"[profile dns]\nrole_arn = {role}\nsource_profile = machine\n"
    )
    token.write_text("token")
    named = {"AWS_CONFIG_FILE": str(config), "AWS_PROFILE": "dns"}
    federated = {"AWS_ROLE_ARN": role, "AWS_WEB_IDENTITY_TOKEN_FILE": str(token)}
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        endpoint = f"http://127.0.0.1:{hangs.getsockname()[1]}"
        for name, value in {**(named if way == "assumed" else federated), "AWS_ENDPOINT_URL_STS": endpoint}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(TransientError, match=r"[Tt]imed? ?out"):
            Route53(read_timeout_s=0.2).zones()


def test_one_that_is_away_is_transient_and_a_missing_permission_names_its_remedy(
    proxy: FaultProxy, new_zone: Callable[..., Zone]
) -> None:
    with pytest.raises(TransientError):
        Route53("http://127.0.0.1:1").zones()
    zone = new_zone("example.com.")
    proxy.faults = ["AccessDenied"]
    with pytest.raises(RejectedInput, match=r"docs/route53.md"):
        Route53(proxy.url).records(zone.zone_id, NAME)


def test_expired_credentials_are_read_again(
    proxy: FaultProxy, new_zone: Callable[..., Zone], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a program that renews them every hour leaves them in a file."""
    zone, file = new_zone("example.com."), tmp_path / "credentials"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    text = "[default]\naws_access_key_id = {}\naws_secret_access_key = s\naws_session_token = t\n"
    file.write_text(text.format("FORMER"))
    counted: list[int] = []
    provider = Route53(proxy.url, before_request=lambda: counted.append(1))
    provider.records(zone.zone_id, NAME)
    file.write_text(text.format("RENEWED"))
    proxy.faults = ["ExpiredToken"]
    with pytest.raises(TransientError, match="renew the credentials"):
        provider.records(zone.zone_id, NAME)
    assert provider.records(zone.zone_id, NAME) == ()
    assert ["FORMER" in each for each in proxy.signed] == [True, True, False]
    assert len(counted) == 3


def test_a_lost_reply_is_refused_when_it_is_tried_again_and_reading_finds_it_done(
    proxy: FaultProxy, new_zone: Callable[..., Zone]
) -> None:
    zone = new_zone("example.com.")
    provider = Route53(proxy.url)
    proxy.faults = ["", LOSE_REPLY]
    with pytest.raises(RefusedBatchError):
        turn(provider, SPEC, node(0), Wish.PUBLISH, zone)
    assert turn(provider, SPEC, node(0), Wish.PUBLISH, zone) == NamePlan()


def test_a_large_group_is_read_over_several_pages(proxy: FaultProxy, new_zone: Callable[..., Zone]) -> None:
    zone = new_zone("example.com.")
    provider = Route53(proxy.url)
    names = [f"{number:03}.{NAME}" for number in range(320)]  # digits sort before the marker's label
    for begin in range(0, len(names), 160):
        records = [record_set(name, "A", 60, ["192.0.2.9"]) for name in names[begin : begin + 160]]
        provider.change(zone.zone_id, tuple(change for item in records for change in swapped(None, item)))
    turn(provider, SPEC, node(0), Wish.PUBLISH, zone)
    proxy.seen.clear()
    assert turn(provider, SPEC, node(0), Wish.PUBLISH, zone) == NamePlan()
    assert len(proxy.seen) == 2


def test_the_hosts_of_instance_metadata_are_reached_without_a_proxy() -> None:
    environ = {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "10.0.0.0/8"}
    metadata_without_proxy(environ)
    assert environ["no_proxy"] == environ["NO_PROXY"] == "10.0.0.0/8,169.254.169.254,fd00:ec2::254"


def test_credentials_of_the_instance_work_behind_a_proxy(
    proxy: FaultProxy, new_zone: Callable[..., Zone], imds: FakeMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = new_zone("example.com.")
    role = {"Code": "Success", "AccessKeyId": "a", "SecretAccessKey": "s", "Token": "t"}
    role |= {"Expiration": "2100-01-01T00:00:00Z", "LastUpdated": "2026-01-01T00:00:00Z", "Type": "AWS-HMAC"}
    imds.values |= {"iam/security-credentials/": "lb", "iam/security-credentials/lb": json.dumps(role)}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "localhost")  # Route53 sets it; this has the fixture put it back
    monkeypatch.setenv("no_proxy", "localhost")
    assert zone in Route53(proxy.url).zones()
    assert imds.tokens
