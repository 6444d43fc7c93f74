"""What the hook makes of what it sees: facts in, a decision out [pure].

Two laws. A hard fault of this node gives FAULT, so that the next one takes over at once; a cause that all nodes share
never does, or all of them would drop the address. And the last one standing keeps the address: a faulty node takes it
back when nobody advertises and nobody answers for it.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from pyconfd.vip.topology import LOST_ADVERTS

HANG_ADVERTS = 2.5
"""Own adverts missing for so many intervals make a hang: seen before a backup takes over, which is after three."""
RETAKE_ADVERTS = 6
"""A faulty node waits for so many intervals: twice what a healthy one needs to take over."""
CONFIRMED_ANSWERS = 3
"""One answer may be on its way while the holders change; a peer with a stale address takes it off within two."""
ANNOUNCE_S = 1.0
"""An announcement that was not seen to leave the interface for so long is an alarm."""


class Fault(StrEnum):
    """A hard fault of this node, or an order not to hold the address."""

    HAPROXY_DEAD = "haproxy_dead"
    HAPROXY_HANGS = "haproxy_hangs"
    REFUSES_CLIENTS = "refuses_clients"
    """haproxy answers on its socket, and no request like a client's."""
    LISTENER_GONE = "listener_gone"
    LISTENER_FOREIGN = "listener_foreign"
    """Somebody else listens on a port of haproxy's."""
    CARRIER_LOST = "carrier_lost"
    CARRIER_FLAPS = "carrier_flaps"
    """The carrier came back too lately to be trusted."""
    UPLINK_DEAD = "uplink_dead"
    """The carrier is there, and nothing at all comes in."""
    ROUTE_LOST = "route_lost"
    """The route to a gateway that was set up here is gone, and a peer is there that may have one."""
    DRAINED = "drained"
    HANDING_OVER = "handing_over"
    YIELDED = "yielded"
    """A peer with a higher priority has the address too, and its adverts come in: a packet filter keeps them from
    keepalived."""


class Shared(StrEnum):
    """A cause that is likely to be the same on all nodes."""

    DAEMON_SILENT = "daemon_silent"
    """pyconfd does not run, or hangs: haproxy serves on."""
    HAPROXY_FULL = "haproxy_full"
    """It serves as many connections as it may; the next node would soon do, too."""
    GATEWAY_SILENT = "gateway_silent"
    """No gateway answers, and the network is there: it is likely to be silent for the peers, too."""
    LEARNED_ROUTE_LOST = "learned_route_lost"
    """A route to a gateway that was learned from others is gone."""


class Alarm(StrEnum):
    """What a person should know beside faults and shared causes."""

    SPLIT_BRAIN = "split_brain"
    STRANGER = "stranger"
    IMPOSTOR = "impostor"
    """A peer's or this node's own address is claimed from two hardware addresses."""
    KEEPALIVED_DEAD = "keepalived_dead"
    KEEPALIVED_HANGS = "keepalived_hangs"
    STALE_ADDRESS = "stale_address"
    ADDRESS_MISSING = "address_missing"
    NOT_ANNOUNCED = "not_announced"
    LAST_ONE = "last_one"


class Role(StrEnum):
    """What keepalived says of an instance; UNKNOWN before it has said anything."""

    UNKNOWN = "unknown"
    MASTER = "master"
    BACKUP = "backup"
    FAULT = "fault"


class Hold(StrEnum):
    """Whether this node may hold a router's addresses: ABLE, not (FAULT), or for want of anybody better (LAST)."""

    ABLE = "able"
    FAULT = "fault"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that decide; times in seconds."""

    advert_s: float
    ping_misses: int
    offer_s: float
    gateway_s: float = 3.0
    fencing: bool = True
    farewell: bool = True

    @property
    def hang_s(self) -> float:
        """Return how long own adverts may be missing."""
        return HANG_ADVERTS * self.advert_s

    @property
    def late_s(self) -> float:
        """Return after how long without an own advert the kernel is asked whether any could leave.

        Whoever can be reached for the rest of ``hang_s`` would have been sent one.
        """
        return self.advert_s

    @property
    def down_s(self) -> float:
        """Return how long a master may be silent before a backup takes over."""
        return (LOST_ADVERTS + 1) * self.advert_s

    @property
    def retake_s(self) -> float:
        """Return how long a faulty node waits for anybody better."""
        return RETAKE_ADVERTS * self.advert_s


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is so for all routers of this node. Ages in seconds.

    ``gateway_age_s`` is since a gateway answered (0 where none is looked at), ``peers_age_s`` since a peer was seen,
    ``heard_age_s`` since anything came in. ``carrier_s`` is how long the carrier has been back, infinite if it was
    never away.
    """

    haproxy_alive: bool = True
    haproxy_misses: int = 0
    haproxy_full: bool = False
    health_misses: int = 0
    closed_ports: frozenset[str] = frozenset()
    foreign_ports: frozenset[str] = frozenset()
    carrier: bool = True
    carrier_trusted: bool = True
    carrier_s: float = math.inf
    gateway_age_s: float = 0.0
    peers_age_s: float = 0.0
    heard_age_s: float = 0.0
    route_lost: bool = False
    keepalived_alive: bool = True
    shared: frozenset[Shared] = frozenset()


@dataclass(frozen=True, slots=True)
class Rival:
    """Somebody else who answers for a floating address: a peer with its priority, or a stranger (``peer`` "").

    Who is at a hardware address is known from adverts alone: anybody can claim an address by ARP. ``advertised`` is the
    priority in the adverts that come from there, and have for :attr:`Limits.down_s`; else 0.
    """

    hardware: str
    answers: int
    peer: str = ""
    priority: int = 0
    advertised: int = 0


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """One VRRP instance. Ages in seconds, infinite for never; ``rivals`` answered lately.

    ``own_advert_age_s`` counts from when the address came, or the hook started, if there was none since.
    ``held_s`` is how long an address has been there (0 if none is), ``missing_s`` how long they are not all there.
    """

    name: str
    priority: int
    role: Role = Role.UNKNOWN
    holds: bool = False
    held_s: float = 0.0
    missing_s: float = math.inf
    own_advert_age_s: float = math.inf
    peer_advert_age_s: float = math.inf
    announced: bool = True
    rivals: tuple[Rival, ...] = ()
    impostor: bool = False


@dataclass(frozen=True, slots=True)
class RouterFacts:
    """One virtual router: what was seen of its instance, and what was ordered for it."""

    instance: InstanceFacts
    drained: bool = False
    handing_over: bool = False


@dataclass(frozen=True, slots=True)
class Stance:
    """What was decided last for a router, and since when (the clock of ``now``)."""

    hold: Hold = Hold.ABLE
    since: float = 0.0
    faults: frozenset[Fault] = frozenset()


@dataclass(frozen=True, slots=True)
class Deed:
    """What to do about the addresses: take them off and say farewell, or announce them."""

    fence: Alarm | None = None
    farewell: bool = False
    kill: bool = False
    """keepalived hangs: it has to be started anew, or it would wake up as a master."""
    announce: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The stance to take, what to do about the addresses, and what a person should know."""

    stance: Stance
    deed: Deed
    alarms: frozenset[Alarm | Shared]


def decide(node: NodeFacts, router: RouterFacts, before: Stance, now: float, limits: Limits) -> Decision:
    """Decide for one virtual router; ``now`` is monotonic, in seconds."""
    faults = _faults(node, router, before, limits)
    stance = _stance(faults, node, router, before, now, limits=limits)
    deed, found = _deed(node, router.instance, limits)
    alarms: set[Alarm | Shared] = {*node.shared, *found}
    if node.haproxy_full:
        alarms.add(Shared.HAPROXY_FULL)
    if node.carrier and node.gateway_age_s >= limits.gateway_s and Fault.UPLINK_DEAD not in faults:
        alarms.add(Shared.GATEWAY_SILENT)
    if stance.hold is Hold.LAST:
        alarms.add(Alarm.LAST_ONE)
    return Decision(stance, deed, frozenset(alarms))


def _faults(node: NodeFacts, router: RouterFacts, before: Stance, limits: Limits) -> frozenset[Fault]:
    seen = {
        Fault.HAPROXY_DEAD: not node.haproxy_alive,
        Fault.HAPROXY_HANGS: node.haproxy_alive and node.haproxy_misses >= limits.ping_misses,
        Fault.REFUSES_CLIENTS: node.haproxy_alive
        and node.health_misses >= limits.ping_misses
        and not node.haproxy_full,
        Fault.LISTENER_GONE: bool(node.closed_ports),
        Fault.LISTENER_FOREIGN: bool(node.foreign_ports),
        Fault.CARRIER_LOST: not node.carrier,
        Fault.CARRIER_FLAPS: node.carrier and not node.carrier_trusted,
        Fault.UPLINK_DEAD: node.carrier
        and min(node.gateway_age_s, node.peers_age_s, node.heard_age_s) >= limits.gateway_s,
        Fault.ROUTE_LOST: node.route_lost and node.peers_age_s < limits.gateway_s,
        Fault.DRAINED: router.drained,
        Fault.HANDING_OVER: router.handing_over,
        Fault.YIELDED: _yields(router.instance, before, limits),
    }
    return frozenset(fault for fault, is_so in seen.items() if is_so)


_HOPELESS = frozenset({Fault.CARRIER_LOST, Fault.UPLINK_DEAD, Fault.YIELDED, Fault.HANDING_OVER})
"""Where it is no use to be the last one: nobody can reach this node, or somebody else has the address."""


def _yields(instance: InstanceFacts, before: Stance, limits: Limits) -> bool:
    """Return whether a peer of higher priority holds and advertises the address, unseen by keepalived.

    Never on the word of ARP alone: the last node would drop the address for whoever claims it. Whoever has yielded goes
    on until the peer answers or advertises no more.
    """
    better = [rival for rival in instance.rivals if rival.peer and rival.advertised > instance.priority]
    if instance.holds:
        # Whom keepalived has not heard in this time it will not hear: it obeys at once.
        return instance.held_s >= limits.down_s and any(rival.answers >= CONFIRMED_ANSWERS for rival in better)
    return bool(better) and Fault.YIELDED in before.faults


def _stance(
    faults: frozenset[Fault], node: NodeFacts, router: RouterFacts, before: Stance, now: float, *, limits: Limits
) -> Stance:
    """Return what follows from the faults: FAULT first, LAST when nobody else took the address."""
    # What was not heard while there was no carrier is nobody's silence.
    listening_s = min(now - before.since, node.carrier_s)
    if not faults:
        hold = Hold.ABLE
    elif before.hold is Hold.ABLE:
        hold = Hold.FAULT
    elif before.hold is Hold.LAST:
        hold = Hold.FAULT if _gives_up(faults, router, before, now, limits) else Hold.LAST
    else:
        hold = Hold.LAST if _retakes(faults, router, listening_s, limits) else Hold.FAULT
    return Stance(hold, before.since if hold is before.hold else now, faults)


def _retakes(faults: frozenset[Fault], router: RouterFacts, listening_s: float, limits: Limits) -> bool:
    # A stranger who answers for the address must not keep the last node from it.
    taken = any(rival.peer for rival in router.instance.rivals)
    silent = router.instance.peer_advert_age_s >= limits.retake_s and not taken
    return not faults & _HOPELESS and silent and listening_s >= limits.retake_s


def _gives_up(faults: frozenset[Fault], router: RouterFacts, before: Stance, now: float, limits: Limits) -> bool:
    """Return whether the last one steps back: somebody else holds it, or it is time to offer it to one who healed.

    A drained node serves as well as any: it does not interrupt its traffic to ask whether somebody came.
    """
    if faults & _HOPELESS:
        return True
    if not router.instance.holds:
        return router.instance.peer_advert_age_s < limits.down_s
    return faults != {Fault.DRAINED} and now - before.since >= limits.offer_s


def _deed(node: NodeFacts, instance: InstanceFacts, limits: Limits) -> tuple[Deed, set[Alarm]]:
    alarms: set[Alarm] = set()
    if not node.keepalived_alive:
        alarms.add(Alarm.KEEPALIVED_DEAD)
    if instance.impostor:
        alarms.add(Alarm.IMPOSTOR)
    if instance.role is Role.MASTER and node.keepalived_alive and instance.missing_s >= limits.hang_s:
        alarms.add(Alarm.ADDRESS_MISSING)
    if not instance.holds:
        return Deed(), alarms
    why = _why_fenced(node, instance, limits)
    if why is not None:
        alarms.add(why)
        if limits.fencing:
            hangs = why is Alarm.KEEPALIVED_HANGS
            gone = hangs or why is Alarm.KEEPALIVED_DEAD
            return Deed(fence=why, farewell=gone and limits.farewell, kill=hangs), alarms
        return Deed(), alarms
    if any(rival.peer for rival in instance.rivals):
        alarms.add(Alarm.SPLIT_BRAIN)
    if any(not rival.peer for rival in instance.rivals):
        alarms.add(Alarm.STRANGER)
    if not instance.announced and instance.held_s >= ANNOUNCE_S:
        alarms.add(Alarm.NOT_ANNOUNCED)
    loses = any(rival.peer and rival.priority > instance.priority for rival in instance.rivals)
    return Deed(announce=not instance.announced or (bool(instance.rivals) and not loses)), alarms


def _why_fenced(node: NodeFacts, instance: InstanceFacts, limits: Limits) -> Alarm | None:
    """Return why an address that is here must not be; None if it may."""
    if not node.keepalived_alive:
        return Alarm.KEEPALIVED_DEAD
    if instance.role in {Role.BACKUP, Role.FAULT}:
        return Alarm.STALE_ADDRESS if instance.held_s >= limits.hang_s else None
    if node.keepalived_alive and node.carrier and instance.own_advert_age_s >= limits.hang_s:
        return Alarm.KEEPALIVED_HANGS
    return None
