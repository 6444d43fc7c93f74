"""Packer's sources and the scripts, judged without a machine."""

import json
import os
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from release.image import with_packages
from tests.image.bake import PACKER, packer
from tests.image.trees import ROOT

needs_qemu = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is not installed")
needs_packer = pytest.mark.skipif(not shutil.which("packer"), reason="packer is not installed")
FOLDERS = (".ci", "packer", "pyconfd", "release", "systemd", "tests")


def _is_shell(path: Path) -> bool:
    with path.open("rb") as file:
        return re.match(rb"#!.*\b(sh|bash|dash)\n", file.readline(80)) is not None


SCRIPTS = sorted(
    path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file() and _is_shell(path)
)


@needs_packer
@pytest.mark.parametrize("source", ["amazon-ebs.lb", "qemu.lb", "null.machine"])
def test_the_source_is_valid(source: str, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.tar"
    bundle.touch()
    packer("validate", f"-only={source}", f"-var=bundle={bundle}", "-var=base_checksum=none", ".")


@needs_packer
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_connections", "999"),
        ("access_log", "syslog"),
        ("journal_size", "lots"),
        ("generalize", "perhaps"),
        ("image_name", "a b"),
        ("region", "frankfurt"),
        ("accelerator", "magic"),
        ("ssh_port", "0"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_right(name: str, value: str, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.tar"
    bundle.touch()
    with pytest.raises(AssertionError, match=f"The value of {name} must be"):
        packer("validate", f"-var=bundle={bundle}", "-var=base_checksum=none", f"-var={name}={value}", ".")


@needs_packer
@needs_qemu
def test_qemu_gets_the_disk_and_the_way_to_the_seed(tmp_path: Path) -> None:
    """What would be run is written down; the bake itself is in ``make image-test``."""
    qemu = tmp_path / "bin/qemu-system-x86_64"
    qemu.parent.mkdir()
    qemu.write_text(
        f"#!/bin/sh\ncase $* in *-version*) echo 'QEMU emulator version 7.2.0'; exit ;; esac\n"
        f"printf '%s\\n' \"$@\" >'{tmp_path}/arguments'\nexit 1\n"
    )
    qemu.chmod(0o755)
    (tmp_path / "bundle.tar").touch()
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", tmp_path / "base.qcow2", "1M"], check=True)
    subprocess.run([PACKER / "seed.sh", tmp_path], check=True)
    values = {
        "bundle": tmp_path / "bundle.tar",
        "output": tmp_path / "output",
        "base_image": tmp_path / "base.qcow2",
        "base_checksum": "none",
        "seed": tmp_path / "seed",
        "ssh_private_key_file": tmp_path / "key",
        "qemuargs": '[["-cpu","max"]]',
    }
    with pytest.raises(AssertionError, match="Qemu failed to start"):
        packer(
            "build",
            "-only=qemu.lb",
            *(f"-var={k}={v}" for k, v in values.items()),
            ".",
            PATH=f"{qemu.parent}:{os.environ['PATH']}",
        )
    words = (tmp_path / "arguments").read_text().splitlines()
    given = dict(pairwise(words))
    assert given["-drive"].startswith(f"file={tmp_path}/output/qemu/pyconfd-lb.qcow2,if=virtio,")
    assert re.fullmatch(r"type=1,serial=ds=nocloud-net;s=http://10\.0\.2\.2:\d+/", given["-smbios"])
    assert given["-cpu"] == "max"
    assert given["-machine"].endswith("accel=kvm")


@needs_packer
def test_the_files_have_packers_own_form() -> None:
    packer("fmt", "-check", ".")


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_script_has_no_fault_that_shellcheck_knows(script: Path) -> None:
    assert len(SCRIPTS) >= 18
    done = subprocess.run(["shellcheck", script], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_every_script_is_among_them() -> None:
    named = {str(path.relative_to(ROOT)) for path in SCRIPTS}
    assert named >= {".ci/run", "packer/install.sh", "release/debian/postinst", "systemd/pyconfd-haproxy-prestart"}
    assert named >= {"pyconfd/keepalived/pyconfd-vip-backstop", "tests/packages.sh"}


def test_install_runs_the_scripts_that_packer_runs() -> None:
    build = (PACKER / "build.pkr.hcl").read_text()
    baked = re.findall(r"scripts/(\d\d-\w+)\.sh", build)
    line = re.search(r"^for script in ([^;]+); do$", (PACKER / "install.sh").read_text(), re.MULTILINE)
    assert line
    assert baked == [*line[1].split(), "90-generalize"]
    assert sorted(baked) == sorted(path.stem for path in (PACKER / "scripts").glob("*.sh"))


def test_the_bill_of_materials_has_the_debian_packages_beside_the_wheels() -> None:
    bill = json.dumps({"components": [], "metadata": {}, "serialNumber": "urn:uuid:0"})
    packages = [{"name": "keepalived", "version": "1:2.2.7-1+b2", "architecture": "amd64"}]
    found = with_packages(bill, {"system": "Debian GNU/Linux 12 (bookworm)", "packages": packages})
    (component,) = json.loads(found)["components"]
    assert component["purl"] == "pkg:deb/debian/keepalived@1%3A2.2.7-1%2Bb2?arch=amd64&distro=bookworm"
    assert found == with_packages(bill, {"system": "Debian GNU/Linux 12 (bookworm)", "packages": packages})
    assert json.loads(found)["serialNumber"] != "urn:uuid:0"
