"""The loop of a consumer, step by step, with a clock that the test moves."""

from collections.abc import Callable
from dataclasses import replace

import msgspec

from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.model.status import Phase, SourceHealth
from pyconfd.predecessors.etcd.consuming import Consumer, ConsumerWorld
from pyconfd.predecessors.etcd.local import LocalFiles
from pyconfd.predecessors.etcd.publication import KnownGeneration, Publication, pack
from pyconfd.predecessors.etcd.source import PublicationReading, PublishedSource
from pyconfd.settings import ApplySettings
from tests.daemon.fakes import DISRUPTIVE, FAILING, LoopBed


class FakePublications(PublishedSource):
    def __init__(self) -> None:
        self.current: PublicationReading | None = None
        self.notify: Callable[[], None] = lambda: None

    def start(self, notify: Callable[[], None]) -> None:
        self.notify = notify

    def reading(self) -> PublicationReading | None:
        return self.current

    def health(self) -> SourceHealth:
        return SourceHealth(synced=self.current is not None)

    def relist(self) -> None:
        pass

    def stop(self) -> None:
        pass


class FakeMemory(KnownGeneration):
    def __init__(self) -> None:
        self.taken = (0, "")

    def load(self) -> tuple[int, str]:
        return self.taken

    def save(self, number: int, digest: str) -> None:
        self.taken = (number, digest)


class ConsumerBed(LoopBed):
    """A Consumer; what it has in common with the daemon is tested with that one."""

    def __init__(self, **apply: float) -> None:
        super().__init__()
        self.source = FakePublications()
        self.memory = FakeMemory()
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
        )
        settings = replace(ApplySettings(), **apply)  # type: ignore[arg-type]
        self.loop = Consumer(world, settings, RemovalRules(), version="0", pid=1)
        self.loop.start()

    def show(self, number: int, *servers: str) -> None:
        """Publish a text with these servers."""
        text = "backend b\n" + "".join(f"    server {server} {server}:80\n" for server in servers)
        rendering = Rendering((Piece("01.conf", f"# {number}\n{text}"),))
        pointer = msgspec.structs.replace(pack(rendering, "/files").pointer, number=number, curdate="today")
        self.source.current = PublicationReading(Publication(pointer, rendering.pieces, (), ()))
        self.source.notify()


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


def test_a_permission_that_was_not_needed_is_taken_back() -> None:
    bed = held()
    bed.allowed.add(bed.status.hold_id)
    bed.show(1, "192.0.2.1")
    bed.run_for(3)
    assert (bed.phase(), bed.status.hold_id, bed.allowed) == (Phase.SERVING, "", set())


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
