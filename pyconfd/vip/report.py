"""The hook's report: a document ready for JSON, and what is made of it: metrics, ``pyconfd vip status``, one line."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyconfd.system.textfile import exposition
from pyconfd.vip.policy import Alarm, HoldState, NodeFault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyconfd.vip.hook import Hook
    from pyconfd.vip.vrrp import VirtualRouter

SHOWN_TRANSITIONS = 10
OLD_S = 20.0
"""A hook writes its report every 5 s."""


def report(hook: Hook) -> dict[str, Any]:
    """Return the document: times are seconds since the epoch, ages seconds (None for never)."""
    wall = time.time()
    return {
        "node": hook.topology.node,
        "interface": hook.vip.interface,
        "profile": hook.vip.profile.value,
        "at": wall,
        "started": wall - (hook.now - hook.started),
        "checks": _checks(hook),
        "troubles": dict(hook.troubles),
        "netlink_resyncs": hook.monitor.link.resyncs,
        "routers": [_router(hook, router, wall) for router in hook.routers],
    }


def _checks(hook: Hook) -> dict[str, Any]:
    vip, monitor, link, uplink = hook.vip, hook.monitor, hook.monitor.link, hook.monitor.uplink
    haproxy, keepalived, health = monitor.haproxy, monitor.keepalived, monitor.health
    full = ", as many connections as it may" if monitor.full else ""
    ports = [f"{port} closed" for port in sorted(monitor.closed_ports)]
    ports += [f"{port} is not haproxy's" for port in sorted(monitor.foreign_ports)]
    without_file = f"there is no {vip.vrrp_pid_file}" if keepalived.unknown else vip.vrrp_pid_file
    own = {router.router.source for router in hook.routers}
    gone = sorted(own - link.addresses.keys())
    carrier = "is back, and not trusted yet" if link.carrier else f"{hook.vip.interface} has none"
    silent_s = uplink.age_s(hook.now)
    gateways = [f"silent for {silent_s:.0f} s"] if silent_s >= vip.gateway_s else []
    gateways += [f"no route by {uplink.lost.gateway}"] if uplink.lost else []
    ways = f", way out by {' '.join(uplink.ways)}" if uplink.ways else ""
    checks = (
        ("haproxy alive", haproxy.alive, f"process {haproxy.pid}", vip.haproxy_pid_file),
        (
            "haproxy answers", monitor.ping.misses < vip.ping_misses, vip.haproxy_socket,
            f"{monitor.ping.misses} answers missed",
        ),
        (
            "haproxy serves", health is None or health.misses < vip.ping_misses, vip.health or "not asked",
            f"{health.misses if health else 0} answers missed{full}",
        ),
        ("listeners", not ports, " ".join(vip.ports) or "not looked at", ", ".join(ports)),
        ("carrier", link.carrier and monitor.carrier_trusted, hook.vip.interface, carrier),
        ("own address", not gone, " ".join(sorted(own)), f"{' '.join(gone)} is not on {hook.vip.interface}"),
        ("gateways", not gateways, (" ".join(vip.gateways) or "not looked at") + ways, ", ".join(gateways)),
        ("keepalived alive", keepalived.alive, f"process {keepalived.pid}", without_file),
    )  # fmt: skip
    return {name: {"ok": fine, "detail": good if fine else bad} for name, fine, good, bad in checks}


def _router(hook: Hook, router: VirtualRouter, wall: float) -> dict[str, Any]:
    vrrp, decision, facts = router.router, router.decision, router.facts(hook.now)
    drain = hook.memory.drain_of(vrrp.id)
    ages = {peer.name: hook.now - router.heard.get(peer.address, (-math.inf, 0))[0] for peer in vrrp.peers}
    return {
        "id": vrrp.id,
        "name": vrrp.name,
        "preferred": vrrp.preferred,
        "addresses": [*vrrp.addresses, *vrrp.companions],
        "hold": decision.hold.value,
        "since": wall - (hook.now - decision.since),
        "faults": sorted(decision.faults),
        "alarms": sorted(decision.alarms),
        "drained": asdict(drain) if drain else None,
        "role": router.role.value,
        "role_since": wall - (hook.now - max(router.role_since, hook.started)),
        "holds": router.holds,
        "announced": facts.announced,
        "holder": router.holder(hook.now),
        "peers": {name: round(age, 3) if math.isfinite(age) else None for name, age in ages.items()},
        "rivals": [{"hardware": rival.hardware, "peer": rival.peer} for rival in facts.rivals],
        "contradictions": {address: list(found) for address, found in router.contradictions(hook.now).items()},
    }


def metrics(document: Mapping[str, Any]) -> str:
    """Return a report in Prometheus' text format, for the node exporter's directory of text files."""
    routers = [(f'router="{router["id"]}"', router) for router in document["routers"]]
    families: dict[str, list[tuple[str, object]]] = {
        "report_timestamp_seconds": [("", f"{document['at']:.3f}")],
        "troubles": [("", len(document["troubles"]))],
        "netlink_resyncs_total": [("", document["netlink_resyncs"])],
        "check_ok": [
            (f'check="{name.replace(" ", "_")}"', int(check["ok"])) for name, check in document["checks"].items()
        ],
        "hold": [(f'{of},hold="{hold}"', int(router["hold"] == hold)) for of, router in routers for hold in HoldState],
        "fault": [
            (f'{of},fault="{each}"', int(each in router["faults"])) for of, router in routers for each in NodeFault
        ],
        "alarm": [(f'{of},alarm="{each}"', int(each in router["alarms"])) for of, router in routers for each in Alarm],
        "holds": [(of, int(router["holds"])) for of, router in routers],
    }
    return exposition("pyconfd_vip", families)


def has_problem(document: Mapping[str, Any]) -> bool:
    """Return whether an operator should look: a fault, an alarm, a failed check, a trouble of the hook's own."""
    return (
        bool(document["troubles"])
        or any(not check["ok"] for check in document["checks"].values())
        or any(router["faults"] or router["alarms"] for router in document["routers"])
    )


def line(document: Mapping[str, Any]) -> str:
    """Return a report in one line, for ``systemctl status``."""
    parts = []
    for router in document["routers"]:
        words = [f"router {router['id']}: {'has' if router['holds'] else 'does not have'} the address"]
        words += [f"faults: {' '.join(router['faults'])}"] if router["faults"] else []
        words += ["drained by order"] if router["drained"] else []
        words += [f"alarms: {' '.join(router['alarms'])}"] if router["alarms"] else []
        parts.append(", ".join(words))
    return "; ".join([*parts, *(f"trouble with {what}: {error}" for what, error in document["troubles"].items())])


def floating_lines(document: Mapping[str, Any], now: float) -> Iterator[str]:
    """Return a line for each virtual router: its addresses, whether this node holds them, since when, and what ails it.

    ``now`` is in seconds since the epoch; an old report says so.
    """
    if not document:
        yield "not known: pyconfd-vip has left no report -> systemctl status pyconfd-vip"
        return
    for router in document["routers"]:
        holder = router["holder"] or "none heard"
        role = "this node is the holder" if router["holds"] else f"this node is a backup, the holder is {holder}"
        ails = [*(f"fault {fault}" for fault in router["faults"]), *(f"ALARM {alarm}" for alarm in router["alarms"])]
        ails += ["drained by order"] if router["drained"] else []
        more = f" ({', '.join(ails)}: pyconfd vip status)" if ails else ""
        yield f"{', '.join(router['addresses'])}: {role}, {_ago(router['role_since'], now)}{more}"
    if now - document["at"] > OLD_S:
        yield f"the report is old, {_ago(document['at'], now)}: pyconfd-vip does not run -> systemctl start pyconfd-vip"


def described(document: Mapping[str, Any], transitions: Sequence[Mapping[str, Any]], now: float) -> str:
    """Return what ``pyconfd vip status`` prints; ``now`` in seconds since the epoch."""
    lines = [f"{document['node']} on {document['interface']}, profile {document['profile']}"]
    for router in document["routers"]:
        lines += ["", *_router_lines(router, now)]
    lines.append("")
    lines += [
        f"{'ok ' if check['ok'] else 'BAD'} {name} ({check['detail']})" for name, check in document["checks"].items()
    ]
    lines += [f"BAD {what}: {error}" for what, error in document["troubles"].items()]
    lines.append("")
    for one in list(transitions)[-SHOWN_TRANSITIONS:]:
        moved = f" {one['before']} -> {one['after']}" if "before" in one and "after" in one else ""
        moved += f" {one['address']}" if "address" in one else ""
        moved += f" ({one['cause']})" if one.get("cause") else ""
        at = datetime.fromtimestamp(one["at"], UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        lines.append(f"{at}Z {one['who']} {one['what']}{moved}")
    return "\n".join(lines) + "\n"


def _router_lines(router: Mapping[str, Any], now: float) -> Iterator[str]:
    why = f" ({', '.join(router['faults'])})" if router["faults"] else ""
    yield f"virtual router {router['id']}: {_HOLDS[router['hold']]}{why}, {_ago(router['since'], now)}"
    if drain := router["drained"]:
        yield f"  drained by order, {_ago(drain['at'], now)}{': ' if drain['reason'] else ''}{drain['reason']}"
    yield from (f"  ALARM {_ALARMS.get(alarm, alarm)}" for alarm in router["alarms"])
    has = "has" if router["holds"] else "does not have"
    yield f"  {', '.join(router['addresses'])}: {router['role']}, {_ago(router['role_since'], now)}; {has} it"
    yield f"    holder by the adverts: {router['holder'] or 'none'}"
    for name, age in router["peers"].items():
        yield f"    {name}: {'not heard as a master' if age is None else f'heard {age:.1f} s ago'}"
    for rival in router["rivals"]:
        yield f"    {rival['peer'] or 'a stranger'} at {rival['hardware']} answers for it too"
    for address, claimants in router["contradictions"].items():
        yield f"    {address} is claimed by {', '.join(claimants)}"


_HOLDS = {
    "able": "this node may hold it",
    "fault": "this node must not hold it",
    "last": "this node holds it though it is faulty, since no other node did",
}
_ALARMS = {
    "split_brain": "another node holds the address too",
    "peer_silent": "a peer neither advertises nor answers for its own address: it could not take over",
    "stranger": "a machine that is no node of [vip] answers for the address",
    "impostor": "the own address of a node is claimed from two hardware addresses",
    "keepalived_dead": "keepalived does not run: this node cannot take the address",
    "keepalived_hangs": "keepalived hangs: it is killed, and has to be started again",
    "stale_address": "the address was here, and keepalived says that it is not",
    "address_missing": "keepalived is master and the address is not here",
    "not_announced": "the address was not seen to be announced",
    "last_one": "no healthy node takes the address",
    "haproxy_full": "haproxy has as many connections as it may (maxconn); the next node soon would, too",
    "gateway_silent": "no gateway answers; it is likely to be silent for all nodes",
    "learned_route_lost": "a route to a gateway that was learned from others is gone",
    "daemon_silent": "pyconfd is silent: haproxy serves on, but no longer follows the cluster",
}


def _ago(then: float, now: float) -> str:
    seconds = max(0, int(now - then))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"for {seconds // size} {unit}"
    return f"for {seconds} s"
