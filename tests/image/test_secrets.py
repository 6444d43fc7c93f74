"""Secrets that the AWS example fetches, with its units and program on a machine."""

import json
import os
from collections.abc import Iterator

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.image.machine import Lan, Machine
from tests.image.trees import ROOT, missing
from tests.world.haproxy import free_port

pytestmark = [
    pytest.mark.skipif(not os.environ.get("PYCONFD_TEST_IMAGE"), reason="make image-test"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(600),
]
EXAMPLE = ROOT / "packer/terraform/examples/aws"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


@pytest.fixture
def store() -> Iterator[str]:
    """The URL of a Secrets Manager that the machine can reach."""
    port = free_port(Lan.host)
    server = ThreadedMotoServer(ip_address=Lan.host, port=port, verbose=False)
    server.start()
    try:
        yield f"http://{Lan.host}:{port}"
    finally:
        server.stop()


def test_a_secret_that_is_rotated_reaches_the_machine_and_haproxy(lb: Machine, store: str) -> None:
    client = boto3.client(
        "secretsmanager",
        region_name="eu-central-1",
        endpoint_url=store,
        **{name.lower(): value for name, value in CREDENTIALS.items()},
    )
    arn = client.create_secret(Name="pem", SecretString="first")["ARN"]
    path = "/etc/haproxy/certs/x.pem"
    wanted = {"secret": arn, "owner": "root:haproxy", "reload": ["haproxy.service"]}
    lb.write("/etc/pyconfd-secrets.json", json.dumps({"region": "eu-central-1", "files": {path: wanted}}))
    lb.write("/opt/pyconfd-secrets/fetch-secrets", (EXAMPLE / "fetch-secrets.py").read_text(), 0o755)
    for name in ("pyconfd-secrets.service", "pyconfd-secrets.timer"):
        lb.write(f"/etc/systemd/system/{name}", (EXAMPLE / name).read_text())
    words = " ".join(f"{name}={value}" for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL": store}).items())
    lb.write("/etc/systemd/system/pyconfd-secrets.service.d/test.conf", f"[Service]\nEnvironment={words}\n")
    lb.systemctl("daemon-reload")
    lb.systemctl("start", "pyconfd-secrets.service")
    assert lb.path(path).read_text() == "first"
    assert lb.said("stat", "-c", "%U:%G %a", path) == "root:haproxy 640"
    reloads = lb.journal("haproxy").count("Reloaded haproxy")
    client.put_secret_value(SecretId=arn, SecretString="second")
    lb.systemctl("start", "pyconfd-secrets.service")
    assert lb.path(path).read_text() == "second"
    lb.until(lambda: lb.journal("haproxy").count("Reloaded haproxy") == reloads + 1, "haproxy was reloaded")
    lb.systemctl("start", "pyconfd-secrets.service")
    assert lb.journal("haproxy").count("Reloaded haproxy") == reloads + 1
    assert lb.ask("shop").startswith("shop-")
