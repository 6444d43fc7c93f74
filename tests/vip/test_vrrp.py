"""A virtual router as it is observed: who counts as a peer, when a hang counts, when to decide again."""

import math

import pytest

from pyconfd.settings.vip import Profile, VipSettings
from pyconfd.vip.frames import AddressClaim, Advert
from pyconfd.vip.policy import Alarm, Decision, HoldState, NodeFacts, Rival, Role, decide
from pyconfd.vip.topology import Peer, Router
from pyconfd.vip.vrrp import CALM_S, CLAIMED_S, MOST_CLAIMANTS, VirtualRouter

VIP, PEER, OWN = "192.0.2.10", "192.0.2.11", "192.0.2.12"
OWN_HARDWARE, PEER_HARDWARE, EVIL = "02:00:00:00:00:02", "02:00:00:00:00:01", "02:00:00:00:00:66"
LIMITS = VipSettings(profile=Profile.FAST)
STEP = 0.02
NOW = 100.0


def virtual_router(role: Role, *, holds: bool, now: float = 0.0) -> VirtualRouter:
    """Return one of two nodes, the one with the lower priority, in a state that is as usual."""
    router = Router(51, "vip-51", "lb1", "", 4, OWN, (Peer("lb1", PEER, 250),), (f"{VIP}/24",), (), 245)
    found = VirtualRouter(router, LIMITS, 0.5, now)
    found.set_role(role, now)
    if holds:
        found.set_addresses({VIP: 24}, now)
        found.announced.add(VIP)
        found.own_advert = now
    return found


def last_node() -> VirtualRouter:
    """Return a holder whose peer is gone."""
    return virtual_router(Role.MASTER, holds=True)


def claim(router: VirtualRouter, address: str, hardware: str, now: float) -> None:
    router.on_claim(AddressClaim(address, hardware), OWN_HARDWARE, now, outgoing=False)


def advert(router: VirtualRouter, hardware: str, now: float, priority: int = 250) -> None:
    router.on_advert(Advert(PEER, 51, priority, hardware), now, outgoing=False)


def decided(router: VirtualRouter, now: float, before: Decision | None = None) -> Decision:
    router.on_advert(Advert(OWN, 51, 245, OWN_HARDWARE), now, outgoing=True)
    return decide(NodeFacts(), router.facts(now), before or Decision(), now, LIMITS)


def test_arp_alone_takes_nothing_from_the_last_node() -> None:
    router, found, now = last_node(), Decision(), 1.0
    for _ in range(100):
        now += STEP
        claim(router, PEER, EVIL, now)
        claim(router, VIP, EVIL, now)
        found = decided(router, now, found)
        assert found.hold is HoldState.ABLE
    assert found.alarms == {Alarm.STRANGER}
    assert found.announce


def test_a_peer_is_known_by_its_adverts() -> None:
    router = last_node()
    for tenth in range(10, 16):
        advert(router, PEER_HARDWARE, tenth / 10)
    claim(router, VIP, PEER_HARDWARE, 1.3)
    assert router.facts(1.3).rivals == (Rival(PEER_HARDWARE, 1, "lb1", 250, 0),), "keepalived may still obey"
    assert router.facts(1.5).rivals == (Rival(PEER_HARDWARE, 1, "lb1", 250, 250),)
    claim(router, VIP, PEER_HARDWARE, 2.5)
    assert router.facts(2.5).rivals == (Rival(PEER_HARDWARE, 1, "lb1", 250, 0),), "it is not heard any more"


def test_adverts_from_elsewhere_do_not_replace_a_peer_that_is_heard() -> None:
    router = last_node()
    advert(router, PEER_HARDWARE, 1.0)
    advert(router, EVIL, 1.1, priority=255)
    claim(router, VIP, EVIL, 1.1)
    facts = router.facts(1.1)
    assert facts.rivals == (Rival(EVIL, 1),)
    assert facts.peer_advert_age_s == pytest.approx(0.1)
    assert facts.impostor


def test_adverts_of_a_low_priority_make_nobody_yield() -> None:
    router = last_node()
    for step in range(100):
        now = 1.0 + step * STEP
        advert(router, EVIL, now, priority=1)
        claim(router, VIP, EVIL, now)
        assert decided(router, now).hold is HoldState.ABLE


@pytest.mark.parametrize(("address", "genuine"), [(PEER, PEER_HARDWARE), (OWN, OWN_HARDWARE)])
def test_two_claims_of_an_own_address_are_an_alarm_for_a_while(address: str, genuine: str) -> None:
    router = last_node()
    claim(router, address, genuine, 1.0)
    assert router.contradictions(1.0) == {}
    claim(router, address, EVIL, 1.0)
    assert router.contradictions(1.0) == {address: (genuine, EVIL)}
    assert decided(router, 1.1).alarms == {Alarm.IMPOSTOR}
    assert router.contradictions(1.1 + CLAIMED_S) == {}


def test_made_up_hardware_addresses_displace_no_peer() -> None:
    router = last_node()
    advert(router, PEER_HARDWARE, 1.0)
    claim(router, VIP, PEER_HARDWARE, 1.0)
    for number in range(10 * MOST_CLAIMANTS):
        for address in (VIP, PEER):
            claim(router, address, f"02:00:00:01:{number >> 8:02x}:{number & 255:02x}", 1.0 + number / 1e6)
    facts = router.facts(1.1)
    assert len(facts.rivals) == MOST_CLAIMANTS
    assert "lb1" in {rival.peer for rival in facts.rivals}
    assert len(router.claimed[PEER]) <= MOST_CLAIMANTS


def test_a_hang_counts_only_while_the_kernel_knows_a_peer() -> None:
    router = last_node()
    router.own_advert = 1.0
    claim(router, PEER, EVIL, 1.3)
    router.set_reachable(False, 1.3)
    assert router.facts(1.3).own_advert_age_s == 0.0
    for now in (1.4, 1.5):
        router.set_reachable(True, now)
    assert router.facts(1.5).own_advert_age_s < LIMITS.hang_s, "it may be that keepalived has had no turn since"
    assert router.facts(1.4 + LIMITS.hang_s - LIMITS.late_s + 0.001).own_advert_age_s >= LIMITS.hang_s


@pytest.mark.parametrize(
    ("silent_s", "holds", "misses"),
    [(0.11, False, False), (0.13, False, True), (0.7, False, True), (0.9, False, False), (0.13, True, False)],
)
def test_a_backup_misses_the_holder_for_a_while(silent_s: float, *, holds: bool, misses: bool) -> None:
    router = virtual_router(Role.BACKUP, holds=holds, now=NOW - 60.0)
    advert(router, PEER_HARDWARE, NOW - silent_s)
    assert router.misses_holder(NOW) is misses
    assert (router.decide_at(NOW) == NOW) is (misses or holds)


def test_who_gave_the_address_up_is_not_missed() -> None:
    router = virtual_router(Role.BACKUP, holds=False, now=NOW - 60.0)
    advert(router, PEER_HARDWARE, NOW - 0.2)
    advert(router, PEER_HARDWARE, NOW - 0.13, priority=0)
    assert not router.misses_holder(NOW)


def test_each_peer_has_to_be_seen() -> None:
    peers = (Peer("lb1", PEER, 250), Peer("lb3", "192.0.2.13", 240))
    router = VirtualRouter(Router(51, "vip-51", "lb1", "", 4, OWN, peers, (f"{VIP}/24",), (), 245), LIMITS, 0.5, 1.0)
    assert router.router.place == 1
    assert router.facts(4.0).silent_peer_s == 3.0, "since the hook began"
    claim(router, PEER, PEER_HARDWARE, 5.0)
    assert (router.facts(6.0).silent_peer_s, router.peer_seen) == (5.0, 5.0)
    claim(router, "192.0.2.13", EVIL, 6.0)
    assert router.facts(8.0).silent_peer_s == 3.0
    router.forget_peers(9.0)
    assert (router.facts(10.0).silent_peer_s, router.peer_seen) == (1.0, -math.inf)


HANG_S = LIMITS.hang_s


@pytest.mark.parametrize(("role", "holds"), [(Role.BACKUP, False), (Role.MASTER, True)])
def test_a_backup_and_a_holder_decide_after_a_while(role: Role, *, holds: bool) -> None:
    assert virtual_router(role, holds=holds, now=NOW).decide_at(NOW) == NOW + CALM_S


def test_a_late_advert_of_its_own_is_looked_for_in_time() -> None:
    router = virtual_router(Role.MASTER, holds=True, now=NOW - 60.0)
    router.own_advert = NOW - HANG_S + 0.01
    assert router.decide_at(NOW) == pytest.approx(NOW + 0.01)


UNUSUAL: dict[str, dict[str, object]] = {
    "fault": {"decision": Decision(HoldState.FAULT)},
    "last": {"decision": Decision(HoldState.LAST)},
    "alarm": {"decision": Decision(alarms=frozenset({Alarm.STRANGER}))},
    "handing over": {"handing_over": NOW},
}


@pytest.mark.parametrize(
    ("role", "holds", "changes"),
    [
        *((role, role is Role.MASTER, changes) for role in (Role.BACKUP, Role.MASTER) for changes in UNUSUAL.values()),
        (Role.UNKNOWN, False, {}),
        (Role.UNKNOWN, True, {}),
        (Role.FAULT, False, {}),
        (Role.BACKUP, True, {}),
        (Role.MASTER, False, {}),
        (Role.MASTER, True, {"announced": set()}),
    ],
)
def test_whatever_is_not_as_usual_is_decided_about_at_each_turn(
    role: Role, changes: dict[str, object], *, holds: bool
) -> None:
    router = virtual_router(role, holds=holds, now=NOW)
    for name, value in changes.items():
        setattr(router, name, value)
    assert router.decide_at(NOW) <= NOW


def test_connections_that_were_left_behind_wait_for_the_peers_advert() -> None:
    router = virtual_router(Role.BACKUP, holds=True, now=NOW)
    router.set_addresses({}, NOW)
    assert not router.stands_by
    assert router.decide_at(NOW) <= NOW
