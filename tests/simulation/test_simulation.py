"""The short form of the simulation; the long one is ``make soak``."""

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.reservation import Name
from tests.simulation.__main__ import main
from tests.simulation.cluster import WITH_TLS, Lie, host
from tests.simulation.fresh import names_of
from tests.simulation.shrinking import shrunk
from tests.simulation.simulation import Simulation
from tests.simulation.steps import KINDS, Step, random_steps


@pytest.mark.haproxy
@pytest.mark.timeout(600)
def test_whatever_happens_every_promise_is_kept(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path)
    try:
        simulation.play(random_steps(7, 80))
    finally:
        simulation.close()
    assert simulation.survived.total() > 15
    for kind in ("poison", "API server", "reload", "disk", "pyconfd: killed in the middle"):
        assert any(each.startswith(kind) for each in simulation.survived), f"no {kind} among {simulation.survived}"


@pytest.mark.haproxy
@pytest.mark.timeout(600)
def test_a_restart_during_a_total_loss_keeps_the_certificate(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path)
    try:
        simulation.play([Step("lie", Lie.NO_OBJECTS), Step("pass", 2), Step("kill", 0, 250), Step("pass", 2)])
    finally:
        simulation.close()
    assert WITH_TLS in simulation._presents


@pytest.mark.haproxy
@pytest.mark.timeout(600)
def test_a_lost_file_of_names_gives_none_back_to_an_older_object(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path)
    moves = [Step("thief", 1, 1), Step("vanish", 1), Step("pass", 4), Step("appear", 1, 3), Step("pass", 2)]
    try:
        simulation.play([*moves, Step("lose names")])
    finally:
        simulation.close()
    assert names_of(simulation.place, "strangers") == {Name("", host(1))}


class _Flawed(Simulation):
    """A planted fault: no API server answers while the disk is full."""

    def _keeps_its_promises(self) -> None:
        assert not (self.place.most_bytes == 0 and self.lie is Lie.SILENT), "planted"


@pytest.mark.haproxy
@pytest.mark.timeout(600)
def test_a_fault_is_cut_down_to_the_steps_that_it_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, fewest = tmp_path / "whole", tmp_path / "fewest"
    whole.write_text("[('disk', 1, 0), ('heal', 1, 0), ('lie', 1, 7)]")
    assert main(["--replay", str(whole), "--write", str(fewest)], _Flawed) == 1
    assert ast.literal_eval(fewest.read_text()) == [("disk", 1, 0), ("lie", 1, 7)]
    said = capsys.readouterr().out
    assert "step 2 ('lie', 1, 7): AssertionError: planted" in said
    assert f"(2 of 3) are in {fewest}:" in said
    assert main(["--replay", str(fewest)]) == 0, "there is no such fault"
    assert "survived 2 faults" in capsys.readouterr().out


def test_a_seed_gives_the_same_steps_each_time_and_every_kind() -> None:
    steps = random_steps(1, 5000)
    assert steps == random_steps(1, 5000)
    assert steps != random_steps(2, 5000)
    assert {each.kind for each in steps} == KINDS.keys()
    assert all(isinstance(each, Step) for each in steps)


@given(
    steps=st.lists(st.integers(0, 9), max_size=30),
    needed=st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True),
)
def test_what_is_left_still_fails_and_not_one_step_of_it_can_go(steps: list[int], needed: list[int]) -> None:
    steps = [*steps, *needed]

    def fails(some: Sequence[int]) -> bool:
        return set(needed) <= set(some)

    assert sorted(shrunk(steps, fails, most=10_000)) == sorted(needed)
