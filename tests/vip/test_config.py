"""What ``pyconfd vip config`` prints, judged by the real keepalived and the real nft."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from click.testing import CliRunner

from pyconfd import keepalived
from pyconfd.cli.main import cli

NAMESPACES = os.geteuid() == 0 and subprocess.run(["unshare", "-n", "true"], check=False).returncode == 0
needs_keepalived = pytest.mark.skipif(
    not (NAMESPACES and shutil.which("keepalived")), reason="needs keepalived, root and network namespaces"
)
needs_nft = pytest.mark.skipif(not (NAMESPACES and shutil.which("nft")), reason="needs nft, root and namespaces")

CASES = {
    "two nodes, IPv4": (2, ["192.0.2.10/24"], []),
    "two nodes, IPv6": (2, ["2001:db8::10/64"], []),
    "three nodes, both": (3, ["192.0.2.10/24", "192.0.2.9", "2001:db8::10/64"], []),
    "three nodes, several routers": (
        3,
        ["192.0.2.10/24"],
        [
            {"virtual_router_id": 52, "addresses": ["192.0.2.20/24"], "preferred": "lb2"},
            {"virtual_router_id": 53, "addresses": ["192.0.2.30/24", "2001:db8::30/64"], "preferred": "lb3"},
        ],
    ),
}


@pytest.fixture
def scripts() -> Iterator[Path]:
    """The scripts where root's scripts may lie: keepalived refuses those below a folder that others may write to."""
    folder = Path(mkdtemp(prefix="pyconfd-test-", dir="/run"))
    shutil.copy(keepalived.directory() / "pyconfd-vip-backstop", folder)
    yield folder
    shutil.rmtree(folder)


def printed(case: str, node: str, scripts: Path | str, *options: str) -> str:
    count, addresses, routers = CASES[case]
    nodes = [
        {"name": f"lb{number}", "addresses": [f"192.0.2.1{number}", f"2001:db8::1{number}"]}
        for number in range(1, count + 1)
    ]
    arguments = (
        "vip", "config", *options, "--vip-interface", "eth0", "--vip-virtual-router-id", "51",
        "--vip-addresses", ",".join(addresses), "--vip-nodes", json.dumps(nodes), "--vip-routers", json.dumps(routers),
        "--vip-node", node, "--vip-script-dir", str(scripts), "--vip-profile", "fast",
    )  # fmt: skip
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def in_namespace(command: str) -> subprocess.CompletedProcess[str]:
    script = f"ip link add eth0 type veth peer name peer0 && ip link set eth0 up && {command}"
    return subprocess.run(
        ["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=60
    )


@needs_keepalived
@pytest.mark.parametrize("case", CASES)
def test_keepalived_takes_it_on_each_node(case: str, scripts: Path, tmp_path: Path) -> None:
    for number in range(1, CASES[case][0] + 1):
        path = tmp_path / f"lb{number}.conf"
        path.write_text(printed(case, f"lb{number}", scripts))
        found = in_namespace(f"keepalived -t -f {path}")
        assert (found.returncode, found.stderr) == (0, "")


@needs_keepalived
def test_keepalived_would_refuse_what_is_wrong(scripts: Path, tmp_path: Path) -> None:
    path = tmp_path / "lb1.conf"
    path.write_text(printed("two nodes, IPv4", "lb1", scripts).replace("priority 250", "priority 900"))
    assert in_namespace(f"keepalived -t -f {path}").returncode != 0


@needs_nft
@pytest.mark.parametrize("case", CASES)
def test_nft_takes_the_rules_twice(case: str, tmp_path: Path) -> None:
    path = tmp_path / "vrrp.nft"
    path.write_text(printed(case, "lb1", "/opt", "--nftables"))
    found = in_namespace(f"nft -c -f {path} && nft -f {path} && nft -f {path} && nft list ruleset")
    assert found.returncode == 0, found.stderr
    assert "192.0.2.12" in found.stdout or "2001:db8::12" in found.stdout
    assert "192.0.2.11" not in found.stdout


def test_the_nodes_differ_only_in_what_must_differ() -> None:
    first, second = (printed("three nodes, both", name, "/opt").splitlines() for name in ("lb1", "lb2"))
    differing = {line.split()[0] for one, two in zip(first, second, strict=True) if one != two for line in (one, two)}
    assert differing <= {"#", "router_id", "priority", "unicast_src_ip"} | {
        line.strip() for line in (*first, *second) if line.strip().startswith(("192.0.2.1", "2001:db8::1"))
    }
    assert "state MASTER" not in "\n".join(first)
    assert "\n".join(first).count("nopreempt") == 1
