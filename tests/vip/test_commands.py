"""``pyconfd vip ...`` against real hooks, and without one."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pyconfd.cli.main import cli
from tests.vip.bed import Bed, Node, missing, wait_for
from tests.vip.network import LIMIT_S

needs_bed = pytest.mark.skipif(bool(missing()), reason=f"no bed for failover: {missing()}")


def vip(node: Node, *words: str) -> Result:
    return CliRunner().invoke(cli, ["vip", *words, "--config", str(node.folder / "pyconfd.toml")])


def document(node: Node) -> dict[str, Any]:
    return dict(json.loads(vip(node, "status", "--json").stdout)["status"])


@needs_bed
@pytest.mark.timeout(150)
def test_the_commands_speak_with_the_hook() -> None:
    with Bed(profile="safe") as bed:
        first = bed.holder
        (second,) = bed.others(first)
        wait_for("health", lambda: vip(first, "status").exit_code == vip(second, "status").exit_code == 0)
        shown = vip(first, "status").stdout
        assert "this node may hold it" in shown
        assert "holder by the adverts: this node" in shown
        assert f"holder by the adverts: {first.name}" in vip(second, "status").stdout
        refused = vip(second, "failover")
        assert (refused.exit_code, "does not hold" in refused.output) == (1, True)
        handed = vip(first, "drain", "--reason", "new kernel")
        assert (handed.exit_code, handed.stdout) == (0, f"Drained; {second.name} has the address.\n")
        drained = vip(first, "status")
        assert drained.exit_code == 1
        assert "drained by order" in drained.stdout
        assert "new kernel" in drained.stdout
        assert "hold.changed able -> fault (drained)" in drained.stdout
        assert vip(first, "undrain", "--router", "51").exit_code == 0
        assert vip(first, "undrain", "--router", "9").exit_code == 1
        # A node takes part in elections again when keepalived has seen that it may.
        wait_for("ability", first.is_ready)
        assert vip(second, "failover").stdout == f"Handed over; {first.name} has the address.\n"
        # Its adverts come before its hook sees the address.
        wait_for("the address", lambda: document(first)["routers"][0]["holds"])
        assert vip(first, "announce").exit_code == 0
        wait_for("the announcement", lambda: document(first)["routers"][0]["announced"])
        memory = first.folder / "state" / "memory.json"
        wait_for("what it leaves behind", lambda: memory.exists() and "role.changed" in memory.read_text())
        first.end("hook")
        dead = vip(first, "status")
        assert dead.exit_code == 3
        assert "does not run" in dead.stdout
        assert "role.changed" in dead.stdout
        assert vip(first, "drain").exit_code == 75
        first.start_hook()
        writes_metrics_that_are_documented(first)
        takes_new_settings_at_sighup(first)


def takes_new_settings_at_sighup(holder: Node) -> None:
    """The hook ends for other settings, and reports wrong ones."""
    path = holder.folder / "pyconfd.toml"
    text = path.read_text()
    path.write_text("[vip")
    holder.send("hook", signal.SIGHUP)
    wait_for("the report", lambda: "still in force" in holder.status()["troubles"].get("settings", ""))
    path.write_text(f"{text}\n# the same\n")
    holder.send("hook", signal.SIGHUP)
    wait_for("its end", lambda: not holder.status()["troubles"])
    path.write_text(text.replace("[vip]\n", "[vip]\nreset_sessions = false\n"))
    holder.send("hook", signal.SIGHUP)
    assert holder.processes["hook"].wait(LIMIT_S) == 0
    assert holder.holds()


def writes_metrics_that_are_documented(holder: Node) -> None:
    path = holder.folder / "run" / "metrics.prom"
    wait_for("the holder", lambda: path.exists() and 'pyconfd_vip_holds{router="51"} 1' in path.read_text())
    names = set(re.findall(r"^(pyconfd_vip_\w+)", path.read_text(), re.MULTILINE))
    documented = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    assert names == set(re.findall(r"`(pyconfd_vip_\w+)", documented))
