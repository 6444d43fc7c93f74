"""The program of the AWS example that brings secrets to the machine, against moto."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.docs.examples import ROOT
from tests.world.haproxy import free_port

SCRIPT = ROOT / "packer/terraform/examples/aws/fetch-secrets.py"
REGION = "eu-central-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


class Store:
    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.client: Any = boto3.client(
            "secretsmanager",
            region_name=REGION,
            endpoint_url=url,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

    def fetch(self, reload: tuple[str, ...] = (), **secrets: str) -> subprocess.CompletedProcess[str]:
        """``systemctl`` notes what it is asked in the file ``asked``, and refuses the unit ``bad.service``."""
        files: dict[str, dict[str, Any]] = {
            str(self.folder / name): {"secret": arn, "owner": "root:nogroup"} for name, arn in secrets.items()
        }
        for wanted in files.values() if reload else ():
            wanted["reload"] = list(reload)
        systemctl = self.folder / "bin/systemctl"
        systemctl.parent.mkdir(exist_ok=True)
        systemctl.write_text(f'#!/bin/sh\necho "$*" >> {self.folder}/asked\n[ "$2" != bad.service ]\n')
        systemctl.chmod(0o755)
        listed = self.folder / "list.json"
        listed.write_text(json.dumps({"region": REGION, "files": files}))
        environ = {name: text for name, text in os.environ.items() if not name.startswith("AWS_")}
        return subprocess.run(
            [sys.executable, SCRIPT, listed],
            env=environ
            | CREDENTIALS
            | {"AWS_ENDPOINT_URL": self.url, "AWS_MAX_ATTEMPTS": "1", "PATH": f"{systemctl.parent}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    port = free_port()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    try:
        yield Store(tmp_path, f"http://127.0.0.1:{port}")
    finally:
        server.stop()


def test_secrets_come_are_rotated_and_a_bad_one_stays_as_it_was(store: Store) -> None:
    token = store.client.create_secret(Name="pyconfd/token", SecretString="first")["ARN"]
    binary = store.client.create_secret(Name="pyconfd/pem", SecretBinary=b"-----BEGIN")["ARN"]
    done = store.fetch(token=token, pem=binary)
    assert done.returncode == 0, done.stderr
    path = store.folder / "token"
    assert path.read_text() == "first"
    assert (store.folder / "pem").read_bytes() == b"-----BEGIN"
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.group() == "nogroup"
    assert "first" not in done.stdout + done.stderr

    inode = path.stat().st_ino
    assert store.fetch(token=token).stdout == ""
    assert path.stat().st_ino == inode

    store.client.put_secret_value(SecretId=token, SecretString="second")
    bad = store.fetch(token=token, pem="nowhere", other="nowhere")
    assert bad.returncode == 1
    assert path.read_text() == "second"
    assert (store.folder / "pem").read_bytes() == b"-----BEGIN"
    assert bad.stderr.count("stays as it is") == 2
    assert sorted(each.name for each in store.folder.iterdir()) == ["bin", "list.json", "pem", "token"]


def test_units_are_reloaded_once_where_a_file_is_new(store: Store) -> None:
    first = store.client.create_secret(Name="one", SecretString="1")["ARN"]
    second = store.client.create_secret(Name="two", SecretString="2")["ARN"]
    asked = store.folder / "asked"
    assert store.fetch(("haproxy.service",), a=first, b=second).returncode == 0
    assert asked.read_text() == "try-reload-or-restart haproxy.service\n"
    asked.unlink()
    assert store.fetch(("haproxy.service",), a=first, b=second).returncode == 0
    assert not asked.exists()
    store.client.put_secret_value(SecretId=second, SecretString="3")
    assert store.fetch(("bad.service", "haproxy.service"), a=first, b=second).returncode == 1
    assert len(asked.read_text().splitlines()) == 2
