"""One node with many names: its slots, the others that it takes for dead; the provider is the strict one."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.dns.agent import (
    SLOT_S,
    Agent,
    NodeVerdict,
    Suspicion,
    Want,
    judge,
    next_slot,
    place,
    slot_number,
)
from pyconfd.dns.names import DnsNames
from pyconfd.dns.planner import DnsNode, Wish
from pyconfd.dns.records import Marker, markers_of
from pyconfd.settings import DnsSettings, Mode, NameSettings, Settings
from tests.dns.stage import NAME, SPEC, node, turn, zone_with
from tests.dns.strict import StrictRoute53

NOW, HOUR_S = 1_800_000_000.0, 3600.0
Nodes = tuple[tuple[Agent, DnsNode, Callable[[int], bool]], ...]
MANY = tuple(replace(SPEC, name=f"n{number:02}.example.com") for number in range(40))


def agent(provider: StrictRoute53, who: DnsNode, *, answers: bool = True, reap_after_s: float = 0.0) -> Agent:
    dns = DnsSettings(interval_s=5.0, nodes=2, reaper=reap_after_s > 0.0, reap_after_s=reap_after_s)
    return Agent(
        DnsNames(Settings(dns=dns), provider, who.name),
        answers=lambda markers: {marker.node for marker in markers if answers},
        chance=Random(1),
    )


def run(begin: float, end: float, nodes: Nodes) -> None:
    """Run the turns of nodes, each where it can."""
    wants = [(each, {spec: Want(Wish.PUBLISH, who) for spec in MANY}, can) for each, who, can in nodes]
    for second in range(int(begin), int(end)):
        for each, wanted, can in wants:
            if can(second):
                each.turn(float(second), float(second), wanted)


def answered(provider: StrictRoute53) -> set[int]:
    return {len(provider.answer(spec.name, "A")) for spec in MANY}


def test_nodes_with_many_names_that_cannot_reach_each_other_never_forget_each_other() -> None:
    """What lives needs its turns to say so: with forty names and a limit for two they come only each 80 s.

    One reaches Route 53 for half of the time.
    """
    provider = zone_with()
    quick, slow = (agent(provider, node(number), answers=False, reap_after_s=15.0) for number in range(2))
    nodes = ((quick, node(0), lambda _: True), (slow, node(1), lambda second: second % 200 < 100))
    run(NOW, NOW + 400, nodes)
    assert answered(provider) == {2}
    run(NOW + 400, NOW + 2000, nodes)
    assert answered(provider) == {2}
    assert not any(state.forgotten_total for each in (quick, slow) for state in each.names.values())


def test_a_dead_node_is_forgotten_in_each_of_many_names() -> None:
    provider = zone_with()
    living, dead = (agent(provider, node(number), answers=False, reap_after_s=15.0) for number in range(2))
    run(NOW, NOW + 200, ((living, node(0), lambda _: True), (dead, node(1), lambda _: True)))
    assert answered(provider) == {2}
    run(NOW + 200, NOW + 1400, ((living, node(0), lambda _: True),))
    assert all(provider.answer(spec.name, "A") == (node(0).v4,) for spec in MANY)


def test_names_are_wanted_each_for_itself_and_one_that_is_wanted_no_more_is_let_go_as_it_is() -> None:
    provider = zone_with()
    public, other = SPEC, NameSettings(name="other.example.com", owner="second", mode=Mode.SHARED)
    one = agent(provider, node(0))
    wants = {public: Want(Wish.PUBLISH, node(0)), other: Want(None, node(0))}
    now = NOW
    for _ in range(20):
        one.turn(now, now, wants)
        now += 1.0
    assert provider.answer(NAME, "A") == ("192.0.2.1",)
    assert provider.answer(other.name, "A") == ()
    wants[other] = Want(Wish.PUBLISH, node(6))
    del wants[public]
    for _ in range(20):
        one.turn(now, now, wants)
        now += 1.0
    assert provider.answer(NAME, "A") == ("192.0.2.1",)
    assert provider.answer(other.name, "A") == ("192.0.2.7",)
    assert set(one.names) == {other}
    assert one.turn(now, now, {}) > now


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
def test_a_clock_that_is_set_stops_no_change(step_s: float) -> None:
    provider = zone_with()
    one = agent(provider, node(0))
    wants = {SPEC: Want(Wish.PUBLISH, node(0))}
    for second in range(20):
        one.turn(second, NOW + second, wants)
    assert provider.answer(NAME, "A") == ("192.0.2.1",)
    wants = {SPEC: Want(Wish.PUBLISH, replace(node(0), v4="192.0.2.7"))}
    for second in range(20, 25):
        due = one.turn(second, NOW + step_s + second, wants)
        assert due <= second + 600.0, "it is monotonic"
    assert provider.answer(NAME, "A") == ("192.0.2.7",)


def test_a_clock_that_is_set_makes_no_node_dead() -> None:
    """The reaper waits by the monotonic clock."""
    provider = zone_with()
    one = agent(provider, node(0), answers=False, reap_after_s=300.0)
    turn(provider, SPEC, node(1), Wish.PUBLISH)
    for second in range(200):
        one.turn(second, NOW + second + HOUR_S * (second >= 100), {SPEC: Want(Wish.PUBLISH, node(0))})
    assert provider.answer(NAME, "A") == ("192.0.2.1", "192.0.2.2")
    assert not any(marker.doubt for marker, _ in markers_of(provider.everything()).values())


@given(names=st.sets(st.text("abc", min_size=1), min_size=1, max_size=30), expected=st.integers(1, 40))
def test_nodes_that_know_each_other_have_slots_of_their_own(names: set[str], expected: int) -> None:
    places = [place(name, names, expected) for name in names]
    assert len({slot for slot, _ in places}) == len(names)
    assert {slots for _, slots in places} == {max(len(names), expected)}


@given(now=st.floats(0, 1e9), slots=st.integers(1, 40), data=st.data())
def test_the_next_slot_is_an_own_one_soon_and_never_the_same_twice(now: float, slots: int, data: st.DataObject) -> None:
    slot = data.draw(st.integers(0, slots - 1))
    found = next_slot(now, slot, slots, -1)
    assert now <= found <= now + slots * SLOT_S
    assert slot_number(found) % slots == slot
    assert slot_number(next_slot(found, slot, slots, slot_number(found))) == slot_number(found) + slots


MARKER = Marker("prod", "n1", ("192.0.2.2",), 3)


def over(*looks: tuple[float, bool, str, int]) -> list[NodeVerdict]:
    """Each look is the time, whether the node answers, who doubts it and its sequence."""
    suspicion: Suspicion | None = None
    found = []
    for now, answers, doubt, sequence in looks:
        marker = replace(MARKER, doubt=doubt, sequence=sequence)
        suspicion, verdict = judge(marker, suspicion, answers=answers, me="n0", now=now, after_s=100.0)
        found.append(verdict)
    return found


LEAVE, DOUBT, TRUST, FORGET = NodeVerdict.LEAVE, NodeVerdict.DOUBT, NodeVerdict.TRUST, NodeVerdict.FORGET


def test_a_node_is_forgotten_when_it_is_silent_on_the_network_and_in_route_53() -> None:
    assert over((1, False, "", 3), (101, False, "", 3), (102, False, "n0", 3), (202, False, "n0", 3)) == [
        LEAVE,
        DOUBT,
        LEAVE,
        FORGET,
    ]


def test_a_node_that_answers_is_trusted_whatever_was_thought() -> None:
    assert over((1, False, "n0", 3), (150, True, "n0", 3), (300, False, "n0", 3)) == [LEAVE, TRUST, LEAVE]
    assert over((1, True, "n7", 3)) == [LEAVE]


def test_a_node_that_writes_in_route_53_lives_although_it_does_not_answer() -> None:
    assert over((1, False, "", 3), (101, False, "", 3), (102, False, "n0", 3), (202, False, "", 4)) == [
        LEAVE,
        DOUBT,
        LEAVE,
        LEAVE,
    ]


def test_a_node_does_not_judge_itself_nor_what_has_no_node() -> None:
    for marker in (replace(MARKER, node="n0"), replace(MARKER, node="adopted:192.0.2.2")):
        assert judge(marker, Suspicion(3, 1.0, 1.0), answers=False, me="n0", now=9e9, after_s=1.0)[1] is LEAVE
