"""Whether this node can serve, and from when that counts [pure]; decided only on what the node sees of itself.

Whether Kubernetes, AWS or pyconfd answers is no input, on purpose: that must not take a node out that serves.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pyconfd.settings import DnsSettings

HOUR_S = 3600.0
_UNLIMITED = 1_000_000
HOOK_FRESH_S = 20.0
"""pyconfd-vip writes its report each five seconds."""


@dataclass(frozen=True, slots=True)
class ServingFacts:
    """What was seen just now.

    ``drained``: this node is drained at the floating address (``pyconfd vip drain``). ``not_holder`` says of each
    floating address that counts why this node is not its holder, "" where it is.
    """

    haproxy_answers: bool
    applied: bool
    frontends_silent: tuple[str, ...] = ()
    drained: bool = False
    not_holder: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def away(self, vip: str) -> tuple[str, ...]:
        """Return why this node does not count as the holder of a floating address; nothing where it does."""
        return (self.not_holder[vip],) if self.not_holder.get(vip) else ()


def reasons(facts: ServingFacts, vip: str = "") -> tuple[str, ...]:
    """Return why a node cannot serve, or not names that follow ``vip``; nothing where it can."""
    found = [] if facts.haproxy_answers else ["haproxy does not answer on its socket"]
    found += [] if facts.applied else ["no configuration was applied yet"]
    found += [f"{frontend} does not answer" for frontend in facts.frontends_silent]
    found += ["this node is drained (pyconfd vip undrain)"] if facts.drained else []
    return (*found, *facts.away(vip))


def holders_of(document: Mapping[str, Any], now: float) -> tuple[dict[str, str], bool]:
    """Parse the report of pyconfd-vip.

    Return of each floating address why this node is not its holder, "" where it is, and whether this node is drained.
    A report that is old says nothing of holders; that an order to drain stands is known even then.
    """
    try:
        fresh = abs(now - float(document["at"])) < HOOK_FRESH_S
        routers = document["routers"]
        drained = bool(routers) and all(router["drained"] for router in routers)
        found: dict[str, str] = {}
        for router in routers:
            addresses = [str(address).partition("/")[0] for address in router["addresses"]]
            why, names = "", ", ".join(addresses)
            if not router["holds"]:
                holder = f"{router['holder']} has it" if router.get("holder") else "no node seems to have it"
                why = f"the floating address {names} is elsewhere: {holder}"
            elif router["rivals"]:
                why = f"another node has the floating address {names} too"
            found |= dict.fromkeys(addresses, why)
    except (KeyError, TypeError, ValueError):
        return {}, False
    return found if fresh else {}, drained


def for_holder(dns: DnsSettings) -> DnsSettings:
    """Return the rules for the holder of a floating address: VRRP has limits of its own, and late is a wrong answer."""
    return replace(dns, hold_s=0.0, joins_an_hour=_UNLIMITED)


@dataclass(frozen=True, slots=True)
class Activity:
    """Whether a node counts as serving. ``active`` is None until enough was seen after a start: nothing changes then.

    ``streak`` counts equal looks in a row, bad ones below zero; ``joins`` are the times of the last hour. Times are
    monotonic, so that setting the clock makes no wait longer or shorter.
    """

    active: bool | None = None
    streak: int = 0
    withdrawn_at: float = -math.inf
    joins: tuple[float, ...] = ()


def advance(former: Activity, *, good: bool, now: float, rules: DnsSettings) -> Activity:
    """Return the activity after one more look: ``rise`` good ones in a row join, ``fall`` bad ones withdraw.

    A node that withdrew stays out for ``hold_s`` at least, and joins ``joins_an_hour`` times an hour at most. To
    withdraw is never limited: a node that does not serve must not be answered.
    """
    streak = max(former.streak, 0) + 1 if good else min(former.streak, 0) - 1
    joins = tuple(time for time in former.joins if now - HOUR_S < time <= now)
    following = replace(former, streak=streak, joins=joins)
    if streak <= -rules.fall and former.active is not False:
        return replace(following, active=False, withdrawn_at=now)
    if streak >= rules.rise and former.active is None:
        return replace(following, active=True)  # it was found so: a restart is no change
    if streak >= rules.rise and former.active is False and not waits_s(following, now, rules):
        return replace(following, active=True, joins=(*joins, now))
    return following


def both(*active: bool | None) -> bool | None:
    """Return whether all are active: False where one is not, None where one is not known."""
    return False if False in active else None if None in active else True


def waits_s(activity: Activity, now: float, rules: DnsSettings) -> float:
    """Return for how long a node that withdrew may not join yet, 0.0 where it may."""
    held = max(0.0, activity.withdrawn_at + rules.hold_s - now)
    full = len(activity.joins) >= rules.joins_an_hour
    return max(held, activity.joins[-rules.joins_an_hour] + HOUR_S - now if full else 0.0)
