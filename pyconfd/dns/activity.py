"""Whether this node can serve, and when that is believed; decides only on what this node sees of itself.

Whether Kubernetes, AWS or pyconfd answers is no input, on purpose: that must not take a node out that serves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

HOUR_S = 3600.0
_UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True)
class Facts:
    """What was seen just now.

    ``drained``: somebody drained this node at the floating address. ``astray`` says of each floating address that
    counts why this node does not count as its holder, "" where it does.
    """

    haproxy_answers: bool
    applied: bool
    frontends_silent: tuple[str, ...] = ()
    drained: bool = False
    astray: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def away(self, vip: str) -> tuple[str, ...]:
        """Return why this node does not count as the holder of a floating address; nothing where it does."""
        return (self.astray[vip],) if self.astray.get(vip) else ()


def reasons(facts: Facts, vip: str = "") -> tuple[str, ...]:
    """Return why a node cannot serve, or not names that follow ``vip``; nothing where it can."""
    found = [] if facts.haproxy_answers else ["haproxy does not answer on its socket"]
    found += [] if facts.applied else ["no configuration was applied yet"]
    found += [f"{frontend} does not answer" for frontend in facts.frontends_silent]
    found += ["this node is drained (pyconfd vip undrain)"] if facts.drained else []
    return (*found, *facts.away(vip))


@dataclass(frozen=True, slots=True)
class Rules:
    """``rise`` good looks in a row join, ``fall`` bad ones withdraw.

    Who withdrew stays out for ``hold_s`` at least, and joins ``joins_an_hour`` times an hour at most. To withdraw is
    never limited: what does not serve must not be answered.
    """

    rise: int = 2
    fall: int = 3
    hold_s: float = 60.0
    joins_an_hour: int = 6

    @property
    def following(self) -> "Rules":
        """The rules for who holds a floating address: its election has its own, and late is wrong for all that time."""
        return replace(self, hold_s=0.0, joins_an_hour=_UNLIMITED)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is believed. ``active`` is None until enough was seen after a start: nothing changes before that.

    ``streak`` counts equal looks in a row, bad ones below zero; ``joins`` are the times of the last hour.
    """

    active: bool | None = None
    streak: int = 0
    withdrawn_at: float = 0.0
    joins: tuple[float, ...] = ()


def advance(standing: Standing, *, good: bool, now: float, rules: Rules) -> Standing:
    """Return what is believed after one more look."""
    streak = max(standing.streak, 0) + 1 if good else min(standing.streak, 0) - 1
    joins = tuple(time for time in standing.joins if now - HOUR_S < time <= now)
    following = replace(standing, streak=streak, joins=joins)
    if streak <= -rules.fall and standing.active is not False:
        return replace(following, active=False, withdrawn_at=now)
    if streak >= rules.rise and standing.active is None:
        return replace(following, active=True)  # it was found so: a restart is no change
    if streak >= rules.rise and standing.active is False and not waits_s(following, now, rules):
        return replace(following, active=True, joins=(*joins, now))
    return following


def both(*beliefs: bool | None) -> bool | None:
    """Return whether all is so: not where one is not, and not known where one is not known."""
    return False if False in beliefs else None if None in beliefs else True


def waits_s(standing: Standing, now: float, rules: Rules) -> float:
    """Return for how long a node that withdrew may not join yet, 0.0 where it may."""
    # A clock that was set back must not keep a node out for longer than it would have been.
    since = min(max(now - standing.withdrawn_at, 0.0), rules.hold_s)
    held = rules.hold_s - since
    full = len(standing.joins) >= rules.joins_an_hour
    return max(held, standing.joins[-rules.joins_an_hour] + HOUR_S - now if full else 0.0)
