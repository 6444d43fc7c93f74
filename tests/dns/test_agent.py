"""One node with many names, and with names that come and go; the provider is the strict one, time is an argument."""

from collections.abc import Callable
from dataclasses import replace

from pyconfd.dns.agent import Agent, AgentRules, Want
from pyconfd.dns.ownership import Mode
from pyconfd.dns.planning import Wish
from pyconfd.dns.view import Node, Spec
from tests.dns.stage import NAME, SPEC, ZONE, node, zone_with
from tests.dns.strict import StrictRoute53

NOW = 1_800_000_000.0
Nodes = tuple[tuple[Agent, Node, Callable[[int], bool]], ...]
MANY = tuple(replace(SPEC, name=f"n{number:02}.example.com") for number in range(40))


def agent(provider: StrictRoute53, who: Node, *, answers: bool = True, reap_after_s: float = 0.0) -> Agent:
    return Agent(
        provider,
        lambda spec: spec.zone_id or ZONE.zone_id,
        node=who.name,
        rules=AgentRules(interval_s=5.0, expected_nodes=2, reap_after_s=reap_after_s),
        answers=lambda markers: {marker.node for marker in markers if answers},
        chance=lambda: 0.5,
    )


def run(begin: float, end: float, nodes: Nodes) -> None:
    """Let nodes take their turns, each where it can."""
    wants = [(each, {spec: Want(Wish.PUBLISH, who) for spec in MANY}, can) for each, who, can in nodes]
    for second in range(int(begin), int(end)):
        for each, wanted, can in wants:
            if can(second):
                each.turn(float(second), wanted)


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
    public, other = SPEC, Spec("other.example.com", "second", Mode.SHARED)
    one = agent(provider, node(0))
    wants = {public: Want(Wish.PUBLISH, node(0)), other: Want(None, node(0))}
    now = NOW
    for _ in range(20):
        one.turn(now, wants)
        now += 1.0
    assert provider.answer(NAME, "A") == ("192.0.2.1",)
    assert provider.answer(other.name, "A") == ()
    wants[other] = Want(Wish.PUBLISH, node(6))
    del wants[public]
    for _ in range(20):
        one.turn(now, wants)
        now += 1.0
    assert provider.answer(NAME, "A") == ("192.0.2.1",)
    assert provider.answer(other.name, "A") == ("192.0.2.7",)
    assert set(one.names) == {other}
    assert one.turn(now, {}) > now
