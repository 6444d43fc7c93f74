"""Each rule of the hook, and the two laws."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.vip.policy import (
    Alarm,
    Decision,
    Deed,
    Fault,
    Hold,
    InstanceFacts,
    Limits,
    NodeFacts,
    Rival,
    Role,
    RouterFacts,
    Shared,
    Stance,
    decide,
)

LIMITS = Limits(advert_s=0.1, ping_misses=2, offer_s=30.0)
MASTER = InstanceFacts("vip-51", 245, Role.MASTER, holds=True, held_s=9.0, missing_s=0.0, own_advert_age_s=0.05)
BACKUP = InstanceFacts("vip-51", 245, Role.BACKUP, peer_advert_age_s=0.05)
SILENCE = replace(BACKUP, peer_advert_age_s=60.0)
ABLE = Stance(Hold.ABLE, 0.0)
NOW = 100.0


def decided(
    node: NodeFacts | None = None,
    instance: InstanceFacts = MASTER,
    before: Stance = ABLE,
    limits: Limits = LIMITS,
    **ordered: Any,
) -> Decision:
    return decide(node or NodeFacts(), RouterFacts(instance, **ordered), before, NOW, limits)


@pytest.mark.parametrize("instance", [MASTER, BACKUP])
def test_nothing_is_done_where_nothing_is_wrong(instance: InstanceFacts) -> None:
    found = decided(instance=instance)
    assert (found.stance, found.alarms) == (ABLE, frozenset())
    assert found.deed == Deed()


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        (NodeFacts(haproxy_alive=False), Fault.HAPROXY_DEAD),
        (NodeFacts(haproxy_misses=2), Fault.HAPROXY_HANGS),
        (NodeFacts(closed_ports=frozenset({"443"})), Fault.LISTENER_GONE),
        (NodeFacts(foreign_ports=frozenset({"443"})), Fault.LISTENER_FOREIGN),
        (NodeFacts(health_misses=2), Fault.REFUSES_CLIENTS),
        (NodeFacts(carrier=False), Fault.CARRIER_LOST),
        (NodeFacts(carrier_trusted=False), Fault.CARRIER_FLAPS),
        (NodeFacts(gateway_age_s=3.0, peers_age_s=3.0, heard_age_s=3.0), Fault.UPLINK_DEAD),
        (NodeFacts(route_lost=True), Fault.ROUTE_LOST),
    ],
)
def test_a_hard_fault_is_fault_at_once(node: NodeFacts, fault: Fault) -> None:
    found = decided(node)
    assert found.stance == Stance(Hold.FAULT, NOW, frozenset({fault}))


def test_one_missed_answer_is_no_hang() -> None:
    assert decided(NodeFacts(haproxy_misses=1)).stance.hold is Hold.ABLE


@pytest.mark.parametrize(
    ("node", "cause"),
    [
        (NodeFacts(gateway_age_s=60.0), Shared.GATEWAY_SILENT),
        (NodeFacts(gateway_age_s=60.0, peers_age_s=60.0), Shared.GATEWAY_SILENT),
        (NodeFacts(gateway_age_s=60.0, heard_age_s=60.0), Shared.GATEWAY_SILENT),
        (NodeFacts(haproxy_full=True, health_misses=9), Shared.HAPROXY_FULL),
    ],
)
def test_what_the_peers_are_likely_to_share_is_an_alarm(node: NodeFacts, cause: Shared) -> None:
    found = decided(node)
    assert (found.stance.hold, found.alarms) == (Hold.ABLE, frozenset({cause}))


def test_a_route_that_is_lost_where_nobody_else_is_there_is_no_fault() -> None:
    assert decided(NodeFacts(route_lost=True, peers_age_s=60.0)).stance.hold is Hold.ABLE


def test_a_node_that_nobody_can_reach_does_not_take_the_address_back() -> None:
    alone = NodeFacts(gateway_age_s=9.0, peers_age_s=9.0, heard_age_s=9.0)
    before = Stance(Hold.FAULT, 1.0, frozenset({Fault.UPLINK_DEAD}))
    assert decided(alone, SILENCE, before).stance.hold is Hold.FAULT
    assert decided(alone, MASTER, replace(before, hold=Hold.LAST)).stance.hold is Hold.FAULT


@pytest.mark.parametrize(("ordered", "fault"), [("drained", Fault.DRAINED), ("handing_over", Fault.HANDING_OVER)])
def test_an_order_is_obeyed(ordered: str, fault: Fault) -> None:
    orders: dict[str, Any] = {ordered: True}
    assert decided(**orders).stance == Stance(Hold.FAULT, NOW, frozenset({fault}))


def test_keepalived_dead_with_the_address_is_fenced_with_a_farewell() -> None:
    deed = decided(NodeFacts(keepalived_alive=False)).deed
    assert (deed.fence, deed.farewell, deed.kill) == (Alarm.KEEPALIVED_DEAD, True, False)
    assert not decided(NodeFacts(keepalived_alive=False), limits=replace(LIMITS, farewell=False)).deed.farewell


def test_keepalived_dead_without_the_address_is_an_alarm() -> None:
    found = decided(NodeFacts(keepalived_alive=False), BACKUP)
    assert (found.deed.fence, found.alarms) == (None, frozenset({Alarm.KEEPALIVED_DEAD}))


def test_keepalived_that_hangs_is_fenced_before_a_backup_takes_over_and_killed() -> None:
    assert LIMITS.hang_s < 3 * LIMITS.advert_s
    assert decided(instance=replace(MASTER, own_advert_age_s=0.24)).deed.fence is None
    deed = decided(instance=replace(MASTER, own_advert_age_s=0.25)).deed
    assert (deed.fence, deed.farewell, deed.kill) == (Alarm.KEEPALIVED_HANGS, True, True)
    assert decided(instance=replace(MASTER, role=Role.UNKNOWN, own_advert_age_s=0.25)).deed.kill


def test_a_cable_that_is_out_is_no_hang_of_keepalived() -> None:
    found = decided(NodeFacts(carrier=False), replace(MASTER, own_advert_age_s=9.0))
    assert found.deed.fence is None


@pytest.mark.parametrize("role", [Role.BACKUP, Role.FAULT])
def test_an_address_that_keepalived_does_not_own_up_to_is_fenced_and_nothing_killed(role: Role) -> None:
    assert decided(instance=replace(MASTER, role=role, held_s=0.1)).deed.fence is None
    deed = decided(instance=replace(MASTER, role=role)).deed
    assert (deed.fence, deed.farewell, deed.kill) == (Alarm.STALE_ADDRESS, False, False)


def test_fencing_can_be_switched_off_and_still_alarms() -> None:
    found = decided(NodeFacts(keepalived_alive=False), limits=replace(LIMITS, fencing=False))
    assert (found.deed.fence, found.alarms) == (None, frozenset({Alarm.KEEPALIVED_DEAD}))


def test_a_master_without_its_address_is_an_alarm() -> None:
    lost = replace(MASTER, holds=False, missing_s=0.3)
    assert decided(instance=lost).alarms == {Alarm.ADDRESS_MISSING}
    assert decided(instance=replace(lost, missing_s=0.1)).alarms == frozenset()


def rival(priority: int, answers: int = 3, peer: str = "lb1", *, heard: bool = True) -> tuple[Rival, ...]:
    return (Rival("02:00:00:00:00:01", answers, peer, priority, priority if heard else 0),)


def test_of_two_holders_the_lower_priority_yields_once_it_is_sure() -> None:
    assert decided(instance=replace(MASTER, rivals=rival(250, answers=2))).stance.hold is Hold.ABLE
    found = decided(instance=replace(MASTER, rivals=rival(250)))
    assert found.stance.faults == {Fault.YIELDED}
    assert Alarm.SPLIT_BRAIN in found.alarms
    assert not found.deed.announce


def test_of_two_holders_the_higher_priority_announces_again() -> None:
    found = decided(instance=replace(MASTER, rivals=rival(240)))
    assert (found.stance.hold, found.alarms) == (Hold.ABLE, frozenset({Alarm.SPLIT_BRAIN}))
    assert found.deed.announce


def test_who_has_yielded_waits_until_the_peer_answers_or_advertises_no_more() -> None:
    both = replace(MASTER, rivals=rival(250), peer_advert_age_s=0.1)
    assert decided(instance=replace(both, held_s=0.3)).stance.hold is Hold.ABLE, "keepalived may still settle it"
    assert decided(instance=both).stance.faults == {Fault.YIELDED}
    before = Stance(Hold.FAULT, 1.0, frozenset({Fault.YIELDED}))
    answering = replace(BACKUP, rivals=rival(250))
    assert decided(instance=answering, before=before).stance.faults == {Fault.YIELDED}
    assert decided(instance=BACKUP, before=before).stance.hold is Hold.ABLE
    assert decided(instance=replace(SILENCE, rivals=rival(250, heard=False)), before=before).stance.hold is Hold.ABLE
    assert decided(instance=answering).stance.hold is Hold.ABLE, "a backup hears the holder answer all the time"


def test_nobody_yields_to_a_peer_that_is_not_heard() -> None:
    found = decided(instance=replace(MASTER, rivals=rival(250, answers=99, heard=False)))
    assert (found.stance.hold, found.alarms) == (Hold.ABLE, frozenset({Alarm.SPLIT_BRAIN}))


def test_a_contradiction_is_an_alarm_and_changes_nothing() -> None:
    for instance in (MASTER, BACKUP):
        found = decided(instance=replace(instance, impostor=True))
        assert (found.stance, found.deed, found.alarms) == (ABLE, Deed(), frozenset({Alarm.IMPOSTOR}))


def test_a_stranger_does_not_keep_the_last_one_from_the_address() -> None:
    dead = NodeFacts(haproxy_alive=False)
    before = Stance(Hold.FAULT, NOW - 0.7, frozenset({Fault.HAPROXY_DEAD}))
    assert decided(dead, replace(SILENCE, rivals=rival(0, peer="")), before).stance.hold is Hold.LAST


def test_a_stranger_never_makes_anybody_yield() -> None:
    found = decided(instance=replace(MASTER, rivals=rival(0, answers=99, peer="")))
    assert (found.stance.hold, found.alarms) == (Hold.ABLE, frozenset({Alarm.STRANGER}))
    assert found.deed.announce


def test_a_new_holder_announces_until_it_was_seen_on_the_wire() -> None:
    found = decided(instance=replace(MASTER, announced=False))
    assert found.deed.announce
    assert found.alarms == {Alarm.NOT_ANNOUNCED}


def test_a_faulty_node_takes_the_address_back_only_after_silence_on_all_sides() -> None:
    dead = NodeFacts(haproxy_alive=False)
    before = Stance(Hold.FAULT, NOW - 0.7, frozenset({Fault.HAPROXY_DEAD}))
    assert decided(dead, SILENCE, before).stance.hold is Hold.LAST
    assert Alarm.LAST_ONE in decided(dead, SILENCE, before).alarms
    assert decided(dead, SILENCE, replace(before, since=NOW - 0.5)).stance.hold is Hold.FAULT
    assert decided(dead, replace(SILENCE, peer_advert_age_s=0.5), before).stance.hold is Hold.FAULT
    assert decided(dead, replace(SILENCE, rivals=rival(240)), before).stance.hold is Hold.FAULT
    assert decided(NodeFacts(carrier=False), SILENCE, before).stance.hold is Hold.FAULT


def test_what_was_not_heard_without_a_carrier_is_nobodys_silence() -> None:
    flapping = NodeFacts(carrier_trusted=False, carrier_s=0.5)
    before = Stance(Hold.FAULT, 1.0, frozenset({Fault.CARRIER_LOST}))
    assert decided(flapping, SILENCE, before).stance.hold is Hold.FAULT
    assert decided(replace(flapping, carrier_s=0.7), SILENCE, before).stance.hold is Hold.LAST


def test_the_last_one_steps_back_for_a_holder_and_offers_the_address_now_and_then() -> None:
    dead = NodeFacts(haproxy_alive=False)
    last = Stance(Hold.LAST, NOW - 29.0, frozenset({Fault.HAPROXY_DEAD}))
    assert decided(dead, MASTER, last).stance.hold is Hold.LAST
    assert decided(dead, MASTER, replace(last, since=NOW - 30.0)).stance.hold is Hold.FAULT
    assert decided(dead, BACKUP, last).stance.hold is Hold.FAULT
    assert decided(dead, SILENCE, last).stance.hold is Hold.LAST
    assert decided(NodeFacts(), MASTER, last).stance.hold is Hold.ABLE


def test_a_drained_node_that_had_to_take_it_back_interrupts_nobody() -> None:
    last = Stance(Hold.LAST, NOW - 300.0, frozenset({Fault.DRAINED}))
    assert decided(instance=MASTER, before=last, drained=True).stance.hold is Hold.LAST


_AGES = st.sampled_from([0.0, 0.05, 0.2, 0.3, 0.5, 0.7, 60.0, math.inf])
_RIVALS = st.builds(
    Rival,
    st.just("02:00:00:00:00:01"),
    st.integers(1, 5),
    st.sampled_from(["", "lb1"]),
    st.sampled_from([0, 240, 250]),
    st.sampled_from([0, 240, 250]),
)
_INSTANCES = st.builds(
    InstanceFacts,
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
_STANCES = st.builds(Stance, st.sampled_from(Hold), st.sampled_from([0.0, 60.0, 99.5]))
_SHARED = st.frozensets(st.sampled_from(Shared))
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


@given(_HARD, st.booleans(), _SHARED, _INSTANCES)
def test_law_hard_local_faults_give_fault(
    hard: dict[str, Any], keepalived: bool, shared: frozenset[Shared], instance: InstanceFacts
) -> None:
    node = NodeFacts(keepalived_alive=keepalived, shared=shared, **hard)
    assert decide(node, RouterFacts(instance), ABLE, NOW, LIMITS).stance.hold is Hold.FAULT


@given(_COMMON, _INSTANCES, _STANCES)
def test_law_shared_causes_never_give_fault(common: dict[str, Any], instance: InstanceFacts, before: Stance) -> None:
    node = NodeFacts(**common)
    calm = replace(instance, rivals=tuple(one for one in instance.rivals if not one.peer))
    found = decide(node, RouterFacts(calm), before, NOW, LIMITS)
    assert found.stance.hold is Hold.ABLE
    assert node.shared <= found.alarms


@given(st.booleans(), _SHARED, _INSTANCES, _STANCES, _HARD)
def test_law_what_is_shared_changes_nothing_but_the_alarms(
    keepalived: bool,
    shared: frozenset[Shared],
    instance: InstanceFacts,
    before: Stance,
    hard: dict[str, Any],
) -> None:
    node = NodeFacts(keepalived_alive=keepalived, **hard)
    without = decide(node, RouterFacts(instance), before, NOW, LIMITS)
    with_it = decide(replace(node, shared=shared), RouterFacts(instance), before, NOW, LIMITS)
    assert with_it == replace(without, alarms=without.alarms | shared)
