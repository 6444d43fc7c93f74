"""Long runs of many nodes; ``PYCONFD_TEST_DNS_SEEDS`` asks for more seeds than the suite has time for."""

import os
import threading
from collections import Counter
from dataclasses import replace

import pytest

from pyconfd.dns.agent import REQUESTS_IN_A_SLOT, slot_number
from pyconfd.dns.planner import Wish, plan
from pyconfd.dns.records import ADDRESS_TYPES, RefusedBatchError
from pyconfd.settings import Mode, NameSettings
from tests.dns.simulation import World
from tests.dns.stage import NAME, SPEC, ZONE, node, turn, zone_with
from tests.dns.strict import StrictRoute53

SEEDS = range(int(os.environ.get("PYCONFD_TEST_DNS_SEEDS", "1")))
SPECS = {
    "multivalue": SPEC,
    "weighted": replace(SPEC, weight=1),
    "shared": replace(SPEC, mode=Mode.SHARED),
    "vip": replace(SPEC, mode=Mode.VIP),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [2, 5] if len(SEEDS) == 1 else [2, 3, 5, 12, 30])
@pytest.mark.parametrize(("spec", "crashes"), [(name, crashes) for name in SPECS for crashes in (False, True)])
def test_the_answer_always_becomes_the_nodes_that_serve(seed: int, count: int, spec: str, crashes: bool) -> None:
    settles(World(seed * 1000 + count, count, SPECS[spec], crashes=crashes))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("spec", "crashes"), [("multivalue", True), ("shared", False)])
def test_thirty_nodes_find_each_other(spec: str, crashes: bool) -> None:
    settles(World(30, 30, SPECS[spec], crashes=crashes))


def settles(world: World) -> None:
    world.run(busy_s=900.0, settle_s=4000.0)
    for kind in ADDRESS_TYPES:
        assert world.answer(kind) == world.wanted(kind)
    assert world.most_in_10_s <= 50
    # Nodes that do not know each other yet may meet in a slot; the account's limit sorts that out.
    assert world.throttled <= max(0.005 * sum(len(machine.requests) for machine in world.machines), world.count / 10)
    for machine in world.machines:
        slots = Counter(slot_number(time) for time in machine.requests)
        assert max(slots.values(), default=0) <= REQUESTS_IN_A_SLOT
    changes = world.provider.changing
    world.run(busy_s=0.0, settle_s=3600.0)
    assert world.provider.changing == changes, "nothing happened, and something was changed"


@pytest.mark.parametrize(
    "spec", [SPECS["multivalue"], SPECS["weighted"], SPECS["shared"]], ids=["multivalue", "weighted", "shared"]
)
def test_two_nodes_that_leave_together_two_hundred_times_never_empty_the_answer(spec: NameSettings) -> None:
    for _ in range(200):
        provider = zone_with()
        for number in range(2):
            turn(provider, spec, node(number), Wish.PUBLISH)
        together = threading.Barrier(2)
        threads = [threading.Thread(target=_leave, args=(provider, spec, number, together)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(provider.answer(NAME, "A")) == 1


def _leave(provider: StrictRoute53, spec: NameSettings, number: int, together: threading.Barrier) -> None:
    seen = provider.records(ZONE.zone_id, NAME)
    together.wait()
    found = plan(spec, node(number), Wish.WITHDRAW, seen)
    while found.changes:
        try:
            provider.change(ZONE.zone_id, found.changes)
        except RefusedBatchError:
            found = plan(spec, node(number), Wish.WITHDRAW, provider.records(ZONE.zone_id, NAME))
        else:
            return
