"""A report of the hook for people [pure]."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

SHOWN_TRANSITIONS = 10


def has_problem(document: Mapping[str, Any]) -> bool:
    """Return whether a person should look: a fault, an alarm, a check that fails, trouble of the hook's own."""
    return (
        bool(document["troubles"])
        or any(not check["ok"] for check in document["checks"].values())
        or any(router["faults"] or router["alarms"] for router in document["routers"])
    )


def described(document: Mapping[str, Any], transitions: Sequence[Mapping[str, Any]], now: float) -> str:
    """Return what ``pyconfd vip status`` prints; ``now`` in seconds since the epoch."""
    return "\n".join(_lines(document, transitions, now)) + "\n"


def line(document: Mapping[str, Any]) -> str:
    """Return a report in one line, for ``systemctl status``."""
    words = [_router_line(router) for router in document["routers"]]
    words += [f"trouble with {what}: {error}" for what, error in document["troubles"].items()]
    return "; ".join(words)


def _router_line(router: Mapping[str, Any]) -> str:
    has = "has" if any(one["holds"] for one in router["instances"]) else "does not have"
    words = [f"router {router['id']}: {has} the address"]
    words += [f"faults: {' '.join(router['faults'])}"] if router["faults"] else []
    words += ["drained by order"] if router["drained"] else []
    words += [f"alarms: {' '.join(router['alarms'])}"] if router["alarms"] else []
    return ", ".join(words)


def _lines(document: Mapping[str, Any], transitions: Sequence[Mapping[str, Any]], now: float) -> Iterator[str]:
    yield f"{document['node']} on {document['interface']}, profile {document['profile']}"
    for router in document["routers"]:
        yield ""
        why = f" ({', '.join(router['faults'])})" if router["faults"] else ""
        yield f"virtual router {router['id']}: {_HOLDS[router['hold']]}{why}, {_ago(router['since'], now)}"
        if router["drained"]:
            reason = f": {router['drained'].get('reason')}" if router["drained"].get("reason") else ""
            yield f"  drained by order, {_ago(router['drained'].get('at', now), now)}{reason}"
        yield from (f"  ALARM {_ALARMS.get(alarm, alarm)}" for alarm in router["alarms"])
        for one in router["instances"]:
            has = "has" if one["holds"] else "does not have"
            yield f"  {', '.join(one['addresses'])}: {one['role']}, {_ago(one['role_since'], now)}; {has} it"
            yield f"    holder by the adverts: {one['holder'] or 'nobody'}"
            for name, age in one["peers"].items():
                yield f"    {name}: {'not heard as a master' if age is None else f'heard {age:.1f} s ago'}"
            for rival in one["rivals"]:
                yield f"    {rival['peer'] or 'a stranger'} at {rival['hardware']} answers for it too"
            for address, claimants in one["contradictions"].items():
                yield f"    {address} is claimed by {', '.join(claimants)}"
    yield ""
    for name, check in document["checks"].items():
        yield f"{'ok ' if check['ok'] else 'BAD'} {name} ({check['detail']})"
    for what, error in document["troubles"].items():
        yield f"BAD {what}: {error}"
    yield ""
    for one in list(transitions)[-SHOWN_TRANSITIONS:]:
        moved = f" {one['before']} -> {one['after']}" if "before" in one and "after" in one else ""
        cause = f" ({one['cause']})" if one.get("cause") else ""
        moved += f" {one['address']}" if "address" in one else ""
        at = datetime.fromtimestamp(one["at"], UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        yield f"{at}Z {one['who']} {one['what']}{moved}{cause}"


_HOLDS = {
    "able": "this node may hold it",
    "fault": "this node must not hold it",
    "last": "this node holds it though it is faulty, since nobody else did",
}
_ALARMS = {
    "split_brain": "another node holds the address too",
    "stranger": "somebody who is no node of [vip] answers for the address",
    "impostor": "the own address of a node is claimed from two hardware addresses",
    "keepalived_dead": "keepalived does not run: this node cannot take the address",
    "keepalived_hangs": "keepalived hangs: it is killed, and has to be started again",
    "stale_address": "the address was here, and keepalived did not own up to it",
    "address_missing": "keepalived is master and the address is not here",
    "not_announced": "the address was not seen to be announced",
    "last_one": "no healthy node takes the address",
    "haproxy_full": "haproxy serves as many connections as it may (maxconn); the next node would soon do, too",
    "gateway_silent": "no gateway answers; it is likely to be silent for all nodes",
    "learned_route_lost": "a route to a gateway that was learned from others is gone",
    "daemon_silent": "pyconfd is silent: haproxy serves on, and follows the cluster no more",
}


def _ago(then: float, now: float) -> str:
    seconds = max(0, int(now - then))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"for {seconds // size} {unit}"
    return f"for {seconds} s"
