"""Each fault once, with everything real and clients asking: exactly one node has the address in the end.

The core ones are in the suite; ``make vip-test`` runs them all.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.vip.bed import VIP4, Bed, missing
from tests.vip.client import KEPT
from tests.vip.faults import CORE, Fault, faults
from tests.vip.network import ip
from tests.vip.striking import strike, wrongs

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no bed for failover: {missing()}"),
    pytest.mark.timeout(600),
]
FAULTS = faults(long_s=5.0)
LIMIT_S = 5.0
"""A request fails by a refusal or a reset, or for want of any answer: not because the machine is busy."""

_whole = pytest.mark.skipif("PYCONFD_TEST_FAILOVER" not in os.environ, reason="not a core fault: make vip-test")


class Beds:
    """Beds for faults: one that came through the last fault takes the next one too."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._proven: Bed | None = None

    def take(self, fault: Fault) -> Bed:
        is_usual = fault.nodes == 2 and not fault.clocks and not fault.fresh
        bed, self._proven = self._proven, None
        if bed is None or not is_usual:
            self._stack.close()
            # Only what is stopped is silent for a second, however busy the machine: haproxy, and keepalived.
            settings: dict[str, Any] = {"ping_timeout_s": 1.0, "profile": "safe"}
            bed = self._stack.enter_context(Bed(fault.nodes, cluster=True, clocks=fault.clocks, **settings))
        return bed

    def give_back(self, bed: Bed, fault: Fault) -> None:
        if len(bed.nodes) == 2 and not fault.clocks and not fault.fresh:
            self._proven = bed


@pytest.fixture(scope="module")
def beds() -> Iterator[Beds]:
    with ExitStack() as stack:
        yield Beds(stack)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in CORE else (_whole,)) for name in FAULTS], ids=str
)
def test_one_holder_in_the_end_and_clients_that_hardly_notice(name: str, beds: Beds) -> None:
    fault = FAULTS[name]
    if why := fault.missing():
        pytest.skip(why)
    bed = beds.take(fault)
    try:
        outcome = strike(bed, fault, LIMIT_S)
        assert wrongs(fault, outcome) == [], outcome
        if name == "link_down":  # a former holder whose link is back does not speak in the name of the address
            (after,) = (node for node in bed.nodes if node.name == outcome.after)
            assert after.hardware in ip("-n", bed.client, "neigh", "show", VIP4)
        if name == "haproxy_reloaded":
            assert outcome.events == [], "a reload is no death"
        assert fault.moves is not True or outcome.kept["broken"] <= KEPT, outcome
        if fault.serves:
            assert outcome.new["gap_ms"] < 1000 * fault.bound_s, outcome
            assert outcome.kept["gap_ms"] < 1000 * (fault.bound_s + LIMIT_S), outcome
    except AssertionError:
        bed.show()
        raise
    beds.give_back(bed, fault)
