"""What was seen of one VRRP instance, put together from the wire, the kernel and keepalived's fifo [pure]."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyconfd.vip.frames import Advert, Claim
from pyconfd.vip.policy import InstanceFacts, Rival, Role
from pyconfd.vip.topology import Instance

ROLES: Mapping[str, Role] = {
    "MASTER": Role.MASTER,
    "BACKUP": Role.BACKUP,
    "FAULT": Role.FAULT,
    "STOP": Role.UNKNOWN,
    "DELETED": Role.UNKNOWN,
}
"""The words that keepalived writes into the fifo."""

PEER_GONE_S = 2.0
"""A peer that has not been heard of for so long is away; each is asked more often than that. The kernel gives up the
hardware address of one that is gone after three seconds at the earliest, and unicast adverts to it leave no more."""


@dataclass(slots=True)
class _Answers:
    count: int = 0
    last: float = -math.inf
    counted: float = -math.inf


@dataclass(slots=True)
class Sight:
    """One instance as it was seen; ``now`` is monotonic, in seconds, in all methods."""

    instance: Instance
    watching_since: float
    """Since when this process has looked without a break: what it slept through is nobody's silence."""
    window_s: float
    role: Role = Role.UNKNOWN
    role_since: float = 0.0
    held: frozenset[str] = frozenset()
    held_since: float = 0.0
    missing_since: float = 0.0
    own_advert: float = -math.inf
    heard: dict[str, tuple[float, int]] = field(default_factory=dict)
    """When each peer (by address) was last heard as a master, and its priority."""
    peer_seen: float = -math.inf
    reachable_since: float = -math.inf
    peers_at: dict[str, str] = field(default_factory=dict)
    """The peer's name at each hardware address."""
    announced: set[str] = field(default_factory=set)
    _answers: dict[str, _Answers] = field(default_factory=dict)

    def addresses_are(self, present: Mapping[str, int], now: float) -> tuple[frozenset[str], frozenset[str]]:
        """Take over which floating addresses are here; give those that came and those that went."""
        held = frozenset(address for address in self.instance.bare if address in present)
        came, went = held - self.held, self.held - held
        if held and not self.held:
            self.held_since = now
            self.announced.clear()
            self._answers.clear()
        if self.complete and went:
            self.missing_since = now
        self.announced &= held
        self.held = held
        return came, went

    @property
    def complete(self) -> bool:
        """Say whether all floating addresses of the instance are here."""
        return len(self.held) == len(self.instance.bare)

    def role_is(self, role: Role, now: float) -> bool:
        """Take over what keepalived says; True if it is something else than before."""
        if role is self.role:
            return False
        self.role, self.role_since = role, now
        return True

    def _peer_seen(self, now: float) -> None:
        if now - self.peer_seen > PEER_GONE_S:
            self.reachable_since = now
        self.peer_seen = now

    def carrier_lost(self) -> None:
        """Take over that nobody can be reached."""
        self.peer_seen = -math.inf

    def advert_seen(self, advert: Advert, now: float, *, outgoing: bool) -> None:
        """Take over an advert that passed the interface."""
        if advert.router != self.instance.router or (":" in advert.source) != (self.instance.family == 6):
            return
        peer = next((one for one in self.instance.peers if one.address == advert.source), None)
        if outgoing and advert.source == self.instance.source and advert.priority:
            self.own_advert = now
            if self.role is Role.UNKNOWN:
                self.role_is(Role.MASTER, now)
        elif not outgoing and peer is not None:
            self._peer_seen(now)
            self.peers_at[advert.hardware] = peer.name
            if advert.priority:
                self.heard[advert.source] = (now, advert.priority)
            else:
                self.heard.pop(advert.source, None)

    def claim_seen(self, claim: Claim, own: str, now: float, *, outgoing: bool) -> None:
        """Take over that somebody claims an address."""
        floating = claim.address in self.instance.bare
        if outgoing or claim.hardware == own:
            if outgoing and floating and claim.hardware == own:
                self.announced.add(claim.address)
            return
        if floating:
            answers = self._answers.setdefault(claim.hardware, _Answers())
            if now - answers.last > self.window_s:
                answers.count = 0
            # A burst of announcements is one answer.
            if now - answers.counted > self.window_s / 5:
                answers.count += 1
                answers.counted = now
            answers.last = now
        for peer in self.instance.peers:
            if peer.address == claim.address:
                self._peer_seen(now)
                self.peers_at[claim.hardware] = peer.name

    def facts(self, now: float) -> InstanceFacts:
        """Give what the policy decides about."""
        rivals = []
        for hardware, answers in self._answers.items():
            if now - answers.last <= self.window_s:
                name = self.peers_at.get(hardware, "")
                priority = next((peer.priority for peer in self.instance.peers if peer.name == name), 0)
                rivals.append(Rival(hardware, answers.count, name, priority))
        here = bool(self.held)
        return InstanceFacts(
            name=self.instance.name,
            priority=self.instance.priority,
            role=self.role,
            holds=here,
            held_s=now - self.held_since if here else 0.0,
            missing_s=0.0 if self.complete else now - max(self.missing_since, self.role_since),
            own_advert_age_s=self._own_advert_age_s(now),
            peer_advert_age_s=now - max((at for at, _ in self.heard.values()), default=-math.inf),
            announced=self.announced == self.held,
            rivals=tuple(rivals),
        )

    def _own_advert_age_s(self, now: float) -> float:
        """Give how long own adverts are missing; 0 while no peer answers, since then the kernel cannot send them."""
        if now - self.peer_seen > PEER_GONE_S:
            return 0.0
        return now - max(self.own_advert, self.held_since, self.watching_since, self.reachable_since)

    def holder(self, now: float, down_s: float) -> str:
        """Give the name of the node that is master by the adverts on the wire; "" where nobody advertises."""
        if now - self.own_advert < down_s and self.held:
            return "this node"
        latest = max(self.heard.items(), key=lambda item: item[1][0], default=None)
        if latest is None or now - latest[1][0] >= down_s:
            return ""
        return next(peer.name for peer in self.instance.peers if peer.address == latest[0])
