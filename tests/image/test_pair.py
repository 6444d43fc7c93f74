"""Two machines of one image: one address, one name, and an upgrade of both while clients ask. ``make image-test``."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.dns.stage import NAME, zone_with
from tests.dns.strict import StrictRoute53
from tests.dns.strict_http import StrictServer
from tests.image.asking import Clients, Window, window
from tests.image.bake import Baked, wheelhouse
from tests.image.conftest import seeded
from tests.image.machine import Lan, Machine
from tests.image.trees import missing
from tests.image.world import World, followed
from tests.release.checkout import built, checkout
from tests.release.conftest import with_wheels
from tests.world.clients import ask

LONG = bool(os.environ.get("PYCONFD_TEST_IMAGE"))
pytestmark = [
    pytest.mark.skipif(not LONG, reason="make image-test runs two machines in one network"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.timeout(900),
]
CREDENTIALS = ("AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test")
GRACE_S = 10
"""``vip.grace_s``."""


class Pair:
    """Two machines, and the Route 53 that their name is in."""

    def __init__(self, machines: tuple[Machine, Machine], provider: StrictRoute53) -> None:
        self.machines, self.provider = machines, provider

    def holders(self) -> list[Machine]:
        """Return who has the floating address."""
        return [
            one
            for one in self.machines
            if f" {Lan.vip}/" in one.said("ip", "-4", "-o", "address", "show", "dev", "host0")
        ]

    def settled(self) -> bool:
        """Whether exactly one has it, it serves there, the name leads there, and nothing is under way."""
        holders = self.holders()
        return (
            all(one.idle() for one in self.machines)
            and len(holders) == 1
            and ask(80, "shop.example.com", address=Lan.vip).startswith("shop-")
            and self.provider.answer(NAME, "A") == (holders[0].address,)
        )

    def until_settled(self, what: str) -> tuple[Machine, Machine]:
        """Wait for that; return who has the address and who has not."""
        self.machines[0].until(self.settled, what)
        (holder,) = self.holders()
        return holder, next(one for one in self.machines if one is not holder)


@pytest.fixture(scope="module")
def pair(world: World, baked: Baked, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    provider = zone_with()
    with StrictServer(provider, host=Lan.host) as aws, ExitStack() as stack:
        settings = world.settings(
            dns=followed(NAME, aws.port),
            vip={
                "interface": "host0",
                "virtual_router_id": 51,
                "addresses": [f"{Lan.vip}/16", f"{Lan.vip6}/64"],
                "ports": ["80"],
                "nodes": [],
            },
        )
        settings = settings.replace("nodes = []\n", "")
        machines = []
        for number in (1, 2):
            addresses = json.dumps([Lan.address(number), Lan.address6(number)])
            settings += f'[[vip.nodes]]\nname = "lb{number}"\naddresses = {addresses}\n'
        for number in (1, 2):
            machine = Machine(f"lb{number}", number, baked.layers, tmp_path_factory.mktemp(f"lb{number}"))
            machine.prepare("/etc/default/pyconfd", "\n".join(CREDENTIALS) + "\n")
            machines.append(stack.enter_context(seeded(machine, settings)))
        found = Pair((machines[0], machines[1]), provider)
        found.until_settled("two first boots give one holder")
        yield found


def test_one_file_makes_keepalived_the_packet_filter_and_the_name(pair: Pair) -> None:
    for machine in pair.machines:
        assert f"unicast_src_ip {machine.address}" in machine.path("/etc/keepalived/keepalived.conf").read_text()
        assert "pyconfd_vip" in machine.said("nft", "list", "tables")
        assert machine.active("pyconfd-dns") == "active"
        # CAP_KILL, CAP_NET_ADMIN and CAP_NET_RAW, as a user of its own.
        assert machine.effective("pyconfd-vip") == ("pyconfd-vip", 1 << 5 | 1 << 12 | 1 << 13)
        order = machine.show("keepalived", "After")["After"].split()
        assert {"pyconfd-vip.service", "haproxy.service", "pyconfd-vip-config.service"} <= set(order)


def test_a_hook_that_crashes_or_hangs_moves_nothing(pair: Pair) -> None:
    holder, _ = pair.until_settled("before")
    for number in (signal.SIGKILL, signal.SIGSTOP):
        former = holder.pid("pyconfd-vip")
        holder.signal("pyconfd-vip", number)
        holder.until(lambda f=former: holder.restarted("pyconfd-vip", f), "systemd starts the hook again")  # type: ignore[misc]
        assert pair.holders() == [holder]


def test_a_hook_that_is_stopped_moves_nothing_and_says_who_has_the_address(pair: Pair) -> None:
    holder, other = pair.until_settled("before")
    for machine, has in ((holder, "has"), (other, "does not have")):
        line = f"router 51: {has} the address"
        machine.until(lambda m=machine, w=line: m.show("pyconfd-vip", "StatusText")["StatusText"] == w, line)  # type: ignore[misc]
    holder.systemctl("stop", "pyconfd-vip")
    # The backstop of keepalived looks now, and finds a haproxy that lives.
    holder.until(lambda: backstop_looks(holder), "the hook's grace is over")
    assert pair.holders() == [holder]
    holder.systemctl("start", "pyconfd-vip")
    pair.until_settled("after")
    assert pair.holders() == [holder]


def backstop_looks(machine: Machine) -> bool:
    """Whether the hook has been silent for longer than its grace."""
    beat = float(machine.path("/run/pyconfd-vip/heartbeat").read_text().split()[0])
    return float(machine.path("/proc/uptime").read_text().split()[0]) - beat > GRACE_S + 4


@pytest.mark.parametrize("unit", ["keepalived", "haproxy"])
def test_what_hangs_loses_the_address_and_comes_back(pair: Pair, unit: str) -> None:
    holder, other = pair.until_settled("before")
    former = holder.pid(unit)
    children = holder.said("pgrep", "--parent", str(former)).split()
    holder.run("kill", "-STOP", *children)
    other.until(lambda: pair.holders() == [other], "the other one has the address")
    if unit == "keepalived":
        holder.until(lambda: holder.said("pgrep", "--parent", str(holder.pid(unit))).split() != children, "a new one")
    else:
        holder.until(
            lambda: "haproxy_hangs" in holder.show("pyconfd-vip", "StatusText")["StatusText"], "the hook says why"
        )
        holder.run("kill", "-CONT", *children)
    pair.until_settled("after")
    assert pair.holders() == [other]


def test_who_stops_the_withdrawal_withdraws_and_a_reload_does_not_let_the_node_in(pair: Pair) -> None:
    holder, _ = pair.until_settled("before")
    holder.systemctl("stop", "pyconfd-dns-withdraw")
    assert "withdrawn by command" in holder.said("pyconfd", "dns", "status")
    holder.systemctl("reload", "pyconfd")
    holder.until(lambda: holder.active("pyconfd") == "active", "pyconfd has read its settings")
    assert holder.active("pyconfd-dns-withdraw") == "inactive"
    holder.systemctl("start", "pyconfd-dns-withdraw")
    holder.run("runuser", "-u", "pyconfd", "--", "env", *CREDENTIALS, "pyconfd", "dns", "publish")
    pair.until_settled("after")


def test_the_packet_filter_outlives_a_restart_of_nftables(pair: Pair) -> None:
    machine, _ = pair.machines
    machine.systemctl("restart", "nftables")
    machine.until(lambda: "pyconfd_vip" in machine.said("nft", "list", "tables"), "the table is there again")
    machine.systemctl("stop", "nftables")
    machine.systemctl("start", "pyconfd-vip-config")
    pair.until_settled("after")


def test_keepalived_that_dies_leaves_no_address_behind(pair: Pair) -> None:
    holder, _ = pair.until_settled("before")
    former = holder.pid("keepalived")
    holder.signal("keepalived", signal.SIGKILL)
    holder.until(lambda: holder.restarted("keepalived", former), "systemd starts keepalived again")
    pair.until_settled("one holder, and the name leads there")


@pytest.mark.parametrize("unit", ["haproxy", "keepalived"])
def test_a_unit_that_is_stopped_moves_address_and_name(pair: Pair, unit: str) -> None:
    holder, other = pair.until_settled("before")
    holder.systemctl("stop", unit)
    other.until(lambda: pair.holders() == [other], "the other one has the address")
    other.until(lambda: pair.provider.answer(NAME, "A") == (other.address,), "the name leads there")
    holder.systemctl("start", unit)
    pair.until_settled("after")
    assert pair.holders() == [other]


def test_a_changed_router_and_name_are_taken_by_one_reload(pair: Pair) -> None:
    changes = {"virtual_router_id = 51": 'virtual_router_id = 51\nprofile = "fast"', "ttl_s = 5\n": "ttl_s = 7\n"}
    for machine in pair.machines:
        path = machine.path("/etc/pyconfd/pyconfd.toml")
        text = path.read_text()
        for before, after in changes.items():
            assert before in text
            text = text.replace(before, after)
        machine.write("/etc/pyconfd/pyconfd.toml", text)
        machine.systemctl("reload", "pyconfd")
        conf = machine.path("/etc/keepalived/keepalived.conf")
        machine.until(lambda c=conf: "advert_int 0.1" in c.read_text(), "keepalived.conf follows")  # type: ignore[misc]
    pair.until_settled("after")
    records = pair.provider.everything
    pair.machines[0].until(
        lambda: {7} == {one.ttl_s for one in records() if (one.name, one.type) == (f"{NAME}.", "A")},
        "the record follows",
    )


def test_power_that_goes_moves_the_address_and_a_shutdown_moves_the_name_first(pair: Pair) -> None:
    holder, other = pair.until_settled("before")
    holder.kill()
    other.until(lambda: f" {Lan.vip}/" in other.said("ip", "-4", "-o", "address"), "the other one takes over")
    holder.boot()
    holder, other = pair.until_settled("after the crash")
    holder.shut_down()
    other.until(lambda: f" {Lan.vip}/" in other.said("ip", "-4", "-o", "address"), "the other one takes over")
    holder.boot()
    pair.until_settled("after the shutdown")
    units = ("haproxy.service", "pyconfd-dns-withdraw.service")
    words = ("journalctl", "--boot=-1", "--no-pager", "--output=cat", *(f"--unit={unit}" for unit in units))
    # The former boot is there once journald has moved what it keeps to the disk.
    holder.until(lambda: "Stopped pyconfd-dns-withdraw.service" in holder.said(*words), "the journal of the last boot")
    said = holder.said(*words)
    assert 0 < said.rindex("Stopped pyconfd-dns-withdraw.service") < said.rindex("Stopping haproxy.service")


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a newer version."""
    sources = checkout(tmp_path_factory.mktemp("newer") / "sources", version="9.1.0")
    with_wheels(sources, wheelhouse())
    built(sources, "wheelhouse")
    target = sources / "dist/bundle.tar"
    subprocess.run(
        [sources / "packer/bundle.sh", target], check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1760000000"}
    )
    return target


def upgrade(machine: Machine, bundle: Path) -> None:
    """Do what docs say: install the new version, and give haproxy a restart, on a node that has not the address."""
    machine.path("/var/tmp/bundle.tar").write_bytes(bundle.read_bytes())
    machine.run("sh", "-c", "rm -rf /var/tmp/new && mkdir /var/tmp/new && tar -C /var/tmp/new -xf /var/tmp/bundle.tar")
    machine.run("/var/tmp/new/packer/install.sh", timeout_s=300)
    machine.systemctl("restart", "haproxy", "keepalived")
    machine.until(lambda: machine.status().get("version") == "9.1.0", "the new version runs")
    machine.until(
        lambda: machine.status().get("phase") == "serving" and machine.ask("shop").startswith("shop-"), "it serves"
    )


def test_a_rolling_upgrade_loses_no_request_but_in_the_failover(pair: Pair, newer: Path) -> None:
    pair.until_settled("before")
    moves: list[Window] = []
    clients = Clients(Lan.vip)
    try:
        for machine in reversed(pair.until_settled("before")):
            with window(moves):
                machine.run("pyconfd", "vip", "drain", check=machine in pair.holders())
                machine.until(lambda m=machine: m not in pair.holders() and pair.settled(), "the other one serves")  # type: ignore[misc]
            upgrade(machine, newer)
            with window(moves):
                machine.run("pyconfd", "vip", "undrain")
                pair.until_settled("undrained")
    finally:
        clients.stop()
    assert clients.asked > 100
    assert clients.outside(moves) == []
    assert len(clients.failures) < clients.asked / 100
    assert {machine.status()["version"] for machine in pair.machines} == {"9.1.0"}
