"""A hold over a restart: what it keeps, and what gives way to what happened meanwhile."""

from pyconfd.model.hold import HoldKind
from tests.admission.stage import Pod, staged


def test_a_hold_survives_a_restart_with_its_id_and_what_it_keeps() -> None:
    for hidden in ({"s0", "s1"}, {"s1"}):
        stage = staged(4, 6)
        before = stage.all_served
        stage.pods.hidden = stage.pods.hidden_slices = hidden
        stage.look()
        hold = stage.protection.hold
        assert hold is not None
        stage.restart()
        assert stage.protection.hold is not None
        assert (stage.protection.hold.hold_id, stage.kind) == (hold.hold_id, hold.kind)
        assert (stage.protection.hold.lost, stage.protection.hold.of) == (hold.lost, hold.of)
        assert stage.all_served == before
        stage.pods.hidden = stage.pods.hidden_slices = set()
        stage.look()
        assert stage.kind is None


def test_after_a_restart_addresses_that_were_given_away_are_not_served() -> None:
    stage = staged(4, 6)
    stage.pods.services["s1"].clear()
    stage.look()
    stage.pods.add("s0", "s0-other", "10.1.0.2")
    stage.restart()
    assert stage.addresses()["s1"] == {f"10.1.0.{number}" for number in range(6) if number != 2}


def test_after_a_restart_a_service_that_was_made_anew_is_served_as_it_is_now() -> None:
    stage = staged(4, 6, 5)
    stage.pods.hidden = stage.pods.hidden_slices = {"s1", "s2"}
    stage.look()
    stage.pods.hidden, stage.pods.hidden_slices = {"s2"}, {"s2"}
    stage.pods.domains["s1"] = "other"
    stage.pods.services["s1"] = {"s1-anew": Pod("10.1.0.200")}
    stage.look()
    before = stage.addresses()
    assert before["other"] >= {"10.1.0.200"}
    stage.restart()
    assert stage.kind is not None
    assert stage.addresses() == before


def test_a_service_that_goes_on_to_vanish_while_nobody_looks_is_kept_too() -> None:
    stage = staged(4, 6)
    before = stage.addresses()
    stage.pods.hidden_slices = {"s1"}
    stage.look()
    assert stage.kind is HoldKind.SHARE
    stage.pods.domains["s1"] = "other"  # a change of it that comes first is saved
    stage.look()
    stage.pods.hidden = {"s1"}
    stage.restart()
    assert stage.addresses() == {"s0": before["s0"], "other": before["s1"]}
