from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.model.status import Phase
from pyconfd.predecessors.targets.worker import Targets, TargetWorker
from tests.targets.fakes import context, target, told
from tests.world.haproxy import wait_until


def worker(folder: Path, name: str = "web", **changes: object) -> TargetWorker:
    return TargetWorker(target(folder, name, **changes), retry_min_s=0.05, retry_max_s=0.2, tick_s=0.05)


@pytest.fixture
def running() -> Iterator[list[Targets]]:
    started: list[Targets] = []
    yield started
    for targets in started:
        targets.stop()


def start(running: list[Targets], *workers: TargetWorker) -> Targets:
    targets = Targets(workers)
    targets.start(lambda: None)
    running.append(targets)
    return targets


def phases(targets: Targets) -> list[Phase]:
    return [state.phase for state in targets.states()]


def test_nothing_is_done_before_the_first_offer(tmp_path: Path, running: list[Targets]) -> None:
    targets = start(running, worker(tmp_path))

    assert phases(targets) == [Phase.WAITING]
    targets.offer(context(), protect=False)
    wait_until(lambda: phases(targets) == [Phase.SERVING], "served")
    assert told(tmp_path) == 1


def test_a_target_that_hangs_or_fails_keeps_no_other_waiting(tmp_path: Path, running: list[Targets]) -> None:
    over = f"while ! test -e {tmp_path}/over; do sleep 0.05; done; exit 1"
    hanging = worker(tmp_path, "hanging", notify=f"command:{over}")
    broken = worker(tmp_path, "broken", check=("/bin/false",))
    targets = start(running, hanging, broken, worker(tmp_path))
    targets.offer(context(), protect=False)
    wait_until(lambda: targets.states()[2].phase is Phase.SERVING, "the good one serves")

    assert targets.states()[0].phase is Phase.WAITING
    (tmp_path / "over").touch()
    wait_until(lambda: targets.states()[0].phase is Phase.FAILED, "the hanging one failed")
    wait_until(lambda: targets.states()[1].phase is Phase.REJECTED, "the broken one is refused")


def test_a_failed_target_is_tried_again_without_an_event(tmp_path: Path, running: list[Targets]) -> None:
    command = f"command:test -e {tmp_path}/up && echo told >> {tmp_path}/web.log"
    targets = start(running, worker(tmp_path, notify=command))
    targets.offer(context(), protect=False)
    wait_until(lambda: targets.states()[0].failures_total >= 2, "failed twice")
    (tmp_path / "up").touch()
    wait_until(lambda: phases(targets) == [Phase.SERVING], "it recovered")

    assert targets.states()[0].problems == ()
    assert told(tmp_path) == 1


def test_an_edited_template_is_applied_without_an_event(tmp_path: Path, running: list[Targets]) -> None:
    targets = start(running, worker(tmp_path))
    targets.offer(context(), protect=False)
    wait_until(lambda: phases(targets) == [Phase.SERVING], "served")
    (tmp_path / "web.tpl").write_text("edited {{ word }}\n")

    wait_until(lambda: (tmp_path / "web.conf").read_text() == "edited one\n", "the edit is applied")


def test_the_latest_offer_wins(tmp_path: Path, running: list[Targets]) -> None:
    targets = start(running, worker(tmp_path))
    for number in range(50):
        targets.offer(context(str(number)), protect=False)

    wait_until((tmp_path / "web.conf").exists, "a file")
    wait_until(lambda: (tmp_path / "web.conf").read_text() == "word 49\n", "the last one")


def test_a_loss_of_everything_is_held_and_heals(tmp_path: Path, running: list[Targets]) -> None:
    targets = start(running, worker(tmp_path))
    targets.offer(context(), protect=True)
    wait_until(lambda: phases(targets) == [Phase.SERVING], "served")
    targets.offer(context("none", ready=0), protect=True)
    wait_until(lambda: phases(targets) == [Phase.HELD], "held")
    targets.offer(context("two"), protect=True)

    wait_until(lambda: (tmp_path / "web.conf").read_text() == "word two\n", "healed")


def test_a_bug_is_not_silent(tmp_path: Path) -> None:
    one = worker(tmp_path)
    targets = Targets((one,))
    one.bug = ZeroDivisionError()
    with pytest.raises(RuntimeError, match="target web died"):
        targets.states()
