"""A machine that is told what to do after its boot, bit by bit."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dns.stage import NAME, zone_with
from tests.dns.strict import StrictRoute53
from tests.dns.strict_http import StrictServer
from tests.image.bake import Baked
from tests.image.machine import Lan, Machine
from tests.image.trees import missing
from tests.image.world import World, followed

pytestmark = [
    pytest.mark.skipif(not os.environ.get("PYCONFD_TEST_IMAGE"), reason="make image-test"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(600),
]
SETTINGS = "/etc/pyconfd/pyconfd.toml"
DNS = ("pyconfd-dns", "pyconfd-dns-withdraw")
VIP = ("pyconfd-vip", "keepalived")


@pytest.fixture(scope="module")
def route53(world: World) -> Iterator[tuple[StrictRoute53, int]]:
    provider = zone_with()
    with StrictServer(provider, host=Lan.host) as server:
        yield provider, server.port


@pytest.fixture
def late(world: World, baked: Baked, tmp_path: Path) -> Iterator[Machine]:
    """A machine without any settings."""
    machine = Machine("late", 3, baked.layers, tmp_path / "late")
    machine.prepare("/etc/cloud/cloud.cfg.d/99-test.cfg", "network: {config: disabled}\nlocale: false\n")
    with machine:
        assert machine.said("systemctl", "is-system-running", "--wait") == "running"
        yield machine


def states(machine: Machine, *units: str) -> set[str]:
    return {machine.active(unit) for unit in units}


def settled(machine: Machine, *units: str) -> None:
    machine.until(lambda: states(machine, *units) == {"active"}, f"{', '.join(units)} are active")


def reload(machine: Machine, text: str) -> None:
    machine.write(SETTINGS, text)
    machine.systemctl("reload", "pyconfd")


def with_vip(world: World, router: int, *ports: str) -> str:
    addresses = [f"{Lan.vip}/16"]
    vip = {"interface": "host0", "virtual_router_id": router, "addresses": addresses, "ports": ["80", *ports]}
    text = world.settings(vip=vip)
    for name, number in (("late", 3), ("other", 4)):
        text += f'[[vip.nodes]]\nname = "{name}"\naddresses = ["{Lan.address(number)}"]\n'
    return text


def test_a_file_that_comes_after_the_boot_takes_one_start_and_a_first_dns_one_reload(
    late: Machine, world: World, route53: tuple[StrictRoute53, int]
) -> None:
    provider, port = route53
    assert states(late, "pyconfd", *DNS, *VIP) == {"inactive"}
    late.write(SETTINGS, world.settings())
    late.write("/etc/default/pyconfd", "AWS_ACCESS_KEY_ID=test\nAWS_SECRET_ACCESS_KEY=test\n")
    late.systemctl("start", "pyconfd")
    late.until(lambda: late.ask("shop").startswith("shop-"), "it serves")
    late.until(lambda: "0 failures" in late.journal("pyconfd-preflight"), "preflight looked")
    assert states(late, *DNS, *VIP) == {"inactive"}
    late.run("ip", "address", "add", f"{Lan.vip}/16", "dev", "host0")
    reload(late, world.settings(dns=followed(NAME, port)))
    settled(late, *DNS)
    late.until(lambda: provider.answer(NAME, "A") == (late.address,), "the name leads here")
    # dns.vip is no [vip].
    assert states(late, *VIP) == {"inactive"}
    assert late.said("systemctl", "is-system-running", "--wait") == "running"
    comes_back(late)
    # Whoever stops it means it.
    late.systemctl("stop", "pyconfd-dns")
    late.systemctl("reload", "pyconfd")
    late.until(lambda: late.status().get("phase") == "serving", "pyconfd goes on")
    assert late.active("pyconfd-dns") == "inactive"
    assert provider.answer(NAME, "A") == (late.address,)


def comes_back(machine: Machine) -> None:
    """Kill what keeps the names, and let it hang."""
    assert machine.effective("pyconfd-dns") == ("pyconfd", 0)
    machine.write("/etc/systemd/system/pyconfd-dns.service.d/99-test.conf", "[Service]\nWatchdogSec=10s\n")
    machine.systemctl("daemon-reload")
    machine.systemctl("restart", "pyconfd-dns")
    for number in (signal.SIGKILL, signal.SIGSTOP):
        former = machine.pid("pyconfd-dns")
        machine.signal("pyconfd-dns", number)
        machine.until(lambda f=former: machine.restarted("pyconfd-dns", f), "systemd starts it again")  # type: ignore[misc]
    assert "Watchdog timeout" in machine.journal("pyconfd-dns")


def test_a_first_vip_takes_one_reload_and_what_is_in_force_stays(late: Machine, world: World) -> None:
    late.write(SETTINGS, world.settings())
    late.systemctl("start", "pyconfd")
    reload(late, with_vip(world, 51))
    settled(late, *VIP)
    late.until(lambda: told_by_hook(late) == "router 51: has the address", "systemctl status says it")
    conf = late.path("/etc/keepalived/keepalived.conf")
    before = conf.read_text()
    reload(late, world.settings())
    late.until(lambda: "no [vip] any more" in late.journal("pyconfd-vip-config"), "it says what is still in force")
    for text, told in (("[vip", "the settings cannot be used"), ("", "there is no /etc/pyconfd/pyconfd.toml")):
        late.write(SETTINGS, text)
        if not text:
            late.path(SETTINGS).unlink()
        assert late.run("systemctl", "reload", "pyconfd-vip-config", check=False).returncode == 1
        late.until(lambda told=told: told in late.journal("pyconfd-vip-config"), "what keeps keepalived.conf is said")  # type: ignore[misc]
    full_disk(late, with_vip(world, 52))
    assert conf.read_text() == before
    late.systemctl("reload", "pyconfd")
    late.until(lambda: "virtual_router_id 52" in conf.read_text(), "with room it follows")
    settled(late, *VIP)
    # What only the hook reads is in no file of keepalived's.
    reload(late, with_vip(world, 52, "81"))
    late.until(lambda: "listener_gone" in told_by_hook(late), "the hook looks at port 81")
    reload(late, world.settings(vip={"interface": "host0"}))
    late.until(lambda: "trouble with settings: vip.virtual_router_id" in told_by_hook(late), "status tells")
    assert late.active("keepalived") == "active"
    reload(late, with_vip(world, 52))
    late.until(lambda: told_by_hook(late) == "router 52: has the address", "all is well")
    # A wrong one is told, and does not keep a processor busy.
    late.write(SETTINGS, world.settings(vip={"interface": "host0"}))
    late.run("systemctl", "--no-block", "restart", "pyconfd-vip")
    late.until(lambda: late.show("pyconfd-vip", "SubState")["SubState"] == "stop-post", "it waits")
    wrong = "vip.virtual_router_id: is needed"
    late.until(
        lambda: wrong in late.said("systemctl", "status", "--no-pager", "pyconfd-vip"), "systemctl status says it"
    )
    assert late.active("keepalived") == "active"


def told_by_hook(machine: Machine) -> str:
    return machine.show("pyconfd-vip", "StatusText")["StatusText"]


def full_disk(machine: Machine, text: str) -> None:
    """Change the settings while there is no room for a keepalived.conf."""
    folder = "/etc/keepalived"
    machine.run(
        "sh", "-c", f"cp -a {folder} /tmp/k && mount -t tmpfs -o size=64k none {folder} && cp /tmp/k/* {folder}"
    )
    try:
        machine.run("dd", "if=/dev/zero", f"of={folder}/filler", "bs=1k", check=False)
        before = machine.path(f"{folder}/keepalived.conf").read_text()
        reload(machine, text)
        machine.until(lambda: "cannot be written" in machine.journal("pyconfd-vip-config"), "it says so")
        assert machine.path(f"{folder}/keepalived.conf").read_text() == before
        assert not machine.path(f"{folder}/keepalived.conf.new").exists()
    finally:
        machine.run("umount", "-l", folder)
