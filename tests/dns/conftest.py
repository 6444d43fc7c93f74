import importlib.util
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import boto3
import pytest

from pyconfd.dns.records import Zone
from tests.dns.imds import FakeMetadata
from tests.dns.nodes import FieldNode
from tests.dns.stage import zone_with
from tests.dns.strict import StrictRoute53
from tests.dns.strict_http import StrictServer
from tests.dns.wire import CREDENTIALS, FaultProxy, moto


@pytest.fixture(scope="session")
def moto_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    if importlib.util.find_spec("moto") is None:
        pytest.skip("moto is not installed: make venv")
    with moto(tmp_path_factory.mktemp("moto")) as port:
        yield port


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**CREDENTIALS, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")  # Route53 writes them; this has them put back
    for name in ("http_proxy", "HTTP_PROXY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def proxy(moto_port: int, credentials: None) -> Iterator[FaultProxy]:
    with FaultProxy(moto_port) as started:
        yield started


@pytest.fixture
def new_zone(proxy: FaultProxy) -> Callable[..., Zone]:
    """Makes a hosted zone as its owner would."""
    client = boto3.client("route53", endpoint_url=f"http://127.0.0.1:{proxy.upstream}")

    def make(name: str, *, private: bool = False) -> Zone:
        vpc = {"VPC": {"VPCRegion": "us-east-1", "VPCId": "vpc-1"}} if private else {}
        config = {"Comment": "", "PrivateZone": private}
        made = client.create_hosted_zone(Name=name, CallerReference=uuid.uuid4().hex, HostedZoneConfig=config, **vpc)
        return Zone(made["HostedZone"]["Id"].removeprefix("/hostedzone/"), name, private)

    return make


@pytest.fixture
def imds() -> Iterator[FakeMetadata]:
    fake = FakeMetadata({"public-ipv4": "198.51.100.4", "local-ipv4": "10.0.0.4", "ipv6": "2001:db8::4"})
    yield fake
    fake.close()


@pytest.fixture
def provider() -> StrictRoute53:
    return zone_with()


@pytest.fixture
def aws(provider: StrictRoute53) -> Iterator[FaultProxy]:
    with StrictServer(provider) as server, FaultProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def new_node(aws: FaultProxy, tmp_path: Path) -> Iterator[Callable[[int], FieldNode]]:
    with ExitStack() as stack:

        def make(number: int) -> FieldNode:
            folder = tmp_path / f"n{number}"
            folder.mkdir()
            return stack.enter_context(FieldNode(folder, f"n{number}", f"192.0.2.{number + 1}", aws.url))

        yield make
