"""Changes that are judged by numbers alone."""

import pytest

from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.admission.whole_change import WholeChange, total_loss
from pyconfd.model.context import EndpointTotals

FULL = EndpointTotals(claimed=10, total=20)


def digest() -> str:
    return "one"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (FULL, EndpointTotals(0, 20), "all 10 ready endpoints are gone at once behind the served names"),
        (FULL, EndpointTotals(), "all 10 ready endpoints are gone at once behind the served names"),
        (EndpointTotals(0, 5), EndpointTotals(), "all 5 ready endpoints are gone at once in the cluster"),
        (EndpointTotals(1, 5), EndpointTotals(0, 5), "the last ready endpoint is gone at once behind the served names"),
        (None, EndpointTotals(), None),
        (FULL, EndpointTotals(1, 20), None),
        (FULL, EndpointTotals(50, 90), None),
        (EndpointTotals(), EndpointTotals(), None),
        (EndpointTotals(), FULL, None),
    ],
)
def test_total_loss_is_held(before: EndpointTotals | None, after: EndpointTotals, message: str | None) -> None:
    held = total_loss(before, after, digest=digest)
    assert (held.problem.message.partition(";")[0] if held else None) == message


def test_permission_allows_one_rendering() -> None:
    held = total_loss(FULL, EndpointTotals(), digest=digest)
    assert held is not None
    assert f"pyconfd allow {held.hold_id}" in held.problem.remedy
    assert total_loss(FULL, EndpointTotals(), digest=digest, allowed=frozenset({held.hold_id})) is None
    assert total_loss(FULL, EndpointTotals(), digest=lambda: "other", allowed=frozenset({held.hold_id})) is not None


@pytest.mark.parametrize(
    ("after", "later_s", "confirmed", "held"),
    [
        (EndpointTotals(6, 20), 0.0, True, False),
        (EndpointTotals(4, 20), 59.0, True, True),
        (EndpointTotals(4, 20), 61.0, True, False),
        (EndpointTotals(4, 20), 61.0, False, True),
        (EndpointTotals(0, 20), 9999.0, True, True),
    ],
)
def test_loss_above_the_share_is_held_until_it_lasted(
    after: EndpointTotals, later_s: float, *, confirmed: bool, held: bool
) -> None:
    change, none = WholeChange(RemovalRules()), frozenset[str]()
    lost = FULL.claimed - after.claimed
    change.judge(1.0, FULL, after, lost=lost, digest=digest, allowed=none)
    found = change.judge(1.0 + later_s, FULL, after, lost=lost, digest=digest, allowed=none, confirmed=confirmed)
    assert (found is not None) == held
