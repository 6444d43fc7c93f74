"""The last one standing keeps the address: several nodes, each with the real policy and a model of keepalived."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.settings.vip import Profile, VipSettings
from pyconfd.vip.policy import Decision, HoldState, NodeFacts, Role, RouterFacts, decide

ADVERT = 0.1
TICK = 0.02
LIMITS = VipSettings(profile=Profile.FAST, offer_s=3.0)


@dataclass
class Node:
    """keepalived with ``nopreempt`` as RFC 5798 has it, and the hook."""

    priority: int
    healthy: bool = True
    role: Role = Role.BACKUP
    decision: Decision = field(default_factory=Decision)
    due: float = 0.0
    heard: float = 0.0
    sent: float = 0.0
    left: float = 0.0
    taken: float = 0.0
    outbox: list[int] = field(default_factory=list)

    @property
    def down(self) -> float:
        return 3 * ADVERT + self.skew

    @property
    def skew(self) -> float:
        return (256 - self.priority) / 256 * ADVERT

    def hook(self, now: float) -> None:
        master = self.role is Role.MASTER
        router = RouterFacts(
            "vip", self.priority, self.role, holds=master, held_s=now - self.taken if master else 0.0,
            own_advert_age_s=now - self.sent, peer_advert_age_s=now - self.heard,
            without_s=0.0 if master else now - self.left,
        )  # fmt: skip
        if master:
            self.left = now
        node = NodeFacts(haproxy_alive=self.healthy)
        self.decision = decide(node, router, self.decision, now, LIMITS)
        if self.decision.hold is HoldState.FAULT and self.role is not Role.FAULT:
            if master:
                self.outbox.append(0)
            self.role = Role.FAULT
        elif self.decision.hold is not HoldState.FAULT and self.role is Role.FAULT:
            self.role, self.due = Role.BACKUP, now + self.down

    def keepalived(self, now: float) -> None:
        if self.role is Role.BACKUP and now >= self.due:
            self.role, self.sent, self.taken = Role.MASTER, now - ADVERT, now
        if self.role is Role.MASTER and now - self.sent >= ADVERT - TICK / 2:
            self.sent = now
            self.outbox.append(self.priority)

    def hear(self, priority: int, now: float) -> None:
        if priority:
            self.heard = now
        if self.role is Role.BACKUP:
            self.due = now + (self.down if priority else self.skew)
        elif self.role is Role.MASTER and priority > self.priority:
            self.role, self.due = Role.BACKUP, now + self.down


def turn(nodes: list[Node], now: float) -> None:
    for node in nodes:
        node.hook(now)
        node.keepalived(now)
    for node in nodes:
        for priority in node.outbox:
            for other in nodes:
                if other is not node:
                    other.hear(priority, now)
        node.outbox.clear()


@pytest.mark.parametrize(("up_s", "down_s"), [(0.2, 0.1), (0.2, 0.3), (0.5, 0.3), (1.0, 0.3)])
@pytest.mark.parametrize("phase_s", [0.0, 0.1, 0.25])
def test_haproxies_that_crash_again_and_again_keep_the_address_alive(
    up_s: float, down_s: float, phase_s: float
) -> None:
    """At least for half of the time for which one node with such a haproxy would serve."""
    nodes = [Node(250 - 5 * place, due=3 * ADVERT) for place in range(2)]
    served, ticks = 0, int(60.0 / TICK)
    for tick in range(1, ticks):
        for place, node in enumerate(nodes):
            node.healthy = (tick * TICK + phase_s * place) % (up_s + down_s) < up_s
        turn(nodes, tick * TICK)
        served += any(node.healthy for node in nodes if node.role is Role.MASTER)
    assert served / ticks > 0.5 * up_s / (up_s + down_s)


_SCHEDULES = st.lists(st.tuples(st.integers(1, 200), st.integers(0, 2), st.booleans()), max_size=8)


@given(st.integers(2, 3), _SCHEDULES)
def test_whatever_happened_one_holds_it_in_the_end_and_a_healthy_one_if_there_is_any(
    count: int, schedule: list[tuple[int, int, bool]]
) -> None:
    nodes = [Node(250 - 5 * place, due=3 * ADVERT) for place in range(count)]
    tick = 0
    for wait, which, healthy in schedule:
        for _ in range(wait):
            tick += 1
            turn(nodes, tick * TICK)
        nodes[which % count].healthy = healthy
    settling = LIMITS.offer_s + LIMITS.retake_s + 10 * ADVERT
    for _ in range(int(2 * settling / TICK)):
        tick += 1
        turn(nodes, tick * TICK)
    anybody = any(node.healthy for node in nodes)
    seen = []
    for _ in range(int(LIMITS.offer_s * 2 / TICK)):
        tick += 1
        turn(nodes, tick * TICK)
        seen.append([node.healthy for node in nodes if node.role is Role.MASTER])
    if anybody:
        assert all(holders == [True] for holders in seen)
    else:
        # Offered now and then to a node that may have healed: away for as long as that takes, and never held twice for
        # longer than an advert.
        held = sum(holders == [False] for holders in seen)
        assert held >= len(seen) // 2
        assert sum(len(holders) > 1 for holders in seen) <= len(seen) // 20
