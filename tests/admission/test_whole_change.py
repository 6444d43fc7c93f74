from pyconfd.admission.whole_change import total_loss
from pyconfd.model.context import Census

FULL = Census(claimed=10, total=20)


def one() -> str:
    return "one"


def other() -> str:
    return "other"


def test_all_claimed_endpoints_gone_is_held_and_the_id_lets_it_through() -> None:
    held = total_loss(FULL, Census(0, 20), digest=one)

    assert held is not None
    assert f"pyconfd allow {held.hold_id}" in held.problem.remedy
    assert total_loss(FULL, Census(0, 20), digest=one, allowed=frozenset({held.hold_id})) is None


def test_a_permission_for_one_rendering_does_not_hold_for_another() -> None:
    held = total_loss(FULL, Census(0, 0), digest=one)

    assert held is not None
    assert total_loss(FULL, Census(0, 0), digest=other, allowed=frozenset({held.hold_id})) is not None


def test_an_empty_cluster_is_held_even_where_nothing_was_claimed() -> None:
    assert total_loss(Census(0, 5), Census(0, 0), digest=one) is not None


def test_one_endpoint_is_not_called_all() -> None:
    held = total_loss(Census(1, 5), Census(0, 5), digest=one)

    assert held is not None
    assert held.problem.message.startswith("the last ready endpoint is gone")


def test_ordinary_changes_pass() -> None:
    for before, after in (
        (None, Census()),
        (FULL, Census(1, 20)),
        (FULL, Census(50, 90)),
        (Census(), Census()),
        (Census(), FULL),
    ):
        assert total_loss(before, after, digest=one) is None
