"""The scripts of the appliance, each by itself, on a plain Debian 12 machine."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.image.bake import PACKER, bundle, prepare
from tests.image.machine import Machine, lan
from tests.image.trees import base, missing
from tests.matrix import Unavailable

pytestmark = [
    pytest.mark.skipif(not os.environ.get("PYCONFD_TEST_IMAGE"), reason="make image-test"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(600),
]
SOURCE = "/srv/source"
LEFT = ("/var/lib/pyconfd/lock", "/var/lib/pyconfd-vip/memory.json", "/etc/haproxy/generated/files/cert.pem")
"""What pyconfd may have left where it ran, beside what every machine has."""


def test_each_runs_alone_and_twice_and_an_image_keeps_nothing_of_its_machine(tmp_path: Path) -> None:
    try:
        prepare()
    except Unavailable as error:
        pytest.skip(f"no tree of Debian 12 can be made: {error}")
    scripts = [path.name for path in sorted((PACKER / "scripts").glob("*.sh"))]
    with lan(), Machine("plain", 5, (base(),), tmp_path / "plain") as machine:
        machine.path(SOURCE).mkdir(parents=True)
        subprocess.run(["tar", "-C", machine.path(SOURCE), "-xf", bundle(tmp_path)], check=True)
        for script in scripts[:-1]:
            for _ in range(2):
                machine.run("sh", f"{SOURCE}/packer/scripts/{script}", timeout_s=200)
        manifest = json.loads(machine.path("/usr/share/pyconfd/manifest.json").read_text())
        assert "/etc/systemd/system/ssh-host-keys.service" in manifest["files"]
        assert {"haproxy", "keepalived", "nftables"} <= {one["name"] for one in manifest["packages"]}
        # Nothing was started, and nothing is in the way of a start.
        assert machine.active("haproxy") == "inactive"
        machine.systemctl("start", "haproxy", "pyconfd-vip-config")
        machine.systemctl("stop", "haproxy")
        for name in LEFT:
            machine.write(name, "of this machine")
        machine.write("/etc/keepalived/keepalived.conf", '# Written by "pyconfd vip config" for lb1\n')
        machine.run("env", "PYCONFD_GENERALIZE=always", "sh", f"{SOURCE}/packer/scripts/{scripts[-1]}")
        assert [name for name in (*LEFT, "/etc/keepalived/keepalived.conf") if machine.path(name).exists()] == []
        assert machine.said("sh", "-c", "ls /etc/ssh/ssh_host_* /var/log/journal/* /etc/haproxy/generated/*").count(
            "cannot access"
        )
        assert machine.path("/etc/machine-id").read_text() == ""
        assert machine.said("find", "/var/log", "-type", "f", "-size", "+0") == ""
        assert machine.path(f"{SOURCE}/packer/install.sh").exists()
