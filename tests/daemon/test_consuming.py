"""The loop of a consumer, step by step, with a clock that the test moves."""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
import structlog.testing

from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.daemon.base_loop import EXIT_BUG, run_until_stopped
from pyconfd.daemon.consuming import Consumer, ConsumerWorld
from pyconfd.errors import ApplyError, Problem, RejectedInput
from pyconfd.etcd.local import LocalFiles
from pyconfd.etcd.publication import KnownGeneration, Published, pack
from pyconfd.etcd.source import PublicationReading, PublishedSource
from pyconfd.model.plan import ReloadReason
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.model.status import Phase, SourceHealth, Status
from pyconfd.settings import ApplySettings
from tests.daemon.fakes import DEAD, DISRUPTIVE, FAILING, TAKEN, FakeBalancer, FakeClock, FakeNotifier


class FakePublications(PublishedSource):
    def __init__(self) -> None:
        self.current: PublicationReading | None = None
        self.stopped = False
        self.notify: Callable[[], None] = lambda: None
        self.bug: Exception | None = None

    def start(self, notify: Callable[[], None]) -> None:
        self.notify = notify

    def reading(self) -> PublicationReading | None:
        if self.bug:
            raise self.bug
        return self.current

    def health(self) -> SourceHealth:
        return SourceHealth(synced=self.current is not None)

    def relist(self) -> None:
        pass

    def stop(self) -> None:
        self.stopped = True


class FakeMemory(KnownGeneration):
    def __init__(self) -> None:
        self.taken = (0, "")

    def load(self) -> tuple[int, str]:
        return self.taken

    def save(self, number: int, digest: str) -> None:
        self.taken = (number, digest)


class ConsumerBed:
    """A Consumer with fakes around it."""

    def __init__(self, **apply: float) -> None:
        self.clock = FakeClock()
        self.source = FakePublications()
        self.notifier = FakeNotifier()
        self.balancer = FakeBalancer(self.clock)
        self.memory = FakeMemory()
        self.allowed: set[str] = set()
        self.others: tuple[Problem, ...] = ()
        self.published: list[Status] = []
        world = ConsumerWorld(
            source=self.source,
            balancer=self.balancer,
            notifier=self.notifier,
            clock=self.clock,
            taken=self.memory,
            files=LocalFiles("/files"),
            allowed_holds=lambda: frozenset(self.allowed),
            forget_holds=self.allowed.clear,
            publish=self.published.append,
            other_problems=lambda: self.others,
        )
        settings = replace(ApplySettings(), **apply)  # type: ignore[arg-type]
        self.consumer = Consumer(world, settings, RemovalRules(), version="0", pid=1)
        self.consumer.start()

    @property
    def status(self) -> Status:
        return self.consumer.status()

    def phase(self) -> Phase:
        return self.status.phase

    def problems(self) -> tuple[str, ...]:
        return self.status.problems

    def show(self, number: int, *servers: str) -> None:
        """Publish a text with these servers."""
        text = "backend b\n" + "".join(f"    server {server} {server}:80\n" for server in servers)
        rendering = Rendering((Piece("01.conf", f"# {number}\n{text}"),))
        pointer = msgspec.structs.replace(pack(rendering, "/files").pointer, number=number, curdate="today")
        self.source.current = PublicationReading(Published(pointer, rendering.pieces, (), ()))
        self.source.notify()

    def run_for(self, seconds: float) -> None:
        """Let time pass as the runner would; fails where the loop spins."""
        end = self.clock.monotonic() + seconds
        for _ in range(20 + int(seconds * 8)):
            self.consumer.step(self.consumer.mailbox.take(0.0))
            left = end - self.clock.monotonic()
            wait_s = self.consumer.wait_s()
            if wait_s >= left:
                self.clock.advance(max(left, 0.0))
                return
            self.clock.advance(wait_s)
        raise AssertionError("the loop spins")


def serving(**apply: float) -> ConsumerBed:
    bed = ConsumerBed(**apply)
    bed.show(1, "192.0.2.1")
    bed.run_for(3)
    assert (bed.phase(), bed.status.verified) == (Phase.SERVING, True)
    return bed


def held() -> ConsumerBed:
    bed = serving()
    bed.show(2)
    bed.run_for(7)
    assert bed.phase() is Phase.HELD
    return bed


def test_ready_is_said_once() -> None:
    bed = serving()
    bed.show(2, "192.0.2.2")
    bed.run_for(3)
    assert bed.notifier.readies == ["READY serving generation 1"]
    assert bed.notifier.said[-1] == "serving generation 2"
    assert bed.status.reloads_by_reason[ReloadReason.FIRST_CONFIGURATION] == 1


def test_the_watchdog_is_fed_each_second_and_during_a_long_apply() -> None:
    bed = serving()
    fed = bed.notifier.fed
    bed.run_for(10)
    assert bed.notifier.fed - fed >= 9
    bed.balancer.takes_s = 200
    fed, beat = bed.notifier.fed, bed.status.heartbeat_at
    bed.show(2, "192.0.2.2")
    bed.run_for(1)
    assert bed.notifier.fed - fed >= 2
    assert bed.status.heartbeat_at >= beat + 100


def test_the_last_good_one_is_kept_up_in_every_phase() -> None:
    failing = serving(retry_min_s=500, retry_max_s=500)
    failing.balancer.broken = FAILING
    failing.show(2, "192.0.2.2")
    failing.run_for(7)
    failing.balancer.broken = None
    for bed, phase in ((serving(), Phase.SERVING), (held(), Phase.HELD), (failing, Phase.FAILED)):
        bed.balancer.disk.conf = "edited by hand"
        bed.run_for(7)
        assert bed.balancer.disk.conf != "edited by hand"
        assert bed.phase() is phase


def test_an_attempt_that_costs_traffic_is_not_repeated_soon_whatever_is_published() -> None:
    bed = serving(retry_min_s=1, retry_max_s=60)
    bed.balancer.broken = DISRUPTIVE
    for number in range(2, 42):
        bed.show(number, "192.0.2.2")
        bed.run_for(1)
    assert len(bed.balancer.attempts) == 2
    bed.balancer.broken = None
    bed.run_for(60)
    assert (bed.phase(), bed.memory.taken[0]) == (Phase.SERVING, 41)


def test_what_is_published_next_is_tried_at_once_where_a_failure_cost_nothing() -> None:
    bed = serving(retry_min_s=60)
    bed.balancer.broken = FAILING
    bed.show(2, "192.0.2.2")
    bed.run_for(2)
    assert bed.status.failures_by_step == {"reload": 1}
    bed.balancer.broken = None
    bed.show(3, "192.0.2.3")
    bed.run_for(2)
    assert (bed.phase(), bed.memory.taken[0]) == (Phase.SERVING, 3)


def test_readings_of_the_same_publication_neither_hurry_nor_postpone_a_retry() -> None:
    bed = serving(retry_min_s=10)
    bed.balancer.broken = FAILING
    bed.show(2, "192.0.2.2")
    for _ in range(9):
        bed.source.notify()
        bed.run_for(1)
    assert len(bed.balancer.attempts) == 2
    bed.balancer.broken = None
    for _ in range(3):
        bed.source.notify()
        bed.run_for(1)
    assert bed.phase() is Phase.SERVING


@pytest.mark.parametrize(("broken", "phase"), [(DEAD, Phase.FAILED), (TAKEN, Phase.REJECTED)])
def test_a_haproxy_that_is_started_by_hand_ends_the_waiting(broken: ApplyError | RejectedInput, phase: Phase) -> None:
    """The former haproxy, with another configuration, may have the ports until it is restarted."""
    bed = ConsumerBed(retry_min_s=60)
    bed.balancer.disk.worker = 0
    bed.balancer.broken = broken
    bed.show(1, "192.0.2.1")
    bed.run_for(3)
    assert bed.phase() is phase
    bed.balancer.broken = None
    bed.balancer.disk.load()
    bed.run_for(6)
    assert bed.phase() is Phase.SERVING


def test_a_last_good_generation_that_cannot_be_brought_back_is_said_once_and_tried_again() -> None:
    first = serving()
    bed = ConsumerBed(boot_wait_s=1)
    bed.balancer.disk = first.balancer.disk
    bed.balancer.disk.worker, bed.balancer.disk.loaded = 0, None
    bed.balancer.broken = DEAD
    with structlog.testing.capture_logs() as logs:
        bed.run_for(20)
        assert bed.phase() is Phase.WAITING
        assert "is not running" in bed.problems()[0]
        bed.balancer.broken = None
        bed.run_for(60)
    assert (bed.phase(), bed.problems()) == (Phase.SERVING_LAST_GOOD, ())
    events = ["last_good.failed", "start.decided", "problem.cleared", "generation.restored"]
    assert [line["event"] for line in logs] == events
    assert logs[-1]["reasons"] == ["process_behind"]


def test_a_permission_that_was_not_needed_is_taken_back() -> None:
    bed = held()
    bed.allowed.add(bed.status.hold_id)
    bed.show(1, "192.0.2.1")
    bed.run_for(3)
    assert (bed.phase(), bed.status.hold_id, bed.allowed) == (Phase.SERVING, "", set())


def test_other_problems_are_shown_as_long_as_they_last() -> None:
    bed = serving()
    bed.others = (Problem("status.listen", "port 9101 is taken"),)
    bed.run_for(2)
    assert bed.problems() == ("status.listen: port 9101 is taken",)
    assert bed.published[-1].problems == bed.problems()
    bed.others = ()
    bed.run_for(2)
    assert bed.problems() == ()


def test_a_bug_ends_it_with_all_closed() -> None:
    bed = serving()
    bed.source.bug = RuntimeError("a reader died")
    bed.source.notify()
    with structlog.testing.capture_logs() as logs:
        assert run_until_stopped(bed.consumer) == EXIT_BUG
    assert bed.source.stopped
    assert "loop.crashed" in [line["event"] for line in logs]


def test_the_loss_of_most_servers_waits_and_is_then_believed() -> None:
    bed = ConsumerBed()
    servers = [f"192.0.2.{number}" for number in range(10)]
    bed.show(1, *servers)
    bed.run_for(3)
    assert bed.phase() is Phase.SERVING
    bed.show(2, *servers[:4])
    bed.run_for(30)
    assert bed.phase() is Phase.HELD
    assert "6 of 10 servers would be gone at once" in bed.problems()[0]
    assert "192.0.2.9" in (bed.balancer.disk.conf or "")
    bed.run_for(40)
    assert bed.phase() is Phase.SERVING
    assert "192.0.2.9" not in (bed.balancer.disk.conf or "")


def test_the_loss_of_most_servers_can_be_allowed() -> None:
    bed = ConsumerBed()
    servers = [f"192.0.2.{number}" for number in range(10)]
    bed.show(1, *servers)
    bed.run_for(3)
    bed.show(2, *servers[:4])
    bed.run_for(3)
    bed.allowed.add(bed.status.hold_id)
    bed.run_for(3)
    assert bed.phase() is Phase.SERVING
    assert "192.0.2.9" not in (bed.balancer.disk.conf or "")


def test_servers_that_were_taken_out_before_they_went_are_no_loss() -> None:
    bed = ConsumerBed()
    servers = [f"192.0.2.{number}" for number in range(10)]
    bed.show(1, *servers)
    bed.run_for(3)
    bed.show(2, *servers[:2], *(f"{server} {server}:80 weight 0 #" for server in servers[2:]))
    bed.run_for(3)
    assert bed.phase() is Phase.SERVING
    bed.show(3, *servers[:2])
    bed.run_for(3)
    assert bed.phase() is Phase.SERVING
