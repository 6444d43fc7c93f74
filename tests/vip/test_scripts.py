"""The scripts that keepalived runs."""

import os
import subprocess
from pathlib import Path

import pytest

from pyconfd import keepalived
from pyconfd.vip.output import boot_seconds
from tests.vip.bed import missing

FOLDER = keepalived.directory()


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["MASTER"], True),
        (["BACKUP"], False),
        (["FAULT"], False),
        (["INSTANCE", "vip-51", "MASTER", "250"], True),
        (["INSTANCE", "vip-51", "BACKUP", "250"], False),
        (["GROUP", "all", "MASTER"], True),
        (["-s", "192.0.2.10", "-g", "192.0.2.1", "-a", "MASTER"], True),
        (["-s", "192.0.2.10", "-a", "BACKUP"], False),
        (["-s", "192.0.2.10", "-g", "192.0.2.1"], True),
        (["-s", "192.0.2.10", "MASTER"], True),
    ],
)
def test_the_predecessors_script_announces_as_master_only(tmp_path: Path, arguments: list[str], asked: bool) -> None:
    program = tmp_path / "pyconfd"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    program.chmod(0o755)
    argv = [str(FOLDER / "keepalived-failover.sh"), *arguments]
    environment = {"PATH": os.environ["PATH"], "PYCONFD": str(program)}
    found = subprocess.run(argv, env=environment, check=False, timeout=60)
    assert found.returncode == 0
    said = tmp_path / "asked"
    assert (said.read_text() if said.exists() else "") == ("vip announce\n" if asked else "")


def backstop(beat: bytes | None, pid: str, folder: Path) -> int:
    heartbeat, pid_file = folder / "heartbeat", folder / "haproxy.pid"
    if beat is not None:
        heartbeat.write_bytes(beat)
    pid_file.write_text(pid)
    argv = [str(FOLDER / "pyconfd-vip-backstop"), str(heartbeat), "10", str(pid_file)]
    return subprocess.run(argv, check=False, timeout=60).returncode


def test_the_backstop_leaves_the_judgement_to_a_hook_that_lives(tmp_path: Path) -> None:
    assert backstop(boot_seconds(), "", tmp_path) == 0


@pytest.mark.parametrize("beat", [None, b"", b"what\n", b"%16.2f\n" % 1e12])
def test_without_a_heartbeat_the_backstop_looks_for_haproxy(beat: bytes | None, tmp_path: Path) -> None:
    assert backstop(beat, f"{os.getpid()}\n", tmp_path) == 0
    dead = subprocess.Popen(["true"])
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    assert backstop(beat, f"{dead.pid}\n", tmp_path) != 0, "dead and not buried"
    dead.wait()
    assert backstop(beat, f"{dead.pid}\n", tmp_path) != 0
    assert backstop(beat, "", tmp_path) != 0


@pytest.mark.skipif(bool(missing()), reason=f"no namespaces: {missing()}")
def test_what_is_left_behind_is_taken_off(tmp_path: Path) -> None:
    conf = tmp_path / "keepalived.conf"
    conf.write_text(
        "vrrp_instance vip-51 {\n    unicast_peer {\n        192.0.2.12\n    }\n    virtual_ipaddress {\n"
        "        192.0.2.10/24 dev eth0\n    }\n"
        "    virtual_ipaddress_excluded {\n        2001:db8::10/64 dev eth0\n    }\n}\n"
    )
    code = f"""ip link add eth0 type veth peer name far
ip addr add 192.0.2.11/24 dev eth0; ip addr add 192.0.2.10/24 dev eth0; ip addr add 2001:db8::10/64 dev eth0
{FOLDER / "pyconfd-vip-release"} {conf} && {FOLDER / "pyconfd-vip-release"} {conf} && ip -o addr show dev eth0"""
    found = subprocess.run(["unshare", "-n", "sh", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "192.0.2.11/24" in found.stdout
    assert "192.0.2.10/" not in found.stdout
    assert "2001:db8::10/" not in found.stdout
