"""Each rule of the hook, and the two that come before all others."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.settings.vip import Profile, VipSettings
from pyconfd.vip.policy import (
    DEAF_QUESTIONS,
    Alarm,
    Decision,
    HoldState,
    NodeFacts,
    NodeFault,
    Rival,
    Role,
    RouterFacts,
    decide,
)

LIMITS = VipSettings(profile=Profile.FAST)
MASTER = RouterFacts("vip-51", 245, Role.MASTER, holds=True, held_s=9.0, missing_s=0.0, own_advert_age_s=0.05)
BACKUP = RouterFacts("vip-51", 245, Role.BACKUP, peer_advert_age_s=0.05)
SILENCE = replace(BACKUP, peer_advert_age_s=60.0, without_s=60.0)
ABLE = Decision()
DEAD = NodeFacts(haproxy_alive=False)
NOW = 100.0


def rivals(priority: int, answers: int = 3, peer: str = "lb1", *, heard: bool = True) -> tuple[Rival, ...]:
    return (Rival("02:00:00:00:00:01", answers, peer, priority, priority if heard else 0),)


def fault(since: float, *faults: NodeFault) -> Decision:
    return Decision(HoldState.FAULT, since, frozenset(faults or {NodeFault.HAPROXY_DEAD}))


@pytest.mark.parametrize("router", [MASTER, BACKUP])
def test_nothing_is_done_where_nothing_is_wrong(router: RouterFacts) -> None:
    assert decide(NodeFacts(), router, ABLE, NOW, LIMITS) == ABLE


@pytest.mark.parametrize(
    ("node", "router", "found"),
    [
        (DEAD, MASTER, NodeFault.HAPROXY_DEAD),
        (NodeFacts(haproxy_misses=2), MASTER, NodeFault.HAPROXY_HANGS),
        (NodeFacts(closed_ports=frozenset({"443"})), MASTER, NodeFault.LISTENER_GONE),
        (NodeFacts(foreign_ports=frozenset({"443"})), MASTER, NodeFault.LISTENER_FOREIGN),
        (NodeFacts(health_misses=2), MASTER, NodeFault.REFUSES_CLIENTS),
        (NodeFacts(carrier=False), MASTER, NodeFault.CARRIER_LOST),
        (NodeFacts(carrier_trusted=False), MASTER, NodeFault.CARRIER_FLAPS),
        (NodeFacts(gateway_age_s=3.0, peers_age_s=3.0, heard_age_s=3.0), MASTER, NodeFault.UPLINK_DEAD),
        (NodeFacts(unanswered=4), BACKUP, NodeFault.UPLINK_DEAD),
        (NodeFacts(route_lost=True), MASTER, NodeFault.ROUTE_LOST),
        (NodeFacts(), replace(MASTER, own_address=False), NodeFault.OWN_ADDRESS_GONE),
        (NodeFacts(), replace(BACKUP, own_address=False), NodeFault.OWN_ADDRESS_GONE),
        (NodeFacts(), replace(MASTER, drained=True), NodeFault.DRAINED),
        (NodeFacts(), replace(MASTER, handing_over=True), NodeFault.HANDING_OVER),
    ],
)
def test_a_hard_fault_or_an_order_gives_fault_at_once(node: NodeFacts, router: RouterFacts, found: NodeFault) -> None:
    assert decide(node, router, ABLE, NOW, LIMITS) == replace(fault(NOW, found), alarms=frozenset())


@pytest.mark.parametrize(
    ("node", "alarms"),
    [
        (NodeFacts(haproxy_misses=1), ()),
        (NodeFacts(unanswered=9), ()),
        (NodeFacts(gateway_age_s=60.0), (Alarm.GATEWAY_SILENT,)),
        (NodeFacts(gateway_age_s=60.0, peers_age_s=60.0), (Alarm.GATEWAY_SILENT,)),
        (NodeFacts(gateway_age_s=60.0, heard_age_s=60.0), (Alarm.GATEWAY_SILENT,)),
        (NodeFacts(haproxy_full=True, health_misses=9), (Alarm.HAPROXY_FULL,)),
        (NodeFacts(route_lost=True, peers_age_s=60.0), ()),
    ],
)
def test_what_the_peers_are_likely_to_share_is_no_fault(node: NodeFacts, alarms: tuple[Alarm, ...]) -> None:
    assert decide(node, MASTER, ABLE, NOW, LIMITS) == replace(ABLE, alarms=frozenset(alarms))


KEEPALIVED_DEAD = NodeFacts(keepalived_alive=False)
UNKNOWN = NodeFacts(keepalived_alive=False, keepalived_unknown=True)
HANGS = replace(MASTER, own_advert_age_s=0.25)
NO_FENCING = replace(LIMITS, fencing=False)


@pytest.mark.parametrize(
    ("node", "router", "limits", "actions", "alarm"),
    [
        (KEEPALIVED_DEAD, MASTER, LIMITS, {"farewell"}, Alarm.KEEPALIVED_DEAD),
        (KEEPALIVED_DEAD, MASTER, NO_FENCING, None, Alarm.KEEPALIVED_DEAD),
        (KEEPALIVED_DEAD, BACKUP, LIMITS, None, Alarm.KEEPALIVED_DEAD),
        # Its pid file is missing: its adverts show whether it lives.
        (UNKNOWN, MASTER, LIMITS, None, None),
        (UNKNOWN, HANGS, LIMITS, {"farewell"}, Alarm.KEEPALIVED_DEAD),
        (UNKNOWN, BACKUP, LIMITS, None, Alarm.KEEPALIVED_DEAD),
        (NodeFacts(), HANGS, LIMITS, {"farewell", "kill"}, Alarm.KEEPALIVED_HANGS),
        (NodeFacts(), replace(HANGS, role=Role.UNKNOWN), LIMITS, {"farewell", "kill"}, Alarm.KEEPALIVED_HANGS),
        (NodeFacts(), replace(HANGS, own_advert_age_s=0.24), LIMITS, None, None),
        # Without a cable no advert leaves.
        (NodeFacts(carrier=False), replace(MASTER, own_advert_age_s=9.0), LIMITS, None, None),
        (NodeFacts(), replace(MASTER, role=Role.BACKUP), LIMITS, set(), Alarm.STALE_ADDRESS),
        (NodeFacts(), replace(MASTER, role=Role.FAULT), LIMITS, set(), Alarm.STALE_ADDRESS),
        (NodeFacts(), replace(MASTER, role=Role.FAULT, held_s=0.1), LIMITS, None, None),
        (NodeFacts(), replace(MASTER, holds=False, missing_s=0.3), LIMITS, None, Alarm.ADDRESS_MISSING),
        (NodeFacts(), replace(MASTER, holds=False, missing_s=0.1), LIMITS, None, None),
    ],
)
def test_an_address_that_must_not_be_here_is_fenced(
    node: NodeFacts, router: RouterFacts, limits: VipSettings, actions: set[str] | None, alarm: Alarm | None
) -> None:
    found = decide(node, router, ABLE, NOW, limits)
    assert found.fence is (None if actions is None else alarm)
    assert {name for name in ("farewell", "kill", "announce") if getattr(found, name)} == (actions or set())
    assert found.alarms == ({alarm} if alarm else set())


def test_a_hang_is_fenced_before_a_backup_takes_over() -> None:
    assert LIMITS.hang_s < 3 * LIMITS.advert_s


YIELDED = fault(1.0, NodeFault.YIELDED)
BETTER = replace(MASTER, rivals=rivals(250), peer_advert_age_s=0.1)


@pytest.mark.parametrize(
    ("router", "before", "yields", "alarm", "announces"),
    [
        (replace(MASTER, rivals=rivals(250, answers=2)), ABLE, False, Alarm.SPLIT_BRAIN, False),
        (BETTER, ABLE, True, Alarm.SPLIT_BRAIN, False),
        # keepalived may still settle it.
        (replace(BETTER, held_s=0.3), ABLE, False, Alarm.SPLIT_BRAIN, False),
        (replace(MASTER, rivals=rivals(240)), ABLE, False, Alarm.SPLIT_BRAIN, True),
        # Never on the word of ARP alone, however often it answers.
        (replace(MASTER, rivals=rivals(250, answers=99, heard=False)), ABLE, False, Alarm.SPLIT_BRAIN, False),
        (replace(MASTER, rivals=rivals(0, answers=99, peer="")), ABLE, False, Alarm.STRANGER, True),
        # Until the peer answers or advertises no more.
        (replace(BACKUP, rivals=rivals(250)), YIELDED, True, None, False),
        (BACKUP, YIELDED, False, None, False),
        (replace(SILENCE, rivals=rivals(250, heard=False)), YIELDED, False, None, False),
        # A backup hears the holder answer all the time.
        (replace(BACKUP, rivals=rivals(250)), ABLE, False, None, False),
    ],
)
def test_of_two_holders_the_lower_priority_yields(
    router: RouterFacts, before: Decision, alarm: Alarm | None, *, yields: bool, announces: bool
) -> None:
    found = decide(NodeFacts(), router, before, NOW, LIMITS)
    assert found.faults == ({NodeFault.YIELDED} if yields else set())
    assert found.hold is (HoldState.FAULT if yields else HoldState.ABLE)
    assert found.alarms == ({alarm} if alarm else set())
    assert found.announce is announces


@pytest.mark.parametrize("router", [MASTER, BACKUP])
def test_a_contradiction_is_an_alarm_and_changes_nothing(router: RouterFacts) -> None:
    found = decide(NodeFacts(), replace(router, impostor=True), ABLE, NOW, LIMITS)
    assert found == replace(ABLE, alarms=frozenset({Alarm.IMPOSTOR}))


def test_a_new_holder_announces_until_it_was_seen_on_the_wire() -> None:
    found = decide(NodeFacts(), replace(MASTER, announced=False), ABLE, NOW, LIMITS)
    assert found.announce
    assert found.alarms == {Alarm.NOT_ANNOUNCED}


@pytest.mark.parametrize(
    ("node", "silent_s", "alarms"),
    [
        (NodeFacts(), 4.9, set()),
        (NodeFacts(), 5.0, {Alarm.PEER_SILENT}),
        (NodeFacts(carrier=False), 5.0, set()),
    ],
)
def test_a_peer_that_could_not_take_over_is_an_alarm(node: NodeFacts, silent_s: float, alarms: set[Alarm]) -> None:
    assert decide(node, replace(BACKUP, silent_peer_s=silent_s), ABLE, NOW, LIMITS).alarms == alarms


def test_a_backup_that_has_asked_three_times_may_still_take_the_address() -> None:
    assert decide(NodeFacts(unanswered=3), SILENCE, ABLE, NOW, LIMITS) == ABLE


def test_a_backup_has_asked_often_enough_before_keepalived_takes_over() -> None:
    for profile in Profile:
        vip = VipSettings(profile=profile)
        # The hook may have slept once for its longest time when the advert was missed.
        assert vip.missed_s + 0.05 + DEAF_QUESTIONS * vip.hurry_s < 3 * vip.advert_s


ALONE = NodeFacts(gateway_age_s=9.0, peers_age_s=9.0, heard_age_s=9.0)
FLAPPING = NodeFacts(carrier_trusted=False, carrier_s=0.5)
DEAF = replace(SILENCE, own_address=False)
LAST = Decision(HoldState.LAST, NOW - 29.0, frozenset({NodeFault.HAPROXY_DEAD}))


@pytest.mark.parametrize(
    ("node", "router", "before", "hold"),
    [
        # A faulty node takes the address back only after silence on all sides.
        (DEAD, SILENCE, fault(NOW - 0.7), HoldState.LAST),
        (DEAD, replace(SILENCE, without_s=0.5), fault(NOW - 0.5), HoldState.FAULT),
        # Since the address left: a haproxy that was well for a moment changes nothing about it.
        (DEAD, SILENCE, fault(NOW - 0.1), HoldState.LAST),
        (DEAD, SILENCE, replace(ABLE, since=NOW - 0.1), HoldState.LAST),
        (DEAD, BACKUP, replace(ABLE, since=NOW - 0.1), HoldState.FAULT),
        # Faulty again so soon after it was faulty: no healthy peer is there, or it would have the address.
        (DEAD, replace(MASTER, held_s=0.2), replace(ABLE, faulty_at=NOW - 0.5), HoldState.LAST),
        (DEAD, replace(MASTER, held_s=0.2), replace(ABLE, faulty_at=NOW - 0.7), HoldState.FAULT),
        (DEAD, replace(MASTER, held_s=30.0), replace(ABLE, faulty_at=NOW - 0.5), HoldState.FAULT),
        (ALONE, replace(MASTER, held_s=0.2), replace(ABLE, faulty_at=NOW - 0.5), HoldState.FAULT),
        (DEAD, replace(SILENCE, peer_advert_age_s=0.5), fault(NOW - 0.7), HoldState.FAULT),
        (DEAD, replace(SILENCE, rivals=rivals(240)), fault(NOW - 0.7), HoldState.FAULT),
        (DEAD, replace(SILENCE, rivals=rivals(0, peer="")), fault(NOW - 0.7), HoldState.LAST),
        # Not if no client can reach it, nor on what it could not hear without a carrier.
        (NodeFacts(carrier=False), SILENCE, fault(NOW - 0.7), HoldState.FAULT),
        (ALONE, SILENCE, fault(1.0, NodeFault.UPLINK_DEAD), HoldState.FAULT),
        (ALONE, MASTER, replace(LAST, faults=frozenset({NodeFault.UPLINK_DEAD})), HoldState.FAULT),
        (FLAPPING, SILENCE, fault(1.0, NodeFault.CARRIER_LOST), HoldState.FAULT),
        (replace(FLAPPING, carrier_s=0.7), SILENCE, fault(1.0, NodeFault.CARRIER_LOST), HoldState.LAST),
        # Who hears no advert believes any answer, and waits for its turn: the others may be as deaf.
        (NodeFacts(), DEAF, fault(NOW - 0.7), HoldState.LAST),
        (NodeFacts(), replace(DEAF, rivals=rivals(0, peer="")), fault(NOW - 0.7), HoldState.FAULT),
        (NodeFacts(), replace(DEAF, place=1), fault(NOW - 1.1), HoldState.FAULT),
        (NodeFacts(), replace(DEAF, place=1), fault(NOW - 1.3), HoldState.LAST),
        (NodeFacts(), replace(DEAF, holds=True), LAST, HoldState.LAST),
        (NodeFacts(), replace(DEAF, holds=True, rivals=rivals(0, peer="")), LAST, HoldState.FAULT),
        # The last node gives it up to another holder, and offers it now and then.
        (DEAD, MASTER, LAST, HoldState.LAST),
        (DEAD, MASTER, replace(LAST, since=NOW - 30.0), HoldState.FAULT),
        (DEAD, BACKUP, LAST, HoldState.FAULT),
        (DEAD, SILENCE, LAST, HoldState.LAST),
        (NodeFacts(), MASTER, LAST, HoldState.ABLE),
        # A drained node serves as well as any: it does not interrupt its clients for an offer.
        (NodeFacts(), replace(MASTER, drained=True), replace(LAST, since=NOW - 300.0), HoldState.LAST),
    ],
)
def test_the_last_node_keeps_the_address(
    node: NodeFacts, router: RouterFacts, before: Decision, hold: HoldState
) -> None:
    found = decide(node, router, before, NOW, LIMITS)
    assert found.hold is hold
    assert (Alarm.LAST_ONE in found.alarms) is (hold is HoldState.LAST)


_AGES = st.sampled_from([0.0, 0.05, 0.2, 0.3, 0.5, 0.7, 60.0, math.inf])
_RIVALS = st.builds(
    Rival,
    st.just("02:00:00:00:00:01"),
    st.integers(1, 5),
    st.sampled_from(["", "lb1"]),
    st.sampled_from([0, 240, 250]),
    st.sampled_from([0, 240, 250]),
)
_ROUTERS = st.builds(
    RouterFacts,
    st.just("vip-51"),
    st.just(245),
    st.sampled_from(Role),
    st.booleans(),
    _AGES,
    _AGES,
    _AGES,
    _AGES,
    st.booleans(),
    st.lists(_RIVALS, max_size=2).map(tuple),
)
_BEFORE = st.builds(Decision, st.sampled_from(HoldState), st.sampled_from([0.0, 60.0, 99.5]))
_SHARED = st.frozensets(
    st.sampled_from([Alarm.DAEMON_SILENT, Alarm.HAPROXY_FULL, Alarm.GATEWAY_SILENT, Alarm.LEARNED_ROUTE_LOST])
)
_HARD = st.sampled_from(
    [
        {"haproxy_alive": False},
        {"haproxy_misses": 2},
        {"closed_ports": frozenset({"80"})},
        {"carrier": False},
        {"carrier_trusted": False},
        {"foreign_ports": frozenset({"80"})},
        {"health_misses": 2},
        {"gateway_age_s": 9.0, "peers_age_s": 9.0, "heard_age_s": 9.0},
        {"route_lost": True},
    ]
)
_COMMON = st.fixed_dictionaries(
    {
        "keepalived_alive": st.booleans(),
        "shared": _SHARED,
        "gateway_age_s": st.sampled_from([0.0, 60.0]),
        "peers_age_s": st.sampled_from([0.0, 60.0]),
        "haproxy_full": st.booleans(),
    }
).map(lambda causes: causes | ({"health_misses": 9} if causes["haproxy_full"] else {}))
"""Gateway and peers silent while something comes in; haproxy full, so that it takes no request: the same everywhere."""


@given(_HARD, st.booleans(), _SHARED, _ROUTERS)
def test_law_hard_local_faults_give_fault(
    hard: dict[str, Any], keepalived: bool, shared: frozenset[Alarm], router: RouterFacts
) -> None:
    node = NodeFacts(keepalived_alive=keepalived, shared=shared, **hard)
    assert decide(node, router, ABLE, NOW, LIMITS).hold is HoldState.FAULT


@given(_COMMON, _ROUTERS, _BEFORE)
def test_law_shared_causes_never_give_fault(common: dict[str, Any], router: RouterFacts, before: Decision) -> None:
    node = NodeFacts(**common)
    calm = replace(router, rivals=tuple(one for one in router.rivals if not one.peer))
    found = decide(node, calm, before, NOW, LIMITS)
    assert found.hold is HoldState.ABLE
    assert node.shared <= found.alarms


@given(st.booleans(), _SHARED, _ROUTERS, _BEFORE, _HARD)
def test_law_what_is_shared_changes_nothing_but_the_alarms(
    keepalived: bool, shared: frozenset[Alarm], router: RouterFacts, before: Decision, hard: dict[str, Any]
) -> None:
    node = NodeFacts(keepalived_alive=keepalived, **hard)
    without = decide(node, router, before, NOW, LIMITS)
    with_it = decide(replace(node, shared=shared), router, before, NOW, LIMITS)
    assert with_it == replace(without, alarms=without.alarms | shared)
