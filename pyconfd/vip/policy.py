"""The hook's decisions [pure]: facts about the node and one virtual router in, a decision out.

Two rules come before all others. A hard fault of this node gives FAULT, so that a peer takes over at once; a cause that
the nodes are likely to share never does, or all of them would drop the address. And the last node keeps the address: a
faulty node takes it back when no peer advertises it or answers for it.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum

from pyconfd.settings.vip import VipSettings

CONFIRMED_ANSWERS = 3
"""One answer may be on its way while the holder changes; a peer with a stale address takes it off within two."""
PEER_SILENT_S = 5.0
"""A peer is asked each half second; a node that is started again is silent for longer."""
DEAF_QUESTIONS = 4
"""A backup that misses the holder's adverts asks the gateways so often before keepalived takes over."""
ANNOUNCE_S = 1.0
"""An announcement that was not seen to leave the interface for so long is an alarm."""


class NodeFault(StrEnum):
    """A hard fault of this node, or an order not to hold the address."""

    HAPROXY_DEAD = "haproxy_dead"
    HAPROXY_HANGS = "haproxy_hangs"
    REFUSES_CLIENTS = "refuses_clients"
    """haproxy answers on its socket, but no request like a client's."""
    LISTENER_GONE = "listener_gone"
    LISTENER_FOREIGN = "listener_foreign"
    """Another program listens on a port of haproxy's."""
    CARRIER_LOST = "carrier_lost"
    CARRIER_FLAPS = "carrier_flaps"
    """The carrier is back, but not for long enough to be trusted."""
    UPLINK_DEAD = "uplink_dead"
    """The carrier is there, and nothing at all comes in."""
    ROUTE_LOST = "route_lost"
    """The route to a gateway that was configured here is gone, and a peer is there that may have one."""
    OWN_ADDRESS_GONE = "own_address_gone"
    """The address that this node's adverts leave from is not on the interface: no advert of a peer can reach it."""
    DRAINED = "drained"
    HANDING_OVER = "handing_over"
    YIELDED = "yielded"
    """A peer with a higher priority has the address too, and a packet filter keeps its adverts from keepalived."""


class Alarm(StrEnum):
    """What an operator should know beside faults; the last four are causes that the nodes are likely to share."""

    SPLIT_BRAIN = "split_brain"
    PEER_SILENT = "peer_silent"
    """A peer neither advertises nor answers for its own address: it could not take over."""
    STRANGER = "stranger"
    IMPOSTOR = "impostor"
    """A peer's or this node's own address is claimed from two hardware addresses."""
    KEEPALIVED_DEAD = "keepalived_dead"
    KEEPALIVED_HANGS = "keepalived_hangs"
    STALE_ADDRESS = "stale_address"
    ADDRESS_MISSING = "address_missing"
    NOT_ANNOUNCED = "not_announced"
    LAST_ONE = "last_one"
    DAEMON_SILENT = "daemon_silent"
    """pyconfd does not run, or hangs: haproxy serves on."""
    HAPROXY_FULL = "haproxy_full"
    """haproxy has as many connections as it may; after a failover the next node soon would, too."""
    GATEWAY_SILENT = "gateway_silent"
    """No gateway answers, but the network is there."""
    LEARNED_ROUTE_LOST = "learned_route_lost"
    """A route to a gateway that was learned from others is gone."""


class Role(StrEnum):
    """The state that keepalived reports for a virtual router; UNKNOWN before it has reported any."""

    UNKNOWN = "unknown"
    MASTER = "master"
    BACKUP = "backup"
    FAULT = "fault"


class HoldState(StrEnum):
    """Whether this node may hold a router's addresses: ABLE, not (FAULT), or because no other node does (LAST)."""

    ABLE = "able"
    FAULT = "fault"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is true for all routers of this node. Ages in seconds.

    ``gateway_age_s`` is since a gateway answered (0 where none is configured), ``peers_age_s`` since a peer was seen,
    ``heard_age_s`` since anything came in; ``unanswered`` is how often gateways were asked in a hurry since then.
    ``carrier_s`` is how long the carrier has been back, infinite if it was
    never lost. ``keepalived_unknown``: its pid file is missing, so it may live. ``shared`` are alarms that are found by
    other means.
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
    unanswered: int = 0
    route_lost: bool = False
    keepalived_alive: bool = True
    keepalived_unknown: bool = False
    shared: frozenset[Alarm] = frozenset()


@dataclass(frozen=True, slots=True)
class Rival:
    """Another machine that answers for a floating address: a peer with its priority, or a stranger (``peer`` "").

    Only adverts tell which machine is at a hardware address: any can claim an address by ARP. ``advertised`` is the
    priority in the adverts that come from there, and have for :attr:`VipSettings.down_s`; else 0.
    """

    hardware: str
    answers: int
    peer: str = ""
    priority: int = 0
    advertised: int = 0


@dataclass(frozen=True, slots=True)
class RouterFacts:
    """What is true for one virtual router. Ages in seconds, infinite for never; ``rivals`` answered lately.

    ``own_advert_age_s`` counts from when the address came, or the hook started, if there was none since.
    ``held_s`` is how long an address has been here (0 if none is), ``missing_s`` how long they are not all here, and
    ``without_s`` how long none has been here while this process looked.
    ``silent_peer_s`` is how long that peer was silent which was seen longest ago. ``own_address``: the address that
    adverts leave from is on the interface. ``place`` is this node's in the order of priorities, 0 for the highest.
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
    drained: bool = False
    handing_over: bool = False
    own_address: bool = True
    without_s: float = 0.0
    silent_peer_s: float = 0.0
    place: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether the node may hold the addresses and since when (the clock of ``now``), and the actions that follow.

    ``fence`` is why the addresses are to be taken off; ``farewell``: then send keepalived's last advert in its stead;
    ``kill``: keepalived hangs, and would wake up as a master; ``announce``: send gratuitous ARP. ``faulty_at`` is when
    there was a fault last.
    """

    hold: HoldState = HoldState.ABLE
    since: float = 0.0
    faults: frozenset[NodeFault] = frozenset()
    fence: Alarm | None = None
    farewell: bool = False
    kill: bool = False
    announce: bool = False
    alarms: frozenset[Alarm] = frozenset()
    faulty_at: float = field(default=-math.inf, compare=False)


def decide(node: NodeFacts, router: RouterFacts, before: Decision, now: float, vip: VipSettings) -> Decision:
    """Decide for one virtual router; ``now`` is monotonic, in seconds."""
    faults = _faults(node, router, before, vip)
    hold = _hold(faults, node, router, before, now, vip=vip)
    why = _why_fenced(node, router, vip) if router.holds else None
    fences = why is not None and vip.fencing
    loses = any(rival.peer and rival.priority > router.priority for rival in router.rivals)
    return Decision(
        hold=hold,
        since=before.since if hold is before.hold else now,
        faults=faults,
        fence=why if fences else None,
        farewell=fences and why in {Alarm.KEEPALIVED_DEAD, Alarm.KEEPALIVED_HANGS},
        kill=fences and why is Alarm.KEEPALIVED_HANGS,
        announce=router.holds and why is None and (not router.announced or (bool(router.rivals) and not loses)),
        alarms=_alarms(faults, hold, why, node, router, vip=vip),
        faulty_at=now if faults else before.faulty_at,
    )


def _faults(node: NodeFacts, router: RouterFacts, before: Decision, vip: VipSettings) -> frozenset[NodeFault]:
    silent = min(node.gateway_age_s, node.peers_age_s, node.heard_age_s) >= vip.gateway_s
    # A backup that hears nothing must not take the address: the holder, whose adverts it misses, may be well.
    deaf = node.unanswered >= DEAF_QUESTIONS and not router.holds
    refuses = node.haproxy_alive and node.health_misses >= vip.ping_misses
    found = {
        NodeFault.HAPROXY_DEAD: not node.haproxy_alive,
        NodeFault.HAPROXY_HANGS: node.haproxy_alive and node.haproxy_misses >= vip.ping_misses,
        NodeFault.REFUSES_CLIENTS: refuses and not node.haproxy_full,
        NodeFault.LISTENER_GONE: bool(node.closed_ports),
        NodeFault.LISTENER_FOREIGN: bool(node.foreign_ports),
        NodeFault.CARRIER_LOST: not node.carrier,
        NodeFault.CARRIER_FLAPS: node.carrier and not node.carrier_trusted,
        NodeFault.UPLINK_DEAD: node.carrier and (silent or deaf),
        NodeFault.ROUTE_LOST: node.route_lost and node.peers_age_s < vip.gateway_s,
        NodeFault.OWN_ADDRESS_GONE: node.carrier and not router.own_address,
        NodeFault.DRAINED: router.drained,
        NodeFault.HANDING_OVER: router.handing_over,
        NodeFault.YIELDED: _yields(router, before, vip),
    }
    return frozenset(fault for fault, is_so in found.items() if is_so)


_HOPELESS = frozenset({NodeFault.CARRIER_LOST, NodeFault.UPLINK_DEAD, NodeFault.YIELDED, NodeFault.HANDING_OVER})
"""Faults with which a node never takes the address back: no client can reach it, or a peer has the address."""


def _yields(router: RouterFacts, before: Decision, vip: VipSettings) -> bool:
    """Return whether a peer of higher priority holds and advertises the address, unseen by keepalived.

    Never on the word of ARP alone: the last node would drop the address for any machine that claims it. Once it has
    yielded, the node waits until the peer answers or advertises no more.
    """
    better = [rival for rival in router.rivals if rival.peer and rival.advertised > router.priority]
    if router.holds:
        # keepalived obeys a better advert at once: one that it has not heard in this time it will never hear.
        return router.held_s >= vip.down_s and any(rival.answers >= CONFIRMED_ANSWERS for rival in better)
    return bool(better) and NodeFault.YIELDED in before.faults


def _hold(
    faults: frozenset[NodeFault],
    node: NodeFacts,
    router: RouterFacts,
    before: Decision,
    now: float,
    *,
    vip: VipSettings,
) -> HoldState:
    """Return FAULT for a node with faults at first, LAST when no other node took the address."""
    if not faults:
        return HoldState.ABLE
    if faults & _HOPELESS:
        return HoldState.FAULT
    # No advert reaches a node without its own address, so who answers for the floating one has it, known or not. A
    # stranger that answers for it must not keep the last node from it.
    deaf = NodeFault.OWN_ADDRESS_GONE in faults
    answered = any(rival.peer or deaf for rival in router.rivals)
    if before.hold is HoldState.LAST:
        # Offered now and then to a node that may have healed; not by a drained one, which serves as well as any.
        offers = faults != {NodeFault.DRAINED} and now - before.since >= vip.offer_s
        keeps = not offers if router.holds else router.peer_advert_age_s >= vip.down_s
        keeps = keeps and not (deaf and answered)
    elif before.hold is HoldState.ABLE and router.holds:
        # Faulty again so soon, and it has the address all the same: a healthy peer would have taken and kept it.
        # haproxy crashes on all nodes, faster than they can hand over; each offer would be an outage.
        again = now - before.faulty_at < vip.retake_s and router.held_s < vip.offer_s
        keeps = again and not answered
    else:
        # Without a carrier no advert could be heard: that silence says nothing about the peers. An able time in between
        # changes nothing about it: a haproxy that crashes again and again would keep the address from all for ever.
        listening_s = min(now - before.since if deaf else router.without_s, node.carrier_s)
        # Nodes that cannot hear each other take it one after the other, or all of them would.
        patience_s = vip.retake_s * (1 + router.place if deaf else 1)
        silent = listening_s >= patience_s and router.peer_advert_age_s >= vip.retake_s
        keeps = silent and not answered
    return HoldState.LAST if keeps else HoldState.FAULT


def _keepalived_is_dead(node: NodeFacts, router: RouterFacts, vip: VipSettings) -> bool:
    """Return whether keepalived is dead; where its pid file is missing, its adverts show that it lives."""
    return not node.keepalived_alive and not (node.keepalived_unknown and router.own_advert_age_s < vip.hang_s)


def _why_fenced(node: NodeFacts, router: RouterFacts, vip: VipSettings) -> Alarm | None:
    """Return why an address that is here must not be; None if it may."""
    if _keepalived_is_dead(node, router, vip):
        return Alarm.KEEPALIVED_DEAD
    if router.role in {Role.BACKUP, Role.FAULT}:
        return Alarm.STALE_ADDRESS if router.held_s >= vip.hang_s else None
    if node.carrier and router.own_advert_age_s >= vip.hang_s:
        return Alarm.KEEPALIVED_HANGS
    return None


def _alarms(
    faults: frozenset[NodeFault],
    hold: HoldState,
    why: Alarm | None,
    node: NodeFacts,
    router: RouterFacts,
    *,
    vip: VipSettings,
) -> frozenset[Alarm]:
    serves = router.holds and why is None
    gateway_silent = node.carrier and node.gateway_age_s >= vip.gateway_s and NodeFault.UPLINK_DEAD not in faults
    dead = _keepalived_is_dead(node, router, vip)
    missing = router.role is Role.MASTER and not dead and router.missing_s >= vip.hang_s
    found = {
        Alarm.KEEPALIVED_DEAD: dead,
        Alarm.IMPOSTOR: router.impostor,
        Alarm.ADDRESS_MISSING: missing,
        Alarm.PEER_SILENT: node.carrier and router.silent_peer_s >= PEER_SILENT_S,
        Alarm.SPLIT_BRAIN: serves and any(rival.peer for rival in router.rivals),
        Alarm.STRANGER: serves and any(not rival.peer for rival in router.rivals),
        Alarm.NOT_ANNOUNCED: serves and not router.announced and router.held_s >= ANNOUNCE_S,
        Alarm.LAST_ONE: hold is HoldState.LAST,
        Alarm.HAPROXY_FULL: node.haproxy_full,
        Alarm.GATEWAY_SILENT: gateway_silent,
    }
    return node.shared | {alarm for alarm, is_so in found.items() if is_so} | ({why} if why else set())
