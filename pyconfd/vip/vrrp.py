"""One virtual router as this node observes it: adverts, address claims, keepalived's role, addresses [pure].

``now`` is monotonic, in seconds, in all methods.
"""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pyconfd.settings.vip import VipSettings
from pyconfd.vip.frames import AddressClaim, Advert
from pyconfd.vip.policy import Alarm, Decision, HoldState, Rival, Role, RouterFacts
from pyconfd.vip.topology import Router

ROLES: Mapping[str, Role] = {
    "MASTER": Role.MASTER,
    "BACKUP": Role.BACKUP,
    "FAULT": Role.FAULT,
    "STOP": Role.UNKNOWN,
    "DELETED": Role.UNKNOWN,
}
"""The states that keepalived writes into its notify fifo."""

CLAIMED_S = 10.0
"""Two hardware addresses that claim a node's own address within so long contradict each other."""
MOST_CLAIMANTS = 64
"""At most so many hardware addresses are kept, however many a hostile machine makes up."""
CALM_S = 0.09
"""The next decision where nothing has happened: what only time changes can wait for the second answer of haproxy."""
_NEVER = (-math.inf, 0)


class VirtualRouter:
    """The observations of one virtual router, and what was last decided about it."""

    def __init__(self, router: Router, vip: VipSettings, window_s: float, now: float) -> None:
        self.router, self.vip = router, vip
        self._window_s = window_s
        """An address claim counts for so long."""
        self.watching_since = now
        """Since when this process has run without a pause: silence during a pause says nothing."""
        self.role, self.role_since = Role.UNKNOWN, 0.0
        self.held: frozenset[str] = frozenset()
        self.held_since = self.missing_since = 0.0
        self.announced: set[str] = set()
        self.own_advert = -math.inf
        self._seen: dict[str, float] = {}
        """When each peer (by address) was last seen: its adverts, and its answers for its own address."""
        self._listening_since = now
        """Since when peers could be seen."""
        self.heard: dict[str, tuple[float, int]] = {}
        """When each peer (by address) was last heard as a master, and its priority."""
        self.heard_since: dict[str, float] = {}
        """Since when without a break."""
        self.hardware_of: dict[str, str] = {}
        """The hardware address that the adverts of each peer (by address) came from."""
        self.claimed: dict[str, dict[str, float]] = {}
        """When which hardware addresses claimed each node's own address."""
        self._answers: dict[str, tuple[float, float, int]] = {}
        """For each hardware address that claimed a floating address: when last, when last counted, how often."""
        self._reachable_since = math.inf
        """Since when the kernel has known the hardware address of a peer."""
        self.decision = Decision(since=now)
        self.decided = False
        self.handing_over: float | None = None
        """Since when a failover that was ordered is under way."""
        self.left: frozenset[str] = frozenset()
        """Addresses that this node had, and whose connections are still here."""
        self.left_at = 0.0

    @property
    def holds(self) -> bool:
        """Return whether one of its addresses is here."""
        return bool(self.held)

    @property
    def complete(self) -> bool:
        """Return whether all of its addresses are here."""
        return len(self.held) == len(self.router.bare)

    def set_addresses(self, present: Collection[str], now: float) -> tuple[frozenset[str], frozenset[str]]:
        """Set which addresses the interface has; return those that came and those that went."""
        held = frozenset(address for address in self.router.bare if address in present)
        came, went = held - self.held, self.held - held
        if held and not self.held:
            self.held_since = now
            self.announced.clear()
            self._answers.clear()
        if self.complete and went:
            self.missing_since = now
        if went:
            self.left_at = now
        self.left = (self.left | went) - came
        self.announced &= held
        self.held = held
        return came, went

    def set_role(self, role: Role, now: float) -> bool:
        """Set the role that keepalived reports; return whether it changed."""
        if role is self.role:
            return False
        self.role, self.role_since = role, now
        return True

    @property
    def peer_seen(self) -> float:
        """Return when one of the peers was last seen."""
        return max(self._seen.values(), default=-math.inf)

    def forget_peers(self, now: float) -> None:
        """Forget when peers were seen: there is no carrier."""
        self._seen.clear()
        self._listening_since = now

    def _silent_peer_s(self, now: float) -> float:
        since = max(self._listening_since, self.watching_since)
        return max(now - max(since, self._seen.get(peer.address, since)) for peer in self.router.peers)

    def misses_holder(self, now: float) -> bool:
        """Return whether the adverts of the holder have just stopped, so that keepalived is about to take over."""
        return not self.holds and self.vip.missed_s <= now - self.heard_at < 2 * self.vip.down_s

    @property
    def heard_at(self) -> float:
        """Return when a peer was last heard as a master."""
        return max((at for at, _ in self.heard.values()), default=-math.inf)

    def set_reachable(self, reachable: bool, now: float) -> None:
        """Set whether the kernel knows the hardware address of a peer: without one no advert can leave."""
        self._reachable_since = min(self._reachable_since, now) if reachable else math.inf

    def on_advert(self, advert: Advert, now: float, *, outgoing: bool) -> None:
        """Record an advert that passed the interface."""
        if advert.router != self.router.id or (":" in advert.source) != (self.router.family == 6):
            return
        is_peer = any(peer.address == advert.source for peer in self.router.peers)
        if outgoing and advert.source == self.router.source and advert.priority:
            self.own_advert = now
            if self.role is Role.UNKNOWN:  # the hook was restarted; the fifo has transitions only
                self.set_role(Role.MASTER, now)
        elif not outgoing and is_peer:
            self._add_claimant(advert.source, advert.hardware, now)
            is_new = now - self.heard.get(advert.source, _NEVER)[0] > self.vip.down_s
            if not is_new and self.hardware_of[advert.source] != advert.hardware:
                return  # the peer is heard from where it was: this advert is another machine's
            self._seen[advert.source] = now
            self.hardware_of[advert.source] = advert.hardware
            if is_new:
                self.heard_since[advert.source] = now
            if advert.priority:
                self.heard[advert.source] = (now, advert.priority)
            else:
                self.heard.pop(advert.source, None)

    def on_claim(self, claim: AddressClaim, own_hardware: str, now: float, *, outgoing: bool) -> None:
        """Record an address claim that passed the interface."""
        floating = claim.address in self.router.bare
        if outgoing or claim.hardware == own_hardware:
            if outgoing and floating and claim.hardware == own_hardware:
                self.announced.add(claim.address)
            return
        if floating:
            _make_room(self._answers, lambda answer: answer[0], keep=self.hardware_of.values())
            last, counted, count = self._answers.get(claim.hardware, (-math.inf, -math.inf, 0))
            if now - last > self._window_s:
                count = 0
            if now - counted > self._window_s / 5:  # a burst of announcements is one answer
                counted, count = now, count + 1
            self._answers[claim.hardware] = (now, counted, count)
        if claim.address == self.router.source:
            self._add_claimant(claim.address, own_hardware, now)
            self._add_claimant(claim.address, claim.hardware, now)
        elif any(peer.address == claim.address for peer in self.router.peers):
            self._seen[claim.address] = now
            self._add_claimant(claim.address, claim.hardware, now)

    def _add_claimant(self, address: str, hardware: str, now: float) -> None:
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

    def facts(self, now: float, *, drained: bool = False, own_address: bool = True) -> RouterFacts:
        """Return what the policy decides on."""
        return RouterFacts(
            name=self.router.name,
            priority=self.router.priority,
            role=self.role,
            holds=self.holds,
            held_s=now - self.held_since if self.held else 0.0,
            missing_s=0.0 if self.complete else now - max(self.missing_since, self.role_since),
            own_advert_age_s=self._own_advert_age_s(now),
            peer_advert_age_s=now - self.heard_at,
            without_s=0.0 if self.held else now - max(self.left_at, self.watching_since),
            silent_peer_s=self._silent_peer_s(now),
            own_address=own_address,
            place=self.router.place,
            announced=self.announced == self.held,
            rivals=tuple(
                self._rival(hardware, count, now)
                for hardware, (last, _, count) in self._answers.items()
                if now - last <= self._window_s
            ),
            impostor=bool(self.contradictions(now)),
            drained=drained,
            handing_over=self.handing_over is not None,
        )

    def _rival(self, hardware: str, answers: int, now: float) -> Rival:
        for peer in self.router.peers:
            if self.hardware_of.get(peer.address) == hardware:
                at, priority = self.heard.get(peer.address, _NEVER)
                # keepalived hears the first adverts as well, and needs a moment to obey.
                down_s = self.vip.down_s
                lasts = now - at <= down_s <= now - self.heard_since[peer.address]
                return Rival(hardware, answers, peer.name, peer.priority, priority if lasts else 0)
        return Rival(hardware, answers)

    @property
    def silent_since(self) -> float:
        """Return since when an own advert is due."""
        return max(self.own_advert, self.held_since, self.watching_since)

    def is_late(self, now: float) -> bool:
        """Return whether an own advert is missing for so long that the kernel has to say why."""
        return self.holds and now - self.silent_since >= self.vip.late_s

    def _own_advert_age_s(self, now: float) -> float:
        """Return how long own adverts are missing, though the kernel could have sent them.

        The kernel knows, and ARP on the wire does not: a peer's address claimed by a third machine, which the kernel
        does not take over, would make a hang of a keepalived whose adverts cannot leave.
        """
        silent = now - self.silent_since
        return min(silent, max(0.0, self.vip.late_s + now - self._reachable_since)) if self.is_late(now) else silent

    def holder(self, now: float) -> str:
        """Return the node that is master by the adverts on the wire; "" where none advertises."""
        down_s = self.vip.down_s
        if now - self.own_advert < down_s and self.held:
            return "this node"
        latest = max(self.heard.items(), key=lambda item: item[1][0], default=None)
        if latest is None or now - latest[1][0] >= down_s:
            return ""
        return next(peer.name for peer in self.router.peers if peer.address == latest[0])

    @property
    def stands_by(self) -> bool:
        """Return whether the holder's adverts concern keepalived alone."""
        return self._is_able and not self.holds and not self.left

    @property
    def _is_able(self) -> bool:
        return self.decision.hold is HoldState.ABLE and self.handing_over is None

    @property
    def alarms(self) -> frozenset[Alarm]:
        """Return what the last decision found."""
        return self.decision.alarms

    def decide_at(self, now: float) -> float:
        """Return when to decide again if nothing happens until then: at once for whatever is not as usual."""
        if self.stands_by and self.role is Role.BACKUP and not self.alarms:
            return now if self.misses_holder(now) else now + CALM_S
        calm = self._is_able and not self.alarms and self.complete and self.announced == self.held
        if calm and self.role is Role.MASTER:
            vip = self.vip
            return min(now + CALM_S, self.silent_since + (vip.hang_s if self.is_late(now) else vip.late_s))
        return now


def _make_room(claimants: dict[str, Any], last: Callable[[Any], float], keep: Collection[str]) -> None:
    """Drop the hardware address that was heard longest ago, but never a peer's."""
    if len(claimants) >= MOST_CLAIMANTS:
        others = [hardware for hardware in claimants if hardware not in keep]
        if others:
            del claimants[min(others, key=lambda hardware: last(claimants[hardware]))]
