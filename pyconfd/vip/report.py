"""What the hook tells of itself: a document for ``pyconfd vip status``, and metrics."""

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from pyconfd.settings.vip import VipSettings
from pyconfd.vip.memory import Memory
from pyconfd.vip.policy import Alarm, Fault, Hold, Limits, Shared
from pyconfd.vip.routers import RouterState
from pyconfd.vip.senses import Senses
from pyconfd.vip.topology import Topology
from pyconfd.vip.tracking import Sight


class Told(Protocol):
    """What there is to tell; the hook has it."""

    vip: VipSettings
    topology: Topology
    limits: Limits
    memory: Memory
    senses: Senses
    routers: list[RouterState]
    troubles: dict[str, str]
    started: float
    now: float


def report(hook: Told) -> dict[str, Any]:
    """Return the document, ready for JSON: times are seconds since the epoch, ages seconds (None for never)."""
    senses, vip = hook.senses, hook.vip
    wall = time.time()
    return {
        "node": hook.topology.node,
        "interface": hook.topology.interface,
        "profile": vip.profile.value,
        "at": wall,
        "started": wall - (hook.now - hook.started),
        "checks": {
            "haproxy alive": _check(senses.haproxy.alive, f"process {senses.haproxy.pid}", vip.haproxy_pid_file),
            "haproxy answers": _check(
                senses.ping.misses < vip.ping_misses, vip.haproxy_socket, f"{senses.ping.misses} answers missed"
            ),
            "haproxy serves": _health(hook),
            "listeners": _check(
                not senses.closed_ports | senses.foreign_ports, " ".join(vip.ports) or "not looked at", _ports(senses)
            ),
            "carrier": _check(
                senses.link.state.carrier and senses.carrier_trusted,
                hook.topology.interface,
                "is back, and not trusted yet" if senses.link.state.carrier else f"{hook.topology.interface} has none",
            ),
            "gateways": _gateways(hook),
            "keepalived alive": _check(senses.keepalived.alive, f"process {senses.keepalived.pid}", vip.vrrp_pid_file),
        },
        "troubles": dict(hook.troubles),
        "netlink_resyncs": senses.link.resyncs,
        "routers": [_router(hook, state, wall) for state in hook.routers],
    }


def _check(fine: bool, good: str, bad: str) -> dict[str, Any]:
    return {"ok": fine, "detail": good if fine else bad}


def _health(hook: Told) -> dict[str, Any]:
    health = hook.senses.health
    if health is None:
        return _check(True, "not asked", "")
    full = ", as many connections as it may" if hook.senses.full else ""
    return _check(health.misses < hook.vip.ping_misses, hook.vip.health, f"{health.misses} answers missed{full}")


def _ports(senses: Senses) -> str:
    words = [f"{port} closed" for port in sorted(senses.closed_ports)]
    return ", ".join([*words, *(f"{port} is not haproxy's" for port in sorted(senses.foreign_ports))])


def _gateways(hook: Told) -> dict[str, Any]:
    uplink, age = hook.senses.uplink, hook.senses.uplink.age_s(hook.now)
    words = [f"silent for {age:.0f} s"] if age >= hook.limits.gateway_s else []
    words += [f"no route by {uplink.lost.gateway}"] if uplink.lost else []
    good = " ".join(uplink.gateways) or "not looked at"
    if uplink.ways:
        good += f", way out by {' '.join(uplink.ways)}"
    return _check(not words, good, ", ".join(words))


def _router(hook: Told, state: RouterState, wall: float) -> dict[str, Any]:
    drained = hook.memory.drained.get(state.router.id)
    return {
        "id": state.router.id,
        "preferred": state.router.preferred,
        "hold": state.stance.hold.value,
        "since": wall - (hook.now - state.stance.since),
        "faults": sorted(state.stance.faults),
        "alarms": sorted(state.alarms),
        "drained": dict(drained) if drained else None,
        "instances": [_instance(hook, state.sight, wall)],
    }


def _instance(hook: Told, sight: Sight, wall: float) -> dict[str, Any]:
    facts = sight.facts(hook.now)
    return {
        "name": sight.instance.name,
        "addresses": [*sight.instance.addresses, *sight.instance.companions],
        "role": sight.role.value,
        "role_since": wall - (hook.now - max(sight.role_since, hook.started)),
        "holds": bool(sight.held),
        "announced": facts.announced,
        "holder": sight.holder(hook.now, hook.limits.down_s),
        "peers": {peer.name: _age(hook, sight, peer.address) for peer in sight.instance.peers},
        "rivals": [{"hardware": one.hardware, "peer": one.peer} for one in facts.rivals],
        "contradictions": {address: list(found) for address, found in sight.contradictions(hook.now).items()},
    }


def _age(hook: Told, sight: Sight, address: str) -> float | None:
    at, _ = sight.heard.get(address, (-math.inf, 0))
    return round(hook.now - at, 3) if math.isfinite(at) else None


def metrics(document: Mapping[str, Any]) -> str:
    """Return a report in Prometheus' text format, for the node exporter's directory of text files."""
    return "\n".join(_metrics(document)) + "\n"


def _metrics(document: Mapping[str, Any]) -> Iterator[str]:
    yield "# TYPE pyconfd_vip_report_timestamp_seconds gauge"
    yield f"pyconfd_vip_report_timestamp_seconds {document['at']:.3f}"
    yield "# TYPE pyconfd_vip_check_ok gauge"
    for name, check in document["checks"].items():
        yield f'pyconfd_vip_check_ok{{check="{name.replace(" ", "_")}"}} {int(check["ok"])}'
    yield "# TYPE pyconfd_vip_troubles gauge"
    yield f"pyconfd_vip_troubles {len(document['troubles'])}"
    yield "# TYPE pyconfd_vip_netlink_resyncs_total counter"
    yield f"pyconfd_vip_netlink_resyncs_total {document['netlink_resyncs']}"
    yield "# TYPE pyconfd_vip_hold gauge"
    for router in document["routers"]:
        for hold in Hold:
            yield f'pyconfd_vip_hold{{router="{router["id"]}",hold="{hold.value}"}} {int(router["hold"] == hold.value)}'
    yield "# TYPE pyconfd_vip_fault gauge"
    for router in document["routers"]:
        for fault in Fault:
            yield f'pyconfd_vip_fault{{router="{router["id"]}",fault="{fault.value}"}} {int(fault in router["faults"])}'
    yield "# TYPE pyconfd_vip_alarm gauge"
    for router in document["routers"]:
        for alarm in (*Alarm, *Shared):
            yield f'pyconfd_vip_alarm{{router="{router["id"]}",alarm="{alarm.value}"}} {int(alarm in router["alarms"])}'
    yield "# TYPE pyconfd_vip_holds gauge"
    for router in document["routers"]:
        for one in router["instances"]:
            yield f'pyconfd_vip_holds{{instance="{one["name"]}"}} {int(one["holds"])}'
