"""What was seen of one VRRP instance, put together from the wire, the kernel and keepalived's fifo [pure]."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyconfd.vip.frames import Advert, Claim
from pyconfd.vip.policy import InstanceFacts, Limits, Rival, Role
from pyconfd.vip.topology import Instance

ROLES: Mapping[str, Role] = {
    "MASTER": Role.MASTER,
    "BACKUP": Role.BACKUP,
    "FAULT": Role.FAULT,
    "STOP": Role.UNKNOWN,
    "DELETED": Role.UNKNOWN,
}
"""The words that keepalived writes into the fifo."""

CLAIMED_S = 10.0
"""Two hardware addresses that claim a node's own address within so long contradict each other."""
MOST_CLAIMANTS = 64
"""So many hardware addresses are kept at the most, however many somebody makes up."""


_NEVER = (-math.inf, 0)


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
    limits: Limits
    role: Role = Role.UNKNOWN
    role_since: float = 0.0
    held: frozenset[str] = frozenset()
    held_since: float = 0.0
    missing_since: float = 0.0
    own_advert: float = -math.inf
    heard: dict[str, tuple[float, int]] = field(default_factory=dict)
    """When each peer (by address) was last heard as a master, and its priority."""
    heard_since: dict[str, float] = field(default_factory=dict)
    """Since when without a break."""
    peer_seen: float = -math.inf
    reachable_since: float = math.inf
    """Since when the kernel has known the hardware address of a peer, as far as it was asked."""
    hardware_of: dict[str, str] = field(default_factory=dict)
    """The hardware address that the adverts of each peer (by address) came from."""
    claimed: dict[str, dict[str, float]] = field(default_factory=dict)
    """When which hardware addresses claimed each node's own address."""
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
        """Return whether all floating addresses of the instance are here."""
        return len(self.held) == len(self.instance.bare)

    def role_is(self, role: Role, now: float) -> bool:
        """Take over what keepalived says; True if it is something else than before."""
        if role is self.role:
            return False
        self.role, self.role_since = role, now
        return True

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
            self._claimed(advert.source, advert.hardware, now)
            is_new = now - self.heard.get(advert.source, _NEVER)[0] > self.limits.down_s
            if not is_new and self.hardware_of[advert.source] != advert.hardware:
                return  # the peer is heard from where it was: this is somebody else
            self.peer_seen = now
            self.hardware_of[advert.source] = advert.hardware
            if is_new:
                self.heard_since[advert.source] = now
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
            _make_room(self._answers, lambda answers: answers.last, keep=self.hardware_of.values())
            answers = self._answers.setdefault(claim.hardware, _Answers())
            if now - answers.last > self.window_s:
                answers.count = 0
            # A burst of announcements is one answer.
            if now - answers.counted > self.window_s / 5:
                answers.count += 1
                answers.counted = now
            answers.last = now
        if claim.address == self.instance.source:
            self._claimed(claim.address, own, now)
            self._claimed(claim.address, claim.hardware, now)
        elif any(peer.address == claim.address for peer in self.instance.peers):
            self.peer_seen = now
            self._claimed(claim.address, claim.hardware, now)

    def _claimed(self, address: str, hardware: str, now: float) -> None:
        claimants = self.claimed.setdefault(address, {})
        _make_room(claimants, lambda at: at, keep=self.hardware_of.values())
        claimants[hardware] = now

    def contradictions(self, now: float) -> Mapping[str, tuple[str, ...]]:
        """Return the hardware addresses of each node's own address that is claimed from more than one of them."""
        found = {}
        for address, claimants in self.claimed.items():
            recent = tuple(sorted(hardware for hardware, at in claimants.items() if now - at <= CLAIMED_S))
            if len(recent) > 1:
                found[address] = recent
        return found

    def _rival(self, hardware: str, answers: int, now: float) -> Rival:
        """Return who answers from a hardware address, by the adverts that came from there."""
        for peer in self.instance.peers:
            if self.hardware_of.get(peer.address) == hardware:
                at, priority = self.heard.get(peer.address, _NEVER)
                # keepalived hears the first ones as well, and needs a moment to obey.
                down_s = self.limits.down_s
                lasts = now - at <= down_s <= now - self.heard_since[peer.address]
                advertised = priority if lasts else 0
                return Rival(hardware, answers, peer.name, peer.priority, advertised)
        return Rival(hardware, answers)

    def is_late(self, now: float) -> bool:
        """Return whether an own advert is missing for so long that the kernel has to be asked why."""
        return bool(self.held) and now - self.silent_since >= self.limits.late_s

    def peers_reachable(self, is_so: bool, now: float) -> None:
        """Take over whether the kernel knows the hardware address of a peer: else no advert can leave."""
        self.reachable_since = min(self.reachable_since, now) if is_so else math.inf

    def facts(self, now: float) -> InstanceFacts:
        """Return what the policy decides about."""
        answering = ((key, one) for key, one in self._answers.items() if now - one.last <= self.window_s)
        rivals = [self._rival(hardware, answers.count, now) for hardware, answers in answering]
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
            impostor=bool(self.contradictions(now)),
        )

    def _own_advert_age_s(self, now: float) -> float:
        """Return how long own adverts are missing, though the kernel could have sent them.

        It is the kernel that is asked, and not ARP on the wire: a claim of a peer's address that the kernel does not
        take would make a hang of a keepalived whose adverts cannot leave.
        """
        silent = now - self.silent_since
        return min(silent, max(0.0, self.limits.late_s + now - self.reachable_since)) if self.is_late(now) else silent

    @property
    def silent_since(self) -> float:
        """Return since when an own advert is due."""
        return max(self.own_advert, self.held_since, self.watching_since)

    def holder(self, now: float, down_s: float) -> str:
        """Return the name of the node that is master by the adverts on the wire; "" where nobody advertises."""
        if now - self.own_advert < down_s and self.held:
            return "this node"
        latest = max(self.heard.items(), key=lambda item: item[1][0], default=None)
        if latest is None or now - latest[1][0] >= down_s:
            return ""
        return next(peer.name for peer in self.instance.peers if peer.address == latest[0])


def _make_room(claimants: dict[str, Any], last: Callable[[Any], float], keep: Collection[str]) -> None:
    """Forget who was heard of longest ago, but not the peers."""
    if len(claimants) >= MOST_CLAIMANTS:
        others = [hardware for hardware in claimants if hardware not in keep]
        if others:
            del claimants[min(others, key=lambda hardware: last(claimants[hardware]))]
