"""Everything that is done to a bed, one fault a name; the tests and ``make ha-bench`` take them from here."""

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import psutil

from tests.vip.bed import FAKETIME, VIP4, VIP6, Bed, Node, wait_for
from tests.vip.network import LIMIT_S, ip, missing_filter
from tests.vip.node import raises_limits

_ANNOUNCE = """import sys
from pyconfd.vip.frames import PacketSocket, announcements
wire = PacketSocket("eth0", 0)
wire.send(announcements(wire.hardware, sys.argv[1]))
"""
_FLAPS, _FLAP_S = 5, 0.3
_FEW_DESCRIPTORS = 3
_HOUR = "3600"
ATTACK_S = 3.0


def _nothing(_bed: Bed, _node: Node) -> None:
    return


@dataclass(frozen=True, slots=True)
class Fault:
    """``inject`` on the holder, then ``mend``."""

    inject: Callable[[Bed, Node], object]
    mend: Callable[[Bed, Node], object] = _nothing
    moves: bool | None = True
    """Whether the address must go to another node; None where either is right."""
    host: str = VIP4
    bound_s: float = 10.0
    """Within it one node holds both families."""
    goal_ms: float | None = None
    harmless: bool = False
    """No request may fail."""
    serves: bool = True
    """Somebody answers in the end."""
    alarm: str = ""
    """An alarm that a hook must raise."""
    event: tuple[str, str] | None = None
    """What the holder's hook must record, and the cause."""
    fresh: bool = False
    """It needs a bed of its own each time."""
    clocks: bool = False
    """It needs clocks that can be set."""
    nodes: int = 2
    filters: bool = False
    """It needs a switch that loses frames."""
    last: bool = False
    """The node with the lowest priority is alone."""

    def missing(self) -> str:
        """Return what this machine has not; "" where it has all."""
        if self.clocks and not FAKETIME.exists():
            return "faketime is not installed"
        return missing_filter() if self.filters else ""


def harmless(inject: Callable[[Bed, Node], object], mend: Callable[[Bed, Node], object] = _nothing) -> Fault:
    """Return a fault that neither moves the address nor loses a request."""
    return Fault(inject, mend, moves=False, harmless=True)


def _haproxy_again(_bed: Bed, node: Node) -> None:
    node.processes["haproxy"].wait(LIMIT_S)
    wait_for("the end of the former haproxy", lambda: not node.pids("haproxy"))
    node.start_haproxy()


def _kill_haproxy_and_hook(_bed: Bed, node: Node) -> None:
    node.send("hook", signal.SIGSTOP)  # it must not see the death
    node.kill(signal.SIGKILL, "haproxy")
    node.end("hook")


def _haproxy_and_hook_again(bed: Bed, node: Node) -> None:
    _haproxy_again(bed, node)
    node.start_hook()


def _again(name: str) -> Callable[[Bed, Node], None]:
    """Return what starts a process again on each node where it has ended."""

    def start(bed: Bed, _node: Node) -> None:
        for node in bed.nodes:
            node.start_again(name)

    return start


def _end_everywhere(name: str) -> Callable[[Bed, Node], None]:
    def end(bed: Bed, _node: Node) -> None:
        for node in bed.nodes:
            node.end(name)

    return end


def _limit_descriptors(node: Node, most: int) -> None:
    for pid in node.pids("haproxy"):
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most or hard, hard))


def _killed_keepalived_again(_bed: Bed, node: Node) -> None:
    # The hook has killed it, and the bed may have started it again: one that is stopped would wake up as a master.
    assert all(psutil.Process(pid).status() != psutil.STATUS_STOPPED for pid in node.pids("keepalived"))
    node.start_again("keepalived")  # the hook killed one that was stopped, and it may run again


def _spoil_configuration(_bed: Bed, node: Node) -> None:
    conf = node.folder / "keepalived.conf"
    text = conf.read_text()
    conf.write_text(text[: text.index("virtual_ipaddress")].replace("advert_int", "no_such_word"))
    node.reload_keepalived()


def _mend_configuration(_bed: Bed, node: Node) -> None:
    if node.has_ended("keepalived"):
        node.start_keepalived()
    else:
        node.configure_keepalived()
        node.reload_keepalived()


def _reload_of_keepalived(fault: Fault) -> Fault:
    return fault if raises_limits() else replace(fault, moves=None, harmless=False)


def _flap(bed: Bed, node: Node) -> None:
    for plugged in (False, True) * _FLAPS:
        bed.cable(node, plugged=plugged)
        time.sleep(_FLAP_S)


def _crash(bed: Bed, node: Node) -> None:
    bed.cable(node, plugged=False)
    node.crash()


def _reboot(bed: Bed, node: Node) -> None:
    bed.cable(node, plugged=True)
    node.boot()


def _kill_all_haproxies(bed: Bed, _node: Node) -> None:
    since = time.time()
    for node in bed.nodes:
        node.kill(signal.SIGKILL, "haproxy")
    _until_alarm(bed, "last_one", since)


def _all_haproxies_again(bed: Bed, _node: Node) -> None:
    for node in bed.nodes:
        _haproxy_again(bed, node)


def _kill_api(bed: Bed, _node: Node) -> None:
    assert bed.api is not None
    bed.api.kill()
    bed.api.wait(LIMIT_S)
    time.sleep(2.0)


def _until_alarm(bed: Bed, cause: str, since: float) -> None:
    wait_for(
        f"the alarm {cause}",
        lambda: any(
            one["what"] == "alarm.raised" and one["cause"] == cause and one["at"] >= since
            for node in bed.nodes
            for one in node.transitions()
        ),
    )


def _drop_adverts(bed: Bed, _node: Node) -> None:
    since = time.time()
    bed.drop_adverts(dropped=True)
    _until_alarm(bed, "split_brain", since)


def _hear_no_adverts(bed: Bed, node: Node) -> None:
    """Both have the address until adverts pass again: neither yields to a node that it does not hear."""
    _drop_adverts(bed, node)
    time.sleep(ATTACK_S)
    bed.drop_adverts(dropped=False)


def _attack(kind: str, alarm: str) -> Callable[[Bed, Node], None]:
    def inject(bed: Bed, node: Node) -> None:
        since = time.time()
        with bed.attack(kind, node):
            if alarm:
                _until_alarm(bed, alarm, since)
            time.sleep(ATTACK_S)

    return inject


def _replay(bed: Bed, node: Node) -> None:
    with bed.attack("adverts", node):
        wait_for("keepalived to believe them", lambda: not node.holds())
        time.sleep(ATTACK_S)


def _until_quiet(bed: Bed, _node: Node) -> None:
    wait_for("the end of the alarms", lambda: not any(node.status()["routers"][0]["alarms"] for node in bed.nodes))


def _others_again(bed: Bed, node: Node) -> None:
    for other in bed.others(node):
        _reboot(bed, other)


def _part_and_heal(bed: Bed, node: Node) -> None:
    bed.part(node, away=True)
    bed.until_settled(10.0, segments=2)
    bed.part(node, away=False)


def _lose(bed: Bed, long_s: float) -> None:
    bed.lose(20)
    time.sleep(long_s)
    bed.lose(0)


def _storm(long_s: float) -> None:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    try:
        time.sleep(long_s)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _jump(bed: Bed, _node: Node) -> None:
    for jump in ("+" + _HOUR, "-" + _HOUR, "+0"):
        for node in bed.nodes:
            node.clock.write_text(f"{jump}\n")
        time.sleep(1.0)


def _upgrade(bed: Bed, first: Node) -> None:
    """Drain each node, restart everything on it, and undrain it; the holder last."""
    for node in (*bed.others(first), first):
        node.order("drain")
        wait_for("the hand-over", lambda node=node: not node.holds() and not node.holds(VIP6))  # type: ignore[misc]
        bed.until_settled(LIMIT_S)
        node.stop()
        node.start()
        node.order("undrain")
        wait_for("the upgraded node", node.is_ready)


def _take_as_stranger(bed: Bed, _node: Node) -> None:
    since = time.time()
    bed.network.address(bed.behind, f"{VIP4}/32")
    for _ in range(3):
        bed.network.inside(bed.behind, sys.executable, "-c", _ANNOUNCE, VIP4)
    _until_alarm(bed, "stranger", since)
    ip("-n", bed.behind, "addr", "del", f"{VIP4}/32", "dev", "eth0")


def faults(long_s: float) -> Mapping[str, Fault]:
    """Return all of them; storms and packet loss last for ``long_s``."""
    found = {
        "haproxy_killed": Fault(
            lambda _, node: node.kill(signal.SIGKILL, "haproxy"),
            _haproxy_again,
            event=("hold.changed", "haproxy_dead"),
            goal_ms=50,
        ),
        "haproxy_stopped": Fault(
            lambda _, node: node.signal_haproxies(signal.SIGSTOP),
            lambda _, node: node.signal_haproxies(signal.SIGCONT),
            event=("hold.changed", "haproxy_hangs"),
            goal_ms=500,
        ),
        "listener_gone": Fault(
            lambda _, node: node.tell_haproxy("disable frontend http-in"),
            lambda _, node: node.tell_haproxy("enable frontend http-in"),
            event=("hold.changed", "listener_gone"),
        ),
        "descriptors_exhausted": Fault(
            lambda _, node: _limit_descriptors(node, _FEW_DESCRIPTORS), lambda _, node: _limit_descriptors(node, 0)
        ),
        "haproxy_reloaded": harmless(lambda _, node: node.kill(signal.SIGUSR2, "haproxy")),
        "keepalived_killed": Fault(
            lambda _, node: node.kill(signal.SIGKILL, "vrrp", "keepalived"),
            _again("keepalived"),
            event=("address.fenced", "keepalived_dead"),
            goal_ms=50,
        ),
        # keepalived's own script is all that looks then.
        "haproxy_and_hook_killed": Fault(_kill_haproxy_and_hook, _haproxy_and_hook_again),
        # Its parent starts another one, which may remove the address before the hook can.
        "keepalived_child_killed": Fault(
            lambda _, node: node.kill(signal.SIGKILL, "vrrp"), event=("alarm.raised", "keepalived_dead"), goal_ms=50
        ),
        "keepalived_stopped": Fault(
            lambda _, node: node.kill(signal.SIGSTOP, "keepalived", "vrrp"),
            _killed_keepalived_again,
            event=("address.fenced", "keepalived_hangs"),
            goal_ms=350,
        ),
        "keepalived_reloaded": _reload_of_keepalived(harmless(lambda _, node: node.reload_keepalived())),
        "keepalived_bad_configuration": Fault(_spoil_configuration, _mend_configuration, moves=None),
        "hook_killed": harmless(lambda _, node: node.end("hook"), _again("hook")),
        "all_hooks_killed": harmless(_end_everywhere("hook"), _again("hook")),
        "hook_stopped": harmless(
            lambda _, node: node.send("hook", signal.SIGSTOP), lambda _, node: node.send("hook", signal.SIGCONT)
        ),
        "pyconfd_killed": harmless(lambda _, node: node.end("pyconfd"), _again("pyconfd")),
        "pyconfd_killed_everywhere": harmless(_end_everywhere("pyconfd"), _again("pyconfd")),
        "api_server_away": harmless(_kill_api, lambda bed, _: bed.start_api()),
        "link_down": Fault(
            lambda bed, node: bed.cable(node, plugged=False),
            lambda bed, node: bed.cable(node, plugged=True),
            event=("hold.changed", "carrier_lost"),
            goal_ms=350,
        ),
        "link_flapping": Fault(_flap),
        "node_crash": Fault(_crash, _reboot, goal_ms=350),
        "both_haproxies_dead": Fault(_kill_all_haproxies, _all_haproxies_again, moves=None, bound_s=60, serves=False),
        "vrrp_partition": Fault(_hear_no_adverts, moves=None, alarm="split_brain", filters=True),
        "full_partition_and_heal": Fault(_part_and_heal, moves=None),
        "packet_loss": Fault(lambda bed, _: _lose(bed, long_s), moves=None, filters=True),
        # Clients starve as well, and HAProxy may end connections that are idle when its clock jumps.
        "processor_storm": Fault(lambda _bed, _node: _storm(long_s), moves=False),
        "clock_jump": Fault(_jump, moves=False, clocks=True),
        "planned_failover": Fault(lambda _, node: node.order("failover"), goal_ms=30),
        "drain": Fault(lambda _, node: node.order("drain"), lambda _, node: node.order("undrain"), goal_ms=30),
        "rolling_upgrade": Fault(_upgrade),
        "third_node_joins": _reload_of_keepalived(replace(harmless(lambda bed, _: bed.join()), fresh=True)),
        "address_taken_by_a_stranger": Fault(_take_as_stranger, moves=False, alarm="stranger"),
    }
    for kind in ("replies", "requests", "gratuitous", "neighbours", "all"):
        spoofed = Fault(_attack(kind, "stranger"), _others_again, moves=False, alarm="stranger", last=True)
        found[f"hostile_{kind}_last_node"] = spoofed
        # Own addresses of the family without adverts are nobody's business here.
        alarm = "stranger" if kind == "neighbours" else "impostor"
        found[f"hostile_{kind}"] = Fault(_attack(kind, alarm), _until_quiet, moves=None, alarm=alarm)
    # The hook goes on taking him for the node that has not advertised since.
    found["hostile_adverts_last_node"] = Fault(_replay, _others_again, moves=None, last=True, fresh=True)
    twins = {f"{name}_ipv6": replace(found[name], host=VIP6) for name in TWINS}
    threes = {f"{name}_of_three": replace(found[name], nodes=3) for name in THREES}
    return found | twins | threes


CORE = (
    "haproxy_killed", "keepalived_killed", "hook_killed", "link_down", "node_crash", "drain", "hostile_all_last_node",
)  # fmt: skip
"""Those that every run of the suite injects once."""

TWINS = (
    "haproxy_killed", "haproxy_stopped", "keepalived_killed", "keepalived_stopped", "link_down", "node_crash",
    "planned_failover", "drain",
)  # fmt: skip
"""Measured over IPv6 too."""

THREES = ("haproxy_killed", "node_crash", "planned_failover")
"""Injected among three nodes too."""
