"""What the hook looks at beside processes: requests, listeners, gateways and routes, with everything real."""

import os
import signal
import subprocess
import sys
from functools import partial

import pytest

from tests.vip.bed import VIP4, VIP6, Bed, Node, missing, wait_for
from tests.vip.network import ELSEWHERE, SWITCH, ip, missing_filter
from tests.vip.test_failover import exactly_one

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no bed for failover: {missing()}"),
    pytest.mark.timeout(150),
    pytest.mark.skipif("PYCONFD_TEST_FAILOVER" not in os.environ, reason="real failovers: make vip-test"),
]
HEALTH = "127.0.0.1:8404/health"
GATEWAY = "10.77.0.1"


def says(node: Node, alarm: str) -> bool:
    return alarm in node.status()["routers"][0]["alarms"]


def has_faults(node: Node, *faults: str) -> bool:
    return bool(node.status()["routers"][0]["faults"] == list(faults))


def has_seen_the_route(node: Node) -> bool:
    return "way out" in node.status()["checks"]["gateways"]["detail"]


def inside(node: Node, *argv: str) -> None:
    node.bed.network.inside(node.space, *argv)


def test_a_haproxy_that_answers_its_socket_and_refuses_clients() -> None:
    with Bed(health=HEALTH) as bed:
        refusing = bed.holder
        (other,) = bed.others(refusing)
        refusing.tell_haproxy("disable frontend stats")
        exactly_one(bed, other)
        assert has_faults(refusing, "refuses_clients")
        refusing.tell_haproxy("enable frontend stats")
        wait_for("ability", partial(has_faults, refusing))
        exactly_one(bed, other)


def test_a_haproxy_that_is_full_keeps_the_address() -> None:
    with Bed(health=HEALTH, health_timeout_s=0.3) as bed:
        full = bed.holder
        full.tell_haproxy("set maxconn global 1")
        code = f"import socket; c = socket.create_connection(('{VIP4}', 80)); input()"
        argv = ["ip", "netns", "exec", bed.client, sys.executable, "-c", code]
        with subprocess.Popen(argv, stdin=subprocess.PIPE) as held:
            wait_for("the alarm", partial(says, full, "haproxy_full"))
            wait_for("missed answers", lambda: not full.status()["checks"]["haproxy serves"]["ok"])
            exactly_one(bed, full)
            held.communicate(b"\n", timeout=30)
        wait_for("quiet", lambda: not says(full, "haproxy_full"))


def test_somebody_else_on_a_port_of_haproxys() -> None:
    with Bed() as bed:
        (other,) = bed.others(bed.holder)
        conf = other.folder / "haproxy.cfg"
        conf.write_text(conf.read_text().replace(":80\n", ":81\n"))
        other.kill(signal.SIGUSR2, "haproxy")
        wait_for("the fault", partial(has_faults, other, "listener_gone"))
        code = "import os, socket, time; os.setuid(65534); s = socket.create_server(('127.0.0.1', 80)); time.sleep(300)"
        inside(other, "sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=0")
        other.spawn("stranger", sys.executable, "-c", code)
        wait_for("the fault", partial(has_faults, other, "listener_foreign"))


def test_a_gateway_that_is_dead_for_everybody_moves_nothing() -> None:
    with Bed(gateways=[GATEWAY], gateway_s=1) as bed:
        holder = bed.holder
        ip("-n", bed.client, "addr", "del", f"{GATEWAY}/24", "dev", "eth0")
        for node in bed.nodes:
            wait_for("the alarm", partial(says, node, "gateway_silent"))
        exactly_one(bed, holder)
        assert not any(node.did("hold.changed", "uplink_dead") for node in bed.nodes)


def test_a_dead_uplink_of_its_own_behind_a_carrier() -> None:
    with Bed(gateways=[GATEWAY], gateway_s=1) as bed:
        cut = bed.holder
        (other,) = bed.others(cut)
        bed.network.move(cut.name, ELSEWHERE)
        wait_for("the fault", partial(has_faults, cut, "uplink_dead"))
        exactly_one(bed, other)
        bed.network.move(cut.name, SWITCH)
        wait_for("ability", partial(has_faults, cut))
        exactly_one(bed, other)


def deafen(bed: Bed, node: Node) -> None:
    bed.network.inside(
        bed.network.switch, "nft",
        "add table bridge f; add chain bridge f c { type filter hook forward priority 0; };"
        f" add rule bridge f c oifname p{node.name} drop",
    )  # fmt: skip


@pytest.mark.skipif(bool(missing_filter()), reason=missing_filter())
def test_a_backup_that_hears_nothing_does_not_take_the_address() -> None:
    with Bed(gateways=[GATEWAY], profile="safe") as bed:
        holder = bed.holder
        (deaf,) = bed.others(holder)
        came = len([one for one in deaf.transitions() if one["what"] == "address.added"])
        deafen(bed, deaf)
        wait_for("the fault", partial(has_faults, deaf, "uplink_dead"))
        exactly_one(bed, holder)
        bed.lose(0)
        wait_for("ability", partial(has_faults, deaf))
        exactly_one(bed, holder)
        assert len([one for one in deaf.transitions() if one["what"] == "address.added"]) == came


def test_a_backup_whose_gateway_answers_takes_over_from_a_node_that_crashed() -> None:
    with Bed(gateways=[GATEWAY]) as bed:
        holder = bed.holder
        (other,) = bed.others(holder)
        bed.cable(holder, plugged=False)
        holder.crash()
        wait_for("the other one", lambda: other.holds() and other.holds(VIP6))
        assert not other.did("hold.changed", "uplink_dead")


def is_own(node: Node) -> bool:
    return node.holds(node.addresses[0])


@pytest.mark.parametrize("promoted", [True, False])
def test_an_own_address_that_goes_and_comes_back(*, promoted: bool) -> None:
    """Without the setting of the package the kernel removes it again, with the floating one that was in its network."""
    with Bed() as bed:
        first = bed.holder
        (second,) = bed.others(first)
        if not promoted:
            for name in ("all", "eth0"):
                inside(first, "sysctl", "-qw", f"net.ipv4.conf.{name}.promote_secondaries=0")
        own = first.addresses[0]
        ip("-n", first.space, "addr", "del", f"{own}/24", "dev", "eth0")
        exactly_one(bed, second)
        assert has_faults(first, "own_address_gone")
        # A backup that hears nothing does not take the address, and the holder says that nobody could take over.
        wait_for("the alarm", partial(says, second, "peer_silent"))
        exactly_one(bed, second)
        ip("-n", first.space, "addr", "add", f"{own}/24", "dev", "eth0")
        wait_for("ability", partial(has_faults, first))
        wait_for("quiet", lambda: not says(second, "peer_silent"))
        second.order("failover")
        exactly_one(bed, first)
        first.order("failover")
        exactly_one(bed, second)
        assert is_own(first)


def test_a_floating_address_that_became_the_primary_one_takes_no_other_with_it() -> None:
    """As it is where the own address comes back, by DHCP say, before the hook has had its turn."""
    with Bed() as bed:
        first = bed.holder
        (second,) = bed.others(first)
        own = first.addresses[0]
        inside(first, "sh", "-c", f"ip addr del {own}/24 dev eth0; ip addr add {own}/24 dev eth0")
        wait_for("ability", partial(has_faults, first))
        for node in (first, second):
            if node.holds():
                node.order("failover")
                break
        wait_for("one holder", lambda: len(bed.holders()) == 1)
        exactly_one(bed, bed.holder)
        assert is_own(first)
        assert is_own(second)


def test_the_last_node_keeps_the_address_without_its_own() -> None:
    """As where the server of DHCP is away: all lose theirs."""
    with Bed() as bed:
        for node in bed.nodes:
            ip("-n", node.space, "addr", "del", f"{node.addresses[0]}/24", "dev", "eth0")
        wait_for("the last one", lambda: any(says(node, "last_one") and node.holds() for node in bed.nodes))
        exactly_one(bed, bed.holder)
        for node in bed.nodes:
            ip("-n", node.space, "addr", "add", f"{node.addresses[0]}/24", "dev", "eth0")
        for node in bed.nodes:
            wait_for("ability", partial(has_faults, node))
        exactly_one(bed, bed.holder)


def test_a_route_that_is_gone_on_one_node_and_then_on_all() -> None:
    with Bed(gateways=[GATEWAY]) as bed:
        for node in bed.nodes:
            ip("-n", node.space, "route", "add", "default", "via", GATEWAY)
            wait_for("the route", partial(has_seen_the_route, node))
        first = bed.holder
        (second,) = bed.others(first)
        ip("-n", first.space, "route", "del", "default")
        exactly_one(bed, second)
        assert has_faults(first, "route_lost")
        ip("-n", second.space, "route", "del", "default")
        wait_for("the fault", partial(has_faults, second, "route_lost"))
        wait_for("the last one", lambda: any(says(node, "last_one") and node.holds() for node in bed.nodes))
        exactly_one(bed, bed.holder)
        ip("-n", first.space, "route", "add", "default", "via", GATEWAY)
        wait_for("ability", partial(has_faults, first))
        exactly_one(bed, first)
