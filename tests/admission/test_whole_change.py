"""Changes that are judged by numbers alone."""

import pytest

from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.admission.whole_change import WholeChange, total_loss
from pyconfd.model.context import Census

FULL = Census(claimed=10, total=20)


def digest() -> str:
    return "one"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (FULL, Census(0, 20), "all 10 ready endpoints are gone at once behind the served names"),
        (FULL, Census(), "all 10 ready endpoints are gone at once behind the served names"),
        (Census(0, 5), Census(), "all 5 ready endpoints are gone at once in the cluster"),
        (Census(1, 5), Census(0, 5), "the last ready endpoint is gone at once behind the served names"),
        (None, Census(), None),
        (FULL, Census(1, 20), None),
        (FULL, Census(50, 90), None),
        (Census(), Census(), None),
        (Census(), FULL, None),
    ],
)
def test_total_loss_is_held(before: Census | None, after: Census, message: str | None) -> None:
    held = total_loss(before, after, digest=digest)
    assert (held.problem.message.partition(";")[0] if held else None) == message


def test_permission_allows_one_rendering() -> None:
    held = total_loss(FULL, Census(), digest=digest)
    assert held is not None
    assert f"pyconfd allow {held.hold_id}" in held.problem.remedy
    assert total_loss(FULL, Census(), digest=digest, allowed=frozenset({held.hold_id})) is None
    assert total_loss(FULL, Census(), digest=lambda: "other", allowed=frozenset({held.hold_id})) is not None


@pytest.mark.parametrize(
    ("after", "later_s", "confirmed", "held"),
    [
        (Census(6, 20), 0.0, True, False),
        (Census(4, 20), 59.0, True, True),
        (Census(4, 20), 61.0, True, False),
        (Census(4, 20), 61.0, False, True),
        (Census(0, 20), 9999.0, True, True),
    ],
)
def test_loss_above_the_share_is_held_until_it_lasted(
    after: Census, later_s: float, *, confirmed: bool, held: bool
) -> None:
    change, none = WholeChange(RemovalRules()), frozenset[str]()
    lost = FULL.claimed - after.claimed
    change.judge(1.0, FULL, after, lost=lost, digest=digest, allowed=none)
    found = change.judge(1.0 + later_s, FULL, after, lost=lost, digest=digest, allowed=none, confirmed=confirmed)
    assert (found is not None) == held
