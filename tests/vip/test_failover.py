"""What no single fault of faults.py shows, with everything real: exactly one node has the address in the end."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial

import pytest

from tests.vip.bed import VIP4, VIP6, Bed, Node, missing, wait_for
from tests.vip.network import ip

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no bed for failover: {missing()}"),
    pytest.mark.timeout(150),
    # They take minutes; the core faults of test_faults.py are in the suite.
    pytest.mark.skipif("PYCONFD_TEST_FAILOVER" not in os.environ, reason="real failovers: make vip-test"),
]
STEADY_S = 1.0


def is_held_by(bed: Bed, address: str, who: Node) -> bool:
    return bed.holders(address) == [who.name]


def has_moved(bed: Bed, dead: Node) -> bool:
    return len(bed.holders()) == 1 and bed.holders() == bed.holders(VIP6) and not dead.holds()


def exactly_one(bed: Bed, who: Node) -> None:
    """Wait until ``who`` holds both families and nobody else does, and see that it stays so."""
    for address in (VIP4, VIP6):
        wait_for(f"{who.name} as the only holder of {address}", partial(is_held_by, bed, address, who))
    until = time.monotonic() + STEADY_S
    while time.monotonic() < until:
        assert (bed.holders(), bed.holders(VIP6)) == ([who.name], [who.name])
        time.sleep(0.1)


def test_a_reload_of_keepalived_keeps_the_backstop() -> None:
    with Bed() as bed:
        (backup,) = bed.others(bed.holder)
        backup.kill(signal.SIGHUP, "keepalived")
        wait_for("the reload", lambda: "Reload complete" in backup.log("keepalived"))
        assert "backstop" not in "".join(
            line for line in backup.log("keepalived").splitlines() if "removing" in line or "not found" in line
        )


def test_hook_killed_changes_nothing_and_the_next_one_remembers() -> None:
    with Bed() as bed:
        holder = bed.holder
        seen = [len(node.log("keepalived").split("STATE")) for node in bed.nodes]
        before = holder.transitions()
        for node in bed.nodes:
            node.end("hook")
        exactly_one(bed, holder)
        for node in bed.nodes:
            node.start_hook()
        exactly_one(bed, holder)
        assert [len(node.log("keepalived").split("STATE")) for node in bed.nodes] == seen
        assert holder.transitions()[: len(before)] == before
        wait_for("the role", lambda: holder.status()["routers"][0]["role"] == "master")
        holder.kill(signal.SIGKILL, "haproxy")
        exactly_one(bed, *bed.others(holder))


def test_a_hook_that_finds_no_pid_file_of_keepalived_believes_its_adverts() -> None:
    with Bed() as bed:
        holder = bed.holder
        holder.end("hook")
        for name in ("vrrp", "keepalived"):
            (holder.folder / f"{name}.pid").rename(holder.folder / f"{name}.gone")
        holder.start_hook()
        exactly_one(bed, holder)
        assert not holder.did("address.fenced")
        assert not holder.status()["checks"]["keepalived alive"]["ok"]
        # One that is dead sends none, and is replaced as before.
        for name in ("vrrp", "keepalived"):
            os.kill(int((holder.folder / f"{name}.gone").read_text()), signal.SIGKILL)
        exactly_one(bed, *bed.others(holder))
        assert holder.did("address.fenced", "keepalived_dead")


def test_both_hooks_dead_and_the_backstop_judges() -> None:
    with Bed(grace_s=2) as bed:
        holder = bed.holder
        for node in bed.nodes:
            node.end("hook")
        time.sleep(5)
        exactly_one(bed, holder)
        holder.kill(signal.SIGKILL, "haproxy")
        exactly_one(bed, *bed.others(holder))


def test_a_holder_whose_peer_is_gone_is_no_hang_of_keepalived() -> None:
    with Bed() as bed:
        holder = bed.holder
        (gone,) = bed.others(holder)
        bed.cable(gone, plugged=False)
        time.sleep(2.5)
        # Unicast adverts to somebody without a hardware address do not leave; the kernel forgets it in time, too.
        ip("-n", holder.space, "neigh", "flush", "dev", "eth0")
        time.sleep(2.5)
        assert (bed.holders(), bed.holders(VIP6)) == ([holder.name], [holder.name])
        bed.cable(gone, plugged=True)
        wait_for("recovery", lambda: gone.status()["routers"][0]["hold"] == "able")
        exactly_one(bed, holder)
        assert not holder.did("address.fenced")


def test_drain_outlives_the_hook_and_undrain_moves_nothing() -> None:
    with Bed() as bed:
        drained = bed.holder
        (other,) = bed.others(drained)
        drained.order("drain")
        exactly_one(bed, other)
        assert drained.end("hook", signal.SIGTERM) == 0
        drained.start_hook()
        wait_for("the drain", lambda: drained.status()["routers"][0]["faults"] == ["drained"])
        exactly_one(bed, other)
        drained.order("undrain")
        wait_for("ability", lambda: drained.status()["routers"][0]["hold"] == "able")
        exactly_one(bed, other)


def test_three_nodes_until_the_last_one() -> None:
    with Bed(3) as bed:
        able = list(bed.nodes)
        for _ in range(2):
            dead = bed.holder
            able.remove(dead)
            dead.kill(signal.SIGKILL, "haproxy")
            wait_for("the next holder", partial(has_moved, bed, dead))
            exactly_one(bed, next(node for node in able if node.holds()))


@pytest.mark.skipif(not shutil.which("nft"), reason="nft is not installed")
def test_two_holders_for_want_of_adverts_settle_by_priority() -> None:
    with Bed() as bed:
        first, second = bed.nodes
        rules = (
            "add table inet f; add chain inet f c { type filter hook input priority 0; };"
            " add rule inet f c meta l4proto vrrp drop"
        )
        for node in bed.nodes:
            bed.network.inside(node.space, "nft", rules)
        wait_for("the alarm", lambda: first.did("alarm.raised", "split_brain"))
        exactly_one(bed, first)
        assert second.did("hold.changed", "yielded")
        first.kill(signal.SIGKILL, "haproxy")
        exactly_one(bed, second)
        for node in bed.nodes:
            bed.network.inside(node.space, "nft", "delete table inet f")
        exactly_one(bed, second)


def test_an_address_put_on_a_backup_by_hand_is_taken_off() -> None:
    with Bed() as bed:
        holder = bed.holder
        (other,) = bed.others(holder)
        ip("-n", other.space, "addr", "add", f"{VIP4}/24", "dev", "eth0")
        # On a machine without a processor to spare the holder may yield to it first; it is one in any case.
        wait_for(
            "an end of it",
            lambda: other.did("address.fenced", "stale_address") or holder.did("hold.changed", "yielded"),
        )
        wait_for("one holder", lambda: len(bed.holders()) == 1)


def test_a_full_disk_under_the_track_file_does_not_keep_the_address() -> None:
    with Bed() as bed:
        holder = bed.holder
        (other,) = bed.others(holder)
        holder.end("hook", signal.SIGTERM)
        run = holder.folder / "run"
        kept = {name: (run / name).read_bytes() for name in ("track-51", "heartbeat")}
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", run], check=True)
        try:
            for name, content in kept.items():
                (run / name).write_bytes(content)
            holder.end("keepalived", signal.SIGTERM)
            exactly_one(bed, other)
            holder.start_hook()
            holder.start_keepalived()
            wait_for("a backup", lambda: holder.status()["routers"][0]["role"] == "backup")
            other.order("failover")
            exactly_one(bed, holder)
            with (run / "filler").open("wb", buffering=0) as filler, suppress(OSError):
                while True:
                    filler.write(b"x" * 4096)
            holder.kill(signal.SIGKILL, "haproxy")
            exactly_one(bed, other)
            wait_for("a word about it", lambda: "No space" in str(holder.status()["troubles"]))
        finally:
            bed.close()
            subprocess.run(["umount", "-l", run], check=True)


def test_a_disk_that_hangs_does_not_keep_the_address() -> None:
    with Bed() as bed:
        holder = bed.holder
        (other,) = bed.others(holder)
        # Opening it for writing waits for a reader: as a disk that never answers.
        os.mkfifo(holder.folder / "run" / "metrics.prom.new")
        holder.order("drain")
        exactly_one(bed, other)
        wait_for("a word about it", lambda: "does not come to an end" in str(holder.status()["troubles"]))
        other.kill(signal.SIGKILL, "haproxy")
        holder.order("undrain")
        exactly_one(bed, holder)
        assert holder.end("hook", signal.SIGTERM) == 0


@pytest.mark.parametrize("host", [VIP4, VIP6])
def test_clients_of_the_old_holder_get_a_reset_and_do_not_wait(host: str) -> None:
    """A client that waits for an answer sends nothing itself: only the old holder can tell it."""
    code = f"import socket; c = socket.create_connection(('{host}', 80)); print(flush=True); c.recv(1)"
    with Bed() as bed:
        # Without an end of its own: a haproxy that hangs closes nothing.
        bed.holder.signal_haproxies(signal.SIGSTOP)
        argv = ["ip", "netns", "exec", bed.client, sys.executable, "-c", code]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == "\n"
            assert "ConnectionResetError" in waiting.communicate(timeout=60)[1]


def test_connections_outlive_a_keepalived_that_is_restarted_alone() -> None:
    code = f"import socket; c = socket.create_connection(('{VIP4}', 80)); print(flush=True); input();"
    code += "c.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); print(c.recv(99))"
    with Bed() as bed:
        holder = bed.holder
        (gone,) = bed.others(holder)
        gone.end("keepalived", signal.SIGTERM)
        argv = ["ip", "netns", "exec", bed.client, sys.executable, "-c", code]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "\n"
            holder.kill(signal.SIGTERM, "keepalived")
            wait_for("its end", lambda: not holder.holds())
            holder.start_keepalived()
            exactly_one(bed, holder)
            assert "200" in client.communicate("\n", timeout=60)[0]
