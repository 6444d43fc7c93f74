"""Who is taken for a peer: whoever advertises, and nobody who only claims an address."""

import pytest

from pyconfd.vip.frames import Advert, Claim
from pyconfd.vip.policy import Alarm, Decision, Hold, Limits, NodeFacts, Rival, Role, RouterFacts, Stance, decide
from pyconfd.vip.topology import Instance, Peer
from pyconfd.vip.tracking import CLAIMED_S, MOST_CLAIMANTS, Sight

VIP, PEER, OWN = "192.0.2.10", "192.0.2.11", "192.0.2.12"
OWN_HARDWARE, PEER_HARDWARE, EVIL = "02:00:00:00:00:02", "02:00:00:00:00:01", "02:00:00:00:00:66"
LIMITS = Limits(advert_s=0.1, ping_misses=2, offer_s=30.0)
STEP = 0.02


def last_node() -> Sight:
    """Return a holder whose peer has the higher priority and is gone."""
    instance = Instance("vip-51", 51, 4, OWN, (Peer("lb1", PEER, 250),), (f"{VIP}/24",), (), 245)
    sight = Sight(instance, 0.0, 0.5, LIMITS)
    sight.role_is(Role.MASTER, 0.0)
    sight.addresses_are({VIP: 24}, 0.0)
    sight.announced.add(VIP)
    return sight


def claim(sight: Sight, address: str, hardware: str, now: float) -> None:
    sight.claim_seen(Claim(address, hardware), OWN_HARDWARE, now, outgoing=False)


def advert(sight: Sight, hardware: str, now: float, priority: int = 250) -> None:
    sight.advert_seen(Advert(PEER, 51, priority, hardware), now, outgoing=False)


def judged(sight: Sight, now: float, before: Stance | None = None) -> Decision:
    sight.advert_seen(Advert(OWN, 51, 245, OWN_HARDWARE), now, outgoing=True)
    return decide(NodeFacts(), RouterFacts(sight.facts(now)), before or Stance(), now, LIMITS)


def test_arp_alone_takes_nothing_from_the_last_node() -> None:
    sight, found, now = last_node(), None, 1.0
    for _ in range(100):
        now += STEP
        claim(sight, PEER, EVIL, now)
        claim(sight, VIP, EVIL, now)
        found = judged(sight, now, found.stance if found else None)
        assert found.stance.hold is Hold.ABLE
    assert found is not None
    assert found.alarms == {Alarm.STRANGER}
    assert found.deed.announce


def test_a_peer_is_known_by_its_adverts() -> None:
    sight = last_node()
    for tenth in range(10, 16):
        advert(sight, PEER_HARDWARE, tenth / 10)
    claim(sight, VIP, PEER_HARDWARE, 1.3)
    assert sight.facts(1.3).rivals == (Rival(PEER_HARDWARE, 1, "lb1", 250, 0),), "keepalived may still obey"
    assert sight.facts(1.5).rivals == (Rival(PEER_HARDWARE, 1, "lb1", 250, 250),)
    claim(sight, VIP, PEER_HARDWARE, 2.5)
    assert sight.facts(2.5).rivals == (Rival(PEER_HARDWARE, 1, "lb1", 250, 0),), "it is not heard any more"


def test_adverts_from_elsewhere_do_not_replace_a_peer_that_is_heard() -> None:
    sight = last_node()
    advert(sight, PEER_HARDWARE, 1.0)
    advert(sight, EVIL, 1.1, priority=255)
    claim(sight, VIP, EVIL, 1.1)
    facts = sight.facts(1.1)
    assert facts.rivals == (Rival(EVIL, 1),)
    assert facts.peer_advert_age_s == pytest.approx(0.1)
    assert facts.impostor


def test_adverts_of_a_low_priority_make_nobody_yield() -> None:
    sight = last_node()
    for step in range(100):
        now = 1.0 + step * STEP
        advert(sight, EVIL, now, priority=1)
        claim(sight, VIP, EVIL, now)
        assert judged(sight, now).stance.hold is Hold.ABLE


@pytest.mark.parametrize(("address", "genuine"), [(PEER, PEER_HARDWARE), (OWN, OWN_HARDWARE)])
def test_two_claims_of_an_own_address_are_an_alarm_for_a_while(address: str, genuine: str) -> None:
    sight = last_node()
    claim(sight, address, genuine, 1.0)
    assert sight.contradictions(1.0) == {}
    claim(sight, address, EVIL, 1.0)
    assert sight.contradictions(1.0) == {address: (genuine, EVIL)}
    assert judged(sight, 1.1).alarms == {Alarm.IMPOSTOR}
    assert sight.contradictions(1.1 + CLAIMED_S) == {}


def test_made_up_hardware_addresses_displace_no_peer() -> None:
    sight = last_node()
    advert(sight, PEER_HARDWARE, 1.0)
    claim(sight, VIP, PEER_HARDWARE, 1.0)
    for number in range(10 * MOST_CLAIMANTS):
        for address in (VIP, PEER):
            claim(sight, address, f"02:00:00:01:{number >> 8:02x}:{number & 255:02x}", 1.0 + number / 1e6)
    facts = sight.facts(1.1)
    assert len(facts.rivals) == MOST_CLAIMANTS
    assert "lb1" in {rival.peer for rival in facts.rivals}
    assert len(sight.claimed[PEER]) <= MOST_CLAIMANTS


def test_a_hang_counts_only_while_the_kernel_knows_a_peer() -> None:
    sight = last_node()
    sight.own_advert = 1.0
    claim(sight, PEER, EVIL, 1.3)
    sight.peers_reachable(False, 1.3)
    assert sight.facts(1.3).own_advert_age_s == 0.0
    for now in (1.4, 1.5):
        sight.peers_reachable(True, now)
    assert sight.facts(1.5).own_advert_age_s < LIMITS.hang_s, "it may be that keepalived has had no turn since"
    assert sight.facts(1.4 + LIMITS.hang_s - LIMITS.late_s + 0.001).own_advert_age_s >= LIMITS.hang_s
