"""The Terraform module, without a network: its own tests, and what pyconfd and cloud-init make of its output."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyconfd.model.context import AUTO, AUTOMATIC_PRESETS, PresetName
from pyconfd.settings import resolve
from pyconfd.settings.table import TABLE
from tests.docs.examples import ROOT, blocks_of
from tests.terraform.cli import AVAILABLE, terraform

MODULE = ROOT / "packer/terraform"
AWS = MODULE / "examples/aws"

needs_terraform = pytest.mark.skipif(
    not AVAILABLE, reason="terraform is not installed, and its Python package is for Linux on x86_64 only"
)
needs_cloud_init = pytest.mark.skipif(not shutil.which("cloud-init"), reason="cloud-init is not installed")
pytestmark = pytest.mark.timeout(300)

CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
FULL: dict[str, Any] = {
    "nodes": [
        {"name": "lb1", "addresses": ["192.0.2.11", "2001:db8::11"], "health_check_id": "aaaaaaaa-1111"},
        {"name": "lb2", "addresses": ["192.0.2.12", "2001:db8::12"], "health_check_id": "bbbbbbbb-2222"},
    ],
    "kubernetes": {"api_servers": ["https://10.0.0.1:6443", "https://10.0.0.2:6443"], "ca_pem": CA, "cluster": "a <b>"},
    "credentials": {"encrypted_credential": "/etc/credstore.encrypted/pyconfd-token"},
    "presets": ["kube2lb", "domains"],
    "backend_target": "node",
    "profile": "fast",
    "vip": {"interface": "ens5", "virtual_router_id": 51, "addresses": ["192.0.2.10/24", "2001:db8::10/64"]},
    "dns": {"names": ["lb.example.com"], "owner": "prod-lb", "zone_id": "Z1", "address_source": "imds-public"},
    "fragments": {"01-own.conf": 'defaults\n    log-format "%ci ${X} é"\n', "02-own.tmpl": "{{ 1 + 1 }}\n"},
    "extra_settings": '[log]\nformat = "json"\n',
    "pyconfd_version": "0.0.1",
    "extra_files": [{"path": "/opt/x", "content": "y", "permissions": "0755"}],
    "extra_commands": [["true", "a b"]],
}
FIXED: dict[str, Any] = {
    "nodes": [{"name": "lb", "addresses": [], "dns_address": "192.0.2.1", "dns_address6": "2001:db8::1"}],
    "kubernetes": {"api_servers": ["https://10.0.0.1:6443"], "ca_pem": CA},
    "dns": {"names": ["*.lb.example.com"], "owner": "one", "address_source": "fixed", "reaper": True},
}
LEAST: dict[str, Any] = {"nodes": [{"name": "lb", "addresses": []}], "kubernetes": FIXED["kubernetes"]}


@pytest.fixture
def module(tmp_path: Path) -> Path:
    folder = tmp_path / "module"
    shutil.copytree(MODULE, folder, ignore=shutil.ignore_patterns(".terraform*", "terraform.tfstate*", "examples"))
    ready = terraform(folder, "init", "-backend=false")
    assert ready.returncode == 0, ready.stderr
    return folder


def applied(module: Path, variables: dict[str, Any]) -> dict[str, Any]:
    (module / "terraform.tfvars.json").write_text(json.dumps(variables))
    done = terraform(module, "apply", "-auto-approve", "-no-color")
    assert done.returncode == 0, done.stdout + done.stderr
    shown = terraform(module, "output", "-json")
    assert shown.returncode == 0, shown.stderr
    return {name: output["value"] for name, output in json.loads(shown.stdout).items()}


@needs_terraform
def test_everything_is_formatted() -> None:
    done = terraform(MODULE, "fmt", "-check", "-diff", "-recursive")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_terraform
def test_terraforms_own_tests(module: Path) -> None:
    done = terraform(module, "test", "-no-color")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 failed" in done.stdout


@needs_terraform
@pytest.mark.parametrize("variables", [FULL, FIXED, LEAST], ids=["full", "fixed", "least"])
def test_pyconfd_takes_the_settings_and_cloud_init_the_user_data(
    module: Path, tmp_path: Path, variables: dict[str, Any]
) -> None:
    found = applied(module, variables)
    assert list(found["user_data"]) == sorted(node["name"] for node in variables["nodes"])
    for name, text in found["user_data"].items():
        files = {file["path"]: file for file in yaml.safe_load(text)["write_files"]}
        toml = files["/etc/pyconfd/pyconfd.toml"]["content"]
        assert toml == found["settings"][name]
        resolved = resolve({}, {}, lambda _: toml)  # noqa: B023 - at once
        assert resolved.notes == ()
        taken(resolved.settings, name, variables)
        if shutil.which("cloud-init"):
            path = tmp_path / f"{name}.yaml"
            path.write_text(text)
            done = subprocess.run(
                ["cloud-init", "schema", "--config-file", path], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr


def test_every_preset_can_be_named() -> None:
    declared = re.search(r"setsubtract\(var\.presets, (\[.*?\])\)", (MODULE / "variables.tf").read_text())
    assert declared is not None
    assert set(json.loads(declared[1])) == {AUTO, *PresetName}, "list it in variables.tf: condition and error_message"


def taken(settings: Any, name: str, variables: dict[str, Any]) -> None:
    assert settings.kubernetes.api_servers == tuple(variables["kubernetes"]["api_servers"])
    assert settings.kubernetes.ssl_ca == "/etc/pyconfd/ca.pem"
    assert settings.kubernetes.cluster == variables["kubernetes"].get("cluster", "")
    assert settings.presets.names == tuple(variables.get("presets", AUTOMATIC_PRESETS))
    assert settings.templates.dir == ("/etc/pyconfd/fragments" if "fragments" in variables else "/etc/pyconfd")
    nodes = {node["name"]: node for node in variables["nodes"]}
    if "vip" in variables:
        assert settings.vip.node == name
        assert [each.name for each in settings.vip.nodes] == list(nodes)
        assert settings.vip.profile == variables["profile"]
        assert settings.vip.addresses == ("192.0.2.10/24", "2001:db8::10/64")
    if "dns" in variables:
        assert settings.dns.node == name
        assert settings.dns.health_check_id == nodes[name].get("health_check_id", "")
        assert settings.dns.nodes == len(nodes)
        assert settings.dns.address == nodes[name].get("dns_address", "")
    assert settings.log.format == ("json" if "extra_settings" in variables else "text")


@needs_terraform
def test_the_files_are_as_they_were_given_and_only_references_to_secrets(module: Path) -> None:
    found = applied(module, FULL)
    files = {file["path"]: file for file in yaml.safe_load(found["user_data"]["lb1"])["write_files"]}
    assert list(files)[-1] == "/etc/pyconfd/pyconfd.toml"
    for name, text in FULL["fragments"].items():
        file = files[f"/etc/pyconfd/fragments/{name}"]
        assert (file["content"], file["permissions"], file["owner"]) == (text, "0640", "root:pyconfd")
    assert files["/etc/pyconfd/ca.pem"]["content"] == CA
    assert files["/opt/x"]["permissions"] == "0755"
    drop_in = files["/etc/systemd/system/pyconfd.service.d/credential.conf"]["content"]
    assert f"Environment={TABLE['kubernetes.token_file'].env}=%d/token" in drop_in
    commands = yaml.safe_load(found["user_data"]["lb1"])["runcmd"]
    assert commands[0] == ["systemctl", "daemon-reload"]
    assert commands[-1] == ["true", "a b"]


def test_the_policy_of_the_example_is_that_of_the_page_for_one_zone() -> None:
    page = next(item.body for item in blocks_of(ROOT / "docs/route53.md") if item.language == "json")
    template = (AWS / "policy.json.tftpl").read_text()
    made = template.replace("${zone_id}", "Z0123456789ABCDEFGHIJ").replace("${name}", "lb.example.com")
    wanted = json.loads(page)
    # The example names its zone, and so need not look for it.
    wanted["Statement"] = [each for each in wanted["Statement"] if each["Action"] != "route53:ListHostedZones"]
    assert len(wanted["Statement"]) == 2
    assert json.loads(made) == wanted


@needs_cloud_init
def test_cloud_init_would_notice(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("#cloud-config\nwrite_files: 3\n")
    done = subprocess.run(["cloud-init", "schema", "--config-file", path], capture_output=True, check=False)
    assert done.returncode != 0
