"""What the loop relies on, of the real balancer with a real haproxy and of the fake that stands in for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from pyconfd.daemon.ports import RestoringBalancer
from pyconfd.errors import RejectedInput
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.model.context import EndpointTotals
from pyconfd.model.outcome import Applied, Unchanged
from pyconfd.model.plan import Noop, Reload, ReloadReason
from pyconfd.model.rendering import Rendering
from tests.daemon.fakes import FakeBalancer
from tests.haproxy.bench import Bench, rendering
from tests.world.haproxy import BINARY, HaproxyProcess, configuration


class Subject(Protocol):
    @property
    def balancer(self) -> RestoringBalancer: ...

    def rendering(self, answer: str) -> Rendering: ...

    def edit(self) -> None: ...

    def installed(self) -> str: ...

    def worker(self) -> int: ...

    def stop(self) -> None: ...

    def restart_pyconfd(self) -> None: ...

    def lose_history(self) -> None: ...


class Fake:
    def __init__(self) -> None:
        self.balancer = FakeBalancer()

    def rendering(self, answer: str) -> Rendering:
        return rendering(configuration(8000, answer))

    def edit(self) -> None:
        self.balancer.disk.conf = configuration(8000, "edited")

    def installed(self) -> str:
        return self.balancer.disk.conf or ""

    def worker(self) -> int:
        return self.balancer.disk.worker

    def stop(self) -> None:
        self.balancer.disk.worker = 0

    def restart_pyconfd(self) -> None:
        self.balancer = FakeBalancer(disk=self.balancer.disk)

    def lose_history(self) -> None:
        self.balancer.disk.history.clear()


class Real:
    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        bench.conf.write_text(configuration(bench.port, "before pyconfd"))
        bench.haproxy.start()
        self.balancer = self._started()

    def _started(self) -> Balancer:
        balancer = self.bench.balancer()
        balancer.startup()
        return balancer

    def rendering(self, answer: str) -> Rendering:
        return self.bench.rendering(answer)

    def edit(self) -> None:
        self.bench.conf.write_text(configuration(self.bench.port, "edited"))

    def installed(self) -> str:
        return self.bench.conf.read_text()

    def worker(self) -> int:
        running = self.bench.haproxy.running()
        return running.worker_pid if running else 0

    def stop(self) -> None:
        self.bench.haproxy.stop()

    def restart_pyconfd(self) -> None:
        self.balancer = self._started()

    def lose_history(self) -> None:
        for path in sorted(Path(self.bench.state_dir, "generations").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.haproxy)])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    if request.param == "fake":
        yield Fake()
        return
    if not Path(BINARY).exists():
        pytest.skip("no haproxy binary")
    with HaproxyProcess(tmp_path / "etc") as haproxy:
        bench = Bench(tmp_path, haproxy)
        yield Real(bench)
        bench.close()


def _apply(subject: Subject, wanted: Rendering, *, curdate: str = "today") -> Applied:
    plan = subject.balancer.plan(wanted)
    assert isinstance(plan, Reload), plan
    return subject.balancer.apply(wanted, plan, curdate=curdate, totals=EndpointTotals(3, 5), now=1000.0)


def test_nothing_is_known_at_first(subject: Subject) -> None:
    assert subject.balancer.last_good() is None
    assert subject.balancer.restore_last_good(now=1.0) is None
    plan = subject.balancer.plan(subject.rendering("one"))
    assert isinstance(plan, Reload)
    assert ReloadReason.FIRST_CONFIGURATION in plan.reasons


def test_what_was_applied_serves_is_known_and_needs_nothing_more(subject: Subject) -> None:
    wanted, worker = subject.rendering("one"), subject.worker()
    applied = _apply(subject, wanted)
    generation = applied.generation
    assert applied.verified
    assert (generation.number, generation.digest) == (1, wanted.digest)
    assert (generation.curdate, generation.totals, generation.applied_at) == ("today", EndpointTotals(3, 5), 1000.0)
    assert subject.worker() != worker
    plan = subject.balancer.plan(wanted)
    assert isinstance(plan, Noop)
    assert plan.verified
    assert subject.balancer.last_good() == (generation, wanted)
    assert subject.balancer.restore_last_good(now=2.0) == Unchanged(generation)
    assert _apply(subject, subject.rendering("two")).generation.number == 2


def test_a_restart_knows_the_same(subject: Subject) -> None:
    wanted = subject.rendering("one")
    generation = _apply(subject, wanted).generation
    subject.restart_pyconfd()
    last = subject.balancer.last_good()
    assert last is not None
    assert (last.generation, last.rendering.digest) == (generation, wanted.digest)
    assert isinstance(subject.balancer.plan(wanted), Noop)


def test_what_is_turned_away_changes_nothing(subject: Subject) -> None:
    wanted = subject.rendering("one")
    _apply(subject, wanted)
    worker = subject.worker()
    bad = rendering(wanted.text, "backend be_x\n    blance roundrobin\n")
    with pytest.raises(RejectedInput) as caught:
        _apply(subject, bad)
    assert caught.value.step == "check"
    assert caught.value.problems[0].place.startswith("02-part.tmpl rendered line 2")
    assert subject.worker() == worker
    assert isinstance(subject.balancer.plan(wanted), Noop)
    assert subject.balancer.last_good() is not None


def test_an_edited_file_is_seen_and_the_last_good_one_brought_back_under_its_number(subject: Subject) -> None:
    wanted = subject.rendering("one")
    generation = _apply(subject, wanted).generation
    written = subject.installed()
    subject.edit()
    plan = subject.balancer.plan(wanted)
    assert isinstance(plan, Reload)
    assert ReloadReason.FILE_EDITED in plan.reasons
    restored = subject.balancer.restore_last_good(now=2.0)
    assert isinstance(restored, Applied)
    assert restored.generation == generation
    assert subject.installed() == written
    assert isinstance(subject.balancer.plan(wanted), Noop)


def test_a_stop_is_seen(subject: Subject) -> None:
    wanted = subject.rendering("one")
    _apply(subject, wanted)
    assert subject.balancer.runs()
    subject.stop()
    assert not subject.balancer.runs()
    plan = subject.balancer.plan(wanted)
    assert isinstance(plan, Reload)
    assert plan.reasons == (ReloadReason.PROCESS_BEHIND,)


def test_with_the_history_lost_what_runs_already_is_recorded_without_a_reload(subject: Subject) -> None:
    wanted = subject.rendering("one")
    _apply(subject, wanted)
    worker = subject.worker()
    subject.lose_history()
    subject.restart_pyconfd()
    assert subject.balancer.last_good() is None
    applied = _apply(subject, wanted)
    assert applied.verified
    assert applied.generation.number == 1
    assert subject.worker() == worker
    assert isinstance(subject.balancer.plan(wanted), Noop)


def test_a_long_apply_shows_its_progress(subject: Subject) -> None:
    beats: list[int] = []
    subject.balancer.report_progress(lambda: beats.append(1))
    _apply(subject, subject.rendering("one"))
    assert len(beats) >= 2
