"""Former workers at their bound: which one makes room, and that nobody else is touched by its end."""

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest

from pyconfd.haproxy.config.text import hard_stop_after
from pyconfd.haproxy.process import balancer as balancer_module
from pyconfd.haproxy.process import haproxy_process, old_workers
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.observation import OldWorker, Running
from pyconfd.haproxy.process.old_workers import ENDS_WITHIN_S, LEFT_ALONE_S, REGAINED_S, OldWorkers, to_end
from pyconfd.haproxy.runtime.sockets import NoAnswer
from pyconfd.model.changes import EndedWorker, FormerWorkers, RoomForReload
from pyconfd.model.plan import Noop
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.model.reservation import Name, Owner, namespaces_of_changes
from tests.haproxy.bench import Bench, apply
from tests.world.haproxy import configuration, fetch, wait_until

EVIL, SHOP = frozenset({"evil"}), frozenset({"shop"})


def old(*replaced_s: float) -> list[OldWorker]:
    return [OldWorker(number, 1000.0, since) for number, since in enumerate(replaced_s, start=1)]


@pytest.mark.parametrize(
    ("found", "causes", "expected"),
    [
        (old(300.0, 200.0, 100.0), {}, 1),
        (old(100.0, 300.0, 200.0), {}, 2),
        # Who replaced most of them ends his own first, however old those of others are.
        (old(300.0, 200.0, 100.0), {1: SHOP, 2: EVIL, 3: EVIL}, 2),
        (old(300.0, 200.0, 100.0), {1: EVIL, 2: SHOP, 3: frozenset()}, 1),
        (old(300.0, 200.0, 100.0), {2: EVIL | SHOP, 3: EVIL}, 2),
        # All have their time, and his that are not ripe yet save nobody's: the oldest goes.
        (old(300.0, LEFT_ALONE_S - 1, 1.0), {1: SHOP, 2: EVIL, 3: EVIL}, 1),
        (old(LEFT_ALONE_S - 1, 1.0), {}, None),
        (old(LEFT_ALONE_S), {}, 1),
        ([], {}, None),
    ],
)
def test_who_makes_room(found: list[OldWorker], causes: Mapping[int, frozenset[str]], expected: int | None) -> None:
    chosen = to_end(found, causes)
    assert (chosen.pid if chosen else None) == expected


def test_another_worker_is_ended_only_where_the_first_one_hangs() -> None:
    workers = OldWorkers(2)

    def end() -> OldWorker | None:
        chosen = workers.next_to_end()
        if chosen is not None:
            workers.ended(chosen)
        return chosen

    workers.see(tuple(old(300.0, 200.0)))
    assert workers.at_bound
    assert (end(), end()) == (OldWorker(1), None)
    workers.see(tuple(old(299.0 + ENDS_WITHIN_S, 199.0 + ENDS_WITHIN_S)))
    assert end() is None  # it may still be on its way
    workers.see(tuple(old(300.0 + ENDS_WITHIN_S, 200.0 + ENDS_WITHIN_S)))
    assert (end(), end()) == (OldWorker(2), None)
    workers.see(tuple(old(300.0 + 2 * ENDS_WITHIN_S, 200.0 + 2 * ENDS_WITHIN_S)))
    assert end() is None  # each once


def test_namespace_has_half_of_the_bound_and_a_change_of_another_too() -> None:
    workers = OldWorkers(4)
    for pid in (1, 2):
        assert workers.has_share(EVIL, 0.0)
        workers.replaced(pid, EVIL, 0.0)
    assert not workers.has_share(EVIL, 100.0)
    assert workers.has_share(SHOP, 100.0)
    assert workers.has_share(EVIL | SHOP, 100.0)
    assert workers.has_share(frozenset(), 100.0)
    workers.see((OldWorker(2),))
    assert workers.has_share(EVIL, 100.0)
    assert OldWorkers(1).has_share(EVIL, 0.0)


def test_namespace_regains_a_reload_with_time_though_its_workers_end_at_once() -> None:
    """Each reload closes connections of everybody, and resets what health checks have found."""
    workers = OldWorkers(4)
    for pid, at in ((1, 0.0), (2, 1.0)):
        assert workers.has_share(EVIL, at)
        workers.replaced(pid, EVIL, at)
        workers.see(())
    whole = 2 * REGAINED_S
    assert not workers.has_share(EVIL, whole - 0.1)
    assert workers.has_share(SHOP, whole - 0.1)
    assert workers.has_share(EVIL | SHOP, whole - 0.1)
    assert workers.has_share(EVIL, whole)
    workers.replaced(3, EVIL, whole)
    workers.see(())
    assert not workers.has_share(EVIL, whole + 0.9)
    assert workers.has_share(EVIL, whole + 1.0)


def test_namespace_with_its_share_reloads_again_when_it_has_not_for_a_while() -> None:
    """Or who holds a session in each worker stops the new names of everybody else."""
    workers = OldWorkers(4)
    for pid in (1, 2):
        workers.replaced(pid, EVIL, 0.0)
    workers.see((OldWorker(1, 1000.0, 900.0), OldWorker(2, 1000.0, LEFT_ALONE_S - 0.1)))
    assert not workers.has_share(EVIL, 900.0)
    workers.see((OldWorker(1, 1000.0, 900.0), OldWorker(2, 1000.0, LEFT_ALONE_S)))
    assert workers.has_share(EVIL, 900.0)
    workers.replaced(3, EVIL, 900.0)
    assert not workers.has_share(EVIL, 900.0)
    workers.replaced(4, SHOP, 900.0)
    assert workers.has_share(SHOP, 900.0)


def test_causes_are_kept_as_long_as_their_worker() -> None:
    workers = OldWorkers(3)
    workers.replaced(1, EVIL, 0.0)
    workers.replaced(0, SHOP, 0.0)  # it was not known which one
    assert len(workers.known) == 2
    assert workers.causes_of(1) == ("evil",)
    workers.see(tuple(old(5.0)))
    assert workers.causes_of(1) == ("evil",)
    workers.see(())
    assert workers.causes_of(1) == ()


def test_the_last_one_ends_when_its_own_time_is_over() -> None:
    workers = OldWorkers(3)
    assert workers.ends_s(600.0) is None
    workers.see(tuple(old(300.0, 200.0)))
    assert (workers.ends_s(600.0), workers.ends_s(100.0), workers.ends_s(None)) == (400.0, 0.0, None)


def test_whose_names_changed() -> None:
    def owner(namespace: str, name: str = "web") -> Owner:
        return Owner("Service", namespace, name, "2026-01-01T00:00:00Z")

    a, b, c = (Name("", f"{letter}.example.com") for letter in "abc")
    before = {"domains": {a: owner("shop"), b: owner("old")}, "gone": {a: owner("away")}}
    after = {"domains": {a: owner("shop"), b: owner("new"), c: owner("evil")}}
    assert namespaces_of_changes(before, after) == {"old", "new", "evil", "away"}
    assert namespaces_of_changes(after, {"domains": dict(after["domains"])}) == frozenset()


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connections(port: int, held: ExitStack) -> list[socket.socket]:
    """Open what ``shutdown session`` would leave: nothing sent, half a request, and an idle connection."""
    found = [held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)) for _ in range(3)]
    found[1].sendall(b"GET / HTTP/1.1\r\nHos")
    found[2].sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert found[2].recv(65536).startswith(b"HTTP/1.1 200")
    return found


@pytest.mark.haproxy
def test_the_one_that_makes_room_ends_at_once_and_no_other(
    bench: Bench, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_workers, "LEFT_ALONE_S", 3600.0)
    bench.serve()
    balancer = bench.balancer(max_old_workers=2)

    def serve(answer: str, namespace: str) -> list[socket.socket]:
        """Hold connections to the worker, and replace it for a name of ``namespace``."""
        kept = connections(bench.port, held)
        owner = Owner("Service", namespace, answer, "2026-01-01T00:00:00Z")
        owners = {"domains": {Name("", answer): owner}}
        apply(balancer, Rendering((Piece("01.tmpl", configuration(bench.port, answer)),), owners=owners))
        return kept

    assert balancer.make_room().free
    first, second = serve("second", "shop"), serve("third", "evil")
    latest = connections(bench.port, held)
    room = balancer.make_room()
    assert (room.free, room.ended) == (False, None)  # each has its time
    monkeypatch.setattr(old_workers, "LEFT_ALONE_S", 0.0)
    ended_by(balancer)
    wait_until(lambda: balancer.make_room().free, "there is room")
    for each in first:
        assert each.recv(1) == b""
    for each in second + latest:
        each.settimeout(0.05)
        with pytest.raises(TimeoutError):
            each.recv(1)
    assert fetch(bench.port) == "third"
    # It is the master that goes on, and its count of failures.
    running = bench.haproxy.running()
    assert running is not None
    assert (running.failed_reloads, len(running.old_workers)) == (0, 1)


@pytest.mark.haproxy
def test_namespace_reloads_again_when_a_worker_that_it_left_has_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_workers, "LEFT_ALONE_S", 3600.0)
    bench.serve()
    balancer = bench.balancer(max_old_workers=4)
    names: dict[Name, Owner] = {}

    def serve(answer: str, namespace: str) -> None:
        names[Name("", answer)] = Owner("Service", namespace, answer, "2026-01-01T00:00:00Z")
        text = configuration(bench.port, answer)
        apply(balancer, Rendering((Piece("01.tmpl", text),), owners={"domains": dict(names)}))
        assert isinstance(balancer.refresh(), Noop)

    with ExitStack() as held:
        for answer in ("one", "two"):
            connections(bench.port, held)
            serve(answer, "evil")
        assert balancer.may_reload_for(EVIL)  # nobody else is there who could wait
        connections(bench.port, held)
        serve("three", "shop")
        assert not balancer.may_reload_for(EVIL)
        assert balancer.may_reload_for(SHOP)
        assert balancer.may_reload_for(EVIL | SHOP)
    wait_until(lambda: balancer.may_reload_for(EVIL), "the sessions have ended, and so the workers")


def ended_by(balancer: Balancer) -> EndedWorker:
    """Return the worker that makes room; just after a reload the master may refuse for a moment."""
    found: list[EndedWorker] = []

    def is_ended() -> bool:
        found.extend(filter(None, [balancer.make_room().ended]))
        return bool(found)

    wait_until(is_ended, "a worker is ended")
    return found[0]


@pytest.mark.haproxy
def test_worker_that_could_not_be_ended_is_ended_at_the_next_try(
    bench: Bench, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a master that refused once, as it does while it reloads, would keep reloads waiting for good."""
    monkeypatch.setattr(old_workers, "LEFT_ALONE_S", 0.0)
    bench.serve()
    balancer = bench.balancer(max_old_workers=1)
    balancer.refresh()
    connections(bench.port, held)
    apply(balancer, bench.rendering("new"))

    def refuse(path: str, pid: int) -> int:
        raise NoAnswer(path, OSError("connection refused"))

    with monkeypatch.context() as during:
        during.setattr(haproxy_process, "end_worker", refuse)
        assert balancer.make_room() == RoomForReload(free=False)
    assert ended_by(balancer).connections == 3


@pytest.mark.haproxy
def test_what_is_said_of_the_one_that_was_ended(bench: Bench, held: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_workers, "LEFT_ALONE_S", 0.0)
    bench.serve()
    balancer = bench.balancer(max_old_workers=1)
    worker = bench.haproxy.worker()
    balancer.refresh()
    connections(bench.port, held)
    owner = Owner("Service", "evil", "web", "2026-01-01T00:00:00Z")
    names = {"domains": {Name("", "new.example.com"): owner}}
    apply(balancer, Rendering((Piece("01.tmpl", configuration(bench.port, "new")),), owners=names))
    ended = ended_by(balancer)
    assert (ended.pid, ended.connections, ended.workers, ended.namespaces) == (worker, 3, 1, ("evil",))


@pytest.mark.haproxy
def test_whose_reloads_left_workers_is_known_though_the_master_is_silent_for_a_moment(
    bench: Bench, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_workers, "LEFT_ALONE_S", 0.0)
    bench.serve()
    balancer = bench.balancer(max_old_workers=1)
    balancer.refresh()
    connections(bench.port, held)
    owner = Owner("Service", "evil", "web", "2026-01-01T00:00:00Z")
    socket_line = f"stats socket {bench.haproxy.stats_socket} level admin"
    text = configuration(bench.port, "new", global_lines=socket_line)
    apply(balancer, Rendering((Piece("01.tmpl", text),), owners={"domains": {Name("", "new.example.com"): owner}}))

    def silent(path: str) -> Running:
        raise NoAnswer(path, OSError("connection refused"))

    with monkeypatch.context() as during:
        during.setattr(haproxy_process, "running_by_master", silent)
        assert isinstance(balancer.observe().running, Running)
    assert ended_by(balancer).namespaces == ("evil",)
    monkeypatch.setattr(balancer_module, "_MASTER_SILENT_S", -1.0)
    monkeypatch.setattr(haproxy_process, "running_by_master", silent)
    assert balancer.make_room().free, "a HAProxy without a master has no old workers that could be counted"


@pytest.mark.haproxy
def test_what_former_workers_have_left_is_counted(bench: Bench, held: ExitStack) -> None:
    bench.serve()
    balancer = bench.balancer()
    balancer.refresh()
    assert balancer.sync().former == FormerWorkers()
    kept = connections(bench.port, held)
    extra = bench.rendering("new").pieces
    hard_stop = Piece("02.tmpl", "global\n    hard-stop-after 10m\n")
    apply(balancer, Rendering((*extra, hard_stop)))
    former = wait_for_former(balancer)
    assert (former.count, former.connections) == (1, 3)
    now = time.time()
    assert 0.0 < former.oldest_since <= now
    assert now < former.last_ends_at <= now + 600.0
    for each in kept:
        each.close()
    wait_until(lambda: balancer.sync().former == FormerWorkers(), "it ends with its connections")


def wait_for_former(balancer: Balancer) -> FormerWorkers:
    """Return what is known of former workers once they were counted; a look comes when the last one was cheap."""
    found = [FormerWorkers()]

    def counted() -> bool:
        found.append(balancer.sync().former)
        return found[-1].count > 0

    wait_until(counted, "it is counted")
    return found[-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("global\n    hard-stop-after 10m\n", 600.0),
        ("global\n\thard-stop-after 500 # ms\n", 0.5),
        ("global\n    hard-stop-after 2h\n    hard-stop-after 90s\n", 90.0),
        ("global\n    # hard-stop-after 10m\n", None),
        ("", None),
    ],
)
def test_when_haproxy_ends_a_replaced_worker(text: str, expected: float | None) -> None:
    assert hard_stop_after(text) == expected
