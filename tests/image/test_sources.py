"""Packer's sources and the scripts, judged without a machine."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from release.image import with_packages
from tests.image.bake import PACKER, packer
from tests.image.trees import ROOT

needs_packer = pytest.mark.skipif(not shutil.which("packer"), reason="packer is not installed")
SCRIPTS = sorted((*PACKER.rglob("*.sh"), *(path for path in (ROOT / "systemd").iterdir() if path.suffix == "")))


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
def test_the_files_have_packers_own_form() -> None:
    packer("fmt", "-check", ".")


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_script_has_no_fault_that_shellcheck_knows(script: Path) -> None:
    done = subprocess.run(["shellcheck", script], capture_output=True, text=True, check=False)
    assert done.stdout == ""


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
